"""A linear layer of whole numbers, each with a scale and a zero point, and what is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from backend.inductor.truth.activation import activation_of
from backend.inductor.truth.problem import NoReference
from backend.model.options import Value


def values_and_terms(
    op: str, inputs: Sequence[Tensor], given: Mapping[str, tuple[Value, ...]]
) -> tuple[Tensor, Tensor]:
    """The true values before they are quantized again, in float64, and what their terms are bound
    by. Raises NoReference."""
    x, x_scale, x_zero, weight, w_scale, w_zero, *rest = inputs
    other = rest.pop(0) if op == "qlinear_binary" else None
    weight = weight.to_dense() if weight.layout is not torch.strided else weight
    if weight.shape[0] != x.shape[-1] or x_scale.numel() != 1 or w_zero.any():
        raise NoReference("no reference is known for a weight with zero points")
    scale = x_scale.double().reshape(()) * w_scale.double()
    zero, right = x_zero.double().reshape(()), weight.double()
    values = ((x.double() - zero) @ right) * scale
    terms = (x.double().abs() + zero.abs()).norm(dim=-1, keepdim=True)
    terms = terms * right.norm(dim=-2, keepdim=True) * scale.abs()
    for bias in rest:
        values, terms = values + bias.double(), terms + bias.double().abs()
    if other is not None:
        if given.get("binary_post_op") not in (("add",), ("sum",)) or not other.is_floating_point():
            raise NoReference("no reference is known for what is put together with the product")
        alpha = float(given.get("binary_alpha", (1.0,))[0])
        values, terms = values + alpha * other.double(), terms + (alpha * other.double()).abs()
    activation = activation_of(_name(op, given))
    if activation is None:
        return values, terms
    return activation.function(values), activation.off(values, terms)


def _name(op: str, given: Mapping[str, tuple[Value, ...]]) -> str:
    """Of what is done with it at last, as `activation_of` has it."""
    if op == "qlinear_binary":
        name, numbers, how = "unary_post_op", "unary_post_op_args", "unary_post_op_algorithm"
    else:
        name, numbers, how = "post_op_name", "post_op_args", "post_op_algorithm"
    word = str(given.get(name, ("none",))[0])
    if scalars := given.get(numbers):
        word += f"({', '.join(map(str, scalars))})"
    return f"{word}_tanh" if given.get(how) == ("tanh",) else word
