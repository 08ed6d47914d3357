"""The recorded text of a call of flex attention, and why there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.virtualized import V

from backend.inductor.torch.compiling import call_text
from backend.wire.captured import FlexCall, flex_call_of

pytestmark = pytest.mark.torch


class Lowered:
    """A graph of one call of flex attention, as far as Inductor has lowered it."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.module = torch.nn.Module()
        self.qkv = [self.tensor(name, torch.empty(1, 2, 64, 16)) for name in "qkv"]

    def tensor(self, name: str, value: object) -> torch.fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        return node

    def function(self, name: str, body: Any) -> torch.fx.Node:
        setattr(self.module, name, torch.fx.symbolic_trace(body))
        return self.graph.get_attr(name)

    def text(self, *args: Any, **kwargs: Any) -> FlexCall:
        """What is recorded of the call with these arguments."""
        op = torch.ops.higher_order.flex_attention
        node = self.graph.call_function(op, args, kwargs)
        lowering = SimpleNamespace(current_node=node, module=self.module, env={})
        with V.set_graph_handler(lowering):
            return flex_call_of(call_text())


def score(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.ops.aten.add.Tensor(score, 1)


@pytest.fixture
def lowered() -> Lowered:
    return Lowered()


def test_a_call_names_its_tensors_and_functions(lowered: Lowered) -> None:
    call = lowered.text(*lowered.qkv, lowered.function("score0", score), 0.125, {"a": 1}, (None,))
    assert call.call == "flex_attention(t0, t1, t2, score_mod, 0.125, {'a': 1}, (None,))"
    assert [spec.sizes for spec in call.tensors] == [(1, 2, 64, 16)] * 3
    assert "aten.add.Tensor" in call.functions["score_mod"] and not call.reason


def test_a_tensor_that_is_given_twice_is_one(lowered: Lowered) -> None:
    query = lowered.qkv[0]
    call = lowered.text(query, lowered.qkv[1], query)
    assert call.call == "flex_attention(t0, t1, t0)" and len(call.tensors) == 2


def test_arguments_with_names_are_not_recorded(lowered: Lowered) -> None:
    call = lowered.text(*lowered.qkv, scale=0.125)
    assert call == FlexCall(reason="its arguments have names")


@pytest.mark.parametrize("value", [None, 7, "text"])
def test_an_argument_that_is_no_tensor_is_named(lowered: Lowered, value: object) -> None:
    call = lowered.text(*lowered.qkv, lowered.tensor("odd", value))
    assert call == FlexCall(reason=f"its argument odd is a {type(value).__name__}")


@pytest.mark.parametrize(
    ("value", "kind"), [(float("inf"), "float"), (1j, "complex"), (torch.float32, "dtype")]
)
def test_an_argument_without_a_literal_is_not_recorded(
    lowered: Lowered, value: Any, kind: str
) -> None:
    call = lowered.text(*lowered.qkv, value)
    assert call == FlexCall(reason=f"one of its arguments is a {kind}")


def test_more_functions_than_the_op_takes_are_not_recorded(lowered: Lowered) -> None:
    functions = [lowered.function(f"score{n}", score) for n in range(3)]
    call = lowered.text(*lowered.qkv, *functions)
    assert call == FlexCall(reason="it has more functions than are known")


def test_another_op_has_no_text() -> None:
    node = torch.fx.Graph().call_function(torch.ops.aten.mm.default, ())
    with V.set_graph_handler(SimpleNamespace(current_node=node)):
        assert call_text() == ""
