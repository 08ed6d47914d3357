"""A mutant's trial: the fault is made in a private copy of the tree, and tests run there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path

from tests.mutants.mutations import Mutation

_LEFT_OUT = (".*", "build", "dist", "*.egg-info", "__pycache__")
_MOST_FILES = 16
"""The largest number of test files that are candidates for a mutant's trial."""
_FIRST = 2
"""The nearest test files, which run first even if they compile."""


class Verdict(Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    NO_TESTS = "no tests"


NOTICED = {Verdict.KILLED, Verdict.TIMED_OUT}


@dataclass(frozen=True, slots=True)
class Trial:
    module: str
    mutation: Mutation
    verdict: Verdict
    seconds: float
    tests: tuple[str, ...]


class Copy:
    """A private copy of a tree, with a Python that imports it wherever a child runs."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(tree, self.root, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
        venv.create(folder / "venv", symlinks=True)
        self._python = folder / "venv" / "bin" / "python"
        own = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
        # Paths are searched in this order, and `tree` may be installed in the folder after.
        ours = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
        (Path(own) / "mutants.pth").write_text(f"{self.root}\n{ours}\n")
        triton = tree / ".venv-triton" / "bin" / "python"
        # Most of a test's time would be g++ compiling what it compiled for the tree's own tests.
        compiled = tree / "build" / "cxx"
        compiled.mkdir(parents=True, exist_ok=True)
        (self.root / "build").mkdir()
        (self.root / "build" / "cxx").symlink_to(compiled)
        # Tests look for it in their own tree, and a copy has no environments.
        self._triton = {"ROCM_TUI_TRITON_PYTHON": str(triton)} if triton.exists() else {}
        self._temporary = folder / "tmp"
        self._temporary.mkdir()

    def run(self, tests: Sequence[str], limit: float) -> tuple[int | None, float]:
        """Return pytest's exit code, None after `limit` seconds, and how long it ran."""
        # Skips are no failures here, whatever the ceilings of CI are.
        env = {name: value for name, value in os.environ.items() if name != "CI"}
        words = "-x -q -n 0 -p no:cacheprovider --hypothesis-seed=0".split()
        begin = time.monotonic()
        process = subprocess.Popen(
            [self._python, "-m", "pytest", *words, *tests],
            cwd=self.root,
            env=self._triton | env | {"TMPDIR": str(self._temporary)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # with what it started: a mutant may have left children that never end
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if code is None:
                unmount(self._temporary)
        return code, time.monotonic() - begin


def unmount(folder: Path) -> None:
    """Unmount what tests that were killed had mounted below a folder."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    for place in reversed([mount.split()[4] for mount in mounts]):
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=False)


@dataclass
class Judge:
    """Runs the nearest test files with a fault, one after the other, until one notices it."""

    ranked: Callable[[str], Sequence[str]]
    limit: float
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test file takes without a fault; inf where it does not pass in time."""

    def judge(self, copy: Copy, module: str, mutation: Mutation) -> Trial:
        """Run test files for a third of the limit in all. One that has not ended after the whole
        limit, and passes in a third without the fault, shows that something became endless."""
        path = copy.root / module
        source = path.read_bytes()
        tests: list[str] = []
        total = 0.0
        nearest = self.ranked(module)[:_MOST_FILES]
        # Of the others those that compile come last: one of them can use up the time.
        others = sorted(nearest[_FIRST:], key=lambda test: test.startswith("tests/torch/"))
        for test in (*nearest[:_FIRST], *others):
            left = self.limit / 3 - total
            if left <= 0 or self.seconds.get(test, 0.0) > left:
                continue
            path.write_bytes(mutation.apply(source))
            try:
                code, seconds = copy.run([test], self.limit)
            finally:
                path.write_bytes(source)
            if code == 0:
                self.seconds.setdefault(test, seconds)
            elif not self._passes(copy, test):
                continue
            tests.append(test)
            total += seconds
            if code != 0:
                verdict = Verdict.TIMED_OUT if code is None else Verdict.KILLED
                return Trial(module, mutation, verdict, total, tuple(tests))
        verdict = Verdict.SURVIVED if tests else Verdict.NO_TESTS
        return Trial(module, mutation, verdict, total, tuple(tests))

    def _passes(self, copy: Copy, test: str) -> bool:
        """Return whether a test file passes without a fault; it runs only once."""
        if test not in self.seconds:
            code, seconds = copy.run([test], self.limit / 3)
            self.seconds[test] = seconds if code == 0 else inf
        return self.seconds[test] < inf


def failing(judge: Judge) -> list[str]:
    """Return the test files that did not pass without a fault, so that they judged nothing."""
    return sorted(test for test, seconds in judge.seconds.items() if seconds == inf)
