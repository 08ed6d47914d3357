"""All choices of an op, of torch and of ours, kept for who times them again and again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backend.inductor.benchmark.reference import Drawing
from backend.inductor.benchmark.request import ROCmBenchmarkRequest, holding, plan_of
from backend.inductor.benchmark.tensors import make_inputs
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.choices import Run
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller

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
        inputs = holding(plans, self.choices[hash].arranged(self.given))
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
