"""The same choice in two runs: which it is, and what it took in each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from math import log
from statistics import median

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui.session.model import Row

SHORTEST, LONGEST = 1e-9, 1e12
"""Milliseconds that no kernel takes; ratios of what lies between are finite."""
_NUMBER = re.compile(r"_\d+$")


def text_key(choice: Choice) -> str:
    """What names a choice in every run: its configuration, else its name without the number.

    Inductor numbers its templates' choices as they come, so the number says nothing of the kernel.
    """
    return choice.description or _NUMBER.sub("", choice.name or "")


def same_choice(one: Choice, two: Choice) -> bool:
    """Whether two runs mean the same choice, as far as hashes, configurations or names tell."""
    if one.hash and two.hash:
        return one.hash == two.hash
    return bool(text_key(one)) and text_key(one) == text_key(two)


def is_timed(tuning: Tuning) -> bool:
    """Whether a choice of it has a time."""
    return any(_is_time(choice) for choice in tuning.choices)


def _is_time(choice: Choice) -> bool:
    """A log may say anything: not every number is one."""
    ms = choice.ms
    return ms is not None and SHORTEST < ms < LONGEST and choice.offered and not choice.failed


def timed(tuning: Tuning) -> list[tuple[Choice, float]]:
    """Choices with their times, fastest first."""
    return [(choice, choice.ms or 0.0) for choice in tuning.choices if _is_time(choice)]


def used(tuning: Tuning) -> tuple[Choice, float] | None:
    """The choice that the compiled model calls and its time: selected, else the fastest."""
    first = None
    for choice in tuning.choices:
        if not _is_time(choice):
            continue
        if first is None:
            first = choice
        if not tuning.selected or choice.hash == tuning.selected:
            return choice, choice.ms or 0.0
    return None if first is None else (first, first.ms or 0.0)


def log_ratios(a: Iterable[Row], b: Iterable[Row], but: Iterable[Choice] = ()) -> list[float]:
    """log(B's time / A's time) of each choice timed on both sides, without those of `but`.

    Several times of one choice are their median.
    """
    ours, theirs = _times(a), _times(b)
    by_hash = {choice.hash: ms for choice, ms in theirs if choice.hash}
    by_text: dict[str, tuple[Choice, float]] | None = None
    left_out = list(but)
    found = []
    for choice, ms in ours:
        if any(same_choice(choice, other) for other in left_out):
            continue
        other_ms = by_hash.get(choice.hash) if choice.hash else None
        if other_ms is None and not (choice.hash and len(by_hash) == len(theirs)):
            if by_text is None:
                by_text = {text_key(other): (other, ms) for other, ms in theirs}
            other, other_ms = by_text.get(text_key(choice), (choice, None))
            if choice.hash and other.hash:
                continue
        if other_ms is not None:
            found.append(log(other_ms / ms))
    return found


def _times(rows: Iterable[Row]) -> list[tuple[Choice, float]]:
    """Every choice that can be told from the others of its tuning, with its median time."""
    found: dict[str, tuple[Choice, list[float]]] = {}
    for row in rows:
        known = timed(row.tuning)
        bare = not all(choice.hash for choice, _ in known)
        texts = Counter(text_key(choice) for choice, _ in known) if bare else {}
        for choice, ms in known:
            key = choice.hash or text_key(choice)
            if choice.hash or (key and texts[key] == 1):
                found.setdefault(key, (choice, []))[1].append(ms)
    return [
        (choice, times[0] if len(times) == 1 else median(times)) for choice, times in found.values()
    ]
