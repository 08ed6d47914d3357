"""The arms of a trial: the graph compiled with each one's choices in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.counted import counted
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.compiling import CompiledGraph, StandIns, compile_graph
from backend.inductor.torch.settings import usable_settings
from backend.model.graph import Arm, hashes_of
from backend.worker.device_hashes import why_not_offered
from backend.worker.trial.inputs import TensorInput
from backend.worker.trial.program import Program
from backend.worker.trial.selector import SwapSelector


class NotCompiled(Exception):
    """The graph cannot be compiled so; one line says why."""


def compile_arm(
    program: Program,
    constants: Mapping[str, Any],
    weights: Sequence[Any],
    arm: Arm,
    *,
    stock: bool,
) -> CompiledGraph:
    """`weights` are the drawn inputs, some of which may become constants.

    Raises NotCompiled, also where a choice of the arm is not what was compiled.
    """
    swaps = hashes_of(arm)
    selector = SwapSelector(swaps)
    torch_api.set_selector(None if stock else selector)
    try:
        compiled = _compiled(program, constants, weights, graph_cache=stock)
    except Exception as error:  # whatever the compiler raises is this arm's answer
        raise NotCompiled(f"it does not compile: {torch_api.describe(error)}") from error
    finally:
        torch_api.set_selector(None)
    for swap in () if stock else arm:
        offered = selector.offered.get(swap.key)
        if offered is None:
            raise NotCompiled(f"the graph does not ask for {swap.op} {swap.inputs}")
        if swap.hash not in offered:
            names = ", ".join(sorted(offered.values()))
            line = f"{swap.hash} is none of its {counted(len(offered), 'choice')} here ({names})"
            why = why_not_offered(swap.hash, offered)
            raise NotCompiled(f"{line}; {why}" if why else line)
    return compiled


def _compiled(
    program: Program, constants: Mapping[str, Any], weights: Sequence[Any], *, graph_cache: bool
) -> CompiledGraph:
    head = program.head
    stand_ins = StandIns(head.symbols)
    inputs = [_stand_in(stand_ins, program, given) for given in program.inputs]
    module = program.module(constants)
    settings = usable_settings(head.config)
    return compile_graph(
        module, inputs, stand_ins, head, settings, weights, graph_cache=graph_cache
    )


def _stand_in(stand_ins: StandIns, program: Program, given: Any) -> Any:
    symbols = stand_ins.symbols
    if not isinstance(given, TensorInput):
        return given.value(symbols)
    return stand_ins.tensor(
        [size(symbols) for size in given.sizes],
        [stride(symbols) for stride in given.strides],
        given.dtype,
        program.storages[given.storage].device,
        given.offset(symbols),
    )
