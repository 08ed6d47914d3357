"""Timing one choice of ours in Triton: what travels to the process that does it."""

from __future__ import annotations

import functools
import pickle
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.inductor import child_python
from backend.inductor.benchmark.errors import NotCompiled
from backend.inductor.benchmark.request import (
    ROCmBenchmarkRequest,
    not_compiled,
    raise_known_failure,
)
from backend.inductor.benchmark.tensors import Reference, unused
from backend.inductor.triton.runtime import load_triton, store
from backend.model.origin import kernel_hash
from backend.templates.errors import TritonCompileError, TritonError
from backend.templates.triton import choice as compile_child
from backend.templates.triton.choice import TritonChoice
from backend.templates.triton.module_file import ENTRY, INTERPRETER, toolchain

COMPILE_SECONDS = 300.0
"""Of these kernels the slowest take a few seconds each."""

_COMPILE = f"from {compile_child.__name__} import main; sys.exit(main())"


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
    def toolchain(self) -> str:
        """Triton brings its compiler along."""
        return toolchain()

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)

    def load(self) -> Callable[..., None]:
        """Raises ChoiceError."""
        raise_known_failure(self)
        try:
            return load_triton(self.source, name=self.name, target=self.target)
        except (TritonError, SyntaxError) as error:
            raise not_compiled(self, error) from error


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
        reference: Reference | None,
    ) -> None:
        super().__init__(spec, input_tensor_meta, output_tensor_meta, sizes, reference)
        self.choice = choice
        self.workspace_size = workspace_size

    def precompile(self) -> None:
        """For a GPU, in a process of its own; the interpreter compiles nothing. Raises
        ChoiceError."""
        if self.spec.target == INTERPRETER:
            return
        if self.spec not in _compiled:
            self.compile_ahead()

    def compile_ahead(self) -> bool:
        """Compile it, whether it is here to be launched or not; whether Triton's cache had all of
        it. Raises ChoiceError."""
        raise_known_failure(self.spec)
        try:
            found = _compile_apart(self.choice)
        except TritonCompileError as error:
            raise not_compiled(self.spec, error) from error
        _compiled.add(self.spec)
        return found

    def update_workspace_size(self) -> int:
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """A function that starts the kernels once."""
        launch = self.spec.load()
        factors = len(self.choice.inputs)
        extras = input_tensors[factors:] if self.choice.extras else ()
        tensors = [*input_tensors[:factors], *extras, out]
        if size := self.update_workspace_size():
            dtype = getattr(torch, self.choice.sums)
            count = size // dtype.itemsize
            tensors.append(torch.full((count,), unused(dtype), dtype=dtype, device=out.device))
        return functools.partial(launch, *tensors, *self.extra_args)


def _compile_apart(choice: TritonChoice) -> bool:
    """Whether Triton's cache had all of it; else it has now. Raises TritonCompileError, and
    NotCompiled where it had no time, or was ended."""
    try:
        done = subprocess.run(
            child_python.command(_COMPILE),
            input=pickle.dumps((choice, store())),
            capture_output=True,
            env=child_python.environment(),
            timeout=COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        reason = f"Triton did not compile it within {COMPILE_SECONDS:g} s"
        raise NotCompiled(reason) from None
    if done.returncode < 0:
        raise NotCompiled(f"Triton's process died of signal {-done.returncode}")
    said = done.stdout.decode(errors="replace").strip()
    if not done.returncode:
        return said == compile_child.FOUND
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    raise TritonCompileError(
        said or f"Triton's process ended with status {done.returncode}: {last}"
    )
