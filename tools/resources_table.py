"""Tables of what the kernels that are offered by default take of each GPU.

`python -m tools.resources_table CACHE_DIR --write docs/data` compiles everything that is offered by
default for contiguous, aligned fp16 and fp32 problems and for convolutions with groups of few
channels. It writes `resources.csv` (every fp16 kernel, and fp32 kernels that spill) and
`targets.csv` (compiler and number of kernels of each target). Targets without a compiler here are
named on stderr, and the rows that the files have of them stay.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from backend.counted import counted
from backend.model.options import options
from backend.templates.config import Config, DirectConfig, GemmConfig
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.few_channels import direct_configs
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.legality import lds_bytes
from backend.templates.operand import DType, Operand
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.rendering import (
    Rendered,
    render,
)
from backend.templates.tiles import ShapeClass, shape_class
from backend.toolchain import code_cache, targets
from backend.toolchain.resources import Occupancy, Resources, Unknown, occupancy, resources
from backend.toolchain.target import Missing, Target

SHAPES: tuple[Sizes, ...] = (
    Sizes(4096, 4096, 4096),
    Sizes(8192, 1024, 4096),
    Sizes(1024, 8192, 4096),
    Sizes(128, 128, 512),
    Sizes(256, 256, 16384),
    *(Sizes(rows, 4096, 4096) for rows in (1, 2, 4, 8, 16)),
)
"""At least one of each shape class, and each number of rows that the skinny template knows."""

CHANNELS = (1, 4)
"""Of a group of a convolution of 32 images of 128 channels, 56 x 56, by filters of 3 x 3."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A config that is offered by default, with the problem and the class it is offered for."""

    shape: ShapeClass
    problem: GemmProblem
    config: Config

    @property
    def template(self) -> str:
        if isinstance(self.config, DirectConfig):
            return "direct"
        tiled = "conv" if isinstance(self.problem, ConvProblem) else "gemm"
        return tiled if isinstance(self.config, GemmConfig) else "skinny"

    @property
    def channels(self) -> int | None:
        """Of a group of a convolution."""
        window = self.problem.window if isinstance(self.problem, ConvProblem) else None
        return None if window is None else window.channels

    def render(self, name: str = "rt_kernel") -> Rendered:
        return render(self.problem, self.config, name)


def plain_problem(dtype: DType, sizes: Sizes, b_k_fast: bool = False) -> GemmProblem:
    """A product of contiguous, aligned matrices; `b` may be the transpose of a contiguous one."""
    m, n, k = sizes.m, sizes.n, sizes.k
    return GemmProblem(
        Operand("X", dtype, (m, k), (k, 1)),
        Operand("W", dtype, (k, n), (1, k) if b_k_fast else (n, 1)),
        Operand("Y", dtype, (m, n), (n, 1)),
    )


def offers(target: Target, dtypes: tuple[DType, ...] = ("float16", "float32")) -> tuple[Offer, ...]:
    """Each binary once: configs that differ in runtime arguments or shapes alone are one."""
    seen: dict[tuple[object, ...], Offer] = {}
    for offer in _all(target, dtypes):
        a, b = offer.problem.a, offer.problem.b
        source_of = (a.dtype, b.strides[-1] == 1, offer.channels, offer.config)
        seen.setdefault(source_of, offer)
    return tuple(seen.values())


def grouped_problem(dtype: DType, channels: int) -> ConvProblem:
    """A convolution with groups of so many channels and filters, channels last."""
    image, weight = (32, 128, 56, 56), (128, channels, 3, 3)
    given = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": (128 // channels,)}
    return convolution_problem(
        Operand("X", dtype, image, (128 * 56 * 56, 1, 128 * 56, 128)),
        Operand("W", dtype, weight, (9 * channels, 1, 3 * channels, channels)),
        Operand("Y", dtype, image, (128 * 56 * 56, 1, 128 * 56, 128)),
        None,
        options(given),
        "none",
        joined=True,
    )


def _all(target: Target, dtypes: tuple[DType, ...]) -> Iterator[Offer]:
    for dtype in dtypes:
        for sizes in SHAPES:
            for b_k_fast in (False, True):
                problem, shape = plain_problem(dtype, sizes, b_k_fast), shape_class(sizes)
                for gemm in gemm_configs(problem, target, sizes):
                    yield Offer(shape, problem, gemm.binary)
                for skinny in skinny_configs(problem, target, sizes):
                    yield Offer(shape, problem, skinny.binary)
    for dtype in dtypes:
        for channels in CHANNELS:
            grouped, sizes = (
                grouped_problem(dtype, channels),
                Sizes(32 * 56 * 56, 128, 9 * channels),
            )
            for direct in direct_configs(grouped, target, sizes):
                yield Offer(shape_class(sizes), grouped, direct.binary)


GPUS = tuple(
    target
    for kind in ("amdgpu", "cuda")
    for target in targets.DEFAULT_TARGETS
    if target.kind == kind
)
HEAD = (
    "target,template,shape,dtype,W,config,VGPR,AGPR,SGPR,LDS,scratch,spilled VGPR,spilled SGPR,"
    "waves a SIMD,of,limited by"
).split(",")
TARGETS_HEAD = ["target", "compiler", "kernels", "with scratch spills"]


@dataclass(frozen=True, slots=True)
class Row:
    """One config on one GPU: the resources of its main kernel."""

    offer: Offer
    resources: Resources
    occupancy: Occupancy | None

    @property
    def spills(self) -> bool:
        return bool(self.resources.scratch or self.resources.vgpr_spills)

    def cells(self, target: Target) -> list[str]:
        """Return the row of `resources.csv`; an empty cell means that the code does not say."""
        taken, problem = self.resources, self.offer.problem
        layout = "K fast" if problem.b.strides[0] == 1 else "N fast"
        shape: str = self.offer.shape
        if (channels := self.offer.channels) is not None:
            shape, layout = f"groups of {channels}", "channels last"
        filled = self.occupancy
        numbers = (
            taken.vgprs,
            taken.agprs,
            taken.sgprs,
            taken.lds,
            taken.scratch,
            taken.vgpr_spills or 0,
            taken.sgpr_spills or 0,
            None if filled is None else filled.waves_per_simd,
            None if filled is None else filled.of,
        )
        return [
            str(target),
            self.offer.template,
            shape,
            problem.a.dtype,
            layout,
            short(self.offer),
            *("" if number is None else str(number) for number in numbers),
            "" if filled is None else filled.limited_by,
        ]


def short(offer: Offer) -> str:
    """The config without what follows from the problem."""
    c = offer.config
    if isinstance(c, GemmConfig):
        return (
            f"{c.block_m}x{c.block_n}x{c.block_k}, wave {c.wave_m}x{c.wave_n}, {c.unit}, "
            f"stages {c.stages}"
        )
    if isinstance(c, DirectConfig):
        tiles = f"{c.tile_h}x{c.tile_w} places x {c.tiles}, {c.cols} filters"
        return f"{tiles}, {c.waves} waves, {c.each} each, {c.unit}"
    tile = f"{counted(c.rows, 'row')}, {counted(c.cols, 'column')}"
    return f"{tile}, waves {c.waves_n} x {c.waves_k}, unroll {c.unroll}"


def rows(target: Target, cache_root: Path, jobs: int = 2) -> tuple[Row, ...]:
    """Compiles what is offered for a target. Raises ToolchainError, ValueError without numbers."""

    def row_of(offer: Offer) -> Row:
        compiled = code_cache.compile(offer.render().source, target, cache_root=cache_root)
        kernels = resources(compiled)
        if isinstance(kernels, Unknown):
            raise ValueError(kernels.reason)
        main = next(kernel for kernel in kernels if "reduce_parts" not in kernel.kernel)
        # The compiler knows nothing of what a launch asks for.
        main = replace(main, lds=lds_bytes(offer.config, offer.problem))
        return Row(offer, main, occupancy(target, main, offer.config.waves * target.wave))

    with ThreadPoolExecutor(jobs) as pool:
        return tuple(pool.map(row_of, offers(target)))


def tables(
    cache_root: Path, chosen: Sequence[Target] = GPUS
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the row of `targets.csv` and the rows of `resources.csv` of each target."""
    for target in chosen:
        compiler = targets.find_compiler(target)
        if isinstance(compiler, Missing):
            sys.stderr.write(f"{target}: not compiled: {compiler.reason}\n")
            continue
        compiled = rows(target, cache_root)
        spilling = sum(row.spills for row in compiled)
        summary = [str(target), compiler.version, str(len(compiled)), str(spilling)]
        listed = (row for row in compiled if row.offer.problem.a.dtype == "float16" or row.spills)
        yield summary, [row.cells(target) for row in listed]


def written(rows: Iterable[Sequence[str]]) -> str:
    """Return the text of a CSV file with these rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def replaced(path: Path, head: Sequence[str], new: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return the file's text with the rows of `new`, by first column, in place of its own.

    Rows whose first column `new` lacks stay. Raises ValueError if the file has another head.
    """
    with path.open(encoding="utf-8", newline="") as file:
        old_head, *old = csv.reader(file)
    if old_head != list(head):
        raise ValueError(f"{path} has other columns")
    names = dict.fromkeys([*(row[0] for row in old), *new])
    return written(
        [
            head,
            *(
                row
                for name in names
                for row in new.get(name, [row for row in old if row[0] == name])
            ),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache_dir", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--write", type=Path, metavar="DIR", help="update the CSV files there")
    chosen = parser.parse_args(arguments)
    summaries: dict[str, list[list[str]]] = {}
    kernels: dict[str, list[list[str]]] = {}
    for summary, listed in tables(chosen.cache_dir):
        summaries[summary[0]], kernels[summary[0]] = [summary], listed
        if chosen.write is None:
            sys.stdout.write(written([summary, *listed]))
    if chosen.write is not None:
        for name, head, new in (
            ("targets.csv", TARGETS_HEAD, summaries),
            ("resources.csv", HEAD, kernels),
        ):
            path = chosen.write / name
            path.write_text(replaced(path, head, new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
