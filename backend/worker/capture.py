"""The selection captured during a compile and kept afterwards: all choices of an op, torch's and
ours, for a job that times them repeatedly.

The last few are kept for the next job, which then compiles nothing: the offered choices depend on
the key, the mode, the threads and our templates, but not on any file.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backend.inductor.benchmark.request import (
    ROCmBenchmarkRequest,
    forget_problem,
    plan_of,
    tensors_holding,
)
from backend.inductor.benchmark.tensors import make_inputs
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller
from backend.model.ops import is_flex
from backend.model.options import Options
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.worker.problem import options_of_key, rebuild_key, template_choices
from backend.worker.rebuilt import (
    NotRebuildable,
    OpNumbers,
    RebuiltProgram,
    SelectionDone,
    compile_asking,
)

Operands = Mapping[str, tuple[Tensor, ...]]
"""The inputs of each choice by its hash, the output last. Choices may share tensors and memory."""


class SelectorCall:
    """A call of Inductor's selector for one op: the choices, kept after the compile."""

    def __init__(
        self,
        choices: Sequence[ChoiceCaller],
        input_nodes: Sequence[Node],
        layout: Any,
        input_gen_fns: Mapping[int, Callable[[Any], Tensor]] | None,
    ) -> None:
        self.choices: Mapping[str, ChoiceCaller] = {str(c.hash_key()): c for c in choices}
        self.device: torch.device = layout.device
        self.sizes: tuple[int, ...] = torch_choices.static_sizes(layout.size)
        self.columns = self.sizes[-1] if self.sizes else 1
        self._nodes = list(input_nodes)
        self._layout = layout
        self._generators = dict(input_gen_fns or {})
        self._graph = torch_graph.graph()
        self.given: tuple[Tensor, ...] = ()
        """The op's inputs in the tensors created last; our choices have their own inputs."""

    @property
    def constant_bytes(self) -> int:
        """The bytes of the weights that are frozen into the graph."""
        return torch_graph.constant_bytes(self._graph)

    def prepare(self, hash: str) -> None:
        """Compile a choice during Inductor's selection. Raises its errors."""
        torch_choices.prepare(self.choices[hash])

    def operands(self, hashes: Sequence[str]) -> Operands:
        """Return tensors as in Inductor's own benchmark: real strides and offsets, the graph's
        frozen weights, otherwise random numbers. Raises errors of their creation."""
        with torch_choices.within(self._graph):
            arguments = torch_choices.benchmark_tensors(
                list(self.choices.values()), self._nodes, self._layout, self._generators
            )
            self.given = torch_choices.op_inputs(arguments)
            return {hash: self._operands(hash, arguments) for hash in hashes}

    def _operands(self, hash: str, arguments: Any) -> tuple[Tensor, ...]:
        """Return the operands of a choice; our kernels take views, in their own order."""
        request = self.own(hash)
        if request is None:
            return torch_choices.tensors_for(self.choices[hash], arguments)
        plans = [plan_of(meta) for meta in request.input_tensor_meta]
        inputs, reference = make_inputs(plans), request.reference
        if reference is not None:
            inputs = reference.drawn(inputs)
        return (*inputs, plan_of(request.output_tensor_meta).make())

    def returned(self, hash: str, value: object) -> Tensor | None:
        """Return the choice's result, if it returns one; else it writes to its output."""
        return torch_choices.returned(self.choices[hash], value)

    def own(self, hash: str) -> ROCmBenchmarkRequest | None:
        """Return the request of a choice of ours, which has the expected result."""
        request = torch_choices.request_of(self.choices[hash])
        return request if isinstance(request, ROCmBenchmarkRequest) else None

    def alike(self, hash: str, operands: Operands) -> Operands:
        """Return the operands with the inputs that all choices get, since ours have their own."""
        request = self.own(hash)
        if request is None:
            return operands
        plans = [plan_of(meta) for meta in request.input_tensor_meta]
        inputs = tensors_holding(plans, self.choices[hash].arranged(self.given))
        return {hash: (*inputs, operands[hash][-1])}

    def run_function(self, hash: str, operands: Operands) -> Run:
        """See `torch.choices`."""
        *inputs, out = operands[hash]
        return torch_choices.run_function(self.choices[hash], inputs, out)


def copied_operands(
    operands: Operands, allocate: Callable[[int, torch.device], Tensor]
) -> Operands:
    """Return the operands in other memory, shared as before; `allocate` creates a tensor of that
    many bytes. Weights in a library's own format are not moved."""
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
    """Return the bytes of the operands; shared memory counts once."""
    sizes: dict[object, int] = {}
    for tensor in itertools.chain.from_iterable(operands.values()):
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        else:
            sizes[id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())


def can_be_copied(operands: Operands) -> bool:
    """Return whether `copied_operands` moves all of them."""
    tensors = itertools.chain.from_iterable(operands.values())
    return all(tensor.layout is torch.strided for tensor in tensors)


@dataclass
class CapturedCall:
    """The captured selection, and why some of the wanted choices cannot be compiled, by hash."""

    question: SelectorCall
    numbers: OpNumbers | None = None
    failed: dict[str, str] = field(default_factory=dict)

    prepared: frozenset[str] = frozenset()
    """The choices whose compilation was tried."""

    @property
    def size(self) -> int:
        """The bytes of the weights that are frozen into its graph."""
        return self.question.constant_bytes


MOST_KEPT = 8
MOST_BYTES = 256 << 20
"""The maximum bytes of frozen weights; on a CPU, linear layers have them."""

_Asked = tuple[TuningKey, Options, str, tuple[tuple[str, bool], ...], int, bool]
_kept: OrderedDict[_Asked, CapturedCall] = OrderedDict()


def question_of(
    key: TuningKey,
    hashes: Sequence[str],
    mode: Mapping[str, bool],
    *,
    templates: bool,
    mark: ChoiceMark | None = None,
    recorded: str = "",
) -> CapturedCall:
    """Return the selection for `key` with its choices `hashes` compiled, as `capture` does, or that
    of an earlier job, if that could compile them. `recorded` is for `options_of`. Raises
    NotRebuildable."""
    given = options_of_key(key, hashes, recorded)
    call = recorded if is_flex(key.op) else ""
    circumstances = (
        key,
        given,
        call,
        tuple(sorted(mode.items())),
        torch.get_num_threads(),
        templates,
    )
    kept = _kept.pop(circumstances, None)
    if kept is None or not (kept.prepared - kept.failed.keys()).issuperset(hashes):
        program = rebuild_key(key, hashes, recorded)
        kept = capture(program, key, hashes, mode, templates=templates, mark=mark)
    _kept[circumstances] = kept
    while len(_kept) > 1 and (
        len(_kept) > MOST_KEPT or sum(captured.size for captured in _kept.values()) > MOST_BYTES
    ):
        _kept.popitem(last=False)
    return kept


def forget_tensors() -> None:
    """Release the tensors of kept selections."""
    forget_problem()
    for captured in _kept.values():
        captured.question.given = ()
        if captured.numbers is not None:
            captured.numbers.forget()
    if sum(captured.size for captured in _kept.values()) > MOST_BYTES:
        _kept.clear()


def capture(
    program: RebuiltProgram,
    key: TuningKey,
    hashes: Sequence[str],
    mode: Mapping[str, bool],
    *,
    templates: bool,
    mark: ChoiceMark | None = None,
) -> CapturedCall:
    """Compile `program` up to the selection for `key`, and its choices `hashes` (none: all).

    `templates` adds our choices. The settings of `mode` apply to the compile only. `mark` records
    the choice being compiled. Raises NotRebuildable if Inductor tunes something else, or nothing,
    or the program does not compile.
    """
    selector = _Selector(key, hashes, templates, mark or ChoiceMark(), program.numbers)
    trouble = compile_asking(selector, program, mode)
    if selector.captured is not None:
        return selector.captured
    if trouble and not selector.tuned:  # for example a full disk, which says nothing about the key
        raise NotRebuildable(f"{key.op} does not compile: {trouble}")
    tuned = "; ".join(f"{other.op} {other.inputs}" for other in selector.tuned) or "nothing"
    raise NotRebuildable(f"{key.op} cannot be rebuilt from its inputs key: Inductor tuned {tuned}")


class _Selector(torch_api.LazySelector):
    def __init__(
        self,
        key: TuningKey,
        hashes: Sequence[str],
        templates: bool,
        mark: ChoiceMark,
        numbers: OpNumbers | None,
    ) -> None:
        super().__init__()
        self._key = key
        self._hashes = hashes
        self._templates = templates
        self._mark = mark
        self._numbers = numbers
        self.tuned: list[TuningKey] = []
        self.captured: CapturedCall | None = None

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        self.tuned.append(key)
        if key != self._key:
            raise SelectionDone
        if self._templates:
            choices = [*choices, *template_choices(name, choices, input_nodes, layout)]
        generators = kwargs.get("input_gen_fns", args[0] if args else None)
        nodes, generators = _inputs(choices, input_nodes, generators, self._numbers)
        self.captured = CapturedCall(
            SelectorCall(choices, nodes, layout, generators), self._numbers
        )
        self._prepare(self.captured)
        raise SelectionDone

    def _prepare(self, captured: CapturedCall) -> None:
        captured.prepared = frozenset(self._hashes or captured.question.choices)
        for hash_ in captured.prepared:
            if hash_ in captured.question.choices:
                try:
                    with self._mark.at("compiling", hash_):
                        captured.question.prepare(hash_)
                except BaseException as error:  # a compiler error is a result
                    captured.failed[hash_] = torch_api.describe(error)


Generators = Mapping[int, Callable[[Any], Tensor]]


def _inputs(
    choices: Sequence[Any],
    nodes: Sequence[Any],
    generators: Generators | None,
    numbers: OpNumbers | None,
) -> tuple[Sequence[Any], Generators | None]:
    """Return the inputs of the choices and their generators, with known numbers if there are any.
    The template of flex attention for a CPU reads more tensors than the key has."""
    if numbers is None or not choices:
        return nodes, generators
    own = list(getattr(choices[0], "input_nodes", ()))
    nodes = own if len(own) > len(nodes) and nodes[0].get_device().type == "cpu" else nodes
    stock = generators or {}

    def made(at: int, node: Any) -> Tensor:
        given = numbers.given(at, node.get_name())
        if given is not None:
            return given
        return stock[at](node) if at in stock else torch_choices.example(node)

    return nodes, {at: functools.partial(made, at) for at in range(len(nodes))}
