"""The numbers of a cache file that a pin changes and unpinning restores. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from backend.cache.autotune import (
    INFINITY,
    CacheText,
    Numbers,
    Token,
    is_raised,
    measured_text,
    raise_ms,
    raised_text,
)
from backend.model.origin import is_own
from backend.pins.file import PinRecord, Tokens

Changes = dict[Token, str]


def learn(record: PinRecord, stored: Numbers) -> PinRecord:
    """Return `record` updated with the numbers of `stored`, which unpinning will restore.

    A raised number contains its original. An `Infinity` for a choice with a known time is ignored:
    an old copy of the file, from when pins wrote `Infinity`, may have brought it back. A choice
    counts as failed only if the pinned choice was measured again, or is itself infinite beside new
    times.
    """
    tokens: Tokens = {precision: dict(texts) for precision, texts in record.tokens.items()}
    for precision, numbers in stored.items():
        texts = tokens.setdefault(precision, {})
        new = {
            name: _original(token, texts.get(name))
            for name, token in numbers.items()
            if token.value != math.inf
        }
        again = record.raised and any(
            name in new and name in texts and new[name] != texts[name] for name in record.hashes
        )
        news = any(texts.get(name) != text for name, text in new.items())
        for name in numbers.keys() - new.keys():
            if again or (news and name in record.hashes):
                texts[name] = INFINITY
        for name in numbers:
            texts.setdefault(name, INFINITY)
        texts.update(new)
    return record if tokens == record.tokens else replace(record, tokens=tokens)


def _original(token: Token, saved: str | None) -> str:
    """Return the original text of a number: the saved text if it gives this number."""
    if not is_raised(token.value):
        return token.text
    same = saved is not None and raise_ms(float(saved)) == token.value
    return saved if saved is not None and same else measured_text(token.text)


def changes_to_hold(record: PinRecord, stored: Numbers) -> Changes:
    """Return the changes that make the pinned choice win, given a record updated by `learn`.

    Rivals on all devices are raised: ATen's choices have the same hash on each, and a device that
    does not offer the pinned kernel keeps its own order. Nothing is raised in a precision in which
    the pinned choice is missing or failed, nor for a choice of our templates: only processes with
    them offer it, and there our selector honours the pin.
    """
    changes: Changes = {}
    for precision, numbers in stored.items():
        held = is_held(record, stored, precision) and not is_own(record.hash)
        for name, token in numbers.items():
            original = record.tokens[precision][name]
            wanted = raised_text(original) if held and name not in record.hashes else original
            if not _same(token.text, wanted):
                changes[token] = wanted
    return changes


def is_held(record: PinRecord, stored: Numbers, precision: str) -> bool:
    """Return whether the pinned choice can win in `precision`: it has a time on some device."""
    texts = record.tokens.get(precision, {})
    return any(
        name in stored[precision] and is_time(texts.get(name, INFINITY)) for name in record.hashes
    )


def changes_to_release(record: PinRecord, stored: Numbers) -> Changes:
    """Return the changes that release a pin: each number that it changed becomes the old text."""
    changes: Changes = {}
    for precision, numbers in stored.items():
        for name, token in numbers.items():
            saved = record.tokens.get(precision, {}).get(name)
            if is_raised(token.value):
                changes[token] = _original(token, saved)
            elif token.value == math.inf and saved is not None and float(saved) != math.inf:
                changes[token] = saved
    return changes


def came_back(record: PinRecord, stored: Numbers) -> bool:
    """Return whether a released pin's numbers are in the file again, written by a process with an
    old copy: some are raised, or, for a pin of an older version, all losers that had a time are
    `Infinity` and the choice has its own."""
    return any(
        is_raised(token.value) for numbers in stored.values() for token in numbers.values()
    ) or any(
        _all_infinite(record, precision, texts, stored)
        for precision, texts in record.tokens.items()
    )


def _all_infinite(
    record: PinRecord, precision: str, texts: dict[str, str], stored: Numbers
) -> bool:
    numbers = stored.get(precision, {})
    losers = [name for name, text in texts.items() if name not in record.hashes and is_time(text)]
    own = (numbers[name].value for name in record.hashes if name in numbers)
    return (
        bool(losers)
        and any(value != math.inf for value in own)
        and all(name in numbers and numbers[name].value == math.inf for name in losers)
    )


def changes_of_strays(stored: Numbers) -> Changes:
    """Return the changes that lower numbers raised for a pin that is no longer recorded."""
    return {
        token: measured_text(token.text)
        for numbers in stored.values()
        for token in numbers.values()
        if is_raised(token.value)
    }


def is_time(text: str) -> bool:
    """Return whether the text of a number is a measured time: finite."""
    return math.isfinite(float(text))


def edited(text: CacheText, changes: Iterable[Changes]) -> bytes:
    """Return the content of the file with all `changes`."""
    return text.replace({token: new for some in changes for token, new in some.items()})


def _same(first: str, second: str) -> bool:
    return first == second or float(first) == float(second)
