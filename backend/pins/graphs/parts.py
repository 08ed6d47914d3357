"""What the text of a compiled graph consists of: tensors, calls, kernels, the printed graph,
and the source of a template's kernel.

The text is hostile: each pattern here and in the readers is bounded, so that a reader takes time
linear in the length of the text, whatever stands in it.

In the graph that was compiled, as an entry keeps it printed, each value has its dtype, sizes,
strides and device:

    permute: "f32[8, 64, 192][12288, 192, 1]cpu" = self._frozen_param0
    bmm: "f32[8, 128, 192][24576, 192, 1]cpu" = torch.ops.aten.bmm.default(a, permute)

The source of a kernel tells the constants by which one choice differs from another, how it is
launched, and, in a comment, which nodes of the graph it computes. Inductor keeps it below the cache
dir. A Triton choice's hash is its template's name and the key of its module, which lies at
`<cache dir>/<2nd and 3rd letter of the key>/<key>.py`. A C++ choice's hash ends in a hash of its
source, which lies below the name that it was compiled under: it is found by its content.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.disk.safe import open_regular
from backend.model.options import Options, convolution_of_arguments
from backend.model.origin import kind_of

Dim = int | None
"""A size or stride; None where the graph has a symbol, which stands for many values."""

MAX_LINE = 100_000
"""Characters; a longer line is data, not code."""


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """One tensor. What its text does not say is None; `computed` if it is no input or view."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str | None = None
    device: str | None = None
    computed: bool = False


Known = dict[str, GraphTensor]
"""The tensors that a text has named so far."""

Hints = Mapping[str, int]
"""The value of each symbol for which the graph was compiled and tuned."""


@dataclass(frozen=True, slots=True)
class GraphCall:
    """One op or kernel with the tensors that it reads, in order. `node` is its name in the graph
    that was printed, `options` what a convolution was given besides. `unsized` counts arguments
    that are no `operands` because the printed graph does not state their type."""

    name: str
    operands: tuple[GraphTensor, ...]
    node: str = ""
    options: Options = ()
    unsized: int = 0


@dataclass(frozen=True, slots=True)
class WrapperKernel:
    """A template's kernel. `kind` is `triton`, `cpp` or another of Inductor's compilers.

    `config` has the constants of its source (`BLOCK_M`, `num_warps`, ...), sorted. `nodes` are the
    nodes of the printed graph that it computes, where the text says so; `calls` what it is called
    with, the outputs too.
    """

    name: str
    kind: str
    config: tuple[tuple[str, str], ...]
    nodes: frozenset[str] = frozenset()
    calls: tuple[tuple[GraphTensor, ...], ...] = ()


def dims(text: str, hints: Hints) -> tuple[Dim, ...]:
    """The sizes or strides in `text`, as Python or C++ writes them: `4, s7, 8*s7` or `4L, s7`."""
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


def lines(text: str) -> Iterator[str]:
    """The lines that are short enough to be code."""
    return (line for line in text.split("\n") if len(line) <= MAX_LINE)


def split_arguments(text: str) -> list[str]:
    """The arguments of a call, split at the commas outside brackets."""
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
"""An attribute of the module, like a frozen weight, or an item of what a call returned."""
_PARAMETER = re.compile(r"\b(\w{1,200}): \"([^\"\n]{1,400})\"")
_RETURN = re.compile(r"^[ \t]{1,200}return ", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w{0,200}\b")
_VIEWS = {"permute", "view", "reshape", "slice", "expand", "select", "t", "transpose", "unsqueeze"}


def printed_graphs(text: str) -> list[str]:
    """The text of each printed graph, up to its `return`."""
    graphs = []
    starts = [match.end() for match in HEADER.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        last = _RETURN.search(text, start, end)
        if last:
            graphs.append(text[start : last.start()])
    return graphs


def graph_inputs(part: str, hints: Hints) -> Known:
    """The parameters of a printed graph by name."""
    known: Known = {}
    for name, annotation in _PARAMETER.findall(part.partition("):\n")[0]):
        operand = _annotated(annotation, hints)
        if operand is not None:
            known[name] = operand
    return known


def graph_calls(part: str, hints: Hints) -> Iterator[GraphCall]:
    """The calls of a printed graph, in order."""
    known = graph_inputs(part, hints)
    untyped: set[str] = set()
    for line in lines(part):
        match = _NODE.match(line)
        if match is None:
            if value := _VALUE.match(line):
                name, annotation, is_attribute = value.groups()
                operand = _annotated(annotation or "", hints)
                if operand is not None:
                    # Strides of an item may be those of a result, so they are not final.
                    known[name] = replace(operand, computed=not is_attribute)
                elif annotation is None:
                    untyped.add(name)
            continue
        name, annotation, target = match.groups()
        # Behind the call may stand which values it was the last to use.
        arguments = line[match.end() :].partition(");")[0]
        op = op_name(target)
        names = _NAME.findall(arguments)
        inputs = tuple(known[a] for a in names if a in known)
        unsized = sum(a in untyped for a in names)
        yield GraphCall(op, inputs, name, options_of(op, arguments), unsized)
        operand = _annotated(annotation or "", hints)
        if operand is not None:
            is_view = op in _VIEWS and not any(operand.computed for operand in inputs)
            known[name] = replace(operand, computed=not is_view)
        elif annotation is None:
            untyped.add(name)


def options_of(op: str, arguments: str) -> Options:
    """What a call of `op` was given beside tensors, as far as its text says."""
    if op != "convolution":
        return ()
    return convolution_of_arguments(split_arguments(arguments))


def op_name(target: str) -> str:
    """`bmm` of `aten.bmm.default`; the last part of what has no overload; of a function of
    Inductor's own, whose whole path is its name, what stands behind the module."""
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
    """The constants of a template's kernel, sorted by name; none for a compiler not known."""
    if kind == "triton":
        constants = dict(_CONSTEXPR.findall(source))
        constants.update(_LAUNCH.findall(source))
        return tuple(sorted((k, v) for k, v in constants.items() if k not in _OTHERWISE))
    if kind == "cpp":
        values: dict[str, list[str]] = {}
        for name, value in _CPP_CONSTANT.findall(source):
            values.setdefault(name, []).append(value)
        return tuple(sorted((name, " ".join(texts)) for name, texts in values.items()))
    if kind == "rocm":
        parameters = _INSTANCE.findall(source)
        return tuple(
            sorted(
                (name.upper(), f"({texts})") if name else (one.upper(), text.rpartition(":")[2])
                for name, texts, one, text in parameters
            )
        )
    return ()


def fragment_nodes(text: str) -> frozenset[str]:
    """The nodes of the last "Graph fragment" comment in `text`, which stands before a kernel."""
    fragment = text.rpartition("# Graph fragment:")[2] if "# Graph fragment:" in text else ""
    return frozenset(_GRAPH_NODE.findall(fragment))


MAX_BYTES = 4 << 20
"""A longer source is none of a template."""
MAX_SOURCES = 20_000
"""C++ sources that are looked at; a cache dir with more is not searched to its end."""

RETRY_SECONDS = 60.0
"""A source that was not there is looked for again after so long."""

_KEY = re.compile(r"c[a-z2-7]{51}")
_FOLDER = re.compile(r"[a-z2-7]{2}")


@dataclass(slots=True)
class ChoiceSources:
    """The sources below one cache dir; each is read once."""

    root: Path
    _known: dict[str, dict[str, str]] = field(default_factory=dict)
    _cpp: dict[str, str] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)

    def distinguishing(self, choice: str, rivals: Collection[str]) -> dict[str, str]:
        """The constants that distinguish the kernel of `choice` from those of `rivals` in a graph;
        none where it is the only one of its kind."""
        kind = kind_of(choice)
        several = sum(kind_of(name) == kind for name in {choice, *rivals}) > 1
        return self.constants(choice, kind) if several else {}

    def constants(self, choice: str, kind: str) -> dict[str, str]:
        """The constants of a choice by its hash and its kind; none if its source is not there."""
        key = choice.rpartition("-")[2]
        if kind not in ("triton", "cpp") or not _KEY.fullmatch(key):
            return {}
        known = self._known.get(choice)
        if known is None and time.monotonic() - self._missed.get(choice, -math.inf) > RETRY_SECONDS:
            text = self._module(key) if kind == "triton" else self._source(key)
            known = dict(kernel_config(text, kind))
            if known:
                self._known[choice] = known
            else:
                self._missed[choice] = time.monotonic()
        return known or {}

    def _module(self, key: str) -> str:
        return _text(self.root / key[1:3] / f"{key}.py")

    def _source(self, key: str) -> str:
        for path in _cpp_files(self.root):
            if path.name not in self._cpp:
                self._cpp[path.name] = source_key(_text(path))
            if self._cpp[path.name] == key:
                return _text(path)
        return ""


def source_key(source: str) -> str:
    """The hash under which Inductor knows a source."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).digest()
    return "c" + base64.b32encode(digest)[:51].decode("ascii").lower()


def _cpp_files(root: Path) -> Iterator[Path]:
    count = 0
    for folder in _children(root):
        if not _FOLDER.fullmatch(folder):
            continue
        for name in _children(root / folder):
            if name.endswith(".cpp"):
                count += 1
                if count > MAX_SOURCES:
                    return
                yield root / folder / name


def _children(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError:
        return ""
    return "" if len(data) > MAX_BYTES else data.decode("utf-8", "surrogateescape")
