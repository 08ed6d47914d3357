"""Block masks for a captured graph with flex attention, as its masks make them.

They are inputs of the graph like others. Drawn as other whole numbers are, they would say that no
block is to be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backend.inductor.torch.captured import flex_op, functions_of
from backend.inductor.torch.compiling import StandIns
from backend.model.problem import TensorSpec
from backend.wire.flex import FUNCTIONS
from backend.worker.flex.call import Call, Name, Place
from backend.worker.flex.numbers import Numbers
from backend.worker.trial.constants import constant_tensor
from backend.worker.trial.program import Program


def draw_masks(program: Program, inputs: Sequence[Any]) -> None:
    """Give the `inputs` that are block masks, or whole numbers that a function reads, the numbers
    that a recorded call of its own would have. Raises what torch raises."""
    module = program.module({each.name: constant_tensor(each, {}) for each in program.constants})
    stand_ins = StandIns({})
    stands = [
        stand_ins.tensor(each.shape, each.stride(), each.dtype, each.device, 0)
        if isinstance(each, Tensor)
        else each
        for each in inputs
    ]
    stand_ins.spread(module, stands)
    nodes = list(module.graph.nodes)
    given = dict(zip((node for node in nodes if node.op == "placeholder"), inputs, strict=True))
    for node in nodes:
        if not flex_op(node.target):
            continue
        call, sources = _call(program, node)
        numbers = Numbers(call.op, call)
        for at, source in enumerate(sources):
            value = given.get(source)
            made = numbers.given(-1, f"t{at}") if isinstance(value, Tensor) else None
            if isinstance(value, Tensor) and made is not None and not made.is_floating_point():
                value.copy_(made)


def _call(program: Program, node: Any) -> tuple[Call, list[Any]]:
    """The call as if it had been recorded alone, and the node of each of its tensors."""
    op = flex_op(node.target)
    own = dict(zip(functions_of(node), FUNCTIONS[op], strict=True))
    sources: dict[Any, TensorSpec] = {}

    def read(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if str(value.target) in own and value.op == "get_attr":
                return Name(own[str(value.target)])
            made = value.meta["val"]
            if not isinstance(made, Tensor):
                return made
            sources.setdefault(value, _spec(made))
            return Place(list(sources).index(value))
        if isinstance(value, (tuple, list)):
            return tuple(map(read, value))
        return dict(value) if isinstance(value, dict) else value

    arguments = tuple(map(read, node.args))
    functions = {kind: program.functions[name] for name, kind in own.items()}
    return Call(op, arguments, tuple(sources.values()), functions), list(sources)


def _spec(made: Tensor) -> TensorSpec:
    return TensorSpec(str(made.device), str(made.dtype), tuple(made.shape), made.stride(), 0)
