"""Epilogues made by hand, and what torch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.templates.expressions import NARROW, ChainBuilder, ChainStep, Value
from backend.templates.fusion import Access, Epilogue, Store
from backend.templates.operand import Operand
from backend.templates.problem import broadcast_strides


@dataclass(frozen=True)
class Term:
    """A value with Python's operators; numbers are fp32, beside fp64 of its type."""

    chain: ChainBuilder
    value: Value

    def apply(self, function: str, *others: Term | float) -> Term:
        return Term(self.chain, self.chain.apply(function, self.value, *map(self._value, others)))

    def to(self, dtype: str, rounded: bool = False) -> Term:
        return Term(self.chain, self.chain.cast(self.value, dtype, rounded))

    def _value(self, other: Term | float) -> Value:
        if isinstance(other, Term):
            return other.value
        wide = self.value.dtype == "float64"
        return self.chain.constant(other, "float64" if wide else "float32")

    def __add__(self, other: Term | float) -> Term:
        return self.apply("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply("sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply("truediv", other)

    def __neg__(self) -> Term:
        return self.apply("neg")


Function = Callable[..., Any]
"""From the product and the loaded tensors, as `Term`s, to one or more `Term`s."""


def access(operand: Operand, vector: int = 1) -> Access:
    batch, row, col = broadcast_strides(operand, 3)
    return Access(operand.name, operand.dtype, (batch, row, col), vector)


def epilogue(
    function: Function,
    outputs: tuple[Access, ...],
    loads: tuple[Access, ...] = (),
    sums: str = "float32",
) -> Epilogue:
    """`function` of the product, which is in `sums`, and of `loads`, into `outputs`."""
    chain = ChainBuilder()
    product = Term(chain, chain.value(sums))
    made = function(product, *(Term(chain, chain.load(load.name, load.dtype)) for load in loads))
    results = made if isinstance(made, tuple) else (made,)
    pairs = zip(outputs, results, strict=True)
    stores = [Store(to, result.to(to.dtype).value.step) for to, result in pairs]
    return Epilogue(chain.steps, tuple(stores), loads)


def _functions() -> dict[str, Any]:
    import torch

    functional = torch.nn.functional
    renamed = {
        "truediv": torch.true_divide,
        "relu": torch.relu,
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "fma": lambda x, y, z: x * y + z,
    }
    return vars(torch) | renamed


def evaluate(
    steps: tuple[ChainStep, ...], product: Any, loaded: Mapping[str, Any], wide: bool = True
) -> list[Any]:
    """Every step by torch's own functions; `wide` takes fp64 for fp32."""
    import torch

    functions, values = _functions(), list[Any]()

    def dtype_of(name: str) -> torch.dtype:
        return torch.float64 if wide and name == "float32" else getattr(torch, name)

    for step in steps:
        args = [values[number] for number in step.args]
        dtype = dtype_of(step.dtype)
        match step.function:
            case "value":
                made = product.to(dtype)
            case "load":
                made = loaded[step.text].to(dtype)
            case "constant":
                number = {"True": 1.0, "False": 0.0}.get(step.text)
                number = float(step.text) if number is None else number
                made = torch.tensor(number, dtype=torch.float64).to(dtype)
            case "cast":
                made = args[0].to(dtype)
            case "narrow":
                assert step.text in NARROW
                made = args[0].to(getattr(torch, step.text)).to(dtype)
            case "where":
                made = torch.where(*args)
            case name:
                made = functions[name](*args).to(dtype)
        values.append(made)
    return values
