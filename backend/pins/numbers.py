"""What a pin changes in the numbers of a cache file, and what unpinning restores there. Pure."""

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
    measured,
    raise_ms,
    raised,
)
from backend.model.origin import is_own
from backend.pins.file import PinRecord, Tokens

Changes = dict[Token, str]


def learn(record: PinRecord, stored: Numbers) -> PinRecord:
    """`record` with the numbers of `stored` as what unpinning restores.

    A raised number says what it was. An `Infinity` where a time is known says nothing new: an old
    copy of the file, from when pins were held by it, may have brought it back. Only where the
    pinned choice was measured again, or is infinite itself beside new times, a choice failed.
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


def _original(token: Token, known: str | None) -> str:
    """What stood where a number stands: the known text, byte by byte, if it gives this number."""
    if not is_raised(token.value):
        return token.text
    same = known is not None and raise_ms(float(known)) == token.value
    return known if known is not None and same else measured(token.text)


def holding(record: PinRecord, stored: Numbers) -> Changes:
    """The changes that make the pinned choice win, given what `learn` made of `record`.

    The rivals on all devices are held back: ATen's choices have the same hash on each, and a device
    that is not offered the pinned kernel keeps the order of its own. In a precision where the
    pinned choice is missing or failed nothing is held back, nor for a choice of our templates: only
    a process with them has it, and there our selector honours the pin.
    """
    changes: Changes = {}
    for precision, numbers in stored.items():
        held = is_held(record, stored, precision) and not is_own(record.hash)
        for name, token in numbers.items():
            original = record.tokens[precision][name]
            wanted = raised(original) if held and name not in record.hashes else original
            if not _same(token.text, wanted):
                changes[token] = wanted
    return changes


def is_held(record: PinRecord, stored: Numbers, precision: str) -> bool:
    """Whether the pinned choice can win in `precision`: it is there and has a time, on some
    device."""
    texts = record.tokens.get(precision, {})
    return any(
        name in stored[precision] and is_time(texts.get(name, INFINITY)) for name in record.hashes
    )


def releasing(record: PinRecord, stored: Numbers) -> Changes:
    """The changes that take a pin back: each number that it changed becomes the old text."""
    changes: Changes = {}
    for precision, numbers in stored.items():
        for name, token in numbers.items():
            known = record.tokens.get(precision, {}).get(name)
            if is_raised(token.value):
                changes[token] = _original(token, known)
            elif token.value == math.inf and known is not None and float(known) != math.inf:
                changes[token] = known
    return changes


def came_back(record: PinRecord, stored: Numbers) -> bool:
    """Whether a released pin's numbers are in the file again, as a process with an old copy of
    it writes them: some are raised, or, of a pin of an older version, all losers that had a time
    are `Infinity` and the choice has its own."""
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


def unowned(stored: Numbers) -> Changes:
    """The changes that take back what was raised for a pin of which nothing is known any more."""
    return {
        token: measured(token.text)
        for numbers in stored.values()
        for token in numbers.values()
        if is_raised(token.value)
    }


def is_time(text: str) -> bool:
    """Whether the text of a number is a measured time: finite."""
    return math.isfinite(float(text))


def edited(text: CacheText, changes: Iterable[Changes]) -> bytes:
    """The content of the file with all `changes` made."""
    merged: Changes = {}
    for some in changes:
        merged.update(some)
    return text.replace(merged)


def _same(first: str, second: str) -> bool:
    return first == second or float(first) == float(second)
