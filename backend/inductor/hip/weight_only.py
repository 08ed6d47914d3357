"""Products whose weight is stored in 8 bits: `x @ weight.T * scale`, as ATen's
`_weight_int8pack_mm`.

The weight is widened where it is loaded, which is exact, and each column is scaled in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from backend.inductor.benchmark.reference import Expected, GemmReference, Tile, wide_dtype
from backend.inductor.hip import aten
from backend.inductor.hip.epilogue import OUT
from backend.inductor.hip.operands import operand_of
from backend.inductor.hip.template import HipTemplate
from backend.inductor.torch.graph import Node
from backend.templates.problem import GemmProblem
from backend.templates.rendering import render_gemm, render_skinny
from backend.templates.weight_only import scaled_int8


@dataclass(frozen=True, slots=True)
class Int8WeightReference:
    """`x @ weight.T * scale`."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """What comes of these inputs, which are kept."""
        return Expected(self, tuple(inputs))

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterable[Tile]:
        return GemmReference().tiles(inputs, sizes)

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        x, weight, scale = inputs
        values, terms = GemmReference().part((x, weight.transpose(0, 1)), tile)
        scales = scale[tile[-1]].to(wide_dtype(x))
        return values.mul_(scales), terms.mul_(scales.abs())


OPERANDS = ("a", "weight", "scale_b")


class Int8WeightTemplate(HipTemplate):
    """Input nodes are x (M, K), the weight (N, K) and a scale for each of its rows."""

    def __init__(self, input_nodes: Sequence[Node], layout: Any, **options: Any) -> None:
        super().__init__(input_nodes, layout, **(options | {"operands": OPERANDS}))

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GemmProblem:
        """Raises UnsupportedProblemError."""
        nodes = self.named_nodes() if nodes is None else nodes
        x, weight, scale = (operand_of(name, nodes[name]) for name in OPERANDS)
        return scaled_int8(x, weight, scale, operand_of(OUT, self.output_node))

    def reference(self) -> Int8WeightReference:
        return Int8WeightReference()

    def aten_text(self, inputs: Sequence[str]) -> str:
        return f"torch._weight_int8pack_mm({', '.join(inputs)})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        return aten.copied(out, f"aoti_torch_{device}__weight_int8pack_mm", *inputs)


class ROCmInt8WeightTemplate(Int8WeightTemplate):
    """Tiles through LDS; configs are `GemmConfig`."""

    template = "gemm"
    renders = staticmethod(render_gemm)


class ROCmSkinnyInt8WeightTemplate(Int8WeightTemplate):
    """Few rows; configs are `SkinnyConfig`."""

    template = "skinny"
    renders = staticmethod(render_skinny)
