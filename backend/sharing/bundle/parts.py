"""What a bundle can hold, and by which name each file of it goes: one table.

A name is the path below the cache dir, but for `pins.json`, which is what `export` writes, and
for files of a Triton cache elsewhere, whose names begin with `TRITON_CACHE_DIR`. A name that no
row knows is in no bundle: neither does one leave with it, nor arrive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout

PINS = "pins.json"
ELSEWHERE = "TRITON_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Part:
    """`program`: what is in it is run, by PyTorch or by us. `folders` are walked to find it."""

    name: str
    what: str
    program: bool
    folders: tuple[str, ...]
    pattern: re.Pattern[str]


_WORD = "[0-9A-Za-z_-]"

PARTS = {
    part.name: part
    for part in (
        Part("pins", "pins", False, (), re.compile(r"pins\.json")),
        Part(
            "timings",
            "times of products, one file a system",
            False,
            (),
            re.compile(r"cache/[0-9A-Za-z][0-9A-Za-z_-]{0,199}"),
        ),
        Part(
            "configs",
            "best configs of pointwise kernels and reductions",
            False,
            ("??",),
            re.compile(rf"[a-z2-7]{{2}}/{_WORD}{{1,200}}\.best_config"),
        ),
        Part(
            "graphs",
            "compiled graphs, as pickles",
            True,
            ("fxgraph/*/*", "aotautograd/*"),
            re.compile(rf"(fxgraph/{_WORD}{{2}}|aotautograd)/{_WORD}{{4,120}}/{_WORD}{{4,120}}"),
        ),
        Part(
            "code",
            "generated source and libraries",
            True,
            ("??",),
            re.compile(
                r"[a-z2-7]{2}/[0-9A-Za-z_][0-9A-Za-z_.+-]{0,200}"
                r"\.(py|cpp|so|h|hpp|o|a|cu|cubin|hip|hsaco|json|ptx)"
            ),
        ),
        Part(
            "triton",
            "what Triton compiled",
            True,
            ("triton/*/*", f"{ELSEWHERE}/*"),
            re.compile(
                rf"(triton/[0-9]{{1,4}}|{ELSEWHERE})/{_WORD}{{8,120}}/"
                r"[0-9A-Za-z_][0-9A-Za-z_.+-]{0,220}\.[0-9A-Za-z_]{1,20}"
            ),
        ),
        Part(
            "templates",
            "kernels of our templates",
            True,
            ("rocm_tui/code/??", "rocm_tui/triton"),
            re.compile(
                rf"rocm_tui/(code/[0-9a-f]{{2}}/{_WORD}{{1,200}}\.(so|co|hip|log|json)"
                r"|triton/[0-9A-Za-z_]{1,200}\.py)"
            ),
        ),
    )
}
"""In the order in which they stand in a bundle: what the rest is judged by comes first. A name
belongs to the first row whose pattern it has."""

_RANK = {name: number for number, name in enumerate(PARTS)}


def part_of(name: str) -> Part | None:
    """The part that a member belongs to; None for a name that no member has."""
    return next((part for part in PARTS.values() if part.pattern.fullmatch(name)), None)


def order(name: str) -> tuple[int, str]:
    """The place of a member in a bundle."""
    part = part_of(name)
    return (-1 if part is None else _RANK[part.name]), name


def triton_elsewhere(layout: Layout, env: Mapping[str, str] = os.environ) -> Path | None:
    """Triton's own cache, where the environment names one that lies outside of the cache dir."""
    named = env.get(ELSEWHERE)
    if not named:
        return None
    path = Path(named).absolute()
    return None if path.is_relative_to(layout.root) else path


def files_of(part: Part, layout: Layout, elsewhere: Path | None) -> Iterator[tuple[str, Path]]:
    """Name and path of each file of a part, in any order. Links are none of them."""
    for folder in part.folders:
        root, pattern, before = layout.root, folder, ""
        if folder.startswith(ELSEWHERE):
            if elsewhere is None:
                continue
            root, pattern, before = elsewhere, folder.removeprefix(f"{ELSEWHERE}/"), f"{ELSEWHERE}/"
        for entry in _below(str(root), pattern.split("/")):
            name = before + os.path.relpath(entry, root)
            if part_of(name) is part:
                yield name, Path(entry)


def _below(folder: str, steps: list[str]) -> Iterator[str]:
    """The files in the folders that so many `steps` down are called so."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        if not steps:
            if entry.is_file(follow_symlinks=False):
                yield entry.path
        elif entry.is_dir(follow_symlinks=False) and _fits(entry.name, steps[0]):
            yield from _below(entry.path, steps[1:])


def _fits(name: str, step: str) -> bool:
    return step == "*" or (step == "??" and len(name) == 2) or step == name


def place_of(name: str, layout: Layout, elsewhere: Path | None) -> tuple[Path, Path] | None:
    """Where a member goes, and the folder above that need not be looked at; None where the
    environment names no place for it."""
    if name.startswith(f"{ELSEWHERE}/"):
        root = elsewhere
        return None if root is None else (root / name.removeprefix(f"{ELSEWHERE}/"), root)
    return layout.root / name, layout.root
