"""Tensors to run a choice on, and the expected result with its check.

Memory that no kernel may touch is NaN: around each tensor and between its rows, and the output
before the run. So a read past an edge shows as a NaN in the result, an element that is not written
stays NaN, and a write past an edge replaces a NaN by a number. Integers have no NaN, so they use
the minimum; their sums are exact, and one product too many gives another result.

The true values of a large result would take several times its memory: they are computed one tile at
a time, again for every choice.

`benchmark(*inputs, out=out)` leaves the result in `out`. Inductor itself reads it only with
`select_algorithm.VERIFY`; a tuning without that check is spared the copies.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backend.counted import counted, noun
from backend.inductor.benchmark.errors import ChoiceError, WrongResult
from backend.templates.problem import Activation

if TYPE_CHECKING:
    from backend.inductor.torch.graph import Node

GUARD = 256
"""Elements of NaN before and after each tensor: more than a vector, and a multiple of one."""


def unused(dtype: torch.dtype) -> float:
    """Return the value of memory that no kernel may read, which is never a kernel's product."""
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).min


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor to create: sizes, strides and the offset within its storage, in elements."""

    device: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def make(self) -> Tensor:
        """Return a tensor whose storage is all `unused`."""
        extent = 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        if 0 in self.sizes:
            extent = 0
        storage = torch.full(
            (GUARD + self.offset + extent + GUARD,),
            unused(self.dtype),
            dtype=self.dtype,
            device=self.device,
        )
        return storage.as_strided(self.sizes, self.strides, GUARD + self.offset)

    def holding(self, values: Tensor) -> Tensor:
        """Return a tensor with these values, which may have size 1 for a broadcast dimension."""
        tensor = self.make()
        tensor.as_strided(values.shape, self.strides, tensor.storage_offset()).copy_(values)
        return tensor

    @property
    def distinct(self) -> list[int]:
        """Return the sizes, with a 1 for each dimension that repeats one value."""
        return [n if s else min(n, 1) for n, s in zip(self.sizes, self.strides, strict=True)]


def storage_of(tensor: Tensor) -> Tensor:
    """Return the whole memory of a tensor, flat."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((count,), (1,), 0)


CHUNK_BYTES = 256 << 20
"""The memory that filling and checking take beside the tensors themselves."""


def make_inputs(plans: Sequence[TensorPlan], seed: int = 0) -> list[Tensor]:
    """Return random numbers, the same each time: normal ones, or any integer of the type. A
    broadcast dimension repeats one value."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for plan in plans:
        tensor = plan.make()
        values = tensor.as_strided(plan.distinct, plan.strides, tensor.storage_offset())
        _fill(values, generator)
        tensors.append(tensor)
    return tensors


def _fill(values: Tensor, generator: torch.Generator) -> None:
    """Fill with numbers drawn on the CPU in a wide type, some lines at a time."""
    dim = next((dim for dim, size in enumerate(values.shape) if size > 1), None)
    if dim is None or 8 * values.numel() <= CHUNK_BYTES // 2:
        values.copy_(_drawn(values, generator))
        return
    lines = max(1, CHUNK_BYTES // 16 * values.shape[dim] // values.numel())
    for part in values.split(lines, dim):
        _fill(part, generator)


def _drawn(values: Tensor, generator: torch.Generator) -> Tensor:
    if values.dtype.is_floating_point:
        return torch.randn(values.shape, generator=generator)
    limits = torch.iinfo(values.dtype)
    return torch.randint(limits.min, limits.max + 1, values.shape, generator=generator)


Arrange = Callable[[Sequence[Tensor]], list[Tensor]]
"""From the op's inputs to those of the template, in its order."""

_unread: ContextVar[bool] = ContextVar("results that nobody reads", default=False)


@contextlib.contextmanager
def unread_results() -> Iterator[None]:
    """A context in which nobody reads the choices' results."""
    token = _unread.set(True)
    try:
        yield
    finally:
        _unread.reset(token)


def results_are_read() -> bool:
    return not _unread.get()


@dataclass(frozen=True, slots=True)
class OpInputs:
    """The op's input nodes, in the order of its tensors, and how the template arranges them."""

    nodes: Sequence[Node] = ()
    arrange: Arrange = field(default=list)

    def operands(
        self, given: Sequence[Tensor], reorder: Sequence[int], plans: Sequence[TensorPlan]
    ) -> list[Tensor]:
        """Return the inputs of a request, whose template takes them in the order `reorder`. Raises
        ChoiceError if they are not those of this problem."""
        arranged = self.arrange(self._of_each_node(given))
        if len(arranged) != len(plans):
            raise ChoiceError(f"{len(arranged)} tensors were given where {len(plans)} are needed")
        ordered = (arranged[index] for index in reorder)
        return [fitted(tensor, plan) for tensor, plan in zip(ordered, plans, strict=True)]

    def _of_each_node(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return a tensor per node: Inductor passes one per buffer, of which inputs may be
        views."""
        if len(given) == len(self.nodes) or not self.nodes:
            return given
        names = [str(node.get_name()) for node in self.nodes]
        by_name = dict(zip(dict.fromkeys(names), given, strict=False))
        if len(by_name) != len(given):
            raise ChoiceError(f"{len(given)} tensors were given for {len(by_name)} buffers")
        return [by_name[name] for name in names]


def fitted(tensor: Tensor, plan: TensorPlan) -> Tensor:
    """Return the input as in `plan`. If Inductor passes the whole buffer, return the input's part.
    Raises ChoiceError if the memory is too small."""
    same = tuple(tensor.shape) == plan.sizes and tensor.stride() == plan.strides
    if same and (tensor.storage_offset() or not plan.offset):
        return tensor
    steps = zip(plan.sizes, plan.strides, strict=True)
    needed = plan.offset + 1 + sum((size - 1) * stride for size, stride in steps)
    if tensor.untyped_storage().nbytes() >= needed * tensor.element_size():
        return torch.as_strided(tensor, plan.sizes, plan.strides, plan.offset)
    if tuple(tensor.shape) == plan.sizes:
        return tensor
    raise ChoiceError(f"a tensor of sizes {tuple(tensor.shape)} was given for {plan.sizes}")


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor's values in row-major order, for sending. `torch.load` would fail: while a graph is
    compiled it creates tensors without memory."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    data: bytes


def packed(tensor: Tensor) -> Values:
    """Return the values of a tensor on any device."""
    here = tensor.detach().cpu().contiguous()
    data = ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())
    return Values(here.dtype, tuple(here.shape), data)


def unpacked(values: Values) -> Tensor:
    if not values.data:
        return torch.empty(values.sizes, dtype=values.dtype)
    return torch.frombuffer(bytearray(values.data), dtype=values.dtype).view(values.sizes)


@dataclass(frozen=True, slots=True)
class ComputeResult:
    """A kernel's result for given inputs, and its milliseconds."""

    milliseconds: float
    output: Values


@dataclass(frozen=True, slots=True)
class ComputeRequest:
    """A request and its input values, for a process that shares no memory with us."""

    request: Any
    inputs: tuple[Values, ...]

    @property
    def device(self) -> str:
        return str(self.request.device)

    def benchmark(self) -> ComputeResult:
        """Benchmark. The time is measured on inputs of our own, which have guards; so a kernel that
        writes outside of its output is detected before it uses these inputs."""
        milliseconds = float(self.request.benchmark())
        output = self.request.computed([unpacked(values) for values in self.inputs])
        return ComputeResult(milliseconds, packed(output))


Tile = tuple[slice, ...]
"""A part of a result, dimension by dimension."""


class Reference:
    """The result of a kernel, by ATen. Its tiles cover the result and need `CHUNK_BYTES` each."""

    __slots__ = ()

    def drawn(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return inputs that make sense, given random ones of the same kind."""
        return list(inputs)

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """Return the result of these inputs, which are kept."""
        return Expected(self, tuple(inputs))

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterable[Tile]:
        """Return the tiles of the result that has these sizes."""
        raise NotImplementedError

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """Return the true values of a tile in `wide_dtype`, and bounds of their terms, both
        fresh."""
        raise NotImplementedError


def wide_dtype(factor: Tensor) -> torch.dtype:
    """Return the type in which true values are computed; integers are exact in it."""
    narrow = factor.dtype.is_floating_point and factor.dtype != torch.float64
    return torch.float32 if narrow and factor.is_cuda else torch.float64


@dataclass(frozen=True, slots=True)
class Expected:
    """The true result of inputs, computed one tile at a time when needed. The first input is a
    factor, whose type determines the type of a kernel's sums."""

    reference: Reference
    inputs: tuple[Tensor, ...]

    def check(self, output: Tensor) -> None:
        """Raise WrongResult with the largest error and its place."""
        if not output.numel():
            return
        tiles = list(self.reference.tiles(self.inputs, output.shape))
        _check_written(output, tiles)
        worst = _WorstElement()
        for tile in tiles:
            values, terms = self.reference.part(self.inputs, tile)
            error = (output[tile].to(values.dtype) - values).abs_()
            allowed = values.abs_().mul_(2 * epsilon_of(output.dtype))
            allowed += terms.mul_(8 * epsilon_of_sums(self.inputs[0].dtype))
            worst = max(worst, _worst(error, allowed.add_(1e-30), tile), key=_excess)
        if not worst.excess <= 1:
            raise WrongResult(
                f"wrong result: max error {worst.error:.3g} at {worst.place}, where "
                f"{worst.allowed:.3g} is allowed"
            )


@dataclass(frozen=True, slots=True)
class GemmReference(Reference):
    """`activation(beta * bias + alpha * scale_a * scale_b * (a @ b + c @ d))`, of its inputs."""

    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = "none"
    order: tuple[int, ...] = (0, 1, 2)
    """The index of each of `names` among the inputs; the last ones may be missing."""
    names: tuple[str, ...] = ("a", "b", "bias")
    fast_sums: bool = False
    """Whether fp8 sums may be the hardware's, some 14 bits ("DeepSeek-V3 Technical Report",
    3.3.2)."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """Return the result of these inputs, which are kept."""
        ordered = [inputs[index] for index in self.order if index < len(inputs)]
        return Expected(self, tuple(ordered))

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterator[Tile]:
        *batches, rows, columns = sizes
        k, itemsize = inputs[0].shape[-1], wide_dtype(inputs[0]).itemsize
        for tile in tiles(math.prod(batches), rows, columns, k, itemsize):
            yield tile[-len(sizes) :]

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """Return the values, and bounds by Cauchy and Schwarz: a dot product's terms are bounded by
        the lengths of row and column."""
        *batch, rows, columns = tile
        wide = wide_dtype(inputs[0])
        parts = (x[batch[0]] if batch and x.dim() > 2 else x for x in inputs)
        given = dict(zip(self.names, parts, strict=False))
        values, terms = _product(given["a"], given["b"], rows, columns, wide)
        if "c" in given:
            second, more = _product(given["c"], given["d"], rows, columns, wide)
            values, terms = values.add_(second), terms.add_(more)
        values, terms = values.mul_(self.alpha), terms.mul_(abs(self.alpha))
        if self.fast_sums:
            terms.mul_(2.0**10)  # 2^-13 for 2^-23
        for name in ("scale_a", "scale_b"):
            if name in given:
                scale = _broadcast(given[name], rows, columns).to(wide)
                values, terms = values.mul_(scale), terms.mul_(scale.abs())
        if "bias" in given:
            added = _broadcast(given["bias"], rows, columns).to(wide) * self.beta
            values += added
            terms += added.abs_()
        return activated(values, self.activation), terms


def _product(
    a: Tensor, b: Tensor, rows: slice, columns: slice, wide: torch.dtype
) -> tuple[Tensor, Tensor]:
    a, b = a[..., rows, :].to(wide), b[..., columns].to(wide)
    return torch.matmul(a, b), a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)


def _broadcast(tensor: Tensor, rows: slice, columns: slice) -> Tensor:
    """Return the part of a broadcast tensor that belongs to a tile."""
    if tensor.dim() and tensor.shape[-1] > 1:
        tensor = tensor[..., columns]
    return tensor[..., rows, :] if tensor.dim() > 1 and tensor.shape[-2] > 1 else tensor


def tiles(batches: int, rows: int, columns: int, k: int, itemsize: int) -> Iterator[Tile]:
    """Yield batches, rows and columns of a product in as few tiles as possible: `CHUNK_BYTES`
    suffice for each one's factors and results."""
    b, m, n = batches, rows, columns

    def needed() -> int:
        return itemsize * b * (2 * k * (m + n) + 6 * m * n)

    while needed() > CHUNK_BYTES and (b, m, n) != (1, 1, 1):
        if b > 1:
            b = -(-b // 2)
        elif m >= n:
            m = -(-m // 2)
        else:
            n = -(-n // 2)
    for batch in range(0, batches, b):
        for column in range(0, columns, n):
            for row in range(0, rows, m):
                yield slice(batch, batch + b), slice(row, row + m), slice(column, column + n)


def _place(index: int, sizes: Sequence[int], tile: Tile) -> list[int]:
    """Return the index in the whole result of a tile's element."""
    at = torch.unravel_index(torch.tensor(index), tuple(sizes))
    return [(part.start or 0) + int(i) for part, i in zip(tile, at, strict=True)]


@dataclass(frozen=True, slots=True)
class _WorstElement:
    """The element with the largest error, as a multiple of the tolerance."""

    excess: float = -1.0
    error: float = 0.0
    allowed: float = 0.0
    place: Sequence[int] = ()


def _excess(worst: _WorstElement) -> float:
    return math.inf if math.isnan(worst.excess) else worst.excess


def _worst(error: Tensor, allowed: Tensor, tile: Tile) -> _WorstElement:
    excess = error / allowed
    at = int(excess.argmax())
    error_at, allowed_at = (float(values.flatten()[at]) for values in (error, allowed))
    return _WorstElement(
        float(excess.flatten()[at]), error_at, allowed_at, _place(at, error.shape, tile)
    )


def _check_written(output: Tensor, tiles: Iterable[Tile]) -> None:
    unwritten, first = 0, list[int]()
    for tile in tiles:
        bad = output[tile].isnan()
        count = int(bad.sum())
        if count and not unwritten:
            first = _place(int(bad.flatten().int().argmax()), bad.shape, tile)
        unwritten += count
    if unwritten:
        raise WrongResult(
            f"wrong result: {unwritten:,} of {counted(output.numel(), 'element')} "
            f"{noun(unwritten, 'is', 'are')} NaN, "
            f"the first at {first}: not written, or read past an edge"
        )


def epsilon_of(dtype: torch.dtype) -> float:
    """Return the distance from 1 to the next number; 0 for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def epsilon_of_sums(dtype: torch.dtype) -> float:
    """Return the epsilon of the type in which a kernel sums, by that of the factors. The sums
    compared with fp64 have the same error again."""
    if dtype == torch.float64:
        return 2 * epsilon_of(dtype)
    return epsilon_of(torch.float32 if dtype.is_floating_point else dtype)


def check_untouched(output: Tensor) -> None:
    """Raise WrongResult if memory outside of `output` was written. Overwrites `output`."""
    nothing = unused(output.dtype)
    output.fill_(nothing)
    # torch counts true elements with 8 bytes per element.
    parts = storage_of(output).split(CHUNK_BYTES // 16)
    kept = (part.isnan() if math.isnan(nothing) else part == nothing for part in parts)
    written = sum(int((~part).sum()) for part in kept)
    if written:
        elements = counted(written, "element")
        were = noun(written, "was", "were")
        raise WrongResult(f"wrong result: {elements} outside of the output {were} written")


def activated(values: Tensor, activation: Activation) -> Tensor:
    functional = torch.nn.functional
    match activation:
        case "relu":
            return functional.relu(values)
        case "gelu":
            return functional.gelu(values)
        case "gelu_tanh":
            return functional.gelu(values, approximate="tanh")
        case "silu":
            return functional.silu(values)
    return values
