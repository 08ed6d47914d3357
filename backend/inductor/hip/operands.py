"""Tensors of the graph as operands of kernels, and as text of the generated code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.errors import UnsupportedProblemError
from backend.templates.operand import VECTOR_BYTES, DType, Operand

DTYPES: dict[torch.dtype, DType] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e4m3fnuz: "float8_e4m3fnuz",
    torch.float8_e5m2: "float8_e5m2",
    torch.float8_e5m2fnuz: "float8_e5m2fnuz",
    torch.int8: "int8",
    torch.int32: "int32",
}
"""Of factors, biases and products."""
STORED: dict[torch.dtype, DType] = {
    **DTYPES,
    torch.int16: "int16",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
"""Of what a kernel may read and write beside them."""


def operand_of(name: str, node: Node, dtypes: Mapping[torch.dtype, DType] = DTYPES) -> Operand:
    """A tensor of the graph as an operand. Raises UnsupportedProblemError for a dtype that no
    template has."""
    layout = node.get_layout()
    dtype = dtypes.get(node.get_dtype())
    if dtype is None:
        raise UnsupportedProblemError(f"{name} is {node.get_dtype()}")
    return Operand(
        name=name,
        dtype=dtype,
        sizes=tuple(_plain(size) for size in node.get_size()),
        strides=tuple(_plain(stride) for stride in node.get_stride()),
        offset=_plain(layout.offset),
        base_bytes=VECTOR_BYTES if _aligned(node) else node.get_dtype().itemsize,
    )


def _plain(expr: Any) -> Any:
    return int(expr) if getattr(expr, "is_Integer", False) else expr


def _aligned(node: Node) -> bool:
    """Whether the storage begins at a multiple of the widest access. What a choice writes does."""
    return not torch_graph.is_registered(node) or torch_graph.is_ours_to_align(node)


def address(node: Node) -> str:
    """Of a tensor's first element, in the wrapper's language; a view begins within its buffer."""
    base = f"{torch_graph.real_name(node.get_name())}.data_ptr()"
    offset = node.get_layout().offset if torch_graph.is_view(node) else 0
    if offset == 0:
        return base
    if torch_graph.writes_cpp():
        base = f"static_cast<char*>({base})"
    return f"{base} + {node.get_dtype().itemsize} * ({torch_graph.size_text(offset)})"


def tensor_text(node: Node) -> str:
    """Python of a tensor; a view is one of its buffer."""
    text, name = str(node.codegen_reference()), node.get_name()
    return text.replace(name, torch_graph.real_name(name), 1)


SCALES = ("scale_a", "scale_b")


def scale_of(operands: Mapping[str, Operand], name: str) -> Operand:
    """One number, or one a row of the left factor and a column of the right one. Raises
    UnsupportedProblemError for those of blocks."""
    scale, factor, along = operands[name], operands[name[-1]], -2 if name == "scale_a" else -1
    one = all(size == 1 for size in scale.sizes)
    lines = [1, 1]
    lines[along] = factor.sizes[along]
    if scale.dtype != "float32" or not (one or list(scale.sizes) == lines):
        raise UnsupportedProblemError(f"{name} is {scale.dtype} of {scale.sizes}")
    return scale if not one else replace(scale, sizes=(), strides=())
