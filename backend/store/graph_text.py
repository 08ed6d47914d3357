"""What the text inside a compiled-graph entry says: which ops it holds, and what it calls.

An entry is a pickle, which is never loaded. In it stand, as plain text,
- the generated Python wrapper (`def call(...)`), with each extern kernel call, its operands and
  `assert_size_stride(arg0_1, (8, 128), (128, 1), ...)`;
- since torch 2.8 or so the graph that was compiled, whose every value has its dtype, sizes, strides
  and device: `bmm: "f32[8, 128, 192][24576, 192, 1]cpu" = torch.ops.aten.bmm.default(a, b)`,
- before each call of a kernel of ours, a comment that says which choice it is, for what.
A template's kernel is called with whatever its packing and fusing left of the operands, so the
second is what tells the inputs of an op, and the first whether the extern kernel serves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

Dim = int | None
"""A size or stride; None where the graph has a symbol, which stands for many values."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor. What its text does not say is None; `computed` if it is no input or view."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str | None = None
    device: str | None = None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One op or kernel with the tensors that it reads, in order."""

    name: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class TemplateKernel:
    """A template's kernel. `kind` is `triton`, `cpp` or another of Inductor's compilers.

    `config` has the constants of a Triton kernel (`BLOCK_M`, `num_warps`, ...), sorted.
    """

    name: str
    kind: str
    config: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A call of a kernel of our templates: the choice that won the tuning of (op, inputs)."""

    op: str
    inputs: str
    hash: str

    def comment(self) -> str:
        """The line of the wrapper that says so."""
        return f"# rocm-tui choice {self.hash} for {self.op} {self.inputs}"


_OWN_CHOICE = re.compile(r"^[ \t]*# rocm-tui choice (\S+) for (\S+) (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GraphText:
    """One entry. `graphs` has the ops of each printed graph; `externs` the calls of the wrapper.

    `is_compiled` is False for an entry without generated code. `tensors` are the inputs and buffers
    that the wrapper names. `tuned` says whether it was compiled with autotuning on; None
    where the entry does not say.
    """

    is_compiled: bool
    graphs: tuple[tuple[Call, ...], ...]
    externs: tuple[Call, ...]
    tensors: frozenset[Operand]
    templates: tuple[TemplateKernel, ...]
    tuned: bool | None
    own: frozenset[OwnChoice] = frozenset()


_DIMS = r"\[([^\]\n\"]{0,400})\]"
_ANNOTATION = re.compile(rf"([a-z]+[0-9][a-z0-9]*){_DIMS}{_DIMS}([a-z]+)(?::\d+)?")
_GRAPH = re.compile(r"class [^\n(]{1,200}\(torch\.nn\.Module\):\n")
_NODE = re.compile(
    r"^[ \t]+(\w+)(?:: \"([^\"\n]{1,400})\")? = "
    r"(?:torch\.ops\.)?([\w.]{1,120})\(([^\n]{0,20000}?)\)(?:;|\s*$)"
)
_PARAMETER = re.compile(r"(\w+): \"([^\"\n]{1,400})\"")
_RETURN = re.compile(r"^[ \t]+return ", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_VIEWS = {"permute", "view", "reshape", "slice", "expand", "select", "t", "transpose", "unsqueeze"}

_TUPLE = r"\(([^()\n]{0,400})\)"
_ASSERT = re.compile(rf"assert_size_stride\((\w+), {_TUPLE}, {_TUPLE}")
_EMPTY = re.compile(
    rf"(\w+) = empty_strided(?:_(\w+))?\({_TUPLE}, {_TUPLE}, (?:dtype=)?torch\.(\w+)"
)
_RAND = re.compile(
    rf"(\w+) = rand_strided\({_TUPLE}, {_TUPLE}, device='(\w+)[^']*', dtype=torch\.(\w+)\)"
)
_ALIAS = re.compile(r"(\w+) = (reinterpret_tensor\([^\n]*?\)|\w+); del \w+")
_VIEW = re.compile(rf"reinterpret_tensor\((\w+), {_TUPLE}, {_TUPLE}, [^()\n]*\)")
_EXTERN = re.compile(
    r"\b(?:torch\.ops\.\w{1,80}|extern_kernels|aten|mkldnn|mkl|quantized)"
    r"\.(\w{1,80})(?:\.\w{1,80})?\("
)
_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_MICRO_GEMM = re.compile(r"micro_gemm|_mm\(X, W, Y")
_GEMM_ONLY = {"cuda", "rocm", "cutlass", "ck"}
"""Compilers that Inductor uses for templates alone."""
_CONSTEXPR = re.compile(r"^[ \t]+(\w+) : tl\.constexpr = ([^\n]{1,80})$", re.MULTILINE)
_LAUNCH = re.compile(r"(num_stages|num_warps|matrix_instr_nonkdim|waves_per_eu|kpack)=(\d+)")
_TUNED = re.compile(
    r"(?:inductor_config\[|_inductor\.config\.)max_autotune(?:_gemm)?\]?\s*[:=] True"
)
_SETTINGS = re.compile(
    r"inductor_config\[max_autotune\]|^import torch\._inductor\.config$", re.MULTILINE
)


def read_graph_text(data: bytes) -> GraphText:
    """What `data`, the content of an entry, says. Never raises: unknown text says nothing."""
    text = data.decode("latin-1")  # every byte is a character; all that we match is ASCII
    wrappers = list(_wrappers(text))
    calls: list[Call] = []
    tensors: set[Operand] = set()
    for wrapper in wrappers:
        _read_wrapper(wrapper, calls, tensors)
    return GraphText(
        is_compiled=bool(wrappers),
        graphs=tuple(tuple(_graph_calls(part)) for part in _graph_parts(text)),
        externs=tuple(calls),
        tensors=frozenset(tensors),
        templates=tuple(kernel for wrapper in wrappers for kernel in _templates(wrapper)),
        tuned=_tuned(text),
        own=frozenset(
            OwnChoice(op, inputs, choice)
            for wrapper in wrappers
            for choice, op, inputs in _OWN_CHOICE.findall(wrapper)
        ),
    )


def _wrappers(text: str) -> Iterator[str]:
    """Each generated module, from its imports to its end."""
    starts = [m.start() for m in re.finditer(r"AsyncCompile\(\)\n", text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end]
        if re.search(r"^[ \t]*def call\(", part, re.MULTILINE):
            graph = _GRAPH.search(part)
            part = part[: graph.start()] if graph else part
            yield part.partition("compiled_module_main(")[0]


def _tuned(text: str) -> bool | None:
    # The reproducer names what differs from the default, and the environment that sets a default.
    if "TORCHINDUCTOR_MAX_AUTOTUNE" in text or _TUNED.search(text):
        return True
    return False if _SETTINGS.search(text) else None


def _read_wrapper(text: str, calls: list[Call], tensors: set[Operand]) -> None:
    known: dict[str, Operand] = {}
    for match in _RAND.finditer(text):
        name, sizes, strides, device, dtype = match.groups()
        known[name] = Operand(_dims(sizes), _dims(strides), f"torch.{dtype}", device)
    tensors.update(known.values())
    for line in text.splitlines():
        learned = _learned(line, known)
        if learned is not None:
            name, operand = learned
            known[name] = operand
            tensors.add(operand)
        call = _extern_call(line, known)
        if call is not None:
            calls.append(call)
            tensors.update(call.operands)


def _learned(line: str, known: Mapping[str, Operand]) -> tuple[str, Operand] | None:
    """What a line says of a buffer: its making, its check, or that it is another by a new name."""
    if match := _EMPTY.search(line):
        name, device, sizes, strides, dtype = match.groups()
        return name, Operand(_dims(sizes), _dims(strides), f"torch.{dtype}", device, True)
    if match := _ASSERT.search(line):
        name, sizes, strides = match.groups()
        old = known.get(name)
        dtype, device = (old.dtype, old.device) if old else (None, None)
        return name, Operand(_dims(sizes), _dims(strides), dtype, device)
    if match := _ALIAS.search(line):
        operand = _operand(match[2], known)
        return None if operand is None else (match[1], operand)
    return None


def _extern_call(line: str, known: Mapping[str, Operand]) -> Call | None:
    line = line.rstrip()
    match = _EXTERN.search(line) if line.endswith(")") else None
    if match is None:
        return None
    found = []
    for argument in _split(line[match.end() : -1]):
        if "=" in argument.split("(")[0]:
            continue
        operand = _operand(argument, known)
        if operand is not None:
            found.append(operand)
    return Call(match[1], tuple(found))


def _operand(text: str, known: Mapping[str, Operand]) -> Operand | None:
    if match := _VIEW.fullmatch(text):
        base = known.get(match[1])
        dtype, device = (base.dtype, base.device) if base else (None, None)
        return Operand(_dims(match[2]), _dims(match[3]), dtype, device)
    return known.get(text)


def _split(arguments: str) -> list[str]:
    """The arguments of a call, split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(arguments):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(arguments[start:at].strip())
            start = at + 1
    parts.append(arguments[start:].strip())
    return parts


def _templates(text: str) -> Iterator[TemplateKernel]:
    """Each kernel that looks like the template of a GEMM or convolution."""
    found = list(_KERNEL.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=False):
        body = text[match.start() : end]
        if "triton_tem" in match[1] or match[2] in _GEMM_ONLY or _MICRO_GEMM.search(body):
            kind = "triton" if match[2] == "triton" else "cpp" if "cpp" in match[2] else match[2]
            yield TemplateKernel(match[1], kind, _config(body) if kind == "triton" else ())


def _config(body: str) -> tuple[tuple[str, str], ...]:
    """The constants of a Triton template kernel and how it is launched."""
    found = dict(_CONSTEXPR.findall(body))
    found.update(_LAUNCH.findall(body))
    return tuple(sorted(found.items()))


def _graph_parts(text: str) -> Iterator[str]:
    """The text of each printed graph: up to its `return`."""
    starts = [match.end() for match in _GRAPH.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end]
        last = _RETURN.search(part)
        yield part[: last.start()] if last else ""


def _graph_calls(part: str) -> Iterator[Call]:
    known: dict[str, Operand] = {}
    for name, annotation in _PARAMETER.findall(part.partition("):\n")[0]):
        operand = _annotated(annotation, computed=False)
        if operand is not None:
            known[name] = operand
    for line in part.splitlines():
        match = _NODE.match(line)
        if match is None:
            continue
        name, annotation, target, arguments = match.groups()
        op = _op_name(target)
        inputs = tuple(known[a] for a in _NAME.findall(arguments) if a in known)
        yield Call(op, inputs)
        is_view = op in _VIEWS and not any(operand.computed for operand in inputs)
        operand = _annotated(annotation or "", computed=not is_view)
        if operand is not None:
            known[name] = operand


def _op_name(target: str) -> str:
    """`bmm` of `aten.bmm.default`; the last part of what has no overload."""
    parts = target.split(".")
    return parts[1] if len(parts) >= 3 else parts[-1]


def _annotated(text: str, computed: bool) -> Operand | None:
    match = _ANNOTATION.fullmatch(text)
    if match is None:
        return None
    dtype, sizes, strides, device = match.groups()
    full = DTYPES.get(dtype)
    return Operand(
        _dims(sizes), _dims(strides), f"torch.{full}" if full else None, device, computed
    )


def _dims(text: str) -> tuple[Dim, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(part) if part.isascii() and part.isdigit() else None for part in parts)
