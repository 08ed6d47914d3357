"""What an op computes: products of matrices that are scaled, added up, put side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.counted import counted
from backend.model.ops import OPS

MOST_OPERATIONS = 4e9
"""Of the wider product; of a larger one only some rows are looked at on a CPU, for NaN all are."""

MOST_ELEMENTS = 1 << 25
"""Of the rows that are looked at, and of what is multiplied for them at once."""

ALL = slice(None)

_BLOCKS = (1, 16, 32, 128)
"""Neighbours that share a scale."""


class NoReference(Exception):
    """What the result should be is not known; one line says why."""


@dataclass(frozen=True, slots=True)
class Product:
    """`(scale_a * a) @ (scale_b * b)`. A scale has as many dimensions as its factor, or is one
    number; along each dimension it has an element for each so many neighbours."""

    a: Tensor
    b: Tensor
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None

    def factors(
        self, dtype: torch.dtype, rows: slice = ALL, columns: slice = ALL
    ) -> tuple[Tensor, Tensor]:
        """Of these rows and columns of the product, scaled."""
        a, b = self.a[..., rows, :].to(dtype), self.b[..., columns].to(dtype)
        if self.scale_a is not None:
            a = a * spread(self.scale_a, self.a.shape, rows, ALL).to(dtype)
        if self.scale_b is not None:
            b = b * spread(self.scale_b, self.b.shape, ALL, columns).to(dtype)
        return a, b


def spread(scale: Tensor, sizes: Sequence[int], rows: slice, columns: slice) -> Tensor:
    """The scale of each element of these rows and columns of a factor with these `sizes`."""
    if scale.numel() == 1:
        return scale.reshape(())
    for dim, part in ((-2, rows), (-1, columns)):
        if scale.shape[dim] == 1:
            continue
        size, block = sizes[dim], block_of(sizes[dim], scale.shape[dim])
        places = torch.arange(size, device=scale.device)[part] // block
        scale = scale.to(torch.float32).index_select(scale.dim() + dim, places)
    return scale


def block_of(size: int, scales: int) -> int:
    """How many neighbours of `size` share one of `scales`. Raises NoReference."""
    for block in (*_BLOCKS, size):
        if -(-size // block) == scales:
            return block
    raise NoReference(f"no reference is known for {scales} scales of {size}")


@dataclass(frozen=True, slots=True)
class Sum:
    """The products, and what is added to them. Libraries may round each of these to `dtype`, that
    of the result, before they are added up."""

    products: tuple[Product, ...]
    added: tuple[Tensor, ...]
    dtype: torch.dtype
    stages: int = 1
    """Values that are stored, one after the other, on the way to a product."""
    coarse: float = 0.0
    """What the factors lose where they are made, relative to them."""

    @property
    def first(self) -> Product:
        return self.products[0]

    @property
    def terms(self) -> int:
        return sum(product.a.shape[-1] for product in self.products)

    @property
    def columns(self) -> int:
        return int(self.first.b.shape[-1])


def rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """These rows of what may have one for all."""
    return tensor[..., rows, :] if tensor.dim() > 1 and tensor.shape[-2] > 1 else tensor


@dataclass(frozen=True, slots=True)
class Sums:
    """One sum, or several whose results are `joined`."""

    parts: tuple[Sum, ...]
    joined: Callable[[Sequence[Tensor]], Tensor] = field(default=lambda results: results[0])

    @property
    def whole(self) -> Sum | None:
        """The sum, if it is one."""
        return self.parts[0] if len(self.parts) == 1 else None


def sums_of(op: str, inputs: Sequence[Tensor], pointwise: str = "none") -> Sums:
    """What `op` makes of these inputs, before an activation. Raises NoReference."""
    if op == "linear_binary":
        return _binary(inputs, pointwise)
    row = OPS.get(op)
    make = _MADE.get(op)
    if make is None and (row is None or not row.buildable):
        raise NoReference(f"no reference is known for {op} with {counted(len(inputs), 'input')}")
    if row is not None and not row.takes(len(inputs)):
        raise NoReference(f"no reference is known for {op} with {counted(len(inputs), 'input')}")
    return make(inputs) if make is not None else Sums((_product(op, inputs),))


def _product(op: str, inputs: Sequence[Tensor]) -> Sum:
    row = OPS[op]
    given: Mapping[str, Tensor] = dict(zip(row.inputs, inputs, strict=False))
    a, b = given["a"], given["b"]
    if row.packed:
        b = _unpacked(a, b)
    products = [Product(a, b.mT if row.weight else b)]
    if "c" in given:
        products.append(Product(given["c"], given["d"]))
    added = (given["bias"],) if "bias" in given else ()
    return Sum(tuple(products), added, torch.int32 if op == "int_mm" else a.dtype)


def _unpacked(a: Tensor, weight: Tensor) -> Tensor:
    """A linear layer's weight as numbers."""
    weight = weight.to_dense() if weight.layout is not torch.strided else weight
    if a.shape[-1] != weight.shape[-1]:
        raise NoReference("its packed weight cannot be read")
    return weight


def _scaled(inputs: Sequence[Tensor]) -> Sums:
    a, b, scale_a, scale_b, *bias = inputs
    for scale, factor in ((scale_a, a), (scale_b, b)):
        if scale.numel() > 1 and scale.dim() != factor.dim():
            raise NoReference("no reference is known for scales in an order of the hardware")
        if scale.numel() > 1:
            spread(scale, factor.shape, slice(0, 1), slice(0, 1))
    dtype = bias[0].dtype if bias else torch.bfloat16  # what models mostly take
    return Sums((Sum((Product(a, b, scale_a, scale_b),), tuple(bias), dtype),))


def _grouped(inputs: Sequence[Tensor]) -> Sums:
    """Of matrices in a row each has a group of its own; `ends` are where the groups of the others
    end: rows of a, columns of b, or terms of both."""
    a, b, *ends = inputs
    if a.dim() == b.dim() == 3:
        return Sums((Sum((Product(a, b),), (), a.dtype),))
    along = a.shape[0] if b.dim() == 3 else b.shape[-1] if a.dim() == 3 else a.shape[-1]
    if not ends or int(ends[0][-1]) != along:
        raise NoReference("a grouped product is known where its groups are all of the factors")
    places = ends[0].tolist()
    parts = []
    for group, (first, end) in enumerate(zip([0, *places], places, strict=False)):
        here = slice(first, end)
        left = a[group] if a.dim() == 3 else a[here] if b.dim() == 3 else a[:, here]
        right = b[group] if b.dim() == 3 else b[:, here] if a.dim() == 3 else b[here]
        parts.append(Sum((Product(left, right),), (), a.dtype))
    if a.dim() == b.dim():
        return Sums(tuple(parts), torch.stack)
    return Sums(tuple(parts), lambda results: torch.cat(tuple(results), 0 if b.dim() == 3 else -1))


def _scaled_groups(inputs: Sequence[Tensor]) -> Sums:
    """Rows of a, each with a scale, by group; each group has a matrix, with a scale a column."""
    a, b, scale_a, scale_b, *ends = inputs
    if (a.dim(), b.dim(), scale_a.dim(), scale_b.dim()) != (2, 3, 1, 2) or not ends:
        raise NoReference("a scaled grouped product is known where its groups are rows")
    if int(ends[0][-1]) != a.shape[0]:
        raise NoReference("a grouped product is known where its groups are all of the factors")
    places, parts = ends[0].tolist(), []
    for group, (first, end) in enumerate(zip([0, *places], places, strict=False)):
        rows, columns = scale_a[first:end].reshape(-1, 1), scale_b[group].reshape(1, -1)
        product = Product(a[first:end], b[group], rows, columns)
        parts.append(Sum((product,), (), torch.bfloat16))
    return Sums(tuple(parts), lambda results: torch.cat(tuple(results)))


def _int8(inputs: Sequence[Tensor]) -> Sums:
    """Whole numbers as a weight, a scale for each of its rows, with which the product is scaled
    after it was stored."""
    a, weight, scale = inputs
    product = Product(a, weight.mT, None, scale.reshape(1, -1))
    return Sums((Sum((product,), (), a.dtype, stages=2),))


def _int4(inputs: Sequence[Tensor]) -> Sums:
    """The weight lies in an order of the library, which tells it by a product with ones on the
    diagonal; each kernel rounds it to the type of the other factor."""
    a, packed, group, scales = inputs
    if a.device.type != "cpu":
        raise NoReference("its packed weight cannot be read")
    size = int(group.reshape(-1)[0]) if isinstance(group, Tensor) else int(group)
    diagonal = torch.eye(a.shape[-1], dtype=a.dtype)
    weight = torch.ops.aten._weight_int4pack_mm_for_cpu(diagonal, packed, size, scales)
    coarse = float(torch.finfo(a.dtype).eps)
    return Sums((Sum((Product(a, weight),), (), a.dtype, coarse=coarse),))


def _binary(inputs: Sequence[Tensor], pointwise: str) -> Sums:
    """A linear layer, and what its result is put together with."""
    if pointwise not in ("add", "sub") or len(inputs) < 3:
        raise NoReference(f"no reference is known for linear_binary with {pointwise}")
    a, other, weight, *bias = inputs
    product = Product(a, _unpacked(a, weight).mT)
    other = other if pointwise == "add" else -other
    return Sums((Sum((product,), (*bias, other), a.dtype),))


_MADE: Mapping[str, Callable[[Sequence[Tensor]], Sums]] = {
    "scaled_mm": _scaled,
    "scaled_grouped_mm": _scaled_groups,
    "grouped_mm": _grouped,
    "weight_int8pack_mm": _int8,
    "_weight_int8pack_mm": _int8,
    "weight_int4pack_mm_for_cpu": _int4,
    "_weight_int4pack_mm_for_cpu": _int4,
}
"""Those of which the order of the inputs does not tell all."""
