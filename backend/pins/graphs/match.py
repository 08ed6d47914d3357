"""Does a compiled graph hold an op with given inputs, and which choice does it call?

A template's kernel is called with whatever its packing and fusing left of the operands, so the
graph is what tells the inputs of an op, and the wrapper which kernel serves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from backend.errors import InputsKeyInvalid
from backend.model import convolution
from backend.model.options import Options, agree
from backend.model.origin import extern_name, is_own, kind_of
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.pins.graphs.fit import (
    Layout,
    OpForm,
    form_of,
    launch_fits,
    layout_of,
    node_may_serve,
    node_serves,
    serves,
)
from backend.pins.graphs.parts import Call, TemplateKernel
from backend.pins.graphs.text import GraphText

Verdict = Literal["absent", "same", "other", "unknown", "unclear"]
"""The op with these inputs is not in the graph; is there with the wanted choice; with another; is
there, but the text does not tell with which; may be there, which the text does not tell."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An (op, inputs) and the choice that it shall use.

    `rivals` are the hashes of all its choices. To tell templates apart, `config` is what a session
    recorded of the wanted choice (`BLOCK_M`, ...), and `constants` are all that its own source has.
    Only graphs of the GPU `device` are meant, where that is given.
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
        """The inputs; none if the key is of a form that we do not know."""
        try:
            return parse_inputs_key(self.inputs).specs
        except InputsKeyInvalid:
            return ()

    @property
    def options(self) -> Options:
        """Those of the convolution that was tuned; none where nothing tells them."""
        known = self._possible
        return known.pop() if len(known) == 1 else ()

    @property
    def shares_key(self) -> bool:
        """Whether convolutions with several options were tuned under this key."""
        return len(self._possible) > 1

    @property
    def _possible(self) -> set[Options]:
        if self.op != "convolution":
            return set()
        told = convolution.of_hash(self.hash) or convolution.of_constants(self.constants)
        return {told} if told else {convolution.of_hash(name) for name in self.rivals} - {()}

    @property
    def externs(self) -> set[str]:
        """The names under which wrappers call its library kernels."""
        names = {extern_name(name) for name in (self.hash, *self.rivals) if not kind_of(name)}
        return names | {name.partition(".")[0] for name in names} | set(form_of(self.op).externs)

    @property
    def names(self) -> set[str]:
        """What graphs and wrappers may call the op."""
        return {self.op, f"_{self.op}", *form_of(self.op).nodes, *self.externs}


def may_hold(data: bytes, wanted: Wanted) -> bool:
    """Quickly: False if `data`, an entry, cannot hold the op with its inputs."""
    form = form_of(wanted.op)
    if not form.proven or not wanted.specs:
        return True  # the sizes alone may tell; that is for who reads the text
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


def judge(graph: GraphText, wanted: Wanted) -> Verdict:
    """Whether `graph` holds the op with the inputs of `wanted`, and with the same choice."""
    if not graph.is_compiled or graph.tuned is False:
        return "absent"
    if wanted.device is not None and graph.devices and wanted.device not in graph.devices:
        return "absent"
    own = [own for own in graph.own if (own.op, own.inputs) == (wanted.op, wanted.inputs)]
    known = {call.options for call in own if call.hash == wanted.hash} or {wanted.options}
    ours = {call.hash for call in own if any(agree(call.options, o) for o in known)}
    if ours:
        if ours == {wanted.hash}:
            return "same"
        return "unknown" if wanted.shares_key else "other"
    form, specs = form_of(wanted.op), wanted.specs
    if not specs or not form.proven:
        return "unclear" if may_hold_loosely(graph, wanted) else "absent"
    verdict = _judge(graph, wanted, form, specs)
    if verdict == "absent" and graph.any_size is not None:
        # Tuned for other sizes, it may still serve these: its guards are not ours to evaluate.
        served = _judge(graph.any_size, wanted, form, specs)
        verdict = "unclear" if served in ("other", "unknown") else "absent"
    if verdict == "absent":
        layouts = _computed_layouts(graph)
        calls = (call for calls in graph.graphs for call in calls)
        if any(node_may_serve(call, specs, form, layouts) for call in calls):
            return "unclear"
    return verdict


def may_hold_loosely(graph: GraphText, wanted: Wanted) -> bool:
    """Whether anything in a graph is called after the op, or its tensors have all the sizes."""
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
    graph: GraphText, wanted: Wanted, form: OpForm, specs: tuple[TensorSpec, ...]
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
    """The graph without convolutions that have other options than these."""
    if not options:
        return graph

    def left(calls: tuple[Call, ...]) -> tuple[Call, ...]:
        return tuple(call for call in calls if agree(call.options, options))

    return replace(graph, graphs=tuple(map(left, graph.graphs)), externs=left(graph.externs))


def _by_extern(
    graph: GraphText, wanted: Wanted, form: OpForm, specs: tuple[TensorSpec, ...]
) -> Iterator[Verdict]:
    """The verdict of each library call that serves the op."""
    right = "" if kind_of(wanted.hash) else extern_name(wanted.hash).partition(".")[0]
    names, required = wanted.externs, form.read(specs)
    for call in graph.externs:
        if call.name in names and serves(call.operands, required, not form.exact_strides):
            yield "same" if call.name == right else "other"


def _linked(
    graph: GraphText, wanted: Wanted, nodes: Sequence[Call], alike: Collection[str], called: int
) -> Iterator[tuple[TemplateKernel, bool]]:
    """The kernels that name one of `nodes`, and whether it is sure that they compute it.

    A kernel also names the products of which it does no more than what stands behind them: a bias
    that Inductor peeled off a convolution has that one's name, wherever it is fused. So a kernel of
    several products, which are those `alike`, serves none of `nodes` where `called` library calls
    serve them all, or where it is not called with such tensors.
    """
    names = {call.node for call in nodes}
    for kernel in graph.templates:
        if not kernel.nodes & names:
            continue
        if not agree(convolution.of_constants(dict(kernel.config)), wanted.options):
            continue
        sure = len(kernel.nodes.intersection(alike)) == 1
        if sure or (called < len(names) and launch_fits(kernel, wanted.specs)):
            yield kernel, sure


def nodes_of(graph: GraphText, form: OpForm, specs: tuple[TensorSpec, ...]) -> list[Call]:
    """The nodes of the printed graph that are the op with these inputs."""
    layouts = _computed_layouts(graph)
    return [
        call
        for calls in graph.graphs
        for call in calls
        if call.operands and node_serves(call, specs, form, False, layouts)
    ]


def _computed_layouts(graph: GraphText) -> set[Layout]:
    return {layout_of(t.sizes, t.strides) for t in graph.tensors if t.computed}


def holds(graph: GraphText, wanted: Wanted, form: OpForm, specs: tuple[TensorSpec, ...]) -> bool:
    """Whether a printed graph has the op with these inputs, other than as an extern call."""
    if not any(call.operands for calls in graph.graphs for call in calls):
        return _may_hold_untyped(graph, wanted)
    # The wrapper tells the strides of extern calls exactly. Where each node with these sizes
    # became one, and none had our strides, the key is another's.
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


def _may_hold_untyped(graph: GraphText, wanted: Wanted) -> bool:
    """For a text without the printed graph, like an AOTInductor package: is a template kernel
    named after the op, and do tensors of all the sizes occur, their dimensions in any order?"""
    shapes = {tuple(sorted(size or 0 for size in tensor.sizes)) for tensor in graph.tensors}
    names = {name.strip("_") for name in wanted.names}
    kernels = [kernel for kernel in graph.templates if any(name in kernel.name for name in names)]
    # A constant weight is packed into blocks of other sizes, but a C++ kernel has its K and N.
    weights = {
        tuple(sorted(map(int, sizes)))
        for config in (dict(kernel.config) for kernel in kernels if kernel.kind == "cpp")
        for sizes in zip(config.get("K", "").split(), config.get("N", "").split(), strict=False)
    }
    return bool(kernels) and all(
        tuple(sorted(spec.sizes)) in shapes or tuple(sorted(spec.sizes[-2:])) in weights
        for spec in wanted.specs
    )


def _by_elimination(graph: GraphText, wanted: Wanted, specs: tuple[TensorSpec, ...]) -> Verdict:
    """No library call and no kernel that names its nodes serves the op: which kernels are left?"""
    left = [kernel for kernel in graph.templates if not kernel.nodes]
    left = [kernel for kernel in left if launch_fits(kernel, specs)] or left
    if not left:
        return "other" if is_own(wanted.hash) else "unknown"
    verdicts = {_of_kernel(kernel, wanted) for kernel in left}
    return verdicts.pop() if len(verdicts) == 1 else "unknown"


def _of_kernel(kernel: TemplateKernel, wanted: Wanted, sure: bool = True) -> Verdict:
    """Whether a kernel that serves the op is the wanted choice; `sure` if it does serve it."""
    verdict = _choice_of_kernel(kernel, wanted)
    return verdict if sure or verdict == "same" else "unknown"


def _choice_of_kernel(kernel: TemplateKernel, wanted: Wanted) -> Verdict:
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
