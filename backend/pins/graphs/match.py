"""Whether a compiled graph contains an op with given inputs, and which choice it calls.

A template's kernel is called with operands changed by packing and fusing, so the printed graph
shows the inputs of an op, and the wrapper the kernel.

The graph and the wrapper may name an op differently from the autotune cache: `OPS` has a row for
each. Some inputs in its key are not operands of its node, such as buffers for intermediate results,
and numbers. An op without a row, or whose row is not `proven`, is never reported absent: see
`may_hold_loosely`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from backend.errors import InputsKeyInvalid
from backend.model.options import Options, convolution_of_constants, options_agree, options_of_hash
from backend.model.origin import extern_name, is_own, kind_of
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.pins.graphs.parts import Dim, GraphCall, GraphTensor, WrapperKernel
from backend.pins.graphs.text import GraphText


@dataclass(frozen=True, slots=True)
class OpForm:
    """`nodes` are the op's names in the printed graph, `externs` further names of its library
    kernels in the wrapper. `operands` are the indices in the key of the inputs that are operands,
    None for all; with `integers`, index tensors (int32) are operands too. `exact_strides` is False
    if Inductor may first change the memory format of operands; `reshaped` means that the first
    input is the first operand in another shape."""

    nodes: tuple[str, ...]
    externs: tuple[str, ...] = ()
    operands: tuple[int, ...] | None = None
    integers: bool = False
    exact_strides: bool = True
    reshaped: bool = False
    proven: bool = True

    def read(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return the inputs of a key that its node or extern call must have, in order."""
        if self.operands is None:
            return tuple(specs)
        return tuple(
            spec
            for at, spec in enumerate(specs)
            if at in self.operands or (self.integers and spec.dtype == "torch.int32")
        )


OPS: dict[str, OpForm] = {
    "mm": OpForm(("mm", "convolution"), ("mm", "_sparse_semi_structured_mm", "mm_dtype")),
    "addmm": OpForm(("addmm", "convolution"), ("addmm", "bias_addmm")),
    "bmm": OpForm(("bmm",), ("bmm", "bmm_dtype")),
    "baddbmm": OpForm(("baddbmm",), ("baddbmm",)),
    "int_mm": OpForm(("_int_mm",), ("_int_mm",)),
    "scaled_mm": OpForm(("_scaled_mm",), ("_scaled_mm",)),
    "grouped_mm": OpForm(("_grouped_mm",), ("_grouped_mm",)),
    "mm_plus_mm": OpForm(("mm_plus_mm",), ("_mm_plus_mm",)),
    "convolution": OpForm(("convolution",), ("convolution",), exact_strides=False),
    "flex_attention": OpForm(("flex_attention",), (), (0, 1, 2), integers=True),
    "flex_attention_backward": OpForm(("flex_attention_backward",), (), (0, 1, 2), integers=True),
    "flex_decoding": OpForm(("flex_attention",), (), (1, 2), integers=True, reshaped=True),
    "_weight_int8pack_mm": OpForm(("_weight_int8pack_mm",), ("_weight_int8pack_mm",)),
    "_weight_int4pack_mm_for_cpu": OpForm(
        ("_weight_int4pack_mm_for_cpu",), ("int4mm_packed_weight_cpu",), (0, 1, 3)
    ),
    # Packed weights keep these out of the graph cache; only AOTInductor writes them.
    "packed_linear": OpForm(("_mkl_linear", "_linear_pointwise"), ("_mkl_linear",)),
    "linear_unary": OpForm(("_linear_pointwise",)),
    "linear_binary": OpForm(("_linear_pointwise",)),
    # From PyTorch's source, not seen in a graph: a graph that may have them is reported as unclear.
    "scaled_grouped_mm": OpForm(("_scaled_grouped_mm",), ("_scaled_grouped_mm",), proven=False),
    "convolution_bwd_weight": OpForm(("convolution_backward",), proven=False),
    "convolution_bwd_input": OpForm(("convolution_backward",), proven=False),
    "sparse_semi_structured_mm": OpForm(("_sparse_semi_structured_mm",), proven=False),
    "flex_flash_attention": OpForm(("flex_attention",), proven=False),
    "flex_flash_attention_backward": OpForm(("flex_attention_backward",), proven=False),
    "flex_gemm_epilogue": OpForm(("flex_gemm",), proven=False),
    "b2b_gemm": OpForm(("mm", "b2b_gemm"), proven=False),
    "qlinear_unary": OpForm(("qlinear_pointwise",), proven=False),
    "qlinear_binary": OpForm(("qlinear_pointwise",), ("qlinear_pointwise_binary",), proven=False),
    "grouped_gemm": OpForm(("grouped_gemm", "_linear_pointwise", "_mkl_linear"), proven=False),
}


def form_of(op: str) -> OpForm:
    """Return the row of an op; without one, a guess from its name."""
    return OPS.get(op) or OpForm((op, f"_{op}"), (op, f"_{op}"), proven=False)


DimLayout = tuple[tuple[Dim, Dim], ...]


def serves(
    operands: Iterable[GraphTensor],
    specs: Sequence[TensorSpec],
    any_strides: bool,
    layouts: Collection[DimLayout] = (),
) -> bool:
    """Return whether `operands` are `specs`, in order; further operands (a bias) may be between
    them.

    The layout of a computed operand is decided after the graph was printed: it may also be one of
    `layouts`, those of the wrapper's buffers.
    """
    left = iter(operands)
    return all(any(_is(operand, spec, any_strides, layouts) for operand in left) for spec in specs)


def node_serves(
    call: GraphCall,
    specs: Sequence[TensorSpec],
    form: OpForm,
    any_strides: bool,
    layouts: Collection[DimLayout] = (),
) -> bool:
    """Return whether a node of the printed graph is the op with the inputs `specs`."""
    if call.name not in form.nodes and call.name not in form.externs:
        return False
    operands = call.operands
    if call.name == "convolution" and "mm" in form.nodes[0]:
        operands = _as_product(operands)
    if form.reshaped and specs:
        count = operands and _count(operands[0].sizes)
        if count not in (None, math.prod(specs[0].sizes)):
            return False
    return serves(operands, form.read(specs), any_strides or not form.exact_strides, layouts)


def node_may_serve(
    call: GraphCall, specs: Sequence[TensorSpec], form: OpForm, layouts: Collection[DimLayout] = ()
) -> bool:
    """Return whether a node may be the op, although the sizes of some operands are not printed."""
    required = form.read(specs)
    missing = len(required) - len(call.operands)
    return (
        call.name in form.nodes
        and 0 < missing <= call.unsized
        and bool(call.operands)
        and all(
            any(_is(operand, spec, not form.exact_strides, layouts) for spec in required)
            for operand in call.operands
        )
    )


def launch_fits(kernel: WrapperKernel, specs: Sequence[TensorSpec]) -> bool:
    """Return whether a kernel may read the first inputs of a tuning, judging by its calls: views
    of them have other shapes, packed weights also other sizes. A convolution's weight is not a
    view."""
    if not kernel.calls:
        return True
    wanted = specs[:2] if len(specs[0].sizes) > 3 else specs[:1]
    return any(all(_reads(call, spec) for spec in wanted) for call in kernel.calls)


def _reads(call: Sequence[GraphTensor], spec: TensorSpec) -> bool:
    count = math.prod(spec.sizes)
    return any(
        operand.dtype in (None, spec.dtype) and _count(operand.sizes) in (None, count)
        for operand in call
    )


def _as_product(operands: Sequence[GraphTensor]) -> tuple[GraphTensor, ...]:
    """Return the two operands of the product that a convolution with a 1x1 kernel becomes."""
    if len(operands) < 2:
        return ()
    image, weight = operands[0], operands[1]
    if len(image.sizes) < 2 or len(weight.sizes) < 3 or any(n != 1 for n in weight.sizes[2:]):
        return ()
    rows = _count((*image.sizes[:1], *image.sizes[2:]))
    inner, outer = image.sizes[1], weight.sizes[0]
    return (
        GraphTensor((rows, inner), (inner, 1), image.dtype, image.device),
        GraphTensor((inner, outer), (1, inner), weight.dtype, weight.device),
    )


def _count(sizes: Sequence[Dim]) -> Dim:
    static = [size for size in sizes if size is not None]
    return math.prod(static) if len(static) == len(sizes) else None


def _is(
    operand: GraphTensor, spec: TensorSpec, any_strides: bool, layouts: Collection[DimLayout]
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
            # Inductor expands a bias to the sizes of the output before tuning.
            if stride != 0:
                return False
        elif mine not in (None, size):
            return False
        elif size != 1 and operand.strides[at - missing : at - missing + 1] not in (
            (None,),
            (stride,),
        ):
            same_strides = False
    if any_strides or same_strides or spec.dtype == "torch.int32":
        return True
    return operand.computed and merged_layout(spec.sizes, spec.strides) in layouts


def merged_layout(sizes: Sequence[Dim], strides: Sequence[Dim]) -> DimLayout:
    """Return sizes and strides without dimensions of size 1, with contiguous ones merged."""
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


Verdict = Literal["absent", "same", "other", "unknown", "unclear"]
"""absent: the op with these inputs is not in the graph; same: it is, with the wanted choice; other:
with another choice; unknown: with an unidentified choice; unclear: it may be in the graph."""


@dataclass(frozen=True, slots=True)
class WantedChoice:
    """An (op, inputs) and the choice that it should use.

    `rivals` are the hashes of all its choices. Templates are distinguished by `config`, a session's
    record of the choice (`BLOCK_M`, ...), and by `constants`, all that its source has. With
    `device`, only graphs of that GPU count.
    """

    op: str
    inputs: str
    hash: str
    rivals: Collection[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    device: int | None = None

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The inputs; empty if the key has an unknown form."""
        try:
            return parse_inputs_key(self.inputs).specs
        except InputsKeyInvalid:
            return ()

    @property
    def options(self) -> Options:
        """The options of the tuned convolution; empty if unknown."""
        possible = self._possible
        return possible.pop() if len(possible) == 1 else ()

    @property
    def shares_key(self) -> bool:
        """Whether convolutions with several options were tuned under this key."""
        return len(self._possible) > 1

    @property
    def _possible(self) -> set[Options]:
        if self.op != "convolution":
            return set()
        options = options_of_hash("convolution", self.hash) or convolution_of_constants(
            self.constants
        )
        return (
            {options}
            if options
            else {options_of_hash("convolution", name) for name in self.rivals} - {()}
        )

    @property
    def externs(self) -> set[str]:
        """The names by which wrappers call its library kernels."""
        names = {extern_name(name) for name in (self.hash, *self.rivals) if not kind_of(name)}
        return names | {name.partition(".")[0] for name in names} | set(form_of(self.op).externs)

    @property
    def names(self) -> set[str]:
        """The names of the op in graphs and wrappers."""
        return {self.op, f"_{self.op}", *form_of(self.op).nodes, *self.externs}


def may_hold(data: bytes, wanted: WantedChoice) -> bool:
    """Return False if `data`, an entry, cannot contain the op with its inputs; a fast check."""
    form = form_of(wanted.op)
    if not form.proven or not wanted.specs:
        return True  # only its sizes could exclude it, which needs parsing
    if not any(name.encode() in data for name in wanted.names):
        return False
    if b"[s" in data or b"(s" in data or b"{s" in data:  # a symbolic size
        return True
    if wanted.op == "mm" and b"convolution" in data:  # its operands are views
        return True
    sizes = [spec.sizes for spec in wanted.specs if spec.sizes]
    texts = [", ".join(map(str, dims)) for dims in sizes]
    texts += [", ".join(f"{size}L" for size in dims) for dims in sizes]
    return any(text.encode() in data for text in texts)


def judge(graph: GraphText, wanted: WantedChoice) -> Verdict:
    """Return whether `graph` contains the op with the inputs of `wanted`, and with which choice."""
    if not graph.is_compiled or graph.tuned is False:
        return "absent"
    if wanted.device is not None and graph.devices and wanted.device not in graph.devices:
        return "absent"
    own = [own for own in graph.own if (own.op, own.inputs) == (wanted.op, wanted.inputs)]
    option_sets = {call.options for call in own if call.hash == wanted.hash} or {wanted.options}
    ours = {call.hash for call in own if any(options_agree(call.options, o) for o in option_sets)}
    if ours:
        if ours == {wanted.hash}:
            return "same"
        return "unknown" if wanted.shares_key else "other"
    form, specs = form_of(wanted.op), wanted.specs
    if not specs or not form.proven:
        return "unclear" if may_hold_loosely(graph, wanted) else "absent"
    verdict = _judge(graph, wanted, form, specs)
    if verdict == "absent" and graph.any_size is not None:
        # It was tuned for other sizes but may serve these: its guards are not evaluated here.
        served = _judge(graph.any_size, wanted, form, specs)
        verdict = "unclear" if served in ("other", "unknown") else "absent"
    if verdict == "absent":
        layouts = _computed_layouts(graph)
        calls = (call for calls in graph.graphs for call in calls)
        if any(node_may_serve(call, specs, form, layouts) for call in calls):
            return "unclear"
    return verdict


def may_hold_loosely(graph: GraphText, wanted: WantedChoice) -> bool:
    """Return whether a graph has a name like the op's, or tensors of all the sizes."""
    names = {name.strip("_") for name in wanted.names if len(name.strip("_")) > 2}
    called = [call.name for calls in (*graph.graphs, graph.externs) for call in calls]
    if any(name in text for text in called for name in names):
        return True
    if any(name in kernel.name for kernel in graph.templates for name in names):
        return True
    shapes = {tuple(sorted(size or 0 for size in tensor.sizes)) for tensor in graph.tensors}
    return bool(wanted.specs) and all(
        tuple(sorted(spec.sizes)) in shapes for spec in wanted.specs if len(spec.sizes) > 1
    )


def _judge(
    graph: GraphText, wanted: WantedChoice, form: OpForm, specs: tuple[TensorSpec, ...]
) -> Verdict:
    alike = {call.node for calls in graph.graphs for call in calls if call.name in form.nodes}
    graph = _with_options(graph, wanted.options)
    called = list(_by_extern(graph, wanted, form, specs))
    verdicts = set(called)
    nodes = nodes_of(graph, form, specs)
    linked = list(_linked(graph, wanted, nodes, alike, len(called)))
    if linked:
        verdicts |= {_of_kernel(kernel, wanted, sure) for kernel, sure in linked}
    elif not verdicts and holds(graph, wanted, form, specs):
        verdicts = {_by_elimination(graph, wanted, specs)}
    if not wanted.options and (wanted.shares_key or len({call.options for call in nodes}) > 1):
        verdicts = {"unknown" if verdict == "other" else verdict for verdict in verdicts}
    for verdict in ("other", "unknown", "same"):
        if verdict in verdicts:
            return verdict
    return "absent"


def _with_options(graph: GraphText, options: Options) -> GraphText:
    """Return the graph without convolutions that have other options."""
    if not options:
        return graph

    def left(calls: tuple[GraphCall, ...]) -> tuple[GraphCall, ...]:
        return tuple(call for call in calls if options_agree(call.options, options))

    return replace(graph, graphs=tuple(map(left, graph.graphs)), externs=left(graph.externs))


def _by_extern(
    graph: GraphText, wanted: WantedChoice, form: OpForm, specs: tuple[TensorSpec, ...]
) -> Iterator[Verdict]:
    """Yield the verdict of each library call of the op."""
    right = "" if kind_of(wanted.hash) else extern_name(wanted.hash).partition(".")[0]
    names, required = wanted.externs, form.read(specs)
    for call in graph.externs:
        if call.name in names and serves(call.operands, required, not form.exact_strides):
            yield "same" if call.name == right else "other"


def _linked(
    graph: GraphText,
    wanted: WantedChoice,
    nodes: Sequence[GraphCall],
    alike: Collection[str],
    called: int,
) -> Iterator[tuple[WrapperKernel, bool]]:
    """Yield the kernels that name one of `nodes`, and whether they certainly compute it.

    A kernel also names products of which it only computes the epilogue: a fused bias that Inductor
    split off a convolution names that convolution. So a kernel that names several products, those
    in `alike`, computes none of `nodes` if `called` library calls compute them all, or if its calls
    have no such tensors.
    """
    names = {call.node for call in nodes}
    for kernel in graph.templates:
        if not kernel.nodes & names:
            continue
        if not options_agree(convolution_of_constants(dict(kernel.config)), wanted.options):
            continue
        sure = len(kernel.nodes.intersection(alike)) == 1
        if sure or (called < len(names) and launch_fits(kernel, wanted.specs)):
            yield kernel, sure


def nodes_of(graph: GraphText, form: OpForm, specs: tuple[TensorSpec, ...]) -> list[GraphCall]:
    """Return the nodes of the printed graph that are the op with these inputs."""
    layouts = _computed_layouts(graph)
    return [
        call
        for calls in graph.graphs
        for call in calls
        if call.operands and node_serves(call, specs, form, False, layouts)
    ]


def _computed_layouts(graph: GraphText) -> set[DimLayout]:
    return {merged_layout(t.sizes, t.strides) for t in graph.tensors if t.computed}


def holds(
    graph: GraphText, wanted: WantedChoice, form: OpForm, specs: tuple[TensorSpec, ...]
) -> bool:
    """Return whether a printed graph has the op with these inputs, other than as an extern call."""
    if not any(call.operands for calls in graph.graphs for call in calls):
        return _may_hold_untyped(graph, wanted)
    # The wrapper has the exact strides of extern calls. If each node with these sizes became
    # one, and none had our strides, the key is another op's.
    required = form.read(specs)
    called = sum(
        call.name in wanted.externs and serves(call.operands, required, True)
        for call in graph.externs
    )
    alike = max(
        sum(bool(call.operands) and node_serves(call, specs, form, True) for call in calls)
        for calls in graph.graphs
    )
    return alike > called and bool(nodes_of(graph, form, specs))


def _may_hold_untyped(graph: GraphText, wanted: WantedChoice) -> bool:
    """Return whether a text without the printed graph, such as an AOTInductor package, may contain
    the op: a template kernel is named after it, and tensors of all the sizes occur, with dimensions
    in any order."""
    shapes = {tuple(sorted(size or 0 for size in tensor.sizes)) for tensor in graph.tensors}
    names = {name.strip("_") for name in wanted.names}
    kernels = [kernel for kernel in graph.templates if any(name in kernel.name for name in names)]
    # A constant weight is packed into other sizes, but a C++ kernel has its K and N.
    weights = {
        tuple(sorted(map(int, sizes)))
        for config in (dict(kernel.config) for kernel in kernels if kernel.kind == "cpp")
        for sizes in zip(config.get("K", "").split(), config.get("N", "").split(), strict=False)
    }
    return bool(kernels) and all(
        tuple(sorted(spec.sizes)) in shapes or tuple(sorted(spec.sizes[-2:])) in weights
        for spec in wanted.specs
    )


def _by_elimination(
    graph: GraphText, wanted: WantedChoice, specs: tuple[TensorSpec, ...]
) -> Verdict:
    """Return the verdict of the remaining kernels, when no call or named kernel is the op."""
    left = [kernel for kernel in graph.templates if not kernel.nodes]
    left = [kernel for kernel in left if launch_fits(kernel, specs)] or left
    if not left:
        return "other" if is_own(wanted.hash) else "unknown"
    verdicts = {_of_kernel(kernel, wanted) for kernel in left}
    return verdicts.pop() if len(verdicts) == 1 else "unknown"


def _of_kernel(kernel: WrapperKernel, wanted: WantedChoice, sure: bool = True) -> Verdict:
    """Return whether a kernel is the wanted choice; `sure` if it certainly computes the op."""
    verdict = _choice_of_kernel(kernel, wanted)
    return verdict if sure or verdict == "same" else "unknown"


def _choice_of_kernel(kernel: WrapperKernel, wanted: WantedChoice) -> Verdict:
    kind = kind_of(wanted.hash)
    if not kind or is_own(wanted.hash) or kernel.kind != kind:
        return "other"
    if sum(kind_of(rival) == kind for rival in {wanted.hash, *wanted.rivals}) == 1:
        return "same"
    config = dict(kernel.config)
    if config and wanted.constants:
        return "same" if config == dict(wanted.constants) else "other"
    shared = [name for name in wanted.config if name in config]
    if not shared:
        return "unknown"
    fits = all(wanted.config[name].strip("'\"") == config[name].strip("'\"") for name in shared)
    return "same" if fits else "other"


@dataclass(frozen=True, slots=True)
class GraphUse:
    """The occurrences of an (op, inputs) in a graph: their number, the template kernels that
    compute it, and the indices of its extern calls in the wrapper. `hash` is the choice, if
    identified."""

    count: int
    kernels: frozenset[str]
    externs: tuple[int, ...]
    hash: str | None = None


class GraphUses:
    """Answers queries about one text, which is parsed once."""

    def __init__(self, graph: GraphText) -> None:
        self._graph = graph
        calls = [call for calls in graph.graphs for call in calls]
        self._names = {call.name for call in (*calls, *graph.externs)}
        tensors = [tensor for call in (*calls, *graph.externs) for tensor in call.operands]
        self._sizes: set[tuple[Dim, ...]] = {tensor.sizes for tensor in tensors}
        self._open = any(None in sizes for sizes in self._sizes)

    def held(self, op: str, inputs: str) -> GraphUse | None:
        """Return the op's occurrences; None if the graph has none, or the text is ambiguous."""
        form = form_of(op)
        if self._names.isdisjoint((*form.nodes, *form.externs)):
            return None
        try:
            specs = parse_inputs_key(inputs).specs
        except InputsKeyInvalid:
            return None
        occurs = self._open or any(spec.sizes in self._sizes for spec in specs)
        return self._held(form, specs, WantedChoice(op, inputs, "")) if specs and occurs else None

    def _held(
        self, form: OpForm, specs: tuple[TensorSpec, ...], wanted: WantedChoice
    ) -> GraphUse | None:
        graph, required = self._graph, form.read(specs)
        externs = tuple(
            at
            for at, call in enumerate(graph.externs)
            if call.name in form.externs and serves(call.operands, required, not form.exact_strides)
        )
        nodes = {call.node for call in nodes_of(graph, form, specs)}
        kernels = [kernel for kernel in graph.templates if kernel.nodes & nodes]
        computed = {node for kernel in kernels for node in kernel.nodes & nodes}
        count = len(externs) + len(computed)
        if not count and holds(graph, wanted, form, specs):
            count = len(nodes)  # a kernel that does not name its nodes computes them
        if not count:
            return None
        return GraphUse(count, frozenset(kernel.name for kernel in kernels), externs)

    def chosen(self, held: GraphUse, wanted: Sequence[WantedChoice]) -> GraphUse:
        """Add the called choice, if the text identifies exactly one of `wanted`."""
        names = {self._graph.externs[at].name for at in held.externs}
        if names and not held.kernels:
            fits = [w.hash for w in wanted if not kind_of(w.hash) and _extern(w.hash) in names]
        elif not names:
            templates = [w for w in wanted if kind_of(w.hash)]
            fits = [w.hash for w in templates if judge(self._graph, w) == "same"]
        else:
            fits = []
        return replace(held, hash=fits[0] if len(fits) == 1 else None)

    @property
    def externs(self) -> tuple[str, ...]:
        """The names of the wrapper's extern calls, in order."""
        return tuple(call.name for call in self._graph.externs)


def _extern(hash: str) -> str:
    return extern_name(hash).partition(".")[0]
