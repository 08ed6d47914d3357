"""The parts of a compiled graph's text: tensors, calls, kernels, the printed graph, and the source
of a template's kernel.

The text is hostile: each pattern here and in the readers is bounded, so that reading takes time
linear in the length of any text.

In the printed graph of an entry, each value has its dtype, sizes, strides and device:

    permute: "f32[8, 64, 192][12288, 192, 1]cpu" = self._frozen_param0
    bmm: "f32[8, 128, 192][24576, 192, 1]cpu" = torch.ops.aten.bmm.default(a, permute)

The source of a kernel, which `cache.code` locates, has the constants that distinguish its choice,
its launch parameters, and, in a comment, the nodes of the graph that it computes.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.cache.code import code_of
from backend.model.options import Options, convolution_of_arguments
from backend.model.origin import kind_of

Dim = int | None
"""A size or stride; None for a symbol, which has many values."""

MAX_LINE = 100_000
"""Characters; a longer line is data, not code."""


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor. An unknown field is None; `computed` if it is not an input or view."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str | None = None
    device: str | None = None
    computed: bool = False


NamedTensors = dict[str, GraphTensor]
"""The tensors that a text has named so far."""

Hints = Mapping[str, int]
"""The value of each symbol for which the graph was compiled and tuned."""


@dataclass(frozen=True, slots=True)
class GraphCall:
    """An op or kernel with the tensors that it reads, in order. `node` is its name in the printed
    graph, `options` are a convolution's. `unsized` counts arguments that are missing from
    `operands` because the printed graph does not state their type."""

    name: str
    operands: tuple[GraphTensor, ...]
    node: str = ""
    options: Options = ()
    unsized: int = 0


@dataclass(frozen=True, slots=True)
class WrapperKernel:
    """A template's kernel. `kind` is `triton`, `cpp` or another of Inductor's compilers.

    `config` has the constants of its source (`BLOCK_M`, `num_warps`, ...), sorted. `nodes` are the
    nodes of the printed graph that it computes, if the text names them; `calls` are its arguments,
    including outputs.
    """

    name: str
    kind: str
    config: tuple[tuple[str, str], ...]
    nodes: frozenset[str] = frozenset()
    calls: tuple[tuple[GraphTensor, ...], ...] = ()


def dims(text: str, hints: Hints) -> tuple[Dim, ...]:
    """Return the sizes or strides in `text`, in Python or C++ syntax: `4, s7, 8*s7` or `4L, s7`."""
    return tuple(_dim(part.strip(), hints) for part in text.split(",") if part.strip())


def _dim(text: str, hints: Hints) -> Dim:
    product = 1
    for factor in text.split("*"):
        factor = factor.strip()
        digits = factor.removesuffix("L")
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            product *= int(digits)
        elif factor in hints:
            product *= hints[factor]
        else:
            return None
    return product


def code_lines(text: str) -> Iterator[str]:
    """Yield the lines that are short enough to be code."""
    return (line for line in text.split("\n") if len(line) <= MAX_LINE)


def sections(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Return each match with the position where the next one begins, or the text ends."""
    matches = list(pattern.finditer(text))
    return zip(matches, [*(match.start() for match in matches[1:]), len(text)], strict=False)


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a call, split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts


DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "b8": "bool",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
}
"""The graph printer's short names of dtypes."""

HEADER = re.compile(r"class [\w<>.]{1,200}\(torch\.nn\.Module\):\n")
_DIMS = r"\[([^\]\n\"]{0,400})\]"
_ANNOTATION = re.compile(
    rf"([a-z]{{1,20}}[0-9][a-z0-9]{{0,20}}){_DIMS}{_DIMS}([a-z]{{1,20}})(?::\d+)?"
)
_NODE = re.compile(
    r"[ \t]{1,200}(\w{1,200})(?:: \"([^\"\n]{1,400})\")? = (?:torch\.ops\.)?([\w.]{1,160})\("
)
_VALUE = re.compile(
    r"[ \t]{1,200}(\w{1,200})(?:: \"([^\"\n]{1,400})\")? = (?:(self)\.[\w.]|\w{1,200}\[)"
)
"""An attribute of the module, like a frozen weight, or an item of a call's result."""
_PARAMETER = re.compile(r"\b(\w{1,200}): \"([^\"\n]{1,400})\"")
_RETURN = re.compile(r"^[ \t]{1,200}return ", re.MULTILINE)
NAME = re.compile(r"\b[A-Za-z_]\w{0,200}\b")
"""A name in Python or C++."""
_VIEWS = {"permute", "view", "reshape", "slice", "expand", "select", "t", "transpose", "unsqueeze"}


def printed_graphs(text: str) -> list[str]:
    """Return the text of each printed graph, up to its `return`."""
    parts = ((m.end(), _RETURN.search(text, m.end(), end)) for m, end in sections(HEADER, text))
    return [text[start : last.start()] for start, last in parts if last]


def graph_inputs(part: str, hints: Hints) -> NamedTensors:
    """Return the parameters of a printed graph by name."""
    inputs: NamedTensors = {}
    for name, annotation in _PARAMETER.findall(part.partition("):\n")[0]):
        operand = _annotated(annotation, hints)
        if operand is not None:
            inputs[name] = operand
    return inputs


def graph_calls(part: str, hints: Hints) -> Iterator[GraphCall]:
    """Yield the calls of a printed graph, in order."""
    tensors = graph_inputs(part, hints)
    untyped: set[str] = set()
    for line in code_lines(part):
        match = _NODE.match(line)
        if match is None:
            if value := _VALUE.match(line):
                name, annotation, is_attribute = value.groups()
                operand = _annotated(annotation or "", hints)
                if operand is not None:
                    # An item's strides may be a result's, so they are not final.
                    tensors[name] = replace(operand, computed=not is_attribute)
                elif annotation is None:
                    untyped.add(name)
            continue
        name, annotation, target = match.groups()
        # The call may be followed by the values that it was the last to use.
        arguments = line[match.end() :].partition(");")[0]
        op = op_name(target)
        names = NAME.findall(arguments)
        inputs = tuple(tensors[a] for a in names if a in tensors)
        unsized = sum(a in untyped for a in names)
        yield GraphCall(op, inputs, name, options_of_call(op, arguments), unsized)
        operand = _annotated(annotation or "", hints)
        if operand is not None:
            is_view = op in _VIEWS and not any(operand.computed for operand in inputs)
            tensors[name] = replace(operand, computed=not is_view)
        elif annotation is None:
            untyped.add(name)


def options_of_call(op: str, arguments: str) -> Options:
    """Return the options of a call of `op` beside tensors, as far as its text has them."""
    if op != "convolution":
        return ()
    return convolution_of_arguments(split_arguments(arguments))


def op_name(target: str) -> str:
    """Return `bmm` for `aten.bmm.default`; the last part of a name without overload; for a function
    of Inductor's own, whose name is a whole path, the part behind the module."""
    parts = target.split(".")
    name = parts[1] if len(parts) >= 3 else parts[-1]
    return name.rpartition("_post_grad_")[2] if name.startswith("torch__inductor_") else name


def _annotated(text: str, hints: Hints) -> GraphTensor | None:
    match = _ANNOTATION.fullmatch(text)
    if match is None:
        return None
    dtype, sizes, strides, device = match.groups()
    full = DTYPES.get(dtype)
    return GraphTensor(
        dims(sizes, hints), dims(strides, hints), f"torch.{full}" if full else None, device
    )


_CONSTEXPR = re.compile(r"^[ \t]{1,200}(\w{1,200}) : tl\.constexpr = ([^\n]{1,200})$", re.MULTILINE)
_DSL_CONSTEXPR = re.compile(
    r"^[ \t]{0,200}(\w{1,200}): (?:fx|cutlass)\.Constexpr = ([^\n]{1,200})$", re.MULTILINE
)
_LAUNCH = re.compile(
    r"\b(num_stages|num_warps|matrix_instr_nonkdim|waves_per_eu|kpack|num_consumer_groups"
    r"|num_buffers_warp_spec)=(\d{1,9})\b"
)
_CPP_CONSTANT = re.compile(r"\bconstexpr int64_t (num_threads|[MNK]t_blocks|[MNK]r?) = (\d{1,19});")
_INSTANCE = re.compile(
    r"/\* (\w{1,100}) \*/ (?:S|Tuple)<([^<>\n]{0,200})>|/\* (\w{1,100}) \*/ ([^\s,<>]{1,200})"
)
"""A parameter of an instance of Composable Kernel, named in a comment before it."""
_GRAPH_NODE = re.compile(
    r"^# {1,8}%(\w{1,200}) : [^\n]{0,600}? ?= call_function\[target=", re.MULTILINE
)
_OTHERWISE = {"INDEX_DTYPE"}
"""Constants that fusion may change."""


def kernel_config(source: str, kind: str) -> tuple[tuple[str, str], ...]:
    """Return a template kernel's constants, sorted by name; empty for an unknown compiler."""
    if kind == "triton":
        constants = dict(_CONSTEXPR.findall(source))
        constants.update(_LAUNCH.findall(source))
        return tuple(sorted((k, v) for k, v in constants.items() if k not in _OTHERWISE))
    if kind in ("cutedsl", "flydsl"):
        return tuple(sorted(dict(_DSL_CONSTEXPR.findall(source)).items()))
    if kind == "cpp":
        values: dict[str, list[str]] = {}
        for name, value in _CPP_CONSTANT.findall(source):
            values.setdefault(name, []).append(value)
        return tuple(sorted((name, " ".join(texts)) for name, texts in values.items()))
    if kind == "rocm":
        parameters = _INSTANCE.findall(source)
        return tuple(
            sorted(
                (name.upper(), f"({texts})")
                if name
                else (plain_name.upper(), text.rpartition(":")[2])
                for name, texts, plain_name, text in parameters
            )
        )
    return ()


def fragment_nodes(text: str) -> frozenset[str]:
    """Return the nodes of the last "Graph fragment" comment in `text`, which precedes a kernel."""
    fragment = text.rpartition("# Graph fragment:")[2] if "# Graph fragment:" in text else ""
    return frozenset(_GRAPH_NODE.findall(fragment))


RETRY_SECONDS = 60.0
"""Seconds until a missing source is searched for again."""


@dataclass(slots=True)
class ChoiceSources:
    """The sources in one cache dir; each is read once."""

    root: Path
    _constants: dict[str, dict[str, str]] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)

    def distinguishing(self, choice: str, rivals: Collection[str]) -> dict[str, str]:
        """Return the constants that distinguish the kernel of `choice` from those of `rivals` in a
        graph; empty if it is the only one of its kind."""
        kind = kind_of(choice)
        several = sum(kind_of(name) == kind for name in {choice, *rivals}) > 1
        return self.constants(choice, kind) if several else {}

    def constants(self, choice: str, kind: str) -> dict[str, str]:
        """Return the constants of a choice by hash and kind; empty if its source is missing."""
        if kind not in ("triton", "cpp"):
            return {}
        constants = self._constants.get(choice)
        missed = self._missed.get(choice, -math.inf)
        if constants is None and time.monotonic() - missed > RETRY_SECONDS:
            source = code_of(self.root, choice)
            constants = dict(kernel_config(source.text, kind)) if source else {}
            if constants:
                self._constants[choice] = constants
            else:
                self._missed[choice] = time.monotonic()
        return constants or {}
