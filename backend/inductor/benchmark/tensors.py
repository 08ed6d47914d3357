"""Tensors to run a choice on; whether what came out is what ATen computes; why a choice of ours
cannot be used.

What no kernel may touch is NaN: the memory around each tensor and between its rows, and the output
before the run. So a read past an edge shows as a NaN in the result, an element that is not written
stays NaN, and a write past an edge leaves a number where a NaN was. Whole numbers have no NaN, so
there it is the least one; their sums are exact, and one product too many is another result.

Whoever calls `benchmark(*inputs, out=out)` finds the result in `out` afterwards. Inductor itself
looks there only with `select_algorithm.VERIFY`; a tuning that nobody checks that way is spared the
copies.

Inductor sets a choice aside for a RuntimeError alone:

ChoiceError             one choice cannot be used
├── CompileFailed       the compiler said no, or there is none
├── WrongResult         it computes other numbers than ATen
├── Crashed             the process that ran it is gone
└── TimedOut            it did not end in time
ErrorFromChoice         any of them, with the choice and its inputs
NoValidChoicesError     a tuning of which every choice failed
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import StockNoValidChoicesError
from backend.templates.problem import Activation


class ChoiceError(RuntimeError):
    """The root: `str()` is one line for a person."""


class CompileFailed(ChoiceError):
    """It does not compile here."""


class WrongResult(ChoiceError):
    """It does not compute what ATen computes."""


class Crashed(ChoiceError):
    """It killed the process that benchmarked it."""


class TimedOut(ChoiceError):
    """It was stopped."""


class ErrorFromChoice(RuntimeError):
    """What happened, to which choice, on which inputs; `choice` is the caller."""

    intended = True
    """An answer to torch, no failure of the hooks (see `guard.beside`)."""

    def __init__(self, cause: object, choice: Any, inputs: str) -> None:
        config = f" ({choice.description})" if choice.description else ""
        super().__init__(f"{cause}; choice {choice.name}{config} on {inputs}")
        self.choice = choice


class NoValidChoicesError(StockNoValidChoicesError):  # type: ignore[misc]
    """No choice is left: says of which op, on which inputs, and what each one died of."""

    intended = True

    def __init__(self, op: str, inputs: str, failures: Iterable[tuple[str, str]]) -> None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures)
        super().__init__(
            f"no choice for {op}({inputs}) can be used: {reasons or 'none was offered'}. "
            "Add ATEN to TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS to have one that always works"
        )


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


def make_inputs(plans: Sequence[TensorPlan], seed: int = 0) -> list[Tensor]:
    """Random numbers, the same each time: normal ones, or any whole one of the type. A broadcast
    dimension repeats one value."""
    generator = torch.Generator().manual_seed(seed)
    return [plan.holding(_drawn(plan, generator)) for plan in plans]


def _drawn(plan: TensorPlan, generator: torch.Generator) -> Tensor:
    if plan.dtype.is_floating_point:
        return torch.randn(plan.distinct, generator=generator)
    limits = torch.iinfo(plan.dtype)
    return torch.randint(limits.min, limits.max + 1, plan.distinct, generator=generator)


@dataclass(frozen=True, slots=True)
class GemmReference:
    """`activation(beta * bias + alpha * (A @ B))`, of inputs A, B and, where there is one, bias."""

    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = "none"
    order: tuple[int, ...] = (0, 1, 2)
    """Where A, B and bias stand among the inputs."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """By ATen, in a wider dtype than the inputs; whole numbers are exact in fp64."""
        ordered = [inputs[index] for index in self.order if index < len(inputs)]
        dtype = ordered[0].dtype
        wide = wide_dtype(dtype, ordered[0].device)
        a, b, *rest = (tensor.to(wide) for tensor in ordered)
        values = self.alpha * torch.matmul(a, b)
        terms = abs(self.alpha) * (a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True))
        if rest:
            values = values + self.beta * rest[0]
            terms = terms + (self.beta * rest[0]).abs()
        return Expected.of(activated(values, self.activation), terms, dtype)


def wide_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """In which true values of factors of this type are computed."""
    narrow = dtype.is_floating_point and dtype != torch.float64
    return torch.float32 if narrow and device.type == "cuda" else torch.float64


@dataclass(frozen=True, slots=True)
class Expected:
    """The true values, and for each a bound of the terms that were summed up for it.

    By Cauchy and Schwarz a dot product's terms are bound by the lengths of row and column.
    """

    values: Tensor
    terms: Tensor
    epsilon: float = torch.finfo(torch.float32).eps
    """Of the type that a kernel sums up in."""

    @classmethod
    def of(cls, values: Tensor, terms: Tensor, factors: torch.dtype) -> Expected:
        """For a kernel of factors of this type."""
        return cls(values, terms, _epsilon_of_sums(factors))

    def check(self, output: Tensor) -> None:
        """Raises WrongResult, with the largest error and its place."""
        unwritten = int(output.isnan().sum())
        if unwritten:
            at = output.isnan().nonzero()[0].tolist()
            raise WrongResult(
                f"wrong result: {unwritten} of {output.numel()} elements are NaN, "
                f"the first at {at}: not written, or read past an edge"
            )
        error = (output.to(self.values.dtype) - self.values).abs()
        rounding = 2 * epsilon_of(output.dtype) * self.values.abs()
        allowed = rounding + 8 * self.epsilon * self.terms + 1e-30
        excess = error / allowed
        if output.numel() and not bool((excess <= 1).all()):
            worst = int(excess.argmax())
            place = [int(i) for i in torch.unravel_index(torch.tensor(worst), output.shape)]
            raise WrongResult(
                f"wrong result: max error {error.flatten()[worst].item():.3g} at {place}, where "
                f"{allowed.flatten()[worst].item():.3g} is allowed"
            )


def epsilon_of(dtype: torch.dtype) -> float:
    """The distance of 1 to the next number; none for whole numbers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def _epsilon_of_sums(dtype: torch.dtype) -> float:
    """By the type of the factors. Of fp64 the sums that are compared with are as far off again."""
    if dtype == torch.float64:
        return 2 * epsilon_of(dtype)
    return epsilon_of(torch.float32 if dtype.is_floating_point else dtype)


def check_untouched(output: Tensor) -> None:
    """Raises WrongResult if memory outside of `output` was written. Overwrites `output`."""
    nothing = unused(output.dtype)
    output.fill_(nothing)
    memory = storage_of(output)
    kept = memory.isnan() if math.isnan(nothing) else memory == nothing
    written = int((~kept).sum())
    if written:
        raise WrongResult(f"wrong result: {written} elements outside of the output were written")


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

    def benchmark(self) -> Computed:
        """The time is that on inputs of our own, which have guards; so a kernel that writes
        outside of its output is found before it meets these."""
        milliseconds = float(self.request.benchmark())
        output = self.request.computed([unpacked(values) for values in self.inputs])
        return Computed(milliseconds, packed(output))
