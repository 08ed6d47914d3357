"""Timing one choice, in this process or in another one: what is needed travels with the request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import ChoiceError, choice_error
from backend.inductor.benchmark.places import Place, place_of
from backend.inductor.benchmark.reference import Drawing, Expected, Reference, check_untouched
from backend.inductor.benchmark.tensors import TensorPlan, make_inputs
from backend.inductor.torch.benchmarks import BenchmarkRequest
from backend.templates.errors import TritonError
from backend.toolchain.errors import CompileError


class Spec(Hashable, Protocol):
    """What a request has to know of its kernel."""

    @property
    def entry(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def hash_key(self) -> str: ...
    @property
    def toolchain(self) -> str: ...

    def load(self) -> Any:
        """What starts it. Raises ChoiceError."""


_failed: dict[Spec, tuple[type[ChoiceError], str]] = {}


def not_compiled(spec: Spec, error: Exception) -> ChoiceError:
    """What to raise where `error` is why a kernel cannot be loaded. What a compiler said, or that
    it took too long, will be said again instead of trying again."""
    failure = choice_error(error)
    if isinstance(error, (CompileError, TritonError, SyntaxError)):
        _failed[spec] = type(failure), str(failure)
    return failure


def raise_known_failure(spec: Spec) -> None:
    """Raises ChoiceError where this kernel could not be compiled before."""
    if spec in _failed:
        kind, reason = _failed[spec]
        raise kind(reason)


class ROCmBenchmarkRequest(BenchmarkRequest):  # type: ignore[misc]
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
        reference: Reference | None,
    ) -> None:
        super().__init__(spec.entry, list(input_tensor_meta), output_tensor_meta, tuple(extra_args))
        self.spec: Spec = spec
        self.reference = reference
        self.workspace_size = 0
        self._workspace: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Where it runs, whichever device is current."""
        return torch.device(self.output_tensor_meta.device)

    @property
    def place(self) -> Place:
        return place_of(self.device)

    def precompile(self) -> None:
        """Fill the code cache. Raises ChoiceError."""
        self.spec.load()

    def update_workspace_size(self) -> int:
        """Ask the kernel for the bytes that it needs beside its tensors."""
        self.workspace_size = self.spec.load().workspace_bytes(self.extra_args)
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """A function that starts the kernel once, to be called where its device is current; all
        that are made share a workspace, so they belong to one stream."""
        with self.place.current():
            kernel = self.spec.load()
            size = self.update_workspace_size()
        if size and not _fits(self._workspace, size, out.device):
            self._workspace = torch.empty(size, dtype=torch.uint8, device=out.device)
        return functools.partial(
            kernel,
            *(tensor.data_ptr() for tensor in (*input_tensors, out)),
            *self.extra_args,
            None,
            None if self._workspace is None else self._workspace.data_ptr(),
            self.place.stream(),
        )

    def cleanup_run_fn(self) -> None:
        self._workspace = None

    def benchmark(self, *input_tensors: Tensor, out: Tensor | None = None) -> float:
        """Milliseconds of one run, if what it computes is right; `out` then has what it makes of
        `input_tensors`.

        The tensors that Inductor offers are not timed: its rivals share them, and they have no
        guard around them. Its device is the current one meanwhile, whichever was before. Raises a
        ChoiceError leaf, KernelError for an error code, or what torch raises.
        """
        with self.place.current():
            milliseconds = self._timed()
            if out is not None:
                out.copy_(self.computed(input_tensors))
            return milliseconds

    def computed(self, values: Sequence[Tensor]) -> Tensor:
        """What the kernel makes of these values, in memory of our own."""
        plans = [plan_of(meta) for meta in self.input_tensor_meta]
        inputs = holding(plans, values)
        output = plan_of(self.output_tensor_meta).make()
        try:
            with self.place.current():
                self.make_run_fn(*inputs, out=output)()
                self.place.wait()
            return output
        finally:
            self.cleanup_run_fn()

    def expected(self) -> Expected | None:
        """What comes out of the inputs that `make_inputs` makes for it; None if that is unknown."""
        return None if self.reference is None else self.reference.expected(self._inputs())

    def _inputs(self) -> list[Tensor]:
        inputs = _inputs_of(tuple(map(plan_of, self.input_tensor_meta)))
        return self.reference.drawn(inputs) if isinstance(self.reference, Drawing) else inputs

    def _timed(self) -> float:
        inputs, expected = self._inputs(), self.expected()
        output = plan_of(self.output_tensor_meta).make()
        try:
            run = self.make_run_fn(*inputs, out=output)
            run()
            self.place.wait()
            if expected is not None:
                expected.check(output)
                check_untouched(output)
            return self.place.time(run)
        finally:
            self.cleanup_run_fn()

    def __str__(self) -> str:
        return f"{self.spec.entry} for {self.spec.target}, {self.spec.hash_key}"


def _fits(workspace: Tensor | None, size: int, device: torch.device) -> bool:
    return workspace is not None and workspace.numel() == size and workspace.device == device


def plan_of(meta: Any) -> TensorPlan:
    """From Inductor's `TensorMeta`."""
    return TensorPlan(
        str(meta.device), meta.dtype, tuple(meta.sizes), tuple(meta.strides), int(meta.offset)
    )


@functools.lru_cache(maxsize=1)
def _inputs_of(plans: tuple[TensorPlan, ...]) -> list[Tensor]:
    """Those of a tuning, once for all of its choices."""
    return make_inputs(plans)


def forget_problem() -> None:
    """Let go of the inputs of the last tuning: they may be large, and are on its device."""
    _inputs_of.cache_clear()


def holding(plans: Sequence[TensorPlan], values: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of our own with these values."""
    return [
        plan.holding(value[tuple(map(slice, plan.distinct))])
        for plan, value in zip(plans, values, strict=True)
    ]
