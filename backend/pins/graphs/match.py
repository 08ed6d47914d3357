"""Does a compiled graph hold an op with given inputs, and which choice does it call?

An entry is a pickle, which is never loaded. In it stand, as plain text,
- the generated wrapper, in Python (`def call(...)`) or in C++ (`cpp_wrapper`), with each extern
  kernel call and its operands, the source of each kernel, and what it is called with,
- the graph that was compiled, whose every value has its dtype, sizes, strides and device,
- above a Triton kernel, a comment that names the nodes of that graph which it computes,
- before each call of a kernel of ours, a comment that says which choice it is, for what.
A template's kernel is called with whatever its packing and fusing left of the operands, so the
graph is what tells the inputs of an op, and the wrapper which kernel serves it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.errors import InputsKeyInvalid
from backend.model.origin import extern_name, is_own, kind_of
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.pins.graphs.fit import OpForm, form_of, launch_fits, layout_of, node_serves, serves
from backend.pins.graphs.parts import (
    HEADER,
    Call,
    GraphTensor,
    Hints,
    Known,
    TemplateKernel,
    graph_calls,
    graph_inputs,
    printed_graphs,
)
from backend.pins.graphs.wrappers import (
    CppWrapper,
    PythonWrapper,
    Wrapper,
    is_cpp,
    printed_hints,
    python_hints,
)


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A call of a kernel of our templates: the choice that won the tuning of (op, inputs)."""

    op: str
    inputs: str
    hash: str

    def text(self) -> str:
        """What a comment in the wrapper says of it."""
        return f"rocm-tui choice {self.hash} for {self.op} {self.inputs}"


_OWN_CHOICE = re.compile(
    r"^[ \t]{0,200}(?:#|//) rocm-tui choice (\S{1,400}) for (\S{1,200}) ([^\n]{1,65600})$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GraphText:
    """One entry. `graphs` has the ops of each printed graph; `externs` the calls of the wrapper.

    `is_compiled` is False for an entry without generated code. `tensors` are the inputs and buffers
    that the wrapper names. `tuned` says whether it was compiled with autotuning on; None
    where the entry does not say. `any_size` is the same text with each symbol left open, where
    its symbols were known by the values for which they were tuned.
    """

    is_compiled: bool
    graphs: tuple[tuple[Call, ...], ...]
    externs: tuple[Call, ...]
    tensors: frozenset[GraphTensor]
    templates: tuple[TemplateKernel, ...]
    tuned: bool | None
    own: frozenset[OwnChoice] = field(default_factory=frozenset)
    any_size: GraphText | None = None


_CALL = re.compile(r"^[ \t]{0,200}def call\(", re.MULTILINE)
_TUNED = re.compile(
    r"(?:inductor_config\[|_inductor\.config\.)max_autotune(?:_gemm)?\]?\s{0,20}[:=] True"
)
_SETTINGS = re.compile(
    r"inductor_config\[max_autotune\]|^import torch\._inductor\.config$", re.MULTILINE
)


def read_graph_text(data: bytes) -> GraphText:
    """What `data`, the content of an entry, says. Never raises: unknown text says nothing."""
    text = data.decode("latin-1")  # every byte is a character; all that we match is ASCII
    python, cpp = list(_python_wrappers(text)), list(_cpp_wrappers(text))
    parts = printed_graphs(text)
    hints = printed_hints("".join([*_reproducers(text), *python, *cpp]))
    for wrapper in python:
        hints = {**python_hints(wrapper), **hints}
    open_text = _read(text, python, cpp, parts, {}, None)
    return _read(text, python, cpp, parts, hints, open_text) if hints else open_text


def _read(
    text: str,
    python: list[str],
    cpp: list[str],
    parts: list[str],
    hints: Hints,
    any_size: GraphText | None,
) -> GraphText:
    inputs: Known = {}
    for part in parts:
        for name, operand in graph_inputs(part, hints).items():
            inputs.setdefault(name, operand)  # inner graphs, printed later, use the names again
    wrappers: list[Wrapper] = [PythonWrapper(wrapper, inputs, hints) for wrapper in python]
    wrappers += [CppWrapper(wrapper, inputs, hints) for wrapper in cpp]
    return GraphText(
        is_compiled=bool(wrappers),
        graphs=tuple(tuple(graph_calls(part, hints)) for part in parts),
        externs=tuple(call for wrapper in wrappers for call in wrapper.externs),
        tensors=frozenset(tensor for wrapper in wrappers for tensor in wrapper.tensors),
        templates=tuple(kernel for wrapper in wrappers for kernel in wrapper.templates),
        tuned=_tuned(text),
        own=frozenset(
            OwnChoice(op, given, choice)
            for source in (*python, *cpp)
            for choice, op, given in _OWN_CHOICE.findall(source)
        ),
        any_size=any_size,
    )


def _python_wrappers(text: str) -> Iterator[str]:
    """Each generated Python module, from its imports to its end."""
    starts = [m.start() for m in re.finditer(r"AsyncCompile\(\)\n", text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end]
        if _CALL.search(part):
            graph = HEADER.search(part)
            part = part[: graph.start()] if graph else part
            yield part.partition("compiled_module_main(")[0]


def _cpp_wrappers(text: str) -> Iterator[str]:
    """Each generated C++ module: in an entry it is a text of Python, alone it is a whole file."""
    starts = [m.end() for m in re.finditer(r"cpp_wrapper_src = \(\n", text)]
    if not starts and text.lstrip().startswith("#include") and is_cpp(text):
        starts = [0]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end].partition("CppWrapperCodeCache.load")[0]
        graph = HEADER.search(part)
        part = part[: graph.start()] if graph else part
        if is_cpp(part):
            yield part


def _reproducers(text: str) -> Iterator[str]:
    """What makes the arguments in each reproducer."""
    starts = [m.end() for m in re.finditer(r"^def load_args\(reader\):\n", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        yield text[start : min(end, start + 200_000)].partition("\nload_args._version")[0]


def _tuned(text: str) -> bool | None:
    # The reproducer names what differs from the default, and the environment that sets a default.
    if "TORCHINDUCTOR_MAX_AUTOTUNE" in text or _TUNED.search(text):
        return True
    return False if _SETTINGS.search(text) else None


Verdict = Literal["absent", "same", "other", "unknown", "unclear"]
"""The op with these inputs is not in the graph; is there with the wanted choice; with another; is
there, but the text does not tell with which; may be there, which the text does not tell."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An (op, inputs) and the choice that it shall use.

    `rivals` are the hashes of all its choices. To tell templates apart, `config` is what a session
    recorded of the wanted choice (`BLOCK_M`, ...), and `constants` are all that its own source has.
    """

    op: str
    inputs: str
    hash: str
    rivals: Collection[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The inputs; none if the key is of a form that we do not know."""
        try:
            return parse_inputs_key(self.inputs).specs
        except InputsKeyInvalid:
            return ()

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
    ours = {own.hash for own in graph.own if (own.op, own.inputs) == (wanted.op, wanted.inputs)}
    if ours:
        return "same" if ours == {wanted.hash} else "other"
    form, specs = form_of(wanted.op), wanted.specs
    if not specs or not form.proven:
        return "unclear" if may_hold_loosely(graph, wanted) else "absent"
    verdict = _judge(graph, wanted, form, specs)
    if verdict == "absent" and graph.any_size is not None:
        # Tuned for other sizes, it may still serve these: its guards are not ours to evaluate.
        served = _judge(graph.any_size, wanted, form, specs)
        return "unclear" if served in ("other", "unknown") else "absent"
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
    verdicts = set(_by_extern(graph, wanted, form, specs))
    nodes = {call.node for call in nodes_of(graph, form, specs)}
    linked = [kernel for kernel in graph.templates if kernel.nodes & nodes]
    if linked:
        verdicts |= {_of_kernel(kernel, wanted) for kernel in linked}
    elif not verdicts and holds(graph, wanted, form, specs):
        verdicts = {_by_elimination(graph, wanted, specs)}
    for verdict in ("other", "unknown", "same"):
        if verdict in verdicts:
            return verdict
    return "absent"


def _by_extern(
    graph: GraphText, wanted: Wanted, form: OpForm, specs: tuple[TensorSpec, ...]
) -> Iterator[Verdict]:
    """The verdict of each library call that serves the op."""
    right = "" if kind_of(wanted.hash) else extern_name(wanted.hash).partition(".")[0]
    names, required = wanted.externs, form.read(specs)
    for call in graph.externs:
        if call.name in names and serves(call.operands, required, not form.exact_strides):
            yield "same" if call.name == right else "other"


def nodes_of(graph: GraphText, form: OpForm, specs: tuple[TensorSpec, ...]) -> list[Call]:
    """The nodes of the printed graph that are the op with these inputs."""
    layouts = {layout_of(t.sizes, t.strides) for t in graph.tensors if t.computed}
    return [
        call
        for calls in graph.graphs
        for call in calls
        if call.operands and node_serves(call, specs, form, False, layouts)
    ]


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
    """For torch before it kept the graph's text: is a template kernel named after the op, and do
    tensors of all the sizes occur, their dimensions in any order?"""
    shapes = {tuple(sorted(size or 0 for size in tensor.sizes)) for tensor in graph.tensors}
    names = {name.strip("_") for name in wanted.names}
    return any(name in kernel.name for name in names for kernel in graph.templates) and all(
        tuple(sorted(spec.sizes)) in shapes for spec in wanted.specs
    )


def _by_elimination(graph: GraphText, wanted: Wanted, specs: tuple[TensorSpec, ...]) -> Verdict:
    """No library call and no kernel that names its nodes serves the op: which kernels are left?"""
    left = [kernel for kernel in graph.templates if not kernel.nodes]
    left = [kernel for kernel in left if launch_fits(kernel, specs)] or left
    if not left:
        return "other" if is_own(wanted.hash) else "unknown"
    verdicts = {_of_kernel(kernel, wanted) for kernel in left}
    return verdicts.pop() if len(verdicts) == 1 else "unknown"


def _of_kernel(kernel: TemplateKernel, wanted: Wanted) -> Verdict:
    """Whether a kernel that serves the op is the wanted choice."""
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
