"""The numbers of a cache file that a pin changes and unpinning restores. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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

    A raised number contains its original. An `Infinity` for a choice with a known time counts only
    beside a number that is new: an old copy of the file, from when pins wrote `Infinity`, may have
    brought it back. Under a pin of that older version only the pinned choice can have failed.
    """
    tokens: Tokens = {precision: dict(texts) for precision, texts in record.tokens.items()}
    for precision, numbers in stored.items():
        texts = tokens.setdefault(precision, {})
        new = {
            name: _original(token, texts.get(name))
            for name, token in numbers.items()
            if token.value != math.inf
        }
        if _is_tuned_anew(texts, numbers):
            failed = numbers.keys() - new.keys()
            texts |= dict.fromkeys(failed if record.raised else failed & record.hashes, INFINITY)
        for name in numbers:
            texts.setdefault(name, INFINITY)
        texts.update(new)
    return record if tokens == record.tokens else replace(record, tokens=tokens)


def _is_tuned_anew(texts: Mapping[str, str], numbers: Mapping[str, Token]) -> bool:
    """Return whether some choice was timed since `texts` were saved. Our raised numbers do not show
    it: an old copy of the file may have brought them back."""
    return any(
        math.isfinite(token.value)
        and not is_raised(token.value)
        and not (name in texts and _same(token.text, texts[name]))
        for name, token in numbers.items()
    )


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


def is_timed(record: PinRecord) -> bool:
    """Return whether the pinned choice was ever timed here; before that a pin waits."""
    names, texts = record.hashes, record.tokens.values()
    return any(is_time(each.get(name, INFINITY)) for each in texts for name in names)


def changes_to_release(record: PinRecord, stored: Numbers) -> Changes:
    """Return the changes that release a pin: each number that it changed becomes the old text. Only
    a pin of an older version changed a number to `Infinity`."""
    changes: Changes = {}
    for precision, numbers in stored.items():
        texts = record.tokens.get(precision, {})
        believed = record.raised and _is_tuned_anew(texts, numbers)
        for name, token in numbers.items():
            saved = texts.get(name, INFINITY)
            if is_raised(token.value):
                changes[token] = _original(token, saved)
            elif token.value == math.inf and float(saved) != math.inf and not believed:
                changes[token] = saved
    return changes


def came_back(record: PinRecord, stored: Numbers) -> bool:
    """Return whether a released pin's numbers are in the file again, written by a process with an
    old copy: some are raised, or, as an older version held a pin, all losers that had a time are
    `Infinity` and nothing was timed since."""
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
        and not _is_tuned_anew(texts, numbers)
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
