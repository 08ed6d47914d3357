"""What one trip of a kernel's innermost loop executes, read from the assembly of an AMD GPU.

The text is LLVM's, of clang or of Triton: labels, one instruction a line, the mnemonic first ("User
Guide for AMDGPU Backend"; the names are those of AMD's ISA guides). A loop is a natural one of
the flow graph (Aho, Sethi and Ullman, "Compilers", 10.4); the one that counts is the innermost with
the most matrix instructions, or fused multiply-adds where there are none.

Of the ways through its body the one is counted that a block in the middle of the matrix takes: all
matrix instructions, all that a trip needs is loaded, by the fewest instructions; edges take more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "matrix", "fma", "vector", "move", "scalar", "LDS read", "LDS write", "memory", "wait", "branch"
]
"""Of an instruction; `move` copies vector registers, `memory` is every access beyond LDS."""

_PREFIXES: tuple[tuple[str, Kind], ...] = (
    (r"v_s?w?(mfma|wmma|mfmac|mmac)", "matrix"),
    (r"v_(pk_)?(fma|fmac|dot\d*c?)_", "fma"),
    (r"v_fma_mix", "fma"),
    (r"v_(accvgpr|mov)", "move"),
    (r"v_", "vector"),
    (r"ds_(read|load)", "LDS read"),
    (r"ds_(write|store)", "LDS write"),
    (r"ds_", "vector"),  # permutes among lanes, which touch no LDS
    (r"(global|buffer|flat|scratch)_", "memory"),
    (r"s_(c?branch|setpc|endpgm)", "branch"),
    (r"s_(wait|barrier|nop|delay|sched|setprio|sleep)", "wait"),
    (r"s_", "scalar"),
)
_KINDS = tuple((re.compile(pattern), kind) for pattern, kind in _PREFIXES)
_WIDTHS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), size)
    for pattern, size in (
        (r"dwordx4|_b128", 16),
        (r"dwordx3|_b96", 12),
        (r"dwordx2|_b64", 8),
        (r"dword|_b32", 4),
        (r"short|[uib]16", 2),
        (r"byte|[uib]8", 1),
    )
)
_TWO = re.compile(r"ds_(read|write|load|store)(2|_2addr)")
_FUNCTION = re.compile(r"([A-Za-z_$.][\w$.]*):")
_LABEL = re.compile(r"(\.L\w+):")
_INSTRUCTION = re.compile(r"\s+([a-z]\w+)(?:\s+([^;/]*))?")
_MOST_WAYS = 4096
"""Of different cost through one loop: more are no fast path and its edges."""


def kind_of(name: str) -> Kind:
    """By the mnemonic. Raises ValueError for one that is none of a GPU's."""
    for pattern, kind in _KINDS:
        if pattern.match(name):
            return kind
    raise ValueError(f"{name} is no instruction of an AMD GPU")


def bytes_of(name: str) -> int:
    """Bytes that each lane moves by a load or store; 0 for what moves none."""
    width = next((size for pattern, size in _WIDTHS if pattern.search(name)), 0)
    return width * 2 if _TWO.match(name) else width


@dataclass(frozen=True, slots=True)
class Trip:
    """One trip through a loop, for one wave: instructions by kind and by name, bytes a lane."""

    kinds: Counter[Kind]
    names: Counter[str]
    loaded: int
    """From memory."""
    lds_read: int
    lds_written: int

    @property
    def total(self) -> int:
        return self.kinds.total()

    @property
    def products(self) -> int:
        """Matrix instructions, or fused multiply-adds where there are none."""
        return self.kinds["matrix"] or self.kinds["fma"]


@dataclass(slots=True)
class _Block:
    """Instructions that run one after the other, and where it goes on: places in the function."""

    labels: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    falls: bool = True


def functions(text: str) -> dict[str, Sequence[str]]:
    """The lines of each function, by its symbol; data and debug sections are none."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if (match := _FUNCTION.match(line)) and not line.startswith(".L"):
            current = found.setdefault(match[1], [])
        elif line.startswith((".Lfunc_end", "\t.section", "\t.end_amdhsa_kernel")):
            current = None
        elif current is not None:
            current.append(line)
    return {name: lines for name, lines in found.items() if lines}


def main_loop(lines: Sequence[str], needed: int = 0) -> Trip | None:
    """The trip of the loop that counts; None for a function without one.

    `needed` is how many bytes a lane loads from memory in a trip, and writes to LDS where it writes
    there; with 0, the way that moves most.
    """
    blocks = _blocks(lines)
    graph = _graph(blocks)
    order, back = _depth_first(graph)
    best: Trip | None = None
    loops = [_Loop(head, frozenset(_body(graph, head, latch)), latch) for latch, head in back]
    for loop in loops:
        inner = [o for o in loops if o.body < loop.body]
        if any(_products([blocks[at] for at in other.body]) for other in inner):
            continue
        forward = [at for at in order if at in loop.body]
        trip = _cheapest(blocks, graph, loop, forward, needed)
        if trip is not None and trip.products and (best is None or _rank(trip) > _rank(best)):
            best = trip
    return best


@dataclass(frozen=True, slots=True)
class _Loop:
    """A natural loop: all blocks from which `latch` is reached without passing `head`."""

    head: int
    body: frozenset[int]
    latch: int


def _graph(blocks: Sequence[_Block]) -> list[list[int]]:
    """Where each block goes on."""
    places = {label: at for at, block in enumerate(blocks) for label in block.labels}
    return [
        ([at + 1] if block.falls and at + 1 < len(blocks) else [])
        + [places[target] for target in block.targets if target in places]
        for at, block in enumerate(blocks)
    ]


def _depth_first(graph: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """The blocks in topological order but for branches back, and those branches (from, to)."""
    back, done, order = [], set(), []
    stack: list[tuple[int, Iterator[int]]] = [(0, iter(graph[0]))]
    open_: set[int] = {0}
    while stack:
        at, successors = stack[-1]
        to = next(successors, None)
        if to is None:
            stack.pop()
            open_.discard(at)
            done.add(at)
            order.append(at)
        elif to in open_:
            back.append((at, to))
        elif to not in done:
            open_.add(to)
            stack.append((to, iter(graph[to])))
    return order[::-1], back


def _body(graph: Sequence[Sequence[int]], head: int, latch: int) -> set[int]:
    before: dict[int, list[int]] = {}
    for at, successors in enumerate(graph):
        for to in successors:
            before.setdefault(to, []).append(at)
    body, left = {head, latch}, [latch]
    while left:
        at = left.pop()
        if at == head:
            continue
        new = [known for known in before.get(at, ()) if known not in body]
        body.update(new)
        left += new
    return body


def _rank(trip: Trip) -> tuple[int, int]:
    return trip.kinds["matrix"], trip.kinds["fma"]


def _blocks(lines: Sequence[str]) -> list[_Block]:
    blocks = [_Block()]
    for line in lines:
        if match := _LABEL.match(line):
            if blocks[-1].names or blocks[-1].targets:
                blocks.append(_Block())
            blocks[-1].labels.append(match[1])
        elif (match := _INSTRUCTION.match(line)) and not match[1].startswith("amdgpu"):
            name, operands = match[1], (match[2] or "").strip()
            blocks[-1].names.append(name)
            if kind_of(name) == "branch":
                blocks[-1].targets += [operands] if operands.startswith(".L") else []
                blocks[-1].falls = "cbranch" in name
                blocks.append(_Block())
    return blocks


def _products(blocks: Sequence[_Block]) -> int:
    kinds = (kind_of(name) for block in blocks for name in block.names)
    return sum(kind in ("matrix", "fma") for kind in kinds)


_Ways = dict[tuple[int, int, int], tuple[int, tuple[int, ...]]]
"""By products, bytes loaded, bytes written to LDS: the least instructions, the blocks in order."""


def _cheapest(
    blocks: Sequence[_Block],
    graph: Sequence[Sequence[int]],
    loop: _Loop,
    forward: Sequence[int],
    needed: int,
) -> Trip | None:
    """The way from the head of a loop to its branch back; loops within it are passed once."""
    ways: dict[int, _Ways] = {loop.head: {(0, 0, 0): (0, ())}}
    places = {at: place for place, at in enumerate(forward)}
    for at in forward:
        arriving = ways.get(at, {})
        if not arriving or len(arriving) > _MOST_WAYS:
            continue
        ways[at] = leaving = _through(blocks[at], at, arriving)
        for to in graph[at]:
            if to in places and places[to] > places[at]:
                known = ways.setdefault(to, {})
                for key, way in leaving.items():
                    if key not in known or way[0] < known[key][0]:
                        known[key] = way
    arrived = ways.get(loop.latch)
    return _trip(blocks, _chosen(arrived, needed)) if arrived else None


def _through(block: _Block, at: int, arriving: _Ways) -> _Ways:
    products, loaded, written = _products([block]), _loaded(block.names), _written(block.names)
    return {
        (made + products, read + loaded, kept + written): (count + len(block.names), (*path, at))
        for (made, read, kept), (count, path) in arriving.items()
    }


def _chosen(ways: _Ways, needed: int) -> tuple[int, ...]:
    """Enough products, then enough of what is moved, then the fewest instructions."""
    most = max(made for made, _, _ in ways)
    rest = [key for key in ways if key[0] == most]
    for moved in (1, 2):
        sizes = sorted({key[moved] for key in rest})
        enough = next((size for size in sizes if needed and size >= needed), sizes[-1])
        rest = [key for key in rest if key[moved] == enough]
    return ways[rest[0]][1]


def _loaded(names: Sequence[str]) -> int:
    return sum(bytes_of(n) for n in names if kind_of(n) == "memory" and "_load" in n)


def _written(names: Sequence[str]) -> int:
    return sum(bytes_of(n) for n in names if kind_of(n) == "LDS write")


def _trip(blocks: Sequence[_Block], path: Sequence[int]) -> Trip:
    names = [name for at in path for name in blocks[at].names]
    moved = Counter[Kind]()
    for name in names:
        moved[kind_of(name)] += bytes_of(name)
    return Trip(
        kinds=Counter(map(kind_of, names)),
        names=Counter(names),
        loaded=_loaded(names),
        lds_read=moved["LDS read"],
        lds_written=moved["LDS write"],
    )
