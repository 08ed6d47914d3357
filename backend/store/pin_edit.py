"""What a pin changes in an autotune cache file: pure functions from text to text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from backend.store.cache_edit import INFINITY, CacheText, Found, Token
from backend.store.graph_match import is_own
from backend.store.pin_file import Record, Tokens

Changes = dict[Token, str]


def learn(record: Record, found: Found) -> Record:
    """`record` with the numbers of `found` as what unpinning restores.

    An `Infinity` is ours, or a choice that had failed before, and says nothing new. Only where the
    tuning was made again, an `Infinity` of the pinned choice itself means that it failed.
    """
    tokens: Tokens = {precision: dict(texts) for precision, texts in record.tokens.items()}
    for precision, numbers in found.items():
        texts = tokens.setdefault(precision, {})
        new = {name: token.text for name, token in numbers.items() if token.value != math.inf}
        own = numbers.get(record.hash)
        if own and record.hash not in new and any(texts.get(n) != text for n, text in new.items()):
            texts[record.hash] = INFINITY
        for name in numbers:
            texts.setdefault(name, INFINITY)
        texts.update(new)
    return record if tokens == record.tokens else replace(record, tokens=tokens)


def holding(record: Record, found: Found) -> Changes:
    """The changes that make the pinned choice win, given what `learn` made of `record`.

    In a precision where the pinned choice is missing or failed nothing is held back, nor for a
    choice of our templates: a process without them, which does not have it, would be left with
    nothing but failed choices. Where they are on, our selector honours the pin.
    """
    changes: Changes = {}
    for precision, numbers in found.items():
        held = is_held(record, found, precision) and not is_own(record.hash)
        for name, token in numbers.items():
            original = record.tokens[precision][name]
            if not held or name == record.hash:
                if token.value == math.inf and float(original) != math.inf:
                    changes[token] = original
            elif token.value != math.inf:
                changes[token] = INFINITY
    return changes


def is_held(record: Record, found: Found, precision: str) -> bool:
    """Whether the pinned choice can win in `precision`: it is there and has a time."""
    return record.hash in found[precision] and is_time(record.tokens[precision][record.hash])


def releasing(record: Record, found: Found) -> Changes:
    """The changes that take a pin back: each `Infinity` of ours becomes the old text."""
    changes: Changes = {}
    for precision, numbers in found.items():
        for name, token in numbers.items():
            original = record.tokens.get(precision, {}).get(name, INFINITY)
            if token.value == math.inf and float(original) != math.inf:
                changes[token] = original
    return changes


def came_back(record: Record, found: Found) -> bool:
    """Whether a released pin's numbers are in the file again, as a process with an old copy of
    it writes them: all losers that had a time are `Infinity`, and the choice has its own."""
    for precision, texts in record.tokens.items():
        numbers = found.get(precision, {})
        losers = [name for name, text in texts.items() if name != record.hash and is_time(text)]
        own = numbers.get(record.hash)
        if (
            losers
            and own is not None
            and own.value != math.inf
            and all(name in numbers and numbers[name].value == math.inf for name in losers)
        ):
            return True
    return False


def is_time(text: str) -> bool:
    """Whether the text of a number is a measured time: finite."""
    return math.isfinite(float(text))


def edited(text: CacheText, changes: Iterable[Changes]) -> bytes:
    """The content of the file with all `changes` made."""
    merged: Changes = {}
    for some in changes:
        merged.update(some)
    return text.replace(merged)
