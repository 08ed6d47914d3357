"""The graph that was compiled, as an entry keeps it printed: each value with dtype, sizes, strides
and device.

    bmm: "f32[8, 128, 192][24576, 192, 1]cpu" = torch.ops.aten.bmm.default(a, b)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from backend.store.graph_parts import Call, GraphTensor, Hints, Known, dims, lines

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
_PARAMETER = re.compile(r"\b(\w{1,200}): \"([^\"\n]{1,400})\"")
_RETURN = re.compile(r"^[ \t]{1,200}return ", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w{0,200}\b")
_VIEWS = {"permute", "view", "reshape", "slice", "expand", "select", "t", "transpose", "unsqueeze"}


def printed_graphs(text: str) -> list[str]:
    """The text of each printed graph, up to its `return`."""
    found = []
    starts = [match.end() for match in HEADER.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        last = _RETURN.search(text, start, end)
        if last:
            found.append(text[start : last.start()])
    return found


def graph_inputs(part: str, hints: Hints) -> Known:
    """The parameters of a printed graph by name."""
    known: Known = {}
    for name, annotation in _PARAMETER.findall(part.partition("):\n")[0]):
        operand = _annotated(annotation, hints)
        if operand is not None:
            known[name] = operand
    return known


def graph_calls(part: str, hints: Hints) -> Iterator[Call]:
    """The calls of a printed graph, in order."""
    known = graph_inputs(part, hints)
    for line in lines(part):
        match = _NODE.match(line)
        if match is None:
            continue
        name, annotation, target = match.groups()
        # Behind the call may stand which values it was the last to use.
        arguments = line[match.end() :].partition(");")[0]
        op = op_name(target)
        inputs = tuple(known[a] for a in _NAME.findall(arguments) if a in known)
        yield Call(op, inputs, name)
        operand = _annotated(annotation or "", hints)
        if operand is not None:
            is_view = op in _VIEWS and not any(operand.computed for operand in inputs)
            known[name] = replace(operand, computed=not is_view)


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
