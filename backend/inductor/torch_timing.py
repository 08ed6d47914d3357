"""Private names of torch for running choices again and again on tensors of our own.

Read in torch 2.13.0 (`torch/_inductor/select_algorithm.py`, `autotune_process.py`,
`codegen/subgraph.py`). Importing this module imports torch._inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import select_algorithm as _select
from torch._inductor.virtualized import V

from backend.inductor.rocm_benchmark import ROCmBenchmarkRequest, plan_of
from backend.inductor.rocm_check import make_inputs
from backend.inductor.torch_api import ChoiceCaller, StockSelector
from backend.inductor.torch_graph import Node

Run = Callable[[], object]
"""Starts a choice once."""

Operands = Mapping[str, tuple[Tensor, ...]]
"""The inputs of each choice by its hash, the output last. Choices may share tensors and memory."""

_Subgraph: Any = getattr(_select, "SubgraphChoiceCaller", ())


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
        self.columns = int(layout.size[-1]) if layout.size else 1
        self._nodes = list(input_nodes)
        self._layout = layout
        self._generators = dict(input_gen_fns or {})
        self._graph = V.graph
        self.given: tuple[Tensor, ...] = ()
        """The op's inputs in the tensors that were made last; ours have inputs of their own."""

    def prepare(self, hash: str) -> None:
        """Compile a choice, while Inductor is still asking. Raises whatever that raises."""
        choice = self.choices[hash]
        if isinstance(choice, _Subgraph):
            if not hasattr(choice, "_ensure_compiled"):
                raise RuntimeError("this torch compiles it anew for each benchmark")
            choice._ensure_compiled()
        else:
            getattr(choice, "precompile", lambda: None)()

    def operands(self, hashes: Sequence[str]) -> Operands:
        """Tensors as in Inductor's own benchmark: real strides and offsets, frozen weights as they
        are in the graph, random numbers for the rest. Raises whatever their making raises."""
        with V.set_graph_handler(self._graph):
            made = StockSelector.get_inputs(
                list(self.choices.values()), self._nodes, self._layout, self._generators
            )
            self.given = tuple(made.get_benchmark_tensors(True).unpack()[0])
            return {hash: _operands(self.choices[hash], made) for hash in hashes}

    def returned(self, hash: str, returned: object) -> Tensor | None:
        """What the choice computed, if it returns that; else it writes to its output."""
        choice = self.choices[hash]
        if isinstance(choice, _select.ExternKernelCaller):
            return None if choice.has_out_variant else _tensor(returned)
        return _tensor(returned) if isinstance(choice, _Subgraph) else None

    def own(self, hash: str) -> ROCmBenchmarkRequest | None:
        """The request of a choice of ours, which knows what it should compute."""
        return _own(self.choices[hash])

    def run_function(self, hash: str, operands: Operands) -> Run:
        """A function that starts the choice on its tensors. Raises whatever its making raises.

        That of a C++ choice knows addresses only: who calls it must keep the tensors.
        """
        choice, (*inputs, out) = self.choices[hash], operands[hash]
        if isinstance(choice, _Subgraph):
            call, sizes = choice._compiled_module.call, choice.sym_input_values
            return lambda: call([*sizes, *inputs])
        if isinstance(choice, _select.ExternKernelCaller):
            function = choice.to_callable()
            if choice.has_out_variant:
                return lambda: function(*inputs, out=out)
            return lambda: function(*inputs)
        run: Run = choice.bmreq.make_run_fn(*inputs, out=out)
        return run


def _operands(choice: ChoiceCaller, made: Any) -> tuple[Tensor, ...]:
    """Of torch's two sets, that for this choice: templates add an offset themselves to the start
    of the memory, ATen gets the view. Our kernels take views, in an order of their own."""
    request = _own(choice)
    if request is not None:
        plans = [plan_of(meta) for meta in request.input_tensor_meta]
        return (*make_inputs(plans), plan_of(request.output_tensor_meta).make())
    kinds = (_select.ExternKernelCaller, *([_Subgraph] if _Subgraph else []))
    tensors = made.get_benchmark_tensors(isinstance(choice, kinds))
    inputs, out = tensors.unpack()
    if isinstance(choice, _select.DataProcessorChoiceCallerWrapper):
        inputs, out = choice._preprocessor(inputs, out)
    return (*inputs, out)


def _tensor(returned: Any) -> Tensor:
    """Raises TypeError, also where there are several."""
    if isinstance(returned, (list, tuple)) and len(returned) == 1:
        (returned,) = returned
    if not isinstance(returned, Tensor):
        raise TypeError(f"it returned {type(returned).__name__}, and not one tensor")
    return returned


def _own(choice: ChoiceCaller) -> ROCmBenchmarkRequest | None:
    request = getattr(choice, "bmreq", None) if not isinstance(choice, _Subgraph) else None
    return request if isinstance(request, ROCmBenchmarkRequest) else None


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


def gpu_spin(cycles: int) -> None:
    """Keep the GPU busy with nothing, so that the host can queue work behind it."""
    torch.cuda._sleep(cycles)
