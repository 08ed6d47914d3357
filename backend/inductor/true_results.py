"""The true result of an op, in a wider type: products of matrices that are scaled, added and
joined, convolutions, quantized linear layers, and the activations behind them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.tensors import wide_dtype
from backend.inductor.hip.other_products import ConvReference, without_library
from backend.model.ops import OPS
from backend.model.options import Options, Value, convolution_numbers

MOST_OPERATIONS = 4e9
"""Operations of the wider product; of a larger one a CPU checks some rows, and all for NaN."""

MOST_ELEMENTS = 1 << 25
"""The maximum elements of the checked rows, and of the factors multiplied for them at once."""

ALL = slice(None)

_BLOCKS = (1, 16, 32, 128)
"""Neighbours that share a scale."""


class NoReference(Exception):
    """The correct result is unknown; the message is one line."""


@dataclass(frozen=True, slots=True)
class Product:
    """`(scale_a * a) @ (scale_b * b)`. A scale has as many dimensions as its factor, or is one
    number; along each dimension it has an element for each group of neighbours."""

    a: Tensor
    b: Tensor
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None

    def factors(
        self, dtype: torch.dtype, rows: slice = ALL, columns: slice = ALL
    ) -> tuple[Tensor, Tensor]:
        """Return the scaled factors for these rows and columns of the product."""
        a, b = self.a[..., rows, :].to(dtype), self.b[..., columns].to(dtype)
        if self.scale_a is not None:
            a = a * spread(self.scale_a, self.a.shape, rows, ALL).to(dtype)
        if self.scale_b is not None:
            b = b * spread(self.scale_b, self.b.shape, ALL, columns).to(dtype)
        return a, b


def spread(scale: Tensor, sizes: Sequence[int], rows: slice, columns: slice) -> Tensor:
    """Return the scale of each element in these rows and columns of a factor with these `sizes`."""
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
    """Return how many neighbours of `size` share one of `scales`. Raises NoReference."""
    for block in (*_BLOCKS, size):
        if -(-size // block) == scales:
            return block
    raise NoReference(f"no reference for {scales} scales of {size}")


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of products and further tensors. Libraries may round each of these to `dtype`, that of
    the result, before adding."""

    products: tuple[Product, ...]
    added: tuple[Tensor, ...]
    dtype: torch.dtype
    stages: int = 1
    """The number of values stored in sequence on the way to a product."""
    coarse: float = 0.0
    """The relative error of computed factors."""

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
    """Return these rows of a tensor that may have a single row for all."""
    return tensor[..., rows, :] if tensor.dim() > 1 and tensor.shape[-2] > 1 else tensor


@dataclass(frozen=True, slots=True)
class JoinedSums:
    """One sum, or several whose results are `joined`."""

    parts: tuple[Sum, ...]
    joined: Callable[[Sequence[Tensor]], Tensor] = field(default=lambda results: results[0])

    @property
    def whole(self) -> Sum | None:
        """The sum, if it is the only one."""
        return self.parts[0] if len(self.parts) == 1 else None


def sums_of(
    op: str,
    inputs: Sequence[Tensor],
    pointwise: str = "none",
    scales: tuple[float, float] | None = (1.0, 1.0),
) -> JoinedSums:
    """Return what `op` computes from these inputs, before an activation; `scales` are alpha and
    beta. Raises NoReference."""
    if op == "linear_binary":
        return _binary(inputs, pointwise)
    row = OPS.get(op)
    make = _MADE.get(op)
    if make is None and (row is None or not row.buildable):
        raise NoReference(f"no reference for {op} with {counted(len(inputs), 'input')}")
    if row is not None and not row.takes(len(inputs)):
        raise NoReference(f"no reference for {op} with {counted(len(inputs), 'input')}")
    if scales is None:
        raise NoReference(f"alpha and beta of {op} are unknown")
    return make(inputs) if make is not None else JoinedSums((_product(op, inputs, *scales),))


def _product(op: str, inputs: Sequence[Tensor], alpha: float, beta: float) -> Sum:
    row = OPS[op]
    given: Mapping[str, Tensor] = dict(zip(row.inputs, inputs, strict=False))
    a, b = given["a"], given["b"]
    if row.packed:
        b = _unpacked(a, b)
    scale = None if alpha == 1 else torch.tensor(alpha, dtype=torch.float64, device=a.device)
    products = [Product(a, b.mT if row.weight else b, scale)]
    if "c" in given:
        products.append(Product(given["c"], given["d"]))
    added: tuple[Tensor, ...] = ()
    if "bias" in given and beta:  # with a beta of 0 the bias is not read
        added = (given["bias"] if beta == 1 else given["bias"].to(torch.float64) * beta,)
    return Sum(tuple(products), added, torch.int32 if op == "int_mm" else a.dtype)


def _unpacked(a: Tensor, weight: Tensor) -> Tensor:
    """Return a linear layer's weight as numbers."""
    weight = weight.to_dense() if weight.layout is not torch.strided else weight
    if a.shape[-1] != weight.shape[-1]:
        raise NoReference("its packed weight cannot be read")
    return weight


def _scaled(inputs: Sequence[Tensor]) -> JoinedSums:
    a, b, scale_a, scale_b, *bias = inputs
    for scale, factor in ((scale_a, a), (scale_b, b)):
        if scale.numel() > 1 and scale.dim() != factor.dim():
            raise NoReference("no reference for scales in an order of the hardware")
        if scale.numel() > 1:
            spread(scale, factor.shape, slice(0, 1), slice(0, 1))
    dtype = bias[0].dtype if bias else torch.bfloat16  # the usual type in models
    return JoinedSums((Sum((Product(a, b, scale_a, scale_b),), tuple(bias), dtype),))


def _grouped(inputs: Sequence[Tensor]) -> JoinedSums:
    """Return the sums of groups: each matrix of a batch has its own group; otherwise `ends` are
    where groups end: rows of a, columns of b, or terms of both."""
    a, b, *ends = inputs
    if a.dim() == b.dim() == 3:
        return JoinedSums((Sum((Product(a, b),), (), a.dtype),))
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
        return JoinedSums(tuple(parts), torch.stack)
    return JoinedSums(
        tuple(parts), lambda results: torch.cat(tuple(results), 0 if b.dim() == 3 else -1)
    )


def _scaled_groups(inputs: Sequence[Tensor]) -> JoinedSums:
    """Return the sums for scaled rows of a by group, each with a matrix and a scale per column."""
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
    return JoinedSums(tuple(parts), lambda results: torch.cat(tuple(results)))


def _int8(inputs: Sequence[Tensor]) -> JoinedSums:
    """Return the sum for an integer weight whose rows' scales apply to the stored product."""
    a, weight, scale = inputs
    product = Product(a, weight.mT, None, scale.reshape(1, -1))
    return JoinedSums((Sum((product,), (), a.dtype, stages=2),))


def _int4(inputs: Sequence[Tensor]) -> JoinedSums:
    """Return the sum for a weight in a library's own order, which a product with the identity
    reveals; each kernel rounds it to the type of the other factor."""
    a, packed, group, scales = inputs
    if a.device.type != "cpu":
        raise NoReference("its packed weight cannot be read")
    size = int(group.reshape(-1)[0]) if isinstance(group, Tensor) else int(group)
    diagonal = torch.eye(a.shape[-1], dtype=a.dtype)
    weight = torch.ops.aten._weight_int4pack_mm_for_cpu(diagonal, packed, size, scales)
    coarse = float(torch.finfo(a.dtype).eps)
    return JoinedSums((Sum((Product(a, weight),), (), a.dtype, coarse=coarse),))


def _binary(inputs: Sequence[Tensor], pointwise: str) -> JoinedSums:
    """Return a linear layer, and the tensor that its result is combined with."""
    if pointwise not in ("add", "sub") or len(inputs) < 3:
        raise NoReference(f"no reference for linear_binary with {pointwise}")
    a, other, weight, *bias = inputs
    product = Product(a, _unpacked(a, weight).mT)
    other = other if pointwise == "add" else -other
    return JoinedSums((Sum((product,), (*bias, other), a.dtype),))


_MADE: Mapping[str, Callable[[Sequence[Tensor]], JoinedSums]] = {
    "scaled_mm": _scaled,
    "scaled_grouped_mm": _scaled_groups,
    "grouped_mm": _grouped,
    "weight_int8pack_mm": _int8,
    "_weight_int8pack_mm": _int8,
    "weight_int4pack_mm_for_cpu": _int4,
    "_weight_int4pack_mm_for_cpu": _int4,
}
"""Ops whose sums do not follow from the order of the inputs alone."""


_functional = torch.nn.functional

_STEPS = 16
"""Roundings to float32 in an activation's formula, whose parts are as large as its argument."""


@dataclass(frozen=True, slots=True)
class Activation:
    """`function`, whose slope never exceeds `slope`."""

    function: Callable[[Tensor], Tensor]
    slope: float = 1.0

    def off(self, values: Tensor, before: Tensor) -> Tensor:
        """Return the error of its results, if those of its arguments, `values`, are `before`."""
        return self.slope * before + _STEPS * 2.0**-24 * (values.abs() + 1)


_KNOWN: Mapping[str, Activation] = {
    "none": Activation(lambda values: values),
    "relu": Activation(_functional.relu),
    "sigmoid": Activation(torch.sigmoid, 0.25),
    "tanh": Activation(torch.tanh),
    "gelu": Activation(_functional.gelu, 1.13),
    "gelu_tanh": Activation(lambda values: _functional.gelu(values, approximate="tanh"), 1.13),
    "silu": Activation(_functional.silu, 1.1),
    "swish": Activation(_functional.silu, 1.1),
    "hardswish": Activation(_functional.hardswish, 1.5),
    "hardsigmoid": Activation(_functional.hardsigmoid, 0.17),
}
"""Activations by our own names, and those of oneDNN."""


_WITH_NUMBERS: Mapping[str, Callable[..., Activation]] = {
    "leaky_relu": lambda slope: Activation(
        lambda values: _functional.leaky_relu(values, slope), max(1.0, abs(slope))
    ),
    "hardtanh": lambda least, most: Activation(lambda values: values.clamp(least, most)),
}
"""Activations with numbers in their names: `leaky_relu(0.1)`."""


def activation_of(name: str) -> Activation | None:
    """Return the activation, or None if nothing is applied. Raises NoReference."""
    activation = _KNOWN.get(name) or _with_numbers(*name.rstrip(")").partition("(")[::2])
    if activation is None:
        raise NoReference(f"no reference for {name or 'the operation'} after a product")
    return None if name == "none" else activation


def _with_numbers(name: str, text: str) -> Activation | None:
    try:
        return _WITH_NUMBERS[name](*map(float, text.split(", ")))
    except (KeyError, TypeError, ValueError):
        return None


def quantized_values(
    op: str, inputs: Sequence[Tensor], given: Mapping[str, tuple[Value, ...]]
) -> tuple[Tensor, Tensor]:
    """Return the true values before they are quantized again, in float64, and the bound of their
    terms. Raises NoReference."""
    x, x_scale, x_zero, weight, w_scale, w_zero, *rest = inputs
    other = rest.pop(0) if op == "qlinear_binary" else None
    weight = weight.to_dense() if weight.layout is not torch.strided else weight
    if weight.shape[0] != x.shape[-1] or x_scale.numel() != 1 or w_zero.any():
        raise NoReference("no reference for a weight with zero points")
    scale = x_scale.double().reshape(()) * w_scale.double()
    zero, right = x_zero.double().reshape(()), weight.double()
    values = ((x.double() - zero) @ right) * scale
    terms = (x.double().abs() + zero.abs()).norm(dim=-1, keepdim=True)
    terms = terms * right.norm(dim=-2, keepdim=True) * scale.abs()
    for bias in rest:
        values, terms = values + bias.double(), terms + bias.double().abs()
    if other is not None:
        if given.get("binary_post_op") not in (("add",), ("sum",)) or not other.is_floating_point():
            raise NoReference("no reference for what is put together with the product")
        alpha = float(given.get("binary_alpha", (1.0,))[0])
        values, terms = values + alpha * other.double(), terms + (alpha * other.double()).abs()
    activation = activation_of(_name(op, given))
    if activation is None:
        return values, terms
    return activation.function(values), activation.off(values, terms)


def _name(op: str, given: Mapping[str, tuple[Value, ...]]) -> str:
    """Return the name of the function applied last, as in `activation_of`."""
    if op == "qlinear_binary":
        name, numbers, how = "unary_post_op", "unary_post_op_args", "unary_post_op_algorithm"
    else:
        name, numbers, how = "post_op_name", "post_op_args", "post_op_algorithm"
    word = str(given.get(name, ("none",))[0])
    if scalars := given.get(numbers):
        word += f"({', '.join(map(str, scalars))})"
    return f"{word}_tanh" if given.get(how) == ("tanh",) else word


@dataclass(frozen=True, slots=True)
class Convolution:
    """The convolution `op` with the options `given`; `sizes` are those of its result."""

    op: str
    given: Mapping[str, tuple[int, ...]]
    sizes: tuple[int, ...] = ()

    @property
    def transposed(self) -> bool:
        return any(self.given["transposed"])

    @property
    def large_output_padding(self) -> bool:
        """Whether PyTorch excludes it from oneDNN, which lacks such output padding."""
        padding, stride = self.given["output_padding"], self.given["stride"]
        size = max(len(padding), len(stride))
        pairs = zip(padding * (size // len(padding)), stride * (size // len(stride)), strict=True)
        return self.transposed and any(added >= step for added, step in pairs)

    def of(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the result of the op's two tensors, without a bias."""
        options = (
            *(list(self.given[name]) for name in ("stride", "padding", "dilation")),
            self.transposed,
            list(self.given["output_padding"]),
            self.given["groups"][0],
        )
        with torch.no_grad(), without_library():
            if self.op == "convolution":
                return torch.convolution(first, second, None, *options)
            backward = torch.ops.aten.convolution_backward
            unread = first.new_empty(self.sizes)
            if self.op == "convolution_bwd_input":
                return backward(first, unread, second, None, *options, [True, False, False])[0]
            return backward(second, first, unread, None, *options, [False, True, False])[1]

    def terms(self, first: Tensor, second: Tensor) -> int:
        """Return the maximum number of products that are summed for an element."""
        if self.op == "convolution_bwd_weight":
            summed: list[int] = list((first if self.transposed else second).shape)
            return math.prod(summed[:1] + summed[2:])
        sizes: list[int] = list(second.shape)
        if self.transposed == (self.op == "convolution_bwd_input"):
            return math.prod(sizes[1:])
        return math.prod(sizes[:1] + sizes[2:]) // self.given["groups"][0]

    def direct(self, second: Tensor) -> bool:
        """Return whether libraries on a GPU sum the terms directly: transforms (Winograd, FFT)
        combine neighbours, and have no bound by element."""
        window = (self.sizes if self.op == "convolution_bwd_weight" else second.shape)[2:]
        alone = all(size == 1 for size in window)
        return alone or max(self.given["dilation"]) > 1 or max(self.given["stride"]) > 2

    def partial_sums(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the partial sums that PyTorch's own CPU kernels round to the type of the result:
        the sum of their absolute values, and their number, for each element. None if a kernel sums
        all terms of an element at once.

        `slow_conv2d_backward` and `slow_conv_transpose2d` (and those of one and three dimensions,
        and with dilation) multiply matrices, and sum these products in the type of the result: for
        an image's gradient one product per position of the window (`col2im`), for a weight's one
        per image.
        """
        if self.op == "convolution_bwd_weight":
            sizes = torch.zeros(self.sizes, dtype=torch.float32)
            for image, back in zip(first.split(1), second.split(1), strict=True):
                sizes += self.of(image.to(torch.float32), back.to(torch.float32)).abs_()
            return sizes, torch.full((), first.shape[0])
        if self.transposed != (self.op == "convolution"):
            return None
        sizes, counts = torch.zeros(self.sizes, dtype=torch.float32), torch.zeros(self.sizes[2:])
        groups, factors = self.given["groups"][0], first.to(torch.float32)
        factors = factors.unflatten(1, (groups, -1)).flatten(3)
        weight = second.to(torch.float32).unflatten(0, (groups, -1))
        both = (slice(None),) * 2  # images and channels
        for position, read, written in self._positions(first, second):
            products = torch.einsum(
                "ngil,gio->ngol", factors, weight[(slice(None),) * 3 + position]
            )
            products = products.flatten(1, 2).unflatten(2, first.shape[2:])
            sizes[both + written] += products[both + read].abs()
            counts[written] += 1
        return sizes, counts

    def _positions(
        self, first: Tensor, second: Tensor
    ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
        """Yield each position of the window, its part of `first`, and its target in the result."""
        rank = first.dim() - 2
        stride, padding, dilation = (
            self.given[name] * (1 if len(self.given[name]) == rank else rank)
            for name in ("stride", "padding", "dilation")
        )
        for position in itertools.product(*map(range, second.shape[2:])):
            read, written = [], []
            for at, step in enumerate(stride):
                offset = position[at] * dilation[at] - padding[at]
                begin = max(0, -(offset // step))
                end = min(first.shape[at + 2], (self.sizes[at + 2] - 1 - offset) // step + 1)
                read.append(slice(begin, end))
                written.append(slice(offset + begin * step, offset + end * step, step))
            if all(part.start < part.stop for part in read):
                yield position, tuple(read), tuple(written)


def convolution_of(op: str, given: Options, sizes: Sequence[int] = ()) -> Convolution:
    """Build the convolution. Raises NoReference."""
    if not given:
        raise NoReference("the convolution's stride and padding are unknown")
    if op != "convolution" and not sizes:
        raise NoReference("the sizes of its result are unknown")
    return Convolution(op, convolution_numbers(given), tuple(sizes))


def convolution_values(
    conv: Convolution, inputs: Sequence[Tensor], given: Options
) -> tuple[Tensor, Tensor]:
    """Return the true values and the bound of their terms by Cauchy and Schwarz."""
    if conv.op == "convolution" and not conv.transposed:
        return ConvReference(given).part(inputs, (slice(None),) * inputs[0].dim())
    wide = wide_dtype(inputs[0])
    first, second, *bias = (tensor.to(wide) for tensor in inputs)
    values = conv.of(first, second)
    terms = conv.of(first.square(), torch.ones_like(second)).sqrt_()
    terms *= conv.of(torch.ones_like(first), second.square()).sqrt_()
    if bias:
        added = along_channels(bias[0], values)
        values, terms = values + added, terms + added.abs()
    return values, terms


def along_channels(bias: Tensor, result: Tensor) -> Tensor:
    return bias.view(-1, *[1] * (result.dim() - 2))
