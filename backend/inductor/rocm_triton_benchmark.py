"""Compiling and timing one choice in Triton."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.inductor import alone
from backend.inductor.rocm_benchmark import ROCmBenchmarkRequest
from backend.inductor.rocm_check import GemmReference
from backend.inductor.rocm_errors import CompileFailed
from backend.inductor.rocm_process import environment
from backend.inductor.rocm_triton_runtime import load_triton, store
from backend.model.origin import kernel_hash
from backend.templates.errors import TritonError
from backend.templates.triton.choice import TritonChoice
from backend.templates.triton.module_file import ENTRY, INTERPRETER

COMPILE_SECONDS = 300.0
"""Of these kernels the slowest take a few seconds each."""

_CODE = alone.program("from backend.templates.triton.code_object import main; sys.exit(main())")


@dataclass(frozen=True, slots=True)
class TritonSpec:
    """A module and what it is compiled for; `name` is that of its file."""

    source: str
    name: str
    target: str

    @property
    def entry(self) -> str:
        return ENTRY

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)

    def load(self) -> Callable[..., None]:
        """Raises CompileFailed."""
        if self in _failed:
            raise CompileFailed(_failed[self])
        try:
            return load_triton(self.source, name=self.name, target=self.target)
        except (TritonError, SyntaxError) as error:
            raise self.failed(str(error)) from error

    def failed(self, reason: str) -> CompileFailed:
        """An error for `reason`, which will be said again instead of trying again."""
        _failed[self] = reason
        return CompileFailed(reason)


_failed: dict[TritonSpec, str] = {}
_compiled: set[TritonSpec] = set()


class TritonBenchmarkRequest(ROCmBenchmarkRequest):
    """As for a kernel in HIP, but `launch` takes tensors: a, b, extras, output, workspace, sizes.

    `workspace_size` is in bytes. Triton finds what `precompile` made in its own cache, if a launch
    asks for the same.
    """

    spec: TritonSpec

    def __init__(
        self,
        spec: TritonSpec,
        choice: TritonChoice,
        input_tensor_meta: Sequence[Any],
        output_tensor_meta: Any,
        sizes: Sequence[int],
        workspace_size: int,
        reference: GemmReference | None,
    ) -> None:
        super().__init__(spec, input_tensor_meta, output_tensor_meta, sizes, reference)
        self.choice = choice
        self.workspace_size = workspace_size

    def precompile(self) -> None:
        """For a GPU, in a process of its own; the interpreter compiles nothing. Raises
        CompileFailed."""
        if self.spec.target == INTERPRETER:
            return
        if self.spec in _failed:
            raise CompileFailed(_failed[self.spec])
        if self.spec not in _compiled:
            reason = _compile_apart(self.choice)
            if reason:
                raise self.spec.failed(reason)
            _compiled.add(self.spec)

    def update_workspace_size(self) -> int:
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """A function that starts the kernels once."""
        launch = self.spec.load()
        tensors = [*input_tensors[:2], *(input_tensors[2:] if self.choice.extras else ()), out]
        if size := self.update_workspace_size():
            tensors.append(torch.full((size // 4,), torch.nan, device=out.device))
        return functools.partial(launch, *tensors, *self.extra_args)


def _compile_apart(choice: TritonChoice) -> str:
    """Why it cannot be compiled; nothing if it was."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _CODE, str(alone.PACKAGE)],
            input=pickle.dumps((choice, store())),
            capture_output=True,
            env=environment(),
            timeout=COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"Triton did not compile it within {COMPILE_SECONDS:g} s"
    told = done.stdout.decode(errors="replace").strip()
    if done.returncode and not told:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        return f"Triton's process ended with status {done.returncode}: {last}"
    return told
