"""Every template on the GPU that is there, against float64: the cases of the CPU target's tests.

    python -m tests.gpu.numerics [--seconds 90] [--seed 1] [--least] [--exact] [--device cpu]

All kernels that are offered for this GPU are compiled, on all cores, or those that can be begun in
`--compile-seconds`, some of each kind; then each is called with drawn sizes, padding, broadcasts
and splits. Bytes around each operand, around the workspace and between the lines of a result must
stay. One round has a seed; rounds go on for `--seconds` after the compilation. `--least` takes one
kernel of each kind in one round, `--exact` lets allocations end where operands do: for
compute-sanitizer.
`--names` names each kernel on stderr before it is called, so that the last name is that of a kernel
which ends the process; `--after NAME` goes on behind it. Prints each mistake, and how many calls of
each kind there were; ends with 1 after a mistake.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from backend.errors import TemplateError, ToolchainError
from backend.templates.config import GemmConfig
from backend.templates.few_channels import direct_configs
from backend.templates.heuristics import gemm_configs
from backend.templates.problem import Sizes
from backend.templates.rendering import Rendered
from backend.toolchain.target import Target
from tests.support import conv_lab, prologue_cases, template_cases
from tests.support.gpu_lab import Gpu
from tests.support.template_lab import Kernel
from tests.unit.templates import (
    test_convolution,
    test_direct,
    test_dtypes,
    test_epilogue,
    test_grouped,
    test_prologue,
)

LARGE = (1021, 1283, 517)
"""Tiles enough that those of one row are in flight with those of others, and ragged."""


@dataclass(frozen=True)
class Case:
    """A kernel, and what tries it with the calls of a seed: raises AssertionError, or tells."""

    kind: str
    name: str
    rendered: Callable[[], Rendered]
    try_it: Callable[[Kernel, int], str | None]

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


def cases(target: Target) -> Iterator[Case]:
    """What is offered for the target, of each template."""
    for binary in template_cases.binaries((target,)):
        yield _product("gemm" if _tiled(binary.config) else "skinny", binary)
    large = [b for b in template_cases.binaries((target,)) if _tiled(b.config)]
    for binary in large:
        if not binary.problem_class.batched:
            yield _product("large", binary, LARGE)
    for binary in test_dtypes.sample((target,)):
        yield _product("dtypes", binary)
    for computed in (*test_prologue.sample((target,)), *test_prologue.refittings((target,))):
        yield Case(
            "prologue",
            computed.name,
            computed.render,
            lambda kernel, seed, b=computed: prologue_cases.check(kernel, b, seed),  # type: ignore[misc]
        )
    for name, (of, _) in test_epilogue.CASES.items():
        yield Case(
            "epilogue",
            name,
            lambda name=name: test_epilogue.rendered(name, target),  # type: ignore[misc]
            lambda kernel, seed, of=of: _stores(kernel, of, seed),  # type: ignore[misc]
        )
    for name, problem_class in test_convolution.CLASSES.items():
        for config in gemm_configs(problem_class.problem(), target, Sizes(25088, 64, 144), 4):
            image = conv_lab.Binary(problem_class, config.binary)
            yield Case(
                "conv",
                f"{name} {config.description}",
                image.render,
                lambda kernel, seed, b=image: conv_lab.check(kernel, b, number=seed),  # type: ignore[misc]
            )
    for name, problem_class in test_direct.CLASSES.items():
        problem = problem_class.problem(joined=True)
        for config in direct_configs(problem, target, Sizes(25088, int(problem.n), 144), 6):
            image = conv_lab.Binary(problem_class, config)
            yield Case(
                "direct",
                f"{name} {config.description}",
                image.render,
                lambda kernel, seed, b=image: conv_lab.check(kernel, b, number=seed),  # type: ignore[misc]
            )
    for name, dtype, k_fast in (("mfma", "bfloat16", True), ("fma", "float32", False)):
        of_rows = test_grouped.problem(dtype, k_fast)  # type: ignore[arg-type]
        for config in gemm_configs(of_rows, target, Sizes(200, 64, 64), 4):
            yield Case(
                "grouped",
                f"{dtype} {config.description}",
                lambda name=name, tile=config: test_grouped.rendered(name, tile),  # type: ignore[misc]
                lambda kernel, seed, name=name: test_grouped.check(kernel, name, seed),  # type: ignore[misc]
            )


def _tiled(config: object) -> bool:
    return isinstance(config, GemmConfig)


def _product(
    kind: str, binary: template_cases.Binary, near: tuple[int, int, int] | None = None
) -> Case:
    examples = 8 if near is None else 2

    def try_it(kernel: Kernel, seed: int) -> None:
        template_cases.check(kernel, binary, False, seed, near, examples)

    return Case(kind, binary.name, binary.render, try_it)


def _stores(kernel: Kernel, of: test_epilogue.GemmProblem, seed: int) -> str | None:
    for sizes, split in itertools.product((*test_epilogue.SIZES, (131, 260, 97)), (1, 3)):
        if wrong := test_epilogue.mistake(kernel, of, sizes, split):
            return f"{sizes} in {split} parts: {wrong}"
    return None


@dataclass
class Session:
    """The kernels of all cases, tried round after round."""

    gpu: Gpu
    wrong: list[str]
    names: bool = False

    def compiled(self, found: list[Case], root: Path, end: float) -> list[tuple[Case, Kernel]]:
        """Compile the kernels of cases, as many as can be begun until `end`."""

        def made(case: Case) -> Kernel | str | None:
            if time.monotonic() > end:
                return None
            try:
                return self.gpu.build(case.rendered(), root)
            except (TemplateError, ToolchainError) as error:
                return f"{type(error).__name__}: {str(error)[:400]}"

        with ThreadPoolExecutor() as pool:
            built: list[Future[Kernel | str | None]] = [pool.submit(made, case) for case in found]
        kernels = []
        for case, future in zip(found, built, strict=True):
            kernel = future.result()
            if isinstance(kernel, str):
                self._tell(case, kernel)
            elif kernel is not None:
                kernels.append((case, kernel))
        return kernels

    def round(self, kernels: list[tuple[Case, Kernel]], seed: int, end: float) -> bool:
        """Whether all were tried."""
        for case, kernel in kernels:
            if time.monotonic() > end:
                return False
            self.gpu.kind = case.kind
            if self.names:
                print(f"trying {case.label}, seed {seed}", file=sys.stderr, flush=True)
            try:
                if said := case.try_it(kernel, seed):
                    self._tell(case, f"seed {seed}: {said}")
            except AssertionError as error:
                self._tell(case, f"seed {seed}: {str(error)[:600]}")
        return True

    def _tell(self, case: Case, what: str) -> None:
        self.wrong.append(case.label)
        print(f"WRONG {case.label}\n    {what}", flush=True)


def by_turns(found: list[Case]) -> list[Case]:
    """One of each kind after the other, so that each kind has its share of a short time."""
    kinds: dict[str, list[Case]] = {}
    for case in found:
        kinds.setdefault(case.kind, []).append(case)
    rows = itertools.zip_longest(*kinds.values())
    return [case for row in rows for case in row if case is not None]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--compile-seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--after", metavar="NAME", help="begin with the kernel after this one")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args(words)
    begin = time.monotonic()
    gpu = Gpu(args.device, args.exact)
    found = by_turns(list(cases(gpu.target)))
    if args.least:
        found = list({(c.kind, c.name.split("-")[0], "wgmma" in c.name): c for c in found}.values())
    if args.device == "cpu":  # of these, one takes up to a minute on a CPU
        found = [case for case in found if case.kind != "large"]
    if args.after is not None:
        found = found[[case.label for case in found].index(args.after) + 1 :]
    session = Session(gpu, [], args.names)
    with tempfile.TemporaryDirectory() as folder:
        kernels = session.compiled(found, Path(folder), begin + args.compile_seconds)
        took = time.monotonic() - begin
        print(f"{len(kernels)} of {len(found)} kernels compiled in {took:.1f} s", flush=True)
        # Counted from here: beside other work the compilation alone can take longer.
        end = time.monotonic() + args.seconds
        seed, rounds, whole = args.seed, 0, True
        while whole and time.monotonic() < end and not (args.least and rounds):
            whole = session.round(kernels, seed, end)
            rounds, seed = rounds + whole, seed + 1
    calls = ", ".join(f"{kind} {count}" for kind, count in sorted(gpu.calls.items()))
    name = "CPU" if args.device == "cpu" else torch.cuda.get_device_name(0)
    print(f"{name}, {gpu.target}, torch {torch.__version__}")
    print(f"seeds {args.seed} to {seed - 1}, {rounds} whole rounds: {calls}")
    kernels_wrong = len(set(session.wrong))
    print(f"{len(session.wrong)} wrong, of {kernels_wrong} kernels" if kernels_wrong else "0 wrong")
    return 1 if session.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
