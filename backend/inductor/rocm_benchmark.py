"""Timing one choice, in this process or in another one: what is needed travels with the request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from backend.inductor import torch_graph
from backend.inductor.rocm_check import (
    Expected,
    GemmReference,
    TensorPlan,
    check_untouched,
    make_inputs,
)
from backend.inductor.rocm_errors import CompileFailed
from backend.inductor.rocm_runtime import Kernel, load_kernel
from backend.model.origin import kernel_hash
from backend.toolchain.errors import ToolchainError


class Spec(Protocol):
    """What a request has to know of its kernel."""

    @property
    def entry(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def hash_key(self) -> str: ...

    def load(self) -> Any:
        """What starts it. Raises CompileFailed."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel to compile and how it is called; all that `load_kernel` needs."""

    source: str
    entry: str
    target: str
    pointers: int
    integers: int

    def load(self) -> Kernel:
        """Compile it or take it from the cache. Raises CompileFailed, each time the same one."""
        if (reason := _failed.get(self)) is not None:
            raise CompileFailed(reason)
        try:
            return load_kernel(
                self.source,
                entry=self.entry,
                target=self.target,
                pointers=self.pointers,
                integers=self.integers,
            )
        except ToolchainError as error:
            _failed[self] = str(error)
            raise CompileFailed(str(error)) from error

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)


_failed: dict[KernelSpec, str] = {}


class ROCmBenchmarkRequest(torch_graph.BenchmarkRequest):  # type: ignore[misc]
    """Compile, load, ask for the workspace, run, check, time, clean up. It can be pickled.

    `extra_args` are the sizes and runtime arguments. The inputs are made from the metas: with the
    real strides and offsets, and the same numbers for every choice of a tuning.
    """

    def __init__(
        self,
        spec: Spec,
        input_tensor_meta: Sequence[Any],
        output_tensor_meta: Any,
        extra_args: Sequence[int],
        reference: GemmReference | None,
    ) -> None:
        super().__init__(spec.entry, list(input_tensor_meta), output_tensor_meta, tuple(extra_args))
        self.spec: Spec = spec
        self.reference = reference
        self.workspace_size = 0
        self._workspace: Tensor | None = None

    def precompile(self) -> None:
        """Fill the code cache. Raises CompileFailed."""
        self.spec.load()

    def update_workspace_size(self) -> int:
        """Ask the kernel for the bytes that it needs beside its tensors."""
        self.workspace_size = self.spec.load().workspace_bytes(self.extra_args)
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """A function that starts the kernel once."""
        kernel = self.spec.load()
        if size := self.update_workspace_size():
            self._workspace = torch.empty(size, dtype=torch.uint8, device=out.device)
        stream = torch.cuda.current_stream(out.device).cuda_stream if out.is_cuda else None
        return functools.partial(
            kernel,
            *(tensor.data_ptr() for tensor in (*input_tensors, out)),
            *self.extra_args,
            None,
            None if self._workspace is None else self._workspace.data_ptr(),
            stream,
        )

    def cleanup_run_fn(self) -> None:
        self._workspace = None

    def benchmark(self, *input_tensors: Tensor, out: Tensor | None = None) -> float:
        """Milliseconds of one run, if what it computes is right; `out` then has what it makes of
        `input_tensors`.

        The tensors that Inductor offers are not timed: its rivals share them, and they have no
        guard around them. Raises a ChoiceError leaf, or KernelError for an error code.
        """
        milliseconds = self._timed()
        if out is not None:
            out.copy_(self.computed(input_tensors))
        return milliseconds

    def computed(self, values: Sequence[Tensor]) -> Tensor:
        """What the kernel makes of these values, in memory of our own."""
        plans = [plan_of(meta) for meta in self.input_tensor_meta]
        inputs = [
            plan.holding(value[tuple(map(slice, plan.distinct))])
            for plan, value in zip(plans, values, strict=True)
        ]
        output = plan_of(self.output_tensor_meta).make()
        try:
            self.make_run_fn(*inputs, out=output)()
            if output.is_cuda:
                torch.cuda.synchronize(output.device)
            return output
        finally:
            self.cleanup_run_fn()

    def expected(self) -> Expected | None:
        """What comes out of the inputs that `make_inputs` makes for it; None if that is unknown."""
        return _problem(tuple(map(plan_of, self.input_tensor_meta)), self.reference)[1]

    def _timed(self) -> float:
        plans = tuple(plan_of(meta) for meta in self.input_tensor_meta)
        inputs, expected = _problem(plans, self.reference)
        output = plan_of(self.output_tensor_meta).make()
        try:
            run = self.make_run_fn(*inputs, out=output)
            run()
            if output.is_cuda:
                torch.cuda.synchronize(output.device)
            if expected is not None:
                expected.check(output)
                check_untouched(output)
            return torch_graph.time_gpu(run) if output.is_cuda else torch_graph.time_cpu(run)
        finally:
            self.cleanup_run_fn()

    def __str__(self) -> str:
        return f"{self.spec.entry} for {self.spec.target}, {self.spec.hash_key}"


def plan_of(meta: Any) -> TensorPlan:
    """From Inductor's `TensorMeta`."""
    return TensorPlan(
        str(meta.device), meta.dtype, tuple(meta.sizes), tuple(meta.strides), int(meta.offset)
    )


@functools.lru_cache(maxsize=1)
def _problem(
    plans: tuple[TensorPlan, ...], reference: GemmReference | None
) -> tuple[list[Tensor], Expected | None]:
    """The inputs of a tuning and what they lead to, once for all of its choices."""
    inputs = make_inputs(plans)
    return inputs, None if reference is None else reference.expected(inputs)
