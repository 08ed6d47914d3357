"""Every template on every AMD target, executed and compared with float64: prints a table.

    python -m tests.amd_executor [--targets gfx942 gfx1201] [--kinds gemm triton] [--every 8]

The cases are those of `tests.gpu.numerics`, Triton products of ours, and PyTorch's own Triton
template. Ends with 1 if a kernel was wrong, could not be compiled, or has an instruction that the
executor does not know.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.amd_executor.library import core
from tests.amd_executor.trials import Outcome, hip_cases, try_hip, try_triton
from tests.support.triton_lab import triton_child

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
KINDS = "gemm skinny dtypes prologue epilogue conv direct grouped large triton inductor".split()
SLOW = ("large",)
"""Only where they are named: a second a call."""


def of_kind(arch: str, kind: str) -> list[int]:
    return [number for number, case in enumerate(hip_cases(arch)) if case.kind == kind]


def outcomes(
    targets: Sequence[str], kinds: Sequence[str], every: int, jobs: int, seed: int
) -> Iterator[Outcome]:
    """Yield the outcome of one in `every` kernels of each kind and target."""
    core()  # compiled once, before the workers start
    with ProcessPoolExecutor(jobs) as pool:
        started = [
            pool.submit(try_hip, arch, number, seed)
            for arch in targets
            for kind in kinds
            for number in of_kind(arch, kind)[::every]
        ]
        yield from (outcome.result() for outcome in started)
    if not {"triton", "inductor"} & set(kinds):
        return
    with (
        tempfile.TemporaryDirectory(prefix="amd-executor-") as folder,
        triton_child(Path(folder), interpret=False) as child,
    ):
        for arch in targets:
            for kind in ("triton", "inductor"):
                if kind in kinds:
                    yield from try_triton(child, arch, kind, every)


def table(results: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line a target and kind, and which instructions were executed."""
    yield f"{'target':8} {'kind':9} {'kernels':>7} {'calls':>6} {'wrong':>6} {'seconds':>8}"
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for result in results:
        groups.setdefault((result.arch, result.kind), []).append(result)
    for (arch, kind), group in groups.items():
        calls, wrong = sum(x.calls for x in group), sum(x.wrong is not None for x in group)
        seconds = sum(x.seconds for x in group)
        yield f"{arch:8} {kind:9} {len(group):7} {calls:6} {wrong:6} {seconds:8.1f}"
    for arch in dict.fromkeys(result.arch for result in results):
        counts: Counter[str] = Counter()
        for result in results:
            counts.update(result.executed if result.arch == arch else {})
        never = sorted(name for name, count in counts.items() if count == 0)
        yield (
            f"{arch}: {sum(counts.values()):,} instructions of {len(counts) - len(never)} kinds "
            f"executed; in the code and never reached: {', '.join(never) or 'none'}"
        )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS)
    parser.add_argument("--every", type=int, default=1, help="one of so many kernels of a kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(words)
    kinds = args.kinds or [kind for kind in KINDS if kind not in SLOW]
    results = []
    for result in outcomes(args.targets, kinds, args.every, args.jobs, args.seed):
        results.append(result)
        if result.wrong is not None:
            print(f"WRONG {result.arch} {result.kind} {result.name}\n    {result.wrong[:800]}")
    print("\n".join(table(results)))
    return 1 if any(result.wrong is not None for result in results) else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    raise SystemExit(main())
