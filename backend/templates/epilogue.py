"""What becomes of a product's elements before they are stored: an expression of each and of other
tensors at the same place, and where the results go.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.templates.errors import UnsupportedProblemError
from backend.templates.expressions import ChainBuilder, Step, in_cpp
from backend.templates.functions import CPP_VALUE
from backend.templates.operand import CPP_TYPE, DType, Expr, is_number


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor that is read or written at the place of the element.

    `strides` are in elements, by batch, row and column of the product; a tensor that is broadcast
    has a 0. `vector` neighbours may be accessed at once, along a dimension of stride 1.
    """

    name: str
    dtype: DType
    strides: tuple[Expr, Expr, Expr]
    vector: int = 1

    def stride(self, dim: int) -> str:
        """A number if it is 0 or 1 in every call, else the name of the argument that has it."""
        known = [number for number in (0, 1) if is_number(self.strides[dim], number)]
        return str(known[0]) if known else f"{self.name}_{('batch', 'row', 'col')[dim]}"


@dataclass(frozen=True, slots=True)
class Store:
    """Where the value of a step goes."""

    to: Access
    step: int


@dataclass(frozen=True, slots=True)
class Epilogue:
    """`steps` have the product as `value`. Raises UnsupportedProblemError.

    What is stored shares no memory with what is loaded, nor with the factors: elements are computed
    in no order.
    """

    steps: tuple[Step, ...]
    stores: tuple[Store, ...]
    loads: tuple[Access, ...] = ()

    def __post_init__(self) -> None:
        if not self.stores:
            raise UnsupportedProblemError("an epilogue that stores nothing")
        names = [access.name for access in self.accesses]
        if len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
            raise UnsupportedProblemError(f"the operands of an epilogue are named {names}")
        for step in self.steps:
            if step.function == "load" and step.text not in names[: len(self.loads)]:
                raise UnsupportedProblemError(f"the epilogue loads {step.text}, no operand of it")

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.loads, *(store.to for store in self.stores))


def plain(to: Access, dtype: DType) -> Epilogue:
    """The product as it is, into one tensor; `dtype` is what it is computed in."""
    chain = ChainBuilder()
    value = chain.value(dtype)
    return Epilogue(chain.steps, (Store(to, value.step),))


@dataclass(frozen=True, slots=True)
class Place:
    """An access as the kernel sees it, which computes rows and columns of a row-major result.

    Strides are C++: a number, or the name of the argument. `vector` is C++ too.
    """

    name: str
    cpp_type: str
    batch: str
    row: str
    col: str
    vector: str
    value_type: str = ""
    """In which it is computed, of what is stored."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The strides that come with the call."""
        return tuple(text for text in (self.batch, self.row, self.col) if not text.isdigit())

    @property
    def step(self) -> str:
        """C++ of the stride from column to column."""
        return _member(self.col)

    def at(self, *index: str) -> str:
        """C++ of the offset of the element at batch, row and column."""
        steps = map(_member, (self.batch, self.row, self.col))
        terms = [
            at if step == "1" else f"{at} * {step}"
            for at, step in zip(index, steps, strict=True)
            if "0" not in (at, step)
        ]
        return " + ".join(terms) or "0"


def _member(stride: str) -> str:
    return stride if stride.isdigit() else f"args.{stride}"


def place(access: Access, flipped: bool) -> Place:
    """`flipped` if the rows of the kernel are the columns of the product."""
    batch, row, col = (access.stride(dim) for dim in range(3))
    if flipped:
        row, col = col, row
    vector = str(access.vector) if col == "1" else "1"
    return Place(access.name, CPP_TYPE[access.dtype], batch, row, col, vector)


def statements(activation: str, epilogue: Epilogue, dtype: DType) -> list[str]:
    """C++ for one element: `value` is the product, `NAME_values[i]` is loaded or to be stored.

    `dtype` is what the product is computed in; `activation` comes before the epilogue.
    """
    chain = ChainBuilder()
    value = chain.value(dtype)
    if activation != "none":
        value = chain.apply(activation, value)

    def text(step: Step) -> str:
        if step.function == "value":
            return f"v{value.step}"
        return f"rt::convert<{CPP_VALUE[step.dtype]}>({step.text}_values[i])"

    lines = in_cpp(chain.steps, lambda step: "value", "v") + in_cpp(epilogue.steps, text)
    for store in epilogue.stores:
        lines.append(f"{store.to.name}_values[i] = t{store.step};")
    return lines
