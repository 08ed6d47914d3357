"""When two choices of different runs, ranks or hosts are the same kernel, and what their times say.

The hash of a Triton choice contains the index of the device, so one kernel has another hash on each
device of a box. Where files of the cache show which hashes those are, a choice has an identity.
Where they do not, as in logs that were copied from another host, template and configuration count.
Pure functions; times are milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import median
from typing import Protocol, TypeVar

from backend.cache.variants import may_differ
from backend.model.choice import Choice
from backend.model.origin import extern_name
from backend.model.tuning import Tuning
from rocm_tui.session import stats
from rocm_tui.session.model import Row

SHORTEST, LONGEST = 1e-9, 1e12
"""Milliseconds that no kernel takes; ratios of what lies between are finite."""
_NUMBER = re.compile(r"_\d+$")


def text_key(choice: Choice) -> str:
    """Return what identifies a choice in every run: its configuration, else its name without the
    number.

    Inductor numbers its templates' choices as they come, so the number identifies no kernel.
    """
    name = choice.name or ""
    return choice.description or (name if name[-1:].isalpha() else _NUMBER.sub("", name))


def identity_of(choice: Choice) -> str | None:
    """Return what identifies a choice on every device of a kind; its own hash if that is
    unknown."""
    return choice.identity or choice.hash


def same_choice(a: Choice, b: Choice) -> bool:
    """Whether two runs mean the same choice, as far as identities, configurations or names show."""
    ours, theirs = identity_of(a), identity_of(b)
    if ours and theirs:
        return ours == theirs
    return bool(text_key(a)) and text_key(a) == text_key(b)


def is_timed(tuning: Tuning) -> bool:
    """Whether any of its choices has a time."""
    return any(_is_time(choice) for choice in tuning.choices)


def _is_time(choice: Choice) -> bool:
    """A log may say anything: not every number is one."""
    ms = choice.ms
    return ms is not None and SHORTEST < ms < LONGEST and choice.offered and not choice.failed


def timed(tuning: Tuning) -> list[tuple[Choice, float]]:
    """Choices with their times, fastest first."""
    return [(choice, choice.ms or 0.0) for choice in tuning.choices if _is_time(choice)]


def used(tuning: Tuning) -> tuple[Choice, float] | None:
    """Return the choice that the compiled model calls and its time: selected, else the fastest;
    None if the number of the fastest is no time, as 0 is none."""
    times = timed(tuning)
    selected = [pair for pair in times if tuning.selected and pair[0].hash == tuning.selected]
    if selected:
        return selected[0]
    return times[0] if times and times[0][0] == stats.winner(tuning) else None


def log_ratios(a: Iterable[Row], b: Iterable[Row], but: Iterable[Choice] = ()) -> list[float]:
    """log(B's time / A's time) of each choice timed on both sides, without those of `but`.

    Several times of one choice are their median.
    """
    ours, theirs = _times(a), _times(b)
    by_identity = {identity_of(choice): ms for choice, ms in theirs if choice.hash}
    by_text = {text_key(choice): (choice, ms) for choice, ms in theirs}
    left_out = list(but)
    ratios = []
    for choice, ms in ours:
        if any(same_choice(choice, other) for other in left_out):
            continue
        other_ms = by_identity.get(identity_of(choice)) if choice.hash else None
        if other_ms is None and not (choice.hash and len(by_identity) == len(theirs)):
            other, other_ms = by_text.get(text_key(choice), (choice, None))
            if choice.hash and other.hash:
                continue
        if other_ms is not None:
            ratios.append(log(other_ms / ms))
    return ratios


def _times(rows: Iterable[Row]) -> list[tuple[Choice, float]]:
    """Return each choice that can be distinguished in its tuning, with its median time."""
    every = [timed(row.tuning) for row in rows]
    by_key: dict[str, tuple[Choice, list[float]]] = {}
    for side in every:
        bare = not all(choice.hash for choice, _ in side)
        texts = Counter(text_key(choice) for choice, _ in side) if bare else {}
        for choice, ms in side:
            key = identity_of(choice) or text_key(choice)
            if choice.hash or (key and texts[key] == 1):
                by_key.setdefault(key, (choice, []))[1].append(ms)
    return [(choice, median(times)) for choice, times in by_key.values()]


# The same kernel among the choices of several.


class _HasChoice(Protocol):
    @property
    def choice(self) -> Choice: ...


_T = TypeVar("_T", bound=_HasChoice)
_Config = tuple[str, str]
"""Template and configuration."""


def comparable(items: Sequence[_T]) -> list[_T]:
    """The items whose choices can be compared with each other: a cache has hashes, a log words."""
    hashed = [item for item in items if item.choice.hash]
    worded = [item for item in items if _words(item.choice)]
    return hashed if len(hashed) >= len(worded) else worded


def by_kernel(items: Sequence[_T]) -> list[list[_T]]:
    """Comparable items, those with the same kernel together; the largest group first."""
    hashed = all(item.choice.hash for item in items)
    groups: dict[str, list[_T]] = {}
    for item in items:
        name = identity_of(item.choice) if hashed else _words(item.choice)
        groups.setdefault(name or "", []).append(item)
    return sorted(groups.values(), key=lambda group: -len(group))


def _words(choice: Choice) -> str:
    """Return what identifies a choice in every run.

    A numbered name does not: Inductor numbers its choices as they come.
    """
    return choice.description or ("" if _NUMBER.search(choice.name or "") else choice.name or "")


def identified(tunings: Sequence[Tuning]) -> list[Tuning]:
    """Tunings of one problem on one kind of device, with an identity for each Triton choice that
    has another hash in another of them, but the same template and configuration."""
    distinct = {id(tuning): tuning for tuning in tunings}
    names = _names(distinct.values())
    if not names:
        return list(tunings)
    named = {key: _named(tuning, names) for key, tuning in distinct.items()}
    return [named[id(tuning)] for tuning in tunings]


def _named(tuning: Tuning, names: Mapping[_Config, str]) -> Tuning:
    choices = [
        replace(choice, identity=name)
        if choice.identity is None and (name := names.get(_config(choice) or ("", "")))
        else choice
        for choice in tuning.choices
    ]
    return replace(tuning, choices=tuple(choices))


def _names(tunings: Iterable[Tuning]) -> dict[_Config, str]:
    """An identity for each configuration with several hashes; none where two kernels of one tuning
    have it, or kernels that are known to differ."""
    hashes: dict[_Config, dict[str, None]] = {}
    identities: dict[_Config, set[str]] = {}
    ambiguous: set[_Config] = set()
    for tuning in tunings:
        configs = Counter[_Config]()
        for choice in tuning.choices:
            config = _config(choice)
            if config is None or choice.hash is None:
                continue
            configs[config] += 1
            hashes.setdefault(config, {})[choice.hash] = None
            if choice.identity:
                identities.setdefault(config, set()).add(choice.identity)
        ambiguous.update(config for config, count in configs.items() if count > 1)
    ambiguous.update(config for config, names in identities.items() if len(names) > 1)
    return {
        config: next(iter(identities.get(config, names)))
        for config, names in hashes.items()
        if len(names) > 1 and config not in ambiguous
    }


def _config(choice: Choice) -> _Config | None:
    """Return what identifies a Triton choice on all devices, if its source shows that."""
    if not choice.hash or not choice.description or not may_differ(choice.hash):
        return None
    return extern_name(choice.hash), choice.description
