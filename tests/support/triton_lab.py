"""The near end of a child process that has Triton; `triton_child.py` is the far end.

Triton stays out of the process that runs the other tests, where torch would behave differently.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from backend.templates.operand import Operand
from backend.templates.triton.choice import CodeObject, TritonChoice
from backend.templates.triton.gemm import TritonGemm

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Numbers:
    """`error` is the worst one as a multiple of what rounding allows; above 1 is wrong.

    `stray` counts elements outside of the output that were written.
    """

    error: float
    stray: int


@dataclass(frozen=True, slots=True)
class Case:
    """A choice with the problem it was made for, and numbers for the problem's symbols.

    `extras` are the tensors that the epilogue loads, `others` those that it stores beside `out`.
    """

    choice: TritonChoice
    problem: TritonGemm
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    extras: tuple[Operand, ...] = ()
    others: tuple[Operand, ...] = ()


class TritonChild:
    """The near end. `run` and `compile` raise AssertionError with what the child said."""

    def __init__(self, python: str, folder: Path, interpret: bool) -> None:
        env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TRITON_INTERPRET": "1" if interpret else "0",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", "tests.support.triton_child", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=ROOT,
        )

    def run(self, case: Case) -> Numbers:
        """Run a choice in the interpreter and compare with float64."""
        answer: Numbers = self._ask(("run", case))
        return answer

    def compile(self, choice: TritonChoice) -> tuple[CodeObject, ...]:
        answer: tuple[CodeObject, ...] = self._ask(("compile", choice))
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        send(self._process.stdin, request)
        answer = receive(self._process.stdout)
        assert not isinstance(answer, str), answer
        assert answer is not None, "the child ended"
        return answer


@contextmanager
def triton_child(folder: Path, interpret: bool) -> Iterator[TritonChild]:
    """Skips the tests where no Python with Triton is found."""
    child = TritonChild(triton_python(), folder, interpret)
    try:
        yield child
    finally:
        child.close()


def triton_python() -> str:
    """A Python that has Triton beside all that Inductor needs; skips where there is none."""
    beside = ROOT / ".venv-triton" / "bin" / "python"
    named = os.environ.get("ROCM_TUI_TRITON_PYTHON")
    python = named or (str(beside) if beside.exists() else sys.executable)
    if python == sys.executable and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not here: make .venv-triton, or set ROCM_TUI_TRITON_PYTHON")
    wanted = ["torch", "triton", "numpy", "sympy", "jinja2", "pytest"]
    code = (
        f"from importlib.util import find_spec; print(*(m for m in {wanted} if not find_spec(m)))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode != 0 or done.stdout.strip():
        pytest.skip(f"{python} lacks {done.stdout.strip()}{done.stderr[-200:]}")
    return python


def send(stream: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> Any:
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None
