"""Does a compiled graph hold an op with given inputs, and with which choice?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backend.records import TensorSpec
from backend.store.errors import InputsKeyInvalid
from backend.store.graph_text import Call, Dim, GraphText, Operand
from backend.store.inputs_key import parse_inputs_key

Verdict = Literal["absent", "same", "other", "unknown"]
"""The op with these inputs is not in the graph; is there with the wanted choice; with another;
is there as a template of which the text does not tell whether it is the wanted one."""

_OTHER_NAMES = {
    "packed_linear": ("_mkl_linear", "_linear_pointwise", "qlinear_pointwise"),
    "mixed_mm": ("mm",),
}
"""Names in graphs and wrappers of ops that the autotune cache calls otherwise."""

_FREE_STRIDES = {"convolution"}
"""Ops whose operands Inductor may bring into another memory format first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An (op, inputs) and the choice that it shall use.

    `rivals` are the hashes of all its choices. `config` is the wanted choice's configuration where
    it is known (`BLOCK_M`, ...), to tell Triton templates apart.
    """

    op: str
    inputs: str
    hash: str
    rivals: Collection[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The inputs; none if the key is of a form that we do not know."""
        try:
            return parse_inputs_key(self.inputs).specs
        except InputsKeyInvalid:
            return ()

    @property
    def names(self) -> set[str]:
        """What graphs and wrappers may call the op, and the extern kernels among its choices."""
        externs = {extern_name(name) for name in (self.hash, *self.rivals) if not kind_of(name)}
        return {self.op, f"_{self.op}", *_OTHER_NAMES.get(self.op, ()), *externs}


def kind_of(choice: str) -> str:
    """`triton`, `cpp`, ... of a template's hash; nothing for an extern (ATen, MKL) kernel's."""
    name = extern_name(choice).lower()
    for start, kind in (
        ("triton", "triton"),
        ("cpp", "cpp"),
        ("packed_gemm", "cpp"),
        ("cuda", "cuda"),
        ("cutlass", "cuda"),
        ("rocm", "rocm"),
        ("ck", "rocm"),
        ("decompose", "subgraph"),
    ):
        if name.startswith(start):
            return kind
    return ""


def is_own(choice: str) -> bool:
    """Whether a hash is that of a choice of our templates, which stock PyTorch does not offer."""
    return choice.startswith(("rocm_gemm-", "rocm_skinny-", "rocm_triton-"))


def extern_name(choice: str) -> str:
    """`bmm` of `bmm-c5psz...`: the hash of an extern kernel begins with its name."""
    return choice.partition("-")[0]


def may_hold(data: bytes, wanted: Wanted) -> bool:
    """Quickly: False if `data`, an entry, cannot hold the op with its inputs."""
    if not any(name.encode() in data for name in wanted.names):
        return False
    if b"[s" in data or b"(s" in data:  # a symbolic size
        return True
    sizes = [", ".join(map(str, spec.sizes)).encode() for spec in wanted.specs if spec.sizes]
    return any(text in data for text in sizes)


def judge(graph: GraphText, wanted: Wanted) -> Verdict:
    """Whether `graph` holds the op with the inputs of `wanted`, and with the same choice."""
    specs = wanted.specs
    if not specs or not graph.is_compiled or graph.tuned is False:
        return "absent"
    ours = {own.hash for own in graph.own if (own.op, own.inputs) == (wanted.op, wanted.inputs)}
    if ours:
        return "same" if ours == {wanted.hash} else "other"
    free = wanted.op in _FREE_STRIDES
    externs = [call for call in graph.externs if call.name in wanted.names]
    used = {call.name for call in externs if _serves(call.operands, specs, free)}
    if used:
        return "same" if not kind_of(wanted.hash) and extern_name(wanted.hash) in used else "other"
    if any(call.operands for calls in graph.graphs for call in calls):
        holds = any(_holds(calls, externs, graph, wanted) for calls in graph.graphs)
    else:
        holds = _may_hold_untyped(graph, wanted)
    return _judge_template(graph, wanted) if holds else "absent"


def _holds(calls: tuple[Call, ...], externs: list[Call], graph: GraphText, wanted: Wanted) -> bool:
    """Whether a printed graph has the op with these inputs, other than as an extern call."""
    specs = wanted.specs
    nodes = [
        call.operands
        for call in calls
        if call.name in wanted.names and _serves(call.operands, specs, True)
    ]
    # The wrapper tells the strides of extern calls exactly. Where each node with these sizes
    # became one, and none had our strides, the key is another's.
    if len(nodes) <= sum(_serves(call.operands, specs, True) for call in externs):
        return False
    if wanted.op in _FREE_STRIDES:
        return True
    layouts = {_layout(t.sizes, t.strides) for t in graph.tensors if t.computed}
    return any(_serves(operands, specs, False, layouts) for operands in nodes)


def _may_hold_untyped(graph: GraphText, wanted: Wanted) -> bool:
    """For torch before it kept the graph's text: is a template kernel named after the op, and do
    tensors of all the sizes occur, their dimensions in any order?"""
    shapes = {tuple(sorted(size or 0 for size in tensor.sizes)) for tensor in graph.tensors}
    names = {name.strip("_") for name in wanted.names}
    return any(name in kernel.name for name in names for kernel in graph.templates) and all(
        tuple(sorted(spec.sizes)) in shapes for spec in wanted.specs
    )


_Layout = tuple[tuple[Dim, Dim], ...]


def _serves(
    operands: Iterable[Operand],
    specs: tuple[TensorSpec, ...],
    any_strides: bool,
    layouts: Collection[_Layout] = (),
) -> bool:
    """`operands` are `specs`, in order; more of them (a bias) may stand between.

    The layout of a computed operand is decided after the graph was printed: it may also be one of
    `layouts`, those of the wrapper's buffers.
    """
    left = iter(operands)
    return all(any(_is(operand, spec, any_strides, layouts) for operand in left) for spec in specs)


def _is(
    operand: Operand, spec: TensorSpec, any_strides: bool, layouts: Collection[_Layout]
) -> bool:
    if operand.dtype not in (None, spec.dtype) or operand.device not in (None, spec.device):
        return False
    missing = len(spec.sizes) - len(operand.sizes)
    if missing < 0:
        return False
    same_strides = True
    for at, (size, stride) in enumerate(zip(spec.sizes, spec.strides, strict=True)):
        mine = operand.sizes[at - missing] if at >= missing else 1
        if at < missing or (mine == 1 and size != 1):
            # A bias is expanded to the sizes of the output before it is tuned.
            if stride != 0:
                return False
        elif mine not in (None, size):
            return False
        elif size != 1 and operand.strides[at - missing] not in (None, stride):
            same_strides = False
    if any_strides or same_strides:
        return True
    return operand.computed and _layout(spec.sizes, spec.strides) in layouts


def _layout(sizes: Sequence[Dim], strides: Sequence[Dim]) -> _Layout:
    """Sizes and strides without dimensions of size 1, and with those merged that lie as one."""
    merged: list[tuple[Dim, Dim]] = []
    for size, stride in zip(sizes, strides, strict=False):
        if size == 1:
            continue
        if merged and size is not None and stride is not None:
            outer, step = merged[-1]
            if outer is not None and step == size * stride:
                merged[-1] = (outer * size, stride)
                continue
        merged.append((size, stride))
    return tuple(merged)


def _judge_template(graph: GraphText, wanted: Wanted) -> Verdict:
    kind = kind_of(wanted.hash)
    if not kind or is_own(wanted.hash):
        return "other"
    kernels = [kernel for kernel in graph.templates if kernel.kind == kind]
    if graph.templates and not kernels:
        return "other"
    if sum(kind_of(rival) == kind for rival in {wanted.hash, *wanted.rivals}) == 1 and kernels:
        return "same"
    if not wanted.config or not kernels:
        return "unknown"
    shared = [
        {name: value for name, value in kernel.config if name in wanted.config}
        for kernel in kernels
    ]
    if not all(shared):
        return "unknown"
    fitting = [
        all(wanted.config[name].strip("'\"") == value.strip("'\"") for name, value in c.items())
        for c in shared
    ]
    return "same" if all(fitting) else "unknown" if any(fitting) else "other"
