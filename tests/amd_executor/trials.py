"""One kernel after the other: compiled, called, compared with float64."""

from __future__ import annotations

import functools
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.errors import TemplateError, ToolchainError
from backend.toolchain.target import amdgpu
from tests.amd_executor import triton
from tests.amd_executor.assembly import AssemblyError
from tests.amd_executor.library import Executor, Program
from tests.gpu.numerics import Case, cases
from tests.support.triton_lab import TritonChild


@dataclass(frozen=True)
class Outcome:
    """The result of trying one kernel; `wrong` is the mistake, or None.

    `executed` counts the instructions of its code by name, with 0 for those that no call reached.
    """

    arch: str
    kind: str
    name: str
    seconds: float
    calls: int
    wrong: str | None
    executed: Counter[str] = field(default_factory=Counter)


@functools.cache
def hip_cases(arch: str) -> Sequence[Case]:
    return tuple(cases(amdgpu(arch)))


def try_hip(arch: str, number: int, seed: int) -> Outcome:
    """Compile and call one case of `tests.gpu.numerics`."""
    case, begin = hip_cases(arch)[number], time.monotonic()
    # Half of the kernels start with the last wave.
    executor = Executor(amdgpu(arch), order=number % 2)
    executor.kind = case.kind
    with tempfile.TemporaryDirectory(prefix="amd-executor-") as folder:
        try:
            wrong = case.try_it(executor.build(case.rendered(), Path(folder)), seed)
        except (AssertionError, AssemblyError, TemplateError, ToolchainError) as error:
            wrong = f"{type(error).__name__}: {error}"
    seconds, calls = time.monotonic() - begin, executor.calls[case.kind]
    executed = _executed(executor.programs)
    return Outcome(arch, case.kind, case.name, seconds, calls, wrong, executed)


def try_triton(child: TritonChild, arch: str, kind: str, every: int = 1) -> Iterator[Outcome]:
    """Compile and run Triton's products, or PyTorch's template."""
    offered = triton.cases(arch) if kind == "triton" else triton.inductor_cases(arch)
    for name, case in list(offered)[::every]:
        begin, programs, wrong = time.monotonic(), [], None
        try:
            compiled = triton.Compiled(case, child.compile(case.choice))
            programs = compiled.programs
            numbers = compiled.run()
            if numbers.error > 1 or numbers.stray:
                wrong = str(numbers)
        except (AssertionError, AssemblyError) as error:
            wrong = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - begin
        yield Outcome(arch, kind, name, seconds, 1, wrong, _executed(programs))


def _executed(programs: Iterable[Program]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for program in programs:
        counts.update(program.executed())
    return counts
