"""Tensors of a graph as the operands of a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.errors import UnsupportedProblemError
from backend.templates.problem import VECTOR_BYTES, DType, Operand

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


def operand_of(name: str, node: Node) -> Operand:
    """A tensor of the graph as an operand. Raises UnsupportedProblemError for a dtype that no
    template has."""
    layout = node.get_layout()
    dtype = DTYPES.get(node.get_dtype())
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
