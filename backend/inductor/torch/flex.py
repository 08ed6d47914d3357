"""Private names of torch for a call of flex attention: as text while it is lowered, and as a graph.

Read in torch 2.8 to 2.15 (`torch/_higher_order_ops/flex_attention.py`, `_inductor/kernel/flex/`).
Importing this module imports torch._inductor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import compile_fx as _compile_fx
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V

from backend.inductor.torch.captured import NotCapturable, flex_op, function_text
from backend.inductor.torch.compiling import StandIns, traced
from backend.model.problem import TensorSpec
from backend.wire.flex import FUNCTIONS, MOST_TEXT, FlexCall, text_of


def call_text() -> str:
    """The call that is being lowered, for a record; empty where it is none."""
    node: Any = getattr(V.graph, "current_node", None)
    name = flex_op(getattr(node, "target", None))
    if not name:
        return ""
    try:
        text = text_of(_Writer(node, name).call())
    except NotCapturable as error:
        return text_of(FlexCall(reason=str(error)))
    if len(text) > MOST_TEXT:
        return text_of(FlexCall(reason="its functions are too long"))
    return text


class _Writer:
    def __init__(self, node: Any, name: str) -> None:
        self._node, self._name = node, name
        self._tensors: dict[Any, TensorSpec] = {}
        self._functions: dict[str, str] = {}

    def call(self) -> FlexCall:
        """Raises NotCapturable."""
        parts = ", ".join(map(self._part, self._node.args))
        if self._node.kwargs:
            raise NotCapturable("its arguments have names")
        return FlexCall(
            f"{self._name}({parts})", tuple(self._tensors.values()), dict(self._functions)
        )

    def _part(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self._named(value)
        if isinstance(value, dict):
            pairs = (f"{str(key)!r}: {self._part(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, (tuple, list)):
            parts = [self._part(each) for each in value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is float and math.isfinite(value):
            return repr(value)
        raise NotCapturable(f"one of its arguments is a {type(value).__name__}")

    def _named(self, node: Any) -> str:
        if node.op == "get_attr":
            module = getattr(V.graph.module, str(node.target), None)
            if isinstance(module, torch.fx.GraphModule):
                return self._function(module)
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise NotCapturable("it has sizes that may vary: compile with dynamic=False")
        if not isinstance(value, torch.Tensor):
            raise NotCapturable(f"its argument {node.name} is a {type(value).__name__}")
        self._tensors.setdefault(node, _spec(node, value))
        return f"t{list(self._tensors).index(node)}"

    def _function(self, module: Any) -> str:
        names = FUNCTIONS[self._name]
        if len(self._functions) == len(names):
            raise NotCapturable("it has more functions than are known")
        name = names[len(self._functions)]
        try:
            self._functions[name] = function_text(module)
        except NotCapturable as error:
            raise NotCapturable(f"{name}: {error}") from error
        return name


def _spec(node: Any, value: torch.Tensor) -> TensorSpec:
    """What Inductor has made of a tensor, else what its graph says of it."""
    sizes: Sequence[Any] = value.shape
    strides: Sequence[Any] = value.stride()
    offset: Any = value.storage_offset()
    lowered = V.graph.env.get(node)
    layout = getattr(lowered, "maybe_get_layout", lambda: None)()
    if layout is not None:
        sizes, strides, offset = layout.size, layout.stride, layout.offset
    numbers = [_number(each) for each in (*sizes, *strides, offset)]
    rank = len(sizes)
    return TensorSpec(
        str(value.device),
        str(value.dtype),
        tuple(numbers[:rank]),
        tuple(numbers[rank:-1]),
        numbers[-1],
    )


def _number(value: Any) -> int:
    try:
        fixed = not getattr(value, "free_symbols", ())
        return int(value) if fixed and not isinstance(value, torch.SymInt) else _open()
    except TypeError:
        return _open()


def _open() -> int:
    raise NotCapturable("it has sizes that may vary: compile with dynamic=False")


def compile_call(
    module: torch.fx.GraphModule, inputs: Sequence[Tensor], *, backward: bool
) -> Callable[[list[Tensor]], object]:
    """A graph of one call, as Inductor gets it, compiled with the settings in force: a function of
    a list of inputs, which it empties. Raises what Inductor raises."""
    stand_ins = StandIns({})
    stands = [
        stand_ins.tensor(given.shape, given.stride(), given.dtype, given.device, 0)
        for given in inputs
    ]
    with torch.no_grad(), traced(stand_ins.mode, (), (), frozenset()):
        stand_ins.spread(module, stands)
        compiled: Any = _compile_fx.compile_fx_inner(
            module,
            stands,
            static_input_idxs=[],
            cudagraphs=BoxedBool(False),
            is_backward=backward,
            is_inference=not backward,
        )
    return compiled  # type: ignore[no-any-return]
