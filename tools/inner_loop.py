"""A table of what the inner loops of our products and of Triton's need of an AMD GPU.

`python -m tools.inner_loop CACHE_DIR [--write docs/data/inner-loops.csv] [--arch gfx942]` compiles
what is offered for a square fp16 product, once more as assembly, and the same tiles by our Triton
template where Triton is installed; docs/templates.md explains the columns.
Only the CPU target's kernels are run, for their LDS addresses.

A model of LDS banks says how many times the cycles of a conflict-free access a pattern takes. A
bank is four bytes wide and gives one word a cycle; lanes that want the same word share it. An
access of 16 bytes by 64 lanes goes in eight phases of eight lanes, for reads not in order (AMD,
"Understanding AMD GPU LDS and Bank Conflicts", documentation of Composable Kernel). Of narrower
accesses and of waves of 32 lanes nothing is published: so many lanes in order are taken as move 128
bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.errors import TemplateError
from backend.templates.config import UNITS as MATRIX_UNITS
from backend.templates.config import GemmConfig
from backend.templates.heuristics import gemm_configs
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.rendering import Rendered, render
from backend.templates.triton.choice import CodeObject, TritonGemmConfig, compile_choice
from backend.templates.triton.gemm import from_gemm, generate
from backend.toolchain import code_cache, targets
from backend.toolchain.code_cache import Library
from backend.toolchain.resources import (
    Occupancy,
    Resources,
    Unknown,
    from_file,
    occupancy,
    resources,
)
from backend.toolchain.target import CompileOptions, Missing, Target, cpu
from backend.toolchain.targets import assembly
from tools.amd_loops import Kind, Trip, functions, main_loop
from tools.resources_table import plain_problem, replaced, written

BANK_BYTES = 4
_READ_PHASES = tuple(
    tuple(range(first, first + 4)) + tuple(range(second, second + 4))
    for half in (0, 32)
    for first, second in (
        (half, half + 20),
        (half + 4, half + 16),
        (half + 8, half + 28),
        (half + 12, half + 24),
    )
)


@dataclass(frozen=True, slots=True)
class LdsAccess:
    """A vector that one thread of a block reads from LDS or writes there; in bytes."""

    thread: int
    offset: int
    size: int
    write: bool


class _Record(ctypes.Structure):
    """As `rt_cpu::Access`."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("thread", "offset", "size", "write")]


def traced(library: Library) -> tuple[LdsAccess, ...]:
    """What the library recorded, which was compiled for the CPU with RT_TRACE_LDS.

    Raises LoadError where it was not.
    """
    entry = library.entry("rocm_tui_lds_trace", [ctypes.POINTER(ctypes.c_uint32)])
    entry.restype = ctypes.POINTER(_Record)  # type: ignore[attr-defined]
    count = ctypes.c_uint32(0)
    records: ctypes.Array[_Record] = entry(ctypes.byref(count))  # type: ignore[assignment]
    return tuple(
        LdsAccess(record.thread, record.offset, record.size, bool(record.write))
        for record in (records[at] for at in range(count.value))
    )


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Cycles over those without a conflict: 1.0 is none. None where nothing was accessed."""

    reads: float | None
    writes: float | None


def conflicts(accesses: Iterable[LdsAccess], wave: int = 64, banks: int = 32) -> Conflicts:
    """Of a block's accesses; those of a wave's lanes go together where they are one instruction."""
    cycles, ideal = Counter[bool](), Counter[bool]()
    for lanes in _instructions(accesses, wave):
        write = next(iter(lanes.values())).write
        for phase in _phases(next(iter(lanes.values())).size, write, wave, banks):
            taken = [lanes[lane] for lane in phase if lane in lanes]
            if taken:
                cycles[write] += _cycles(taken, banks)
                ideal[write] += 1

    def ratio(write: bool) -> float | None:
        return cycles[write] / ideal[write] if ideal[write] else None

    return Conflicts(ratio(False), ratio(True))


def _instructions(accesses: Iterable[LdsAccess], wave: int) -> Iterator[dict[int, LdsAccess]]:
    """The n-th access of each lane of a wave: all run the same code. By lane."""
    counts = Counter[int]()
    together: dict[tuple[int, int, int, bool], dict[int, LdsAccess]] = defaultdict(dict)
    for access in accesses:
        key = (access.thread // wave, counts[access.thread], access.size, access.write)
        counts[access.thread] += 1
        together[key][access.thread % wave] = access
    yield from together.values()


def _phases(size: int, write: bool, wave: int, banks: int) -> Sequence[Sequence[int]]:
    if size == 16 and wave == 64 and not write:
        return _READ_PHASES
    lanes = min(wave, max(1, 32 * BANK_BYTES // max(size, BANK_BYTES)))
    return [range(first, first + lanes) for first in range(0, wave, lanes)]


def _cycles(lanes: Sequence[LdsAccess], banks: int) -> int:
    """The most different words that one bank has to give."""
    words = {
        word
        for access in lanes
        for word in range(
            access.offset // BANK_BYTES, -(-(access.offset + access.size) // BANK_BYTES)
        )
    }
    return max(Counter(word % banks for word in words).values())


SIZES = Sizes(4096, 4096, 4096)


@dataclass(frozen=True, slots=True)
class Unit:
    """The matrix units of an architecture.

    `flops`: fp16 operations a cycle and compute unit at best, `source` says where from. `cycles`:
    how long a 16 x 16 and a 32 x 32 instruction of fp16 keep a SIMD's unit busy, whatever their K
    (LLVM's SISchedule.td, four cycles a pass; for RDNA from the published rate).
    """

    flops: int
    source: str
    cycles: Mapping[int, int]
    simds: int = 4
    banks: int = 32


UNITS = {
    "gfx90a": Unit(1024, "CDNA 2 white paper", {16: 32, 32: 64}),
    "gfx942": Unit(2048, "CDNA 3 white paper", {16: 16, 32: 32}),
    "gfx950": Unit(4096, "CDNA 4 white paper", {16: 16, 32: 32}, banks=64),
    "gfx1100": Unit(512, "AMD's product page, WMMA", {16: 32}, simds=2),
    "gfx1201": Unit(1024, "AMD's product page, WMMA", {16: 16}, simds=2),
}
_SHAPE = re.compile(r"v_\w+_(\d+)x(\d+)x(\d+)")


def matrix_cycles(trip: Trip, unit: Unit) -> int:
    """Cycles for which one SIMD's matrix unit is busy with the trip of one wave."""
    return sum(unit.cycles[int(shape[1])] * count for shape, count in _matrix(trip))


def of_peak(trip: Trip, unit: Unit) -> float | None:
    """The most of the peak that these instructions reach; None for a trip without any."""
    flops = sum(2 * math.prod(map(int, s.groups())) * count for s, count in _matrix(trip))
    cycles = matrix_cycles(trip, unit)
    return flops * unit.simds / cycles / unit.flops if cycles else None


def _matrix(trip: Trip) -> Iterator[tuple[re.Match[str], int]]:
    for name, count in trip.names.items():
        if shape := _SHAPE.match(name):
            yield shape, count


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled product: its inner loop, what it takes, and how full a SIMD can be."""

    trip: Trip
    waves: int
    wave: int
    vgprs: int | None
    lds: int
    occupancy: Occupancy | None

    def others(self, unit: Unit) -> str:
        """Other instructions a 100 cycles of the matrix unit; a product where there is none."""
        cycles = matrix_cycles(self.trip, unit)
        rest = self.trip.total - self.trip.products
        return f"{100 * rest / cycles:.0f}" if cycles else f"{rest / self.trip.products:.2f} an FMA"

    def lds_demand(self, unit: Unit) -> str:
        """LDS bytes a cycle and compute unit that keep its matrix units busy."""
        cycles = matrix_cycles(self.trip, unit)
        moved = (self.trip.lds_read + self.trip.lds_written) * self.wave
        return f"{moved * unit.simds / cycles:.0f}" if cycles else ""


def ours(problem: GemmProblem, config: GemmConfig, target: Target, root: Path) -> Kernel:
    """Raises ToolchainError, and ValueError where the code tells nothing."""
    rendered = render(problem, config, "rt_kernel")
    text = assembly(rendered.source, target)
    compiled = code_cache.compile(rendered.source, target, cache_root=root)
    kernels = resources(compiled)
    if isinstance(kernels, Unknown):
        raise ValueError(kernels.reason)
    main = next(kernel for kernel in kernels if "reduce_parts" not in kernel.kernel)
    lanes = config.waves * target.wave
    item = problem.a.item_bytes
    needed = (config.block_m + config.block_n) * config.block_k * item // lanes
    return _kernel(functions(text)[main.kernel], needed, main, target, lanes, main.lds or 0)


def tritons(problem: GemmProblem, config: GemmConfig, target: Target, root: Path) -> Kernel:
    """The same tile in Triton, two stages. Raises TemplateError, ValueError."""
    twin = TritonGemmConfig(
        config.block_m,
        config.block_n,
        config.block_k,
        group_m=config.group_m,
        num_warps=config.waves,
        matrix_instr_nonkdim=MATRIX_UNITS[config.unit].m if target.matrix == "mfma" else 0,
        xcds=config.xcds,
    )
    choice = generate(from_gemm(problem), twin, target.arch)
    (made,) = compile_choice(choice, root)
    (taken,) = _of_triton(made, root)
    item = problem.a.item_bytes
    needed = (config.block_m + config.block_n) * config.block_k * item // made.threads
    lines = functions(made.amdgcn)[made.kernel]
    return _kernel(lines, needed, taken, target, made.threads, made.lds)


def _of_triton(made: CodeObject, root: Path) -> tuple[Resources, ...]:
    path = root / f"{made.kernel}-{made.arch}.hsaco"
    path.write_bytes(made.hsaco)
    taken = from_file(path)
    if isinstance(taken, Unknown):
        raise ValueError(taken.reason)
    return taken


def _kernel(
    lines: Sequence[str], needed: int, taken: Resources, target: Target, lanes: int, lds: int
) -> Kernel:
    trip = main_loop(lines, needed)
    if trip is None:
        raise ValueError("the kernel has no loop with a product")
    extra = lds - (taken.lds or 0)
    filled = occupancy(target, taken, lanes, extra)
    return Kernel(trip, lanes // target.wave, target.wave, taken.vgprs, lds, filled)


_TRIPS = 4
_ROOM = 1 << 16


def bank_conflicts(rendered: Rendered, config: GemmConfig, unit: Unit, root: Path) -> Conflicts:
    """By the addresses that the first block asks for, seen on the CPU: a whole tile, some trips.

    Raises ToolchainError, ValueError where the call fails.
    """
    options = CompileOptions(1, (("RT_LDS_LIMIT", "163840"), ("RT_TRACE_LDS", str(_ROOM))))
    compiled = code_cache.compile(rendered.source, cpu(), options, cache_root=root)
    library = code_cache.load(compiled.path)
    pointers = sum(arg.kind in ("input", "output") for arg in rendered.args)
    types = code_cache.argtypes(pointers, len(rendered.args) - pointers)
    entry = library.entry(rendered.name, types)
    m, n, k = config.block_m, config.block_n, config.block_k * _TRIPS
    memory = {name: _zeros(rows * cols) for name, rows, cols in _shapes(m, n, k)}
    lds = {"ld_a": k, "ld_b": k if rendered.problem.b.strides[0] == 1 else n, "ld_out": n}
    numbers = {"M": m, "N": n, "K": k, "split_k": 1, **lds}
    values = [
        ctypes.addressof(memory[arg.name]) if arg.name in memory else numbers[arg.name]
        for arg in rendered.args
    ]
    if code := entry(*values, None, None, None):
        raise ValueError(f"the CPU target: {library.error_text(code)}")
    return conflicts(traced(library), 64, unit.banks)


def _shapes(m: int, n: int, k: int) -> Iterator[tuple[str, int, int]]:
    yield from (("X", m, k), ("W", k, n), ("Y", m, n))


def _zeros(elements: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(elements * 2 + 16)


HEAD = (
    "arch,compiler,W,config,products,of peak,vector,moves,scalar,branch,wait,LDS read,LDS write,"
    "memory,others a 100 clk,LDS B/clk,banks read,banks write,VGPR,waves a SIMD,"
    "Triton: others a 100 clk,Triton: VGPR,Triton: waves a SIMD"
).split(",")


_KINDS: tuple[Kind, ...] = (
    "vector",
    "move",
    "scalar",
    "branch",
    "wait",
    "LDS read",
    "LDS write",
    "memory",
)


def rows(root: Path, arches: Sequence[str]) -> Iterator[list[str]]:
    """Yield the rows of `inner-loops.csv`, those of one architecture after another."""
    has_triton = importlib.util.find_spec("triton") is not None
    for arch in arches:
        target, unit = Target("amdgpu", arch), UNITS[arch]
        compiler = targets.find_compiler(target)
        if isinstance(compiler, Missing):
            sys.stderr.write(f"{arch}: not compiled: {compiler.reason}\n")
            continue
        for b_k_fast in (False, True):
            problem = plain_problem("float16", SIZES, b_k_fast)
            for config in gemm_configs(problem, target, SIZES):
                cells = _row(problem, config.binary, target, unit, root, has_triton)
                yield [arch, compiler.version, *cells]


def _row(
    problem: GemmProblem,
    config: GemmConfig,
    target: Target,
    unit: Unit,
    root: Path,
    has_triton: bool,
) -> list[str]:
    made = ours(problem, config, target, root)
    kinds = made.trip.kinds
    best = of_peak(made.trip, unit)
    rendered = render(problem, config, "rt_kernel")
    banks = bank_conflicts(rendered, config, unit, root)
    cells = [
        "K fast" if problem.b.strides[0] == 1 else "N fast",
        _short(config),
        str(made.trip.products),
        "" if best is None else f"{best:.0%}",
        *(str(kinds[kind]) for kind in _KINDS),
        made.others(unit),
        made.lds_demand(unit),
        _ratio(banks.reads),
        _ratio(banks.writes),
        *_taken(made),
    ]
    if has_triton:
        try:
            twin = tritons(problem, config, target, root)
            cells += [twin.others(unit), *_taken(twin)]
        except (TemplateError, ValueError) as error:
            cells += [str(error).splitlines()[0][:60], "", ""]
    else:
        cells += ["", "", ""]
    return cells


def _taken(kernel: Kernel) -> tuple[str, str]:
    filled = kernel.occupancy
    waves = "?" if filled is None else f"{filled.waves_per_simd} ({filled.limited_by})"
    return str(kernel.vgprs), waves


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _short(config: GemmConfig) -> str:
    tile = f"{config.block_m}x{config.block_n}x{config.block_k}"
    return f"{tile}, wave {config.wave_m}x{config.wave_n}, {config.unit}, stages {config.stages}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache_dir", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--write", type=Path, metavar="FILE", help="update this CSV file")
    parser.add_argument(
        "--arch", choices=list(UNITS), action="append", help="only this (repeatable)"
    )
    chosen = parser.parse_args(arguments)
    found: dict[str, list[list[str]]] = {}
    for row in rows(chosen.cache_dir, chosen.arch or list(UNITS)):
        found.setdefault(row[0], []).append(row)
        if chosen.write is None:
            sys.stdout.write(written([row]))
            sys.stdout.flush()
    if chosen.write is not None:
        chosen.write.write_text(replaced(chosen.write, HEAD, found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
