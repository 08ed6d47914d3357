"""Linear layers on the CPU, whose weights torch has packed for a library, as matrix products.

`packed_linear` (MKL) is given its weight twice, packed and as it was. `linear_unary` (oneDNN) has
the packed one alone, maybe a bias, and an activation that torch has fused with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from backend.inductor import torch_graph
from backend.inductor.torch_graph import Node
from backend.templates.problem import Activation

_ACTIVATIONS: Mapping[tuple[str, str], Activation] = {
    ("none", ""): "none",
    ("relu", ""): "relu",
    ("swish", ""): "silu",
    ("gelu", "none"): "gelu",
    ("gelu", "tanh"): "gelu_tanh",
}
"""By oneDNN's `attr` and `algorithm`."""


def original_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """packed_linear's x, packed weight and weight (N, K): x and the weight as (K, N)."""
    x, _, weight = nodes
    return [x, torch_graph.transposed(weight)], layout


def original_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same for tensors."""
    x, _, weight = tensors
    return [x, weight.transpose(0, 1)]


def unpacked_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """linear_unary's x, packed weight (N, K) and maybe bias: x, the weight as (K, N), the bias.

    The weight is a stand-in until `keep_unpacked`, so that it takes no memory unless we win.
    """
    x, packed, *bias = nodes
    return [x, torch_graph.transposed(torch_graph.unpacked(packed)), *bias], layout


def unpacked_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same for tensors."""
    x, packed, *bias = tensors
    weight = packed.to_dense() if packed.is_mkldnn else packed.contiguous()
    return [x, weight.transpose(0, 1), *bias]


def keep_unpacked(nodes: Sequence[Node], output: Any) -> Any:
    """`output`, a kernel that has won, with a real weight in place of the stand-in.

    `nodes` are the op's.
    """
    constant = torch_graph.add_unpacked(nodes[1])
    torch_graph.template_buffer(output).inputs[1] = torch_graph.transposed(constant)
    return output


def activation(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is fused with linear_unary, from the keywords of ATen's choice."""
    known = _ACTIVATIONS.get((str(kwargs.get("attr")), str(kwargs.get("algorithm") or "")))
    return None if known is None else {"activation": known}
