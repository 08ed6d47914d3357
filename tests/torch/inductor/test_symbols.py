"""Sizes that are symbols are read without fixing them: the program would compile for each size."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._inductor.virtualized import V

from backend.inductor.torch import captured, choices
from backend.inductor.torch.compiling import FakeTensors
from backend.model.options import CONVOLUTION, convolution_numbers

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def test_the_rows_of_a_grouped_product_are_not_fixed() -> None:
    fakes = FakeTensors({"s0": 48})
    rows = fakes.symbols["s0"]
    graph = torch.fx.Graph()
    a, b, ends = map(graph.placeholder, ("a", "b", "ends"))
    a.meta["val"] = fakes.tensor((rows, 32), (32, 1), torch.bfloat16, CPU, 0)
    b.meta["val"] = fakes.tensor((2, 32, 16), (512, 16, 1), torch.bfloat16, CPU, 0)
    ends.meta["val"] = fakes.tensor((2,), (1,), torch.int32, CPU, 0)
    graph.call_function(torch.ops.aten._grouped_mm.default, (a, b, ends))
    environment = fakes.mode.shape_env
    assert environment is not None
    before = len(environment.guards)
    assert dict(captured.ends(list(graph.nodes))) == {"ends": 48}
    assert len(environment.guards) == before and not environment.replacements


def test_the_sizes_of_a_convolution_s_gradient_are_not_fixed() -> None:
    fakes = FakeTensors({"s0": 5})
    batch = fakes.symbols["s0"]
    graph = torch.fx.Graph()
    output, image, weight = map(graph.placeholder, ("output", "image", "weight"))
    image.meta["val"] = fakes.tensor((batch, 3, 8, 8), (192, 64, 8, 1), torch.float32, CPU, 0)
    given = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    arguments = (output, image, weight, None, *given, [True, True, False])
    node = graph.call_function(torch.ops.aten.convolution_backward.default, arguments)
    environment = fakes.mode.shape_env
    assert environment is not None
    before = len(environment.guards)
    with V.set_graph_handler(SimpleNamespace(current_node=node)):  # type: ignore[arg-type]
        options = choices.options_of_lowering("convolution_bwd_input", [], [])
    assert convolution_numbers(options)["x_shape"] == (5, 3, 8, 8)
    assert {name for name, _ in options} == {*CONVOLUTION, "x_shape"}
    assert len(environment.guards) == before and not environment.replacements
