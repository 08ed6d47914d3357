"""What names a choice on every device, read from the Triton modules in the cache dirs that tunings
come from: a cache dir with one device, as a rank may have it, says nothing of others by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from backend.cache.variants import ChoiceVariants
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.tuning import Tuning


class ModuleIdentities:
    """The identities of choices, from the modules in the cache dirs that their tunings are of.

    A module's name is a hash of its content, so it does not matter whose cache dir has it.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._roots: dict[Path, ChoiceVariants] = {}
        self._tunings: dict[int, tuple[Tuning, Tuning]] = {}

    def identified(self, tuning: Tuning) -> Tuning:
        """The tuning with an identity for each choice that has one."""
        known = self._tunings.get(id(tuning))
        if known is None:
            roots = dict.fromkeys([*_cache_dirs(tuning.sources), self._home])
            variants = [self._roots.setdefault(root, ChoiceVariants(root)) for root in roots]
            choices = tuple(_with_identity(choice, variants) for choice in tuning.choices)
            known = self._tunings[id(tuning)] = tuning, replace(tuning, choices=choices)
        return known[1]


def _with_identity(choice: Choice, variants: Iterable[ChoiceVariants]) -> Choice:
    if choice.hash is None or choice.identity is not None:
        return choice
    knows = next((each for each in variants if each.device(choice.hash) is not None), None)
    return choice if knows is None else replace(choice, identity=knows.identity(choice.hash))


def _cache_dirs(sources: Iterable[str]) -> Iterator[Path]:
    """The cache dirs that cache files and session logs are in."""
    for path in map(Path, sources):
        for root in (path.parent.parent, path.parent.parent.parent):
            if path.parent in (Layout(root).autotune, Layout(root).sessions):
                yield root
