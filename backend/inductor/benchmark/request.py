"""Timing one choice, in this process or in another one: the request contains all that is needed.

A kernel's launch goes to the current device of its thread, wherever its tensors are
(`BenchmarkDevice`). The benchmark process answers a request with `answer`.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backend.disk.layout import cache_dir
from backend.errors import (
    CompileError,
    ToolchainError,
    TritonCompileError,
    TritonError,
    UncompiledError,
)
from backend.inductor import child_python
from backend.inductor.benchmark.errors import (
    ChoiceError,
    DeviceLost,
    NoDevice,
    NotCompiled,
    OutOfMemory,
    choice_error,
    is_starved,
)
from backend.inductor.benchmark.tensors import (
    ComputeResult,
    Expected,
    Reference,
    TensorPlan,
    check_untouched,
    make_inputs,
    unused,
)
from backend.inductor.guard import describe
from backend.inductor.hip.runtime import LoadedKernel, load_kernel
from backend.inductor.torch import benchmarks
from backend.inductor.torch.benchmarks import BenchmarkRequest
from backend.inductor.triton.runtime import load_triton, store
from backend.model.origin import kernel_hash
from backend.templates.triton import choice as compile_child
from backend.templates.triton.choice import TritonChoice
from backend.templates.triton.module_file import ENTRY, INTERPRETER
from backend.templates.triton.module_file import toolchain as triton_toolchain
from backend.toolchain import code_cache
from backend.toolchain.target import parse_target


@dataclass(frozen=True, slots=True)
class BenchmarkDevice:
    """A device that choices run on: the CPU, or one of `torch.cuda`, which includes ROCm's."""

    device: torch.device

    @property
    def _gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    def current(self) -> AbstractContextManager[object]:
        """Return a context in which it is the current device."""
        block: AbstractContextManager[object] = contextlib.nullcontext()
        return torch.cuda.device(self.device) if self._gpu else block

    def stream(self) -> int | None:
        """Return the address of the stream that work is queued on, or None."""
        return int(torch.cuda.current_stream(self.device).cuda_stream) if self._gpu else None

    def wait(self) -> None:
        """Wait until no work is left. Raises its errors."""
        if self._gpu:
            torch.cuda.synchronize(self.device)

    def time(self, run: Callable[[], object], *, profiler: bool = False) -> float:
        """Return the milliseconds of one call, measured as Inductor does."""
        return benchmarks.milliseconds(run, gpu=self._gpu, profiler=profiler)

    def trouble(self) -> str:
        """Return why the device does nothing in this process: it is unavailable, or had an error
        that a process cannot recover from; empty if it works."""
        try:
            self.wait()
        except Exception as error:  # torch asserts that it was built for a GPU
            return describe(error)
        return ""


class Spec:
    """A kernel to compile and load. `toolchain` identifies its compiler."""

    __slots__ = ()
    source: str
    entry: str
    target: str
    toolchain: str

    @property
    def hash_key(self) -> str:
        """Return a hash that is the same wherever a source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)

    def load(self) -> Any:
        """Compile it or load it from a cache; return a function to start it. Raises ChoiceError."""
        raise_known_failure(self)
        try:
            return self._load()
        except (ToolchainError, TritonError, SyntaxError) as error:
            raise not_compiled(self, error) from error

    def _load(self) -> Any:
        raise NotImplementedError


_failed: dict[Spec, tuple[type[ChoiceError], str]] = {}


def not_compiled(spec: Spec, error: Exception) -> ChoiceError:
    """Return the error for a kernel that cannot be loaded. A compiler's errors and timeouts are
    kept, and repeated instead of trying again, unless it was killed or lacked memory or disk."""
    failure = choice_error(error)
    if isinstance(error, (CompileError, TritonError, SyntaxError)) and not is_starved(error):
        _failed[spec] = type(failure), str(failure)
    return failure


def raise_known_failure(spec: Spec) -> None:
    """Raise ChoiceError if this kernel failed to compile before."""
    if spec in _failed:
        kind, reason = _failed[spec]
        raise kind(reason)


class ROCmBenchmarkRequest(BenchmarkRequest):  # type: ignore[misc]
    """Compile, load, query the workspace, run, check, time, clean up. Can be pickled.

    `extra_args` are the sizes and runtime arguments. The inputs are created from the metas: with
    the real strides and offsets, and the same numbers for every choice of a tuning. `profiler` is
    the program's setting, which another process would not have.
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
        self.profiler = benchmarks.wants_profiler()
        self.workspace_size = 0
        self._workspace: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device it runs on, whichever is current."""
        return torch.device(self.output_tensor_meta.device)

    @property
    def place(self) -> BenchmarkDevice:
        return BenchmarkDevice(self.device)

    def precompile(self) -> None:
        """Fill the code cache. Raises ChoiceError."""
        self.spec.load()

    def update_workspace_size(self) -> int:
        """Query the bytes that the kernel needs beside its tensors."""
        self.workspace_size = self.spec.load().workspace_bytes(self.extra_args)
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """Return a function that starts the kernel once, to be called while its device is current;
        all such functions share a workspace, so they belong to one stream."""
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
        """Return the milliseconds of one run, if its result is right; `out` then has the result for
        `input_tensors`.

        Inductor's tensors are not used for timing: its rivals share them, and they have no guard
        around them. The request's device is current meanwhile, whichever was before. Raises a
        ChoiceError leaf, KernelError for an error code, or torch's errors.
        """
        with self.place.current():
            milliseconds = self._timed()
            if out is not None:
                out.copy_(self.computed(input_tensors))
            return milliseconds

    def computed(self, values: Sequence[Tensor]) -> Tensor:
        """Return the kernel's result for these values, in memory of our own."""
        plans = [plan_of(meta) for meta in self.input_tensor_meta]
        inputs = tensors_holding(plans, values)
        output = plan_of(self.output_tensor_meta).make()
        try:
            with self.place.current():
                self.make_run_fn(*inputs, out=output)()
                self.place.wait()
            return output
        finally:
            self.cleanup_run_fn()

    def expected(self) -> Expected | None:
        """Return the result for the inputs of `make_inputs`; None if unknown."""
        return None if self.reference is None else self.reference.expected(self._inputs())

    def _inputs(self) -> list[Tensor]:
        inputs = _inputs_of(tuple(map(plan_of, self.input_tensor_meta)))
        return inputs if self.reference is None else self.reference.drawn(inputs)

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
            return self.place.time(run, profiler=self.profiler)
        finally:
            self.cleanup_run_fn()

    def __str__(self) -> str:
        return f"{self.spec.entry} for {self.spec.target}, {self.spec.hash_key}"


def _fits(workspace: Tensor | None, size: int, device: torch.device) -> bool:
    return workspace is not None and workspace.numel() == size and workspace.device == device


def plan_of(meta: Any) -> TensorPlan:
    """Return the plan of Inductor's `TensorMeta`."""
    return TensorPlan(
        str(meta.device), meta.dtype, tuple(meta.sizes), tuple(meta.strides), int(meta.offset)
    )


@functools.lru_cache(maxsize=1)
def _inputs_of(plans: tuple[TensorPlan, ...]) -> list[Tensor]:
    """Return the inputs of a tuning, created once for all of its choices."""
    return make_inputs(plans)


def forget_problem() -> None:
    """Release the inputs of the last tuning, which may be large and are on its device."""
    _inputs_of.cache_clear()


def tensors_holding(plans: Sequence[TensorPlan], values: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of our own with these values."""
    return [
        plan.holding(value[tuple(map(slice, plan.distinct))])
        for plan, value in zip(plans, values, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class BenchmarkAnswer:
    """An answer; `last` if this process can do nothing more on its device."""

    value: float | ComputeResult | ChoiceError
    last: bool = False


def answer(request: Any) -> BenchmarkAnswer:
    """Return the outcome of `request.benchmark()`; not run if its device does nothing."""
    if trouble := _trouble(request):
        return BenchmarkAnswer(NoDevice(f"its device cannot be used: {trouble}"), last=True)
    try:
        value = request.benchmark()
        return BenchmarkAnswer(value if isinstance(value, ComputeResult) else float(value))
    except Exception as error:  # the outermost boundary of a choice
        failure, lost = choice_error(error), bool(_trouble(request))
        if lost and not isinstance(failure, OutOfMemory):
            failure = DeviceLost(describe(error))
        return BenchmarkAnswer(failure, last=lost)


def _trouble(request: Any) -> str:
    return BenchmarkDevice(torch.device(getattr(request, "device", "cpu"))).trouble()


def forget_tuning() -> None:
    """Release the memory of the last tuning."""
    forget_problem()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True)
class KernelSpec(Spec):
    """A kernel to compile and its call, complete for `load_kernel`."""

    source: str
    entry: str
    target: str
    pointers: int
    integers: int
    toolchain: str = ""

    def _load(self) -> LoadedKernel:
        return load_kernel(
            self.source,
            entry=self.entry,
            target=self.target,
            pointers=self.pointers,
            integers=self.integers,
            toolchain=self.toolchain,
        )

    def compiled(self) -> bool:
        """Compile it without loading; return whether the cache had it. Raises ToolchainErrors."""
        target, root = parse_target(self.target), cache_dir()
        return code_cache.compile(self.source, target, cache_root=root).from_cache


def toolchain_for(source: str, target: str) -> str:
    """Return the toolchain of the library of `source`. Raises UncompiledError if there is neither a
    compiler nor a library."""
    toolchain = code_cache.toolchain(source, parse_target(target), cache_root=cache_dir())
    if toolchain is None:
        raise UncompiledError(f"no compiler for {target}, and this kernel was not compiled before")
    return toolchain


# Kernels in Triton

_HANGS_SECONDS = 3600.0
"""Seconds after which a compilation is given up that uses no processor time."""

_COMPILE = f"from {compile_child.__name__} import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class TritonSpec(Spec):
    """A module and its compile target; `name` is that of its file. Triton includes its compiler."""

    source: str
    name: str
    target: str
    entry: str = ENTRY
    toolchain: str = field(default_factory=triton_toolchain)

    def _load(self) -> Callable[..., None]:
        return load_triton(self.source, name=self.name, target=self.target)


_compiled: set[TritonSpec] = set()


class TritonBenchmarkRequest(ROCmBenchmarkRequest):
    """A request for a Triton kernel, whose `launch` takes tensors: a, b, extras, output, workspace,
    sizes.

    `workspace_size` is in bytes. Triton finds the output of `precompile` in its own cache, if a
    launch requests the same.
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
        """Compile for a GPU, in a separate process; not for the interpreter. Raises ChoiceError."""
        if self.spec.target == INTERPRETER:
            return
        if self.spec not in _compiled:
            self.compile_ahead()

    def compile_ahead(self) -> bool:
        """Compile it, even if it cannot be launched here; return whether Triton's cache had all the
        kernels. Raises ChoiceError."""
        raise_known_failure(self.spec)
        try:
            cached = _compile_apart(self.choice)
        except TritonCompileError as error:
            raise not_compiled(self.spec, error) from error
        _compiled.add(self.spec)
        return cached

    def update_workspace_size(self) -> int:
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """Return a function that starts the kernels once."""
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
    """Compile in a separate process unless Triton's cache has every kernel; return whether it had.
    Raises TritonCompileError, and NotCompiled if it ran out of time, or was ended."""
    try:
        done = subprocess.run(
            child_python.command(_COMPILE),
            input=pickle.dumps((choice, store())),
            capture_output=True,
            env=child_python.child_environment(),
            timeout=_HANGS_SECONDS,
        )
    except subprocess.TimeoutExpired:
        reason = f"Triton did not compile it within {_HANGS_SECONDS:g} s"
        raise NotCompiled(reason) from None
    if done.returncode == -signal.SIGXCPU:
        seconds = compile_child.COMPILE_SECONDS
        raise NotCompiled(f"Triton did not compile it within {seconds} s of processor time")
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
