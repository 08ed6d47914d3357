"""Timing one choice, in this process or in another one: what is needed travels with the request.

`Question` keeps all choices of an op, of torch and of ours, for who times them again and again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import ChoiceError, choice_error
from backend.inductor.benchmark.places import Place, place_of
from backend.inductor.benchmark.reference import Drawing, Expected, Reference, check_untouched
from backend.inductor.benchmark.tensors import TensorPlan, make_inputs
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.choices import Run
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller
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
        inputs = _holding(plans, values)
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


def _holding(plans: Sequence[TensorPlan], values: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of our own with these values."""
    return [
        plan.holding(value[tuple(map(slice, plan.distinct))])
        for plan, value in zip(plans, values, strict=True)
    ]


Operands = Mapping[str, tuple[Tensor, ...]]
"""The inputs of each choice by its hash, the output last. Choices may share tensors and memory."""


class Question:
    """What Inductor asked its selector about one op: the choices, kept beyond the compile."""

    def __init__(
        self,
        choices: Sequence[ChoiceCaller],
        input_nodes: Sequence[Node],
        layout: Any,
        input_gen_fns: Mapping[int, Callable[[Any], Tensor]] | None,
    ) -> None:
        self.choices: Mapping[str, ChoiceCaller] = {str(c.hash_key()): c for c in choices}
        self.device: torch.device = layout.device
        self.sizes: tuple[int, ...] = torch_choices.numbers(layout.size)
        self.columns = self.sizes[-1] if self.sizes else 1
        self._nodes = list(input_nodes)
        self._layout = layout
        self._generators = dict(input_gen_fns or {})
        self._graph = torch_graph.graph()
        self.given: tuple[Tensor, ...] = ()
        """The op's inputs in the tensors that were made last; ours have inputs of their own."""

    @property
    def constant_bytes(self) -> int:
        """Of the weights that are frozen into the graph."""
        return torch_graph.constant_bytes(self._graph)

    def prepare(self, hash: str) -> None:
        """Compile a choice, while Inductor is still asking. Raises whatever that raises."""
        torch_choices.prepare(self.choices[hash])

    def operands(self, hashes: Sequence[str]) -> Operands:
        """Tensors as in Inductor's own benchmark: real strides and offsets, frozen weights as they
        are in the graph, random numbers for the rest. Raises whatever their making raises."""
        with torch_choices.within(self._graph):
            made = torch_choices.benchmark_tensors(
                list(self.choices.values()), self._nodes, self._layout, self._generators
            )
            self.given = torch_choices.op_inputs(made)
            return {hash: self._operands(hash, made) for hash in hashes}

    def _operands(self, hash: str, made: Any) -> tuple[Tensor, ...]:
        """Our kernels take views, in an order of their own."""
        request = self.own(hash)
        if request is None:
            return torch_choices.tensors_for(self.choices[hash], made)
        plans = [plan_of(meta) for meta in request.input_tensor_meta]
        inputs, reference = make_inputs(plans), request.reference
        if isinstance(reference, Drawing):
            inputs = reference.drawn(inputs)
        return (*inputs, plan_of(request.output_tensor_meta).make())

    def returned(self, hash: str, value: object) -> Tensor | None:
        """What the choice computed, if it returns that; else it writes to its output."""
        return torch_choices.returned(self.choices[hash], value)

    def own(self, hash: str) -> ROCmBenchmarkRequest | None:
        """The request of a choice of ours, which knows what it should compute."""
        request = torch_choices.request_of(self.choices[hash])
        return request if isinstance(request, ROCmBenchmarkRequest) else None

    def alike(self, hash: str, operands: Operands) -> Operands:
        """The same with the inputs that all choices get: ours have inputs of their own."""
        request = self.own(hash)
        if request is None:
            return operands
        plans = [plan_of(meta) for meta in request.input_tensor_meta]
        inputs = _holding(plans, self.choices[hash].arranged(self.given))
        return {hash: (*inputs, operands[hash][-1])}

    def run_function(self, hash: str, operands: Operands) -> Run:
        """See `torch.choices`."""
        *inputs, out = operands[hash]
        return torch_choices.run_function(self.choices[hash], inputs, out)


def moved(operands: Operands, allocate: Callable[[int, torch.device], Tensor]) -> Operands:
    """The same in other memory, shared as before; `allocate` makes a tensor of that many bytes.

    Weights in a library's own format stay where they are.
    """
    fresh: dict[int, Tensor] = {}

    def move(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:
            return tensor
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        memory.set_(tensor.untyped_storage())
        if memory.data_ptr() not in fresh:
            target = allocate(memory.numel(), tensor.device)
            fresh[memory.data_ptr()] = target.copy_(memory)
        base = fresh[memory.data_ptr()].view(tensor.dtype)
        offset = base.storage_offset() + tensor.storage_offset()
        return base.as_strided(tensor.size(), tensor.stride(), offset)

    return {hash: tuple(map(move, tensors)) for hash, tensors in operands.items()}


def bytes_of(operands: Operands) -> int:
    """Of memory that they take, what is shared counted once."""
    sizes: dict[object, int] = {}
    for tensor in itertools.chain.from_iterable(operands.values()):
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        else:
            sizes[id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())


def movable(operands: Operands) -> bool:
    """Whether `moved` moves all of them."""
    tensors = itertools.chain.from_iterable(operands.values())
    return all(tensor.layout is torch.strided for tensor in tensors)
