"""Products of groups of rows by a template of ours, and what its results are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.reference import Expected, Tile, activated, wide_dtype
from backend.inductor.hip import aten
from backend.inductor.hip.caller import ROCmTemplateBuffer
from backend.inductor.hip.epilogue import OUT
from backend.inductor.hip.operands import operand_of
from backend.inductor.hip.template import HipTemplate
from backend.inductor.torch.graph import Node
from backend.templates.errors import UnsupportedProblemError
from backend.templates.grouped import GroupedProblem, grouped_problem
from backend.templates.operand import Operand
from backend.templates.problem import Activation
from backend.templates.rendering import render_grouped


@dataclass(frozen=True, slots=True)
class GroupedReference:
    """`activation(a[first:last] @ b[group])` of each group of rows."""

    activation: Activation = "none"

    def drawn(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The inputs with ends that make sense: groups as even as can be, which have all rows."""
        a, b, ends = inputs
        groups = torch.arange(1, len(ends) + 1, dtype=torch.int64)
        even = (groups * a.shape[0] // max(1, len(ends))).to(ends)
        return [a, b, ends.clone().copy_(even)]

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """What comes of these inputs, which are kept."""
        return Expected(self, tuple(inputs))

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterator[Tile]:
        """Some rows of one group."""
        a, b, ends = inputs
        itemsize = wide_dtype(a).itemsize
        left = tensors.CHUNK_BYTES - 2 * itemsize * b[0].numel()
        rows = max(1, left // (itemsize * (2 * a.shape[1] + 6 * sizes[1])))
        for first, last in _ranges(ends):
            for row in range(first, last, rows):
                yield slice(row, min(last, row + rows)), slice(0, sizes[1])

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """By Cauchy and Schwarz the terms of a sum are bound by the lengths of row and column."""
        a, b, ends = inputs
        wide, rows = wide_dtype(a), tile[0]
        group = next(at for at, (_, last) in enumerate(_ranges(ends)) if rows.start < last)
        left, right = a[rows].to(wide), b[group].to(wide)
        terms = left.norm(dim=-1, keepdim=True) * right.norm(dim=-2, keepdim=True)
        return activated(left @ right, self.activation), terms


def _ranges(ends: Tensor) -> list[tuple[int, int]]:
    numbers = [int(end) for end in ends.tolist()]
    return list(zip([0, *numbers], numbers, strict=False))


class ROCmGroupedTemplate(HipTemplate):
    """Tiles of groups of rows; configs are `GemmConfig`. The input nodes are the rows, a factor a
    group, and where the groups end."""

    template = "grouped"
    renders = staticmethod(render_grouped)

    def named_nodes(self, buffer: ROCmTemplateBuffer | None = None) -> dict[str, Node]:
        nodes = self.input_nodes if buffer is None else buffer.inputs
        return dict(zip(("a", "b", "ends"), nodes, strict=False))

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GroupedProblem:
        """Raises UnsupportedProblemError, and KeyError for a dtype that no template has."""
        nodes = self.named_nodes() if nodes is None else nodes
        if len(nodes) != 3:
            raise UnsupportedProblemError("groups without ends")
        operands = {name: operand_of(name, node) for name, node in nodes.items()}
        return grouped_problem(
            operands["a"],
            operands["b"],
            operand_of(OUT, self.output_node),
            operands["ends"],
            self.activation,
        )

    def stored(self) -> Operand:
        """All groups have the same result, each some of its rows."""
        return operand_of(OUT, self.output_node)

    def reference(self) -> GroupedReference:
        return GroupedReference(self.activation)

    def aten_text(self, inputs: Sequence[str]) -> str:
        return f"torch.ops.aten._grouped_mm.default({', '.join(inputs)})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        a, b, ends = inputs
        name = f"aoti_torch_{device}__grouped_mm"
        call = aten.copied(out, name, a, b, "ends", "nullptr", "nullptr")
        return [*aten.optional("ends", ends), *call]
