"""Computations fused into a product's kernel: of a factor while loading (a prologue: a cast, a
dequantization, a scale), and of the elements before storing (an epilogue: an expression of each and
of other tensors at the same position, and where the results go).

A factor is lines (rows of `a`, columns of `b`) by K. Each of its elements is computed from one
element of each source, at a position that `batch`, `line` and `k` determine.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.errors import UnsupportedProblemError
from backend.templates.expressions import CPP_VALUE, STORED, ChainBuilder, ChainStep, Value, in_cpp
from backend.templates.operand import (
    CPP_TYPE,
    VECTOR_BYTES,
    DType,
    Expr,
    Operand,
    SizeArg,
    is_number,
    vector_width,
)


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor that is read or written at the element's position.

    `strides` are in elements, by batch, row and column of the product; a broadcast dimension has
    stride 0. `vector` neighbours may be accessed at once, along a dimension of stride 1.
    """

    name: str
    dtype: DType
    strides: tuple[Expr, Expr, Expr]
    vector: int = 1

    def stride(self, dim: int) -> str:
        """Return a number if it is 0 or 1 in every call, else the name of its argument."""
        constants = [number for number in (0, 1) if is_number(self.strides[dim], number)]
        return str(constants[0]) if constants else f"{self.name}_{('batch', 'row', 'col')[dim]}"


@dataclass(frozen=True, slots=True)
class Store:
    """The target of a step's value."""

    to: Access
    step: int


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An epilogue, whose `steps` have the product as `value`. Raises UnsupportedProblemError.

    Stored tensors share no memory with loaded ones, nor with the factors: elements are computed in
    no particular order.
    """

    steps: tuple[ChainStep, ...]
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
                raise UnsupportedProblemError(
                    f"the epilogue loads {step.text}, which is not an operand"
                )

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.loads, *(store.to for store in self.stores))


def plain(to: Access, dtype: DType) -> Epilogue:
    """Return an epilogue that stores the product as it is; `dtype` is the computation's type."""
    chain = ChainBuilder()
    value = chain.value(dtype)
    return Epilogue(chain.steps, (Store(to, value.step),))


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """An access as the kernel sees it, which computes rows and columns of a row-major result.
    Strides are C++: a number, or the name of the argument. `vector` is C++ too."""

    name: str
    cpp_type: str
    batch: str
    row: str
    col: str
    vector: str
    value_type: str = ""
    """The type in which a stored value is computed."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The strides that are arguments of the call."""
        return tuple(text for text in (self.batch, self.row, self.col) if not text.isdigit())

    @property
    def step(self) -> str:
        """C++ of the stride from column to column."""
        return _member(self.col)

    def at(self, *index: str) -> str:
        """Return C++ of the offset of the element at batch, row and column."""
        steps = map(_member, (self.batch, self.row, self.col))
        terms = [
            at if step == "1" else f"{at} * {step}"
            for at, step in zip(index, steps, strict=True)
            if "0" not in (at, step)
        ]
        return " + ".join(terms) or "0"


def _member(stride: str) -> str:
    return stride if stride.isdigit() else f"args.{stride}"


def place_of_access(access: Access, flipped: bool) -> ElementPlace:
    """Return the place of an access; `flipped` if the kernel's rows are the product's columns."""
    batch, row, col = (access.stride(dim) for dim in range(3))
    if flipped:
        row, col = col, row
    vector = str(access.vector) if col == "1" else "1"
    return ElementPlace(access.name, CPP_TYPE[access.dtype], batch, row, col, vector)


def statements(activation: str, epilogue: Epilogue, dtype: DType) -> list[str]:
    """Return C++ for one element: `value` is the product, `NAME_values[i]` is loaded or to be
    stored.

    `dtype` is the type in which the product is computed; `activation` precedes the epilogue.
    """
    chain = ChainBuilder()
    value = chain.value(dtype)
    if activation != "none":
        value = chain.apply(activation, value)

    def text(step: ChainStep) -> str:
        if step.function == "value":
            return f"v{value.step}"
        return f"rt::convert<{CPP_VALUE[step.dtype]}>({step.text}_values[i])"

    lines = in_cpp(chain.steps, lambda step: "value", "v") + in_cpp(epilogue.steps, text)
    for store in epilogue.stores:
        lines.append(f"{store.to.name}_values[i] = t{store.step};")
    return lines


_BATCH, _LINE, _K = range(3)


@dataclass(frozen=True, slots=True)
class FactorSource:
    """A tensor from which a factor is computed, as (batch, lines, K / `group`).

    Dimensions that it does not depend on have stride 0. `group` neighbours along K share an
    element, like the scale of a group or two nibbles in a byte. After `periods` lines, and elements
    along K, it starts again, like bytes whose nibbles are halves of the factor; 0 is never.
    """

    operand: Operand
    group: int = 1
    periods: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if len(self.operand.strides) != 3 or self.group < 1:
            raise UnsupportedProblemError(f"{self.name}: no source of a factor")
        if any(period < 0 for period in self.periods) or self.periods[1] % self.group:
            raise UnsupportedProblemError(f"{self.name}: periods of {self.periods}")
        if self.operand.dtype not in STORED:
            raise UnsupportedProblemError(
                f"{self.name}: nothing is computed of {self.operand.dtype}"
            )

    @property
    def name(self) -> str:
        return self.operand.name

    def depends(self, dim: int) -> bool:
        return not is_number(self.operand.strides[dim], 0)

    def size_args(self) -> tuple[SizeArg, ...]:
        """The strides of the dimensions that it depends on."""
        return tuple(
            SizeArg(f"{self.name}_{what}", self.operand.strides[dim])
            for dim, what in enumerate(("batch", "line", "k"))
            if self.depends(dim)
        )

    def stride(self, what: str, scope: str = "args.") -> str:
        """Return C++ of the stride by batch, line or k."""
        number = {"batch": _BATCH, "line": _LINE, "k": _K}[what]
        return f"{scope}{self.name}_{what}" if self.depends(number) else "0"

    def across(self, k_fast: bool) -> str:
        """Return C++ of the stride between runs along the fast dimension, in the entry."""
        return self.stride("line" if k_fast else "k", "")

    def start(self, k_fast: bool) -> str:
        """Return C++ of the start of the run that contains (batch, at_line, at_k)."""
        terms = [f"args.{self.name}"]
        if self.depends(_BATCH):
            terms.append(f"batch * {self.stride('batch')}")
        if k_fast and self.depends(_LINE):
            terms.append(f"{self.at('line')} * {self.stride('line')}")
        if not k_fast and self.depends(_K):
            place = self.at("k") if self.group == 1 else f"{self.at('k')} / {self.group}"
            terms.append(f"{place} * {self.stride('k')}")
        return " + ".join(terms)

    def at(self, what: str) -> str:
        """Return C++ of the line or the position along K, within its period."""
        period = self.periods[what == "k"]
        return f"(at_{what} % {period})" if period else f"at_{what}"

    def step(self, k_fast: bool) -> str:
        """Return C++ of the stride along the fast dimension."""
        return "1" if self.dense(k_fast) else self.stride("k" if k_fast else "line")

    def run_group(self, k_fast: bool) -> int:
        """Return how many neighbours along the fast dimension share an element; 0 means all."""
        if not self.depends(_K if k_fast else _LINE):
            return 0
        return self.group if k_fast else 1

    def dense(self, k_fast: bool) -> bool:
        """Return whether elements are contiguous along the fast dimension."""
        return is_number(self.operand.strides[_K if k_fast else _LINE], 1)

    def others(self, k_fast: bool) -> tuple[Expr, ...]:
        """Return the strides across the fast dimension."""
        strides = self.operand.strides
        return strides[_BATCH], strides[_LINE if k_fast else _K]

    def elements(self, k_fast: bool, width: int) -> int:
        """Return the elements that `width` neighbours of the factor need, loaded at once."""
        group = self.run_group(k_fast)
        if group == 0 or group % width == 0 or width % group or not self.dense(k_fast):
            return 1
        return min(width // group, self.operand.widest)

    def allows(self, k_fast: bool, width: int) -> bool:
        """Return whether alignment permits loading `width` neighbours at once, within a period."""
        if self.periods[k_fast] % width:
            return False
        most = vector_width(self.operand, self.others(k_fast))
        return self.elements(k_fast, width) <= most


@dataclass(frozen=True, slots=True)
class Prologue:
    """How an element of a factor is computed: the value of step `result`.

    A `load` is of the source that its text names, a `value` is a position (see `place_value`).
    Raises UnsupportedProblemError.
    """

    sources: tuple[FactorSource, ...]
    steps: tuple[ChainStep, ...]
    result: int

    def __post_init__(self) -> None:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names) or not all(map(str.isidentifier, names)):
            raise UnsupportedProblemError(f"sources of one factor named {', '.join(names)}")
        if not self.sources or not (self.main.dense(True) or self.main.dense(False)):
            raise UnsupportedProblemError("a factor whose lines and K are both scattered in memory")
        for step in self.steps:
            if step.function == "load" and step.text not in names:
                raise UnsupportedProblemError(f"{step.text} is not a source of the factor")

    @property
    def main(self) -> FactorSource:
        """The source with the most elements, the first of several."""
        return max(self.sources, key=lambda s: (s.depends(_LINE) + s.depends(_K), -s.group))

    @property
    def k_fast(self) -> bool:
        """Whether vectors are loaded along K."""
        return self.main.dense(True)

    def vector(self, item_bytes: int) -> int:
        """Return the elements of the factor that may be loaded at once, with `item_bytes` each."""
        width = VECTOR_BYTES // item_bytes
        while not all(source.allows(self.k_fast, width) for source in self.sources):
            width //= 2
        return width

    def size_args(self) -> tuple[SizeArg, ...]:
        return tuple(arg for source in self.sources for arg in source.size_args())

    def statements(self) -> list[str]:
        """Return C++ of the steps, where step 3 is `t3` and `NAME` is a source's element."""

        def text(step: ChainStep) -> str:
            if step.function == "value":
                return f"static_cast<{CPP_VALUE[step.dtype]}>(at_{step.text.replace('//', '/')})"
            return f"rt::convert<{CPP_VALUE[step.dtype]}>(raw.{step.text}[i])"

        return in_cpp(self.steps, text)


def place_value(chain: ChainBuilder, what: str, divisor: int = 1, modulus: int = 0) -> Value:
    """Return `what // divisor % modulus`, of a `line` or position along `k`; modulus 0 is none."""
    text = what if divisor == 1 else f"{what} // {divisor}"
    return chain.add(ChainStep("value", "int32", text=f"{text} % {modulus}" if modulus else text))
