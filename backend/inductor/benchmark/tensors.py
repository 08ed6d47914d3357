"""Tensors to run a choice on.

What no kernel may touch is NaN: the memory around each tensor and between its rows, and the output
before the run. So a read past an edge shows as a NaN in the result, an element that is not written
stays NaN, and a write past an edge leaves a number where a NaN was. Whole numbers have no NaN, so
there it is the least one; their sums are exact, and one product too many is another result.

Whoever calls `benchmark(*inputs, out=out)` finds the result in `out` afterwards. Inductor itself
looks there only with `select_algorithm.VERIFY`; a tuning that nobody checks that way is spared the
copies.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import ChoiceError

if TYPE_CHECKING:  # types only: importing it takes as long as torch
    from backend.inductor.torch.graph import Node

GUARD = 256
"""Elements of NaN before and after each tensor: more than a vector, and a multiple of it."""


def unused(dtype: torch.dtype) -> float:
    """What stands where no kernel may read, and what no product of a kernel is."""
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).min


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor to make: sizes, strides and the offset within its storage, in elements."""

    device: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def make(self) -> Tensor:
        """All `unused`, its storage too."""
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
        """One with these values, which may have a 1 for the size of a broadcast dimension."""
        tensor = self.make()
        tensor.as_strided(values.shape, self.strides, tensor.storage_offset()).copy_(values)
        return tensor

    @property
    def distinct(self) -> list[int]:
        """The sizes, with a 1 for each dimension that repeats one value."""
        return [n if s else min(n, 1) for n, s in zip(self.sizes, self.strides, strict=True)]


def storage_of(tensor: Tensor) -> Tensor:
    """The whole memory of a tensor, flat."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((count,), (1,), 0)


CHUNK_BYTES = 256 << 20
"""Of memory that filling and checking take beside the tensors themselves."""


def make_inputs(plans: Sequence[TensorPlan], seed: int = 0) -> list[Tensor]:
    """Random numbers, the same each time: normal ones, or any whole one of the type. A broadcast
    dimension repeats one value."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for plan in plans:
        tensor = plan.make()
        values = tensor.as_strided(plan.distinct, plan.strides, tensor.storage_offset())
        _fill(values, generator)
        made.append(tensor)
    return made


def _fill(values: Tensor, generator: torch.Generator) -> None:
    """They are drawn on the CPU in a wide type, some lines after the other."""
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
    """What choices compute in here is looked at by nobody."""
    token = _unread.set(True)
    try:
        yield
    finally:
        _unread.reset(token)


def results_are_read() -> bool:
    return not _unread.get()


@dataclass(frozen=True, slots=True)
class OpInputs:
    """The op's input nodes, in whose order tensors are handed over, and what becomes of them."""

    nodes: Sequence[Node] = ()
    arrange: Arrange = field(default=list)

    def operands(
        self, given: Sequence[Tensor], reorder: Sequence[int], plans: Sequence[TensorPlan]
    ) -> list[Tensor]:
        """The inputs of a request, which takes the template's in the order `reorder`. Raises
        ChoiceError where they are not those of this problem."""
        arranged = self.arrange(self._of_each_node(given))
        if len(arranged) != len(plans):
            raise ChoiceError(f"{len(arranged)} tensors were given where {len(plans)} are needed")
        ordered = (arranged[index] for index in reorder)
        return [fitted(tensor, plan) for tensor, plan in zip(ordered, plans, strict=True)]

    def _of_each_node(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Inductor hands over one tensor a buffer, though two inputs may be views of the same."""
        if len(given) == len(self.nodes) or not self.nodes:
            return given
        names = [str(node.get_name()) for node in self.nodes]
        by_name = dict(zip(dict.fromkeys(names), given, strict=False))
        if len(by_name) != len(given):
            raise ChoiceError(f"{len(given)} tensors were given for {len(by_name)} buffers")
        return [by_name[name] for name in names]


def fitted(tensor: Tensor, plan: TensorPlan) -> Tensor:
    """The input as `plan` has it. Where Inductor hands over the whole buffer that it lies in, the
    part that is meant. Raises ChoiceError where the memory is too small for it."""
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
    """A tensor's values in row-major order, to be sent. `torch.load` would give none: while a
    graph is compiled it makes tensors without memory."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    data: bytes


def packed(tensor: Tensor) -> Values:
    """Those of a tensor, wherever it lies."""
    here = tensor.detach().cpu().contiguous()
    data = ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())
    return Values(here.dtype, tuple(here.shape), data)


def unpacked(values: Values) -> Tensor:
    if not values.data:
        return torch.empty(values.sizes, dtype=values.dtype)
    return torch.frombuffer(bytearray(values.data), dtype=values.dtype).view(values.sizes)


@dataclass(frozen=True, slots=True)
class Computed:
    """What a kernel made of inputs that were given, and how many milliseconds it takes."""

    milliseconds: float
    output: Values


@dataclass(frozen=True, slots=True)
class OnGiven:
    """A request and the values to compute with, for a process that shares no memory with us."""

    request: Any
    inputs: tuple[Values, ...]

    @property
    def device(self) -> str:
        return str(self.request.device)

    def benchmark(self) -> Computed:
        """The time is that on inputs of our own, which have guards; so a kernel that writes
        outside of its output is found before it meets these."""
        milliseconds = float(self.request.benchmark())
        output = self.request.computed([unpacked(values) for values in self.inputs])
        return Computed(milliseconds, packed(output))
