"""The table of `docs/templates.md`: what each default config takes of each GPU.

`python -m backend.templates.resources_table CACHE_DIR [--write docs/templates.md]` compiles all
that is offered by default for contiguous, aligned fp16 and fp32 problems and prints the table, or
puts it between the markers of the file. fp32 is counted, and listed where it spills. Architectures
without a compiler here are named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from backend.templates.config import GemmConfig
from backend.templates.offers import Offer, offers
from backend.toolchain import code_cache, targets
from backend.toolchain.occupancy import Occupancy, occupancy
from backend.toolchain.resources import Resources, Unknown, resources
from backend.toolchain.target import Missing, Target

BEGIN = "<!-- generated: python -m backend.templates.resources_table -->"
END = "<!-- end of generated -->"
GPUS = tuple(
    target
    for kind in ("amdgpu", "cuda")
    for target in targets.DEFAULT_TARGETS
    if target.kind == kind
)
_HEAD = (
    "| template | shape | dtype, W | config | VGPR | AGPR | SGPR | LDS | scratch | spills "
    "| waves a SIMD |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One config on one GPU: the resources of its main kernel."""

    offer: Offer
    resources: Resources
    occupancy: Occupancy | None

    @property
    def spills(self) -> bool:
        return bool(self.resources.scratch or self.resources.vgpr_spills)

    def markdown(self) -> str:
        found, problem = self.resources, self.offer.problem
        layout = "K fast" if problem.b.strides[0] == 1 else "N fast"
        spills = f"{found.vgpr_spills or 0} / {found.sgpr_spills or 0}"
        filled = "?"
        if self.occupancy is not None:
            limit = self.occupancy.limited_by
            filled = f"{self.occupancy.waves_per_simd} of {self.occupancy.of} ({limit})"
        numbers = (found.vgprs, found.agprs, found.sgprs, found.lds, found.scratch)
        cells = (
            self.offer.template,
            self.offer.shape,
            f"{problem.a.dtype}, {layout}",
            short(self.offer),
            *("" if number is None else str(number) for number in numbers),
            spills,
            filled,
        )
        return f"| {' | '.join(cells)} |"


def short(offer: Offer) -> str:
    """The config without what follows from the problem."""
    c = offer.config
    if isinstance(c, GemmConfig):
        core = f"mfma {c.mfma}" if c.mfma else "FMA"
        return (
            f"{c.block_m}x{c.block_n}x{c.block_k}, wave {c.wave_m}x{c.wave_n}, {core}, "
            f"stages {c.stages}"
        )
    return f"{c.rows} rows, {c.cols} columns, waves {c.waves_n} x {c.waves_k}, unroll {c.unroll}"


def rows(target: Target, cache_root: Path, jobs: int = 2) -> tuple[Row, ...]:
    """Compiles what is offered for a target. Raises ToolchainError, ValueError without numbers."""

    def one(offer: Offer) -> Row:
        compiled = code_cache.compile(offer.render().source, target, cache_root=cache_root)
        found = resources(compiled)
        if isinstance(found, Unknown):
            raise ValueError(found.reason)
        main = next(kernel for kernel in found if "reduce_parts" not in kernel.kernel)
        return Row(offer, main, occupancy(target, main, offer.config.waves * target.wave))

    with ThreadPoolExecutor(jobs) as pool:
        return tuple(pool.map(one, offers(target)))


def table(cache_root: Path, chosen: Sequence[Target] = GPUS) -> Iterator[str]:
    """Markdown, a section a target, each as soon as it is done."""
    for target in chosen:
        found = targets.find(target)
        yield f"\n### {target}\n"
        if isinstance(found, Missing):
            yield f"Not compiled: {found.reason}."
            continue
        made = rows(target, cache_root)
        spilling = sum(row.spills for row in made)
        yield f"{found.version}. {len(made)} kernels, {spilling} of them with scratch spills.\n"
        yield _HEAD
        listed = (row for row in made if row.offer.problem.a.dtype == "float16" or row.spills)
        yield from (row.markdown() for row in listed)


def put_between_markers(text: str, generated: str) -> str:
    """Raises ValueError if the text lacks the markers."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{generated}\n{text[end:]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache_dir", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file")
    chosen = parser.parse_args(arguments)
    lines = []
    for line in table(chosen.cache_dir):
        lines.append(line)
        if chosen.write is None:
            sys.stdout.write(line + "\n")
    if chosen.write is not None:
        text = chosen.write.read_text(encoding="utf-8")
        chosen.write.write_text(put_between_markers(text, "\n".join(lines)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
