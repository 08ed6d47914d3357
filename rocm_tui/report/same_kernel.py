"""Which of the choices that ranks and hosts took are the same kernel. Pure functions.

The hash of a Triton choice contains the index of the device, so one kernel has another hash on each
device of a box. Where files of the cache show which hashes those are, a choice has an identity.
Where they do not, as in logs that were copied from another host, template and configuration count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from backend.cache.variants import may_differ
from backend.model.choice import Choice
from backend.model.origin import extern_name
from backend.model.tuning import Tuning
from rocm_tui.compare.types import identity_of

_T = TypeVar("_T")
_NUMBERED = re.compile(r"_\d+$")
_Config = tuple[str, str]
"""Template and configuration."""


def comparable(items: Sequence[_T], choice_of: Callable[[_T], Choice]) -> list[_T]:
    """The items whose choices can be compared with each other: a cache has hashes, a log words."""
    hashed = [item for item in items if choice_of(item).hash]
    worded = [item for item in items if _words(choice_of(item))]
    return hashed if len(hashed) >= len(worded) else worded


def by_kernel(items: Sequence[_T], choice_of: Callable[[_T], Choice]) -> list[list[_T]]:
    """Comparable items, those with the same kernel together; the largest group first."""
    hashed = all(choice_of(item).hash for item in items)
    groups: dict[str, list[_T]] = {}
    for item in items:
        choice = choice_of(item)
        name = identity_of(choice) if hashed else _words(choice)
        groups.setdefault(name or "", []).append(item)
    return sorted(groups.values(), key=lambda group: -len(group))


def _words(choice: Choice) -> str:
    """What names a choice in every run. A numbered name alone does not: Inductor numbers its
    choices as they come."""
    return choice.description or ("" if _NUMBERED.search(choice.name or "") else choice.name or "")


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
    """What names the kernel of a Triton choice on all devices, if its source shows that."""
    if not choice.hash or not choice.description or not may_differ(choice.hash):
        return None
    return extern_name(choice.hash), choice.description
