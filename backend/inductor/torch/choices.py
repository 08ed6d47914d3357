"""Private names of torch for running choices again and again on tensors of our own.

Read in torch 2.13.0 (`torch/_inductor/select_algorithm.py`, `autotune_process.py`,
`codegen/subgraph.py`). Importing this module imports torch._inductor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch._inductor import select_algorithm as _select
from torch._inductor.virtualized import V

from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller, StockSelector, is_extern
from backend.model.convolution import NAMES, TENSORS, Options, of_values

Run = Callable[[], object]
"""Starts a choice once."""

_Subgraph: Any = getattr(_select, "SubgraphChoiceCaller", ())


def description(choice: ChoiceCaller) -> str:
    """`KEY=VALUE, ...` of a choice; empty where it does not say. PyTorch leaves it empty for an
    instance of Composable Kernel, whose parameters are an object's."""
    told = str(getattr(choice, "description", ""))
    kwargs = getattr(choice, "info_kwargs", None)
    given: dict[str, Any] = kwargs if isinstance(kwargs, dict) else {}
    operation: Any = given.get("op")
    if told or not hasattr(operation, "dict_items"):
        return told
    values = [(name, value) for name, value in operation.dict_items() if value is not None]
    values += [(name, value) for name, value in given.items() if isinstance(value, int)]
    return ", ".join(f"{name.upper()}={_parameter(value)}" for name, value in values)


def convolution_options(op: str, choices: Sequence[ChoiceCaller]) -> Options:
    """What the convolution that is being lowered was given beside its inputs: as ATen's choice is
    called, else as the graph calls it. Nothing for another op, or where neither tells."""
    if op != "convolution":
        return ()
    called = next((choice.kwargs for choice in choices if is_extern(choice)), None)
    return of_values(_in_graph() if called is None else called) or ()


def _in_graph() -> Mapping[str, Any]:
    node: Any = getattr(V.graph, "current_node", None)
    if getattr(node, "target", None) is not torch.ops.aten.convolution.default:
        return {}
    return dict(zip(NAMES, node.args[TENSORS:], strict=False))


def _parameter(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(str, value))})"
    return str(value).rpartition(":")[2]


def within(graph: Any) -> AbstractContextManager[Any]:
    """A context in which `graph` is the one that is being compiled."""
    manager: AbstractContextManager[Any] = V.set_graph_handler(graph)
    return manager


def prepare(choice: ChoiceCaller) -> None:
    """Compile a choice, while Inductor is still asking. Raises whatever that raises."""
    if isinstance(choice, _Subgraph):
        if not hasattr(choice, "_ensure_compiled"):
            raise RuntimeError("this torch compiles it anew for each benchmark")
        choice._ensure_compiled()
    else:
        getattr(choice, "precompile", lambda: None)()


def benchmark_tensors(
    choices: Sequence[ChoiceCaller],
    nodes: Sequence[Node],
    layout: Any,
    generators: Mapping[int, Callable[[Any], Tensor]],
) -> Any:
    """What Inductor benchmarks the choices on: `AutotuneArgs`."""
    return StockSelector.get_inputs(list(choices), list(nodes), layout, dict(generators))


def op_inputs(made: Any) -> tuple[Tensor, ...]:
    """Those of the op, as ATen gets them."""
    return tuple(made.get_benchmark_tensors(True).unpack()[0])


def tensors_for(choice: ChoiceCaller, made: Any) -> tuple[Tensor, ...]:
    """Of torch's two sets, that for a choice of its own, the output last: templates add an offset
    themselves to the start of the memory, ATen gets the view."""
    kinds = (_select.ExternKernelCaller, *([_Subgraph] if _Subgraph else []))
    inputs, out = made.get_benchmark_tensors(isinstance(choice, kinds)).unpack()
    if isinstance(choice, _select.DataProcessorChoiceCallerWrapper):
        inputs, out = choice._preprocessor(inputs, out)
    return (*inputs, out)


def run_function(choice: ChoiceCaller, inputs: Sequence[Tensor], out: Tensor) -> Run:
    """A function that starts the choice on its tensors. Raises whatever its making raises.

    That of a C++ choice knows addresses only: who calls it must keep the tensors. There may be
    several for one choice.
    """
    if isinstance(choice, _Subgraph):
        call, sizes = choice._compiled_module.call, choice.sym_input_values
        return lambda: call([*sizes, *inputs])
    if isinstance(choice, _select.ExternKernelCaller):
        function = choice.to_callable()
        if choice.has_out_variant:
            return lambda: function(*inputs, out=out)
        return lambda: function(*inputs)
    run: Run = choice.bmreq.make_run_fn(*inputs, out=out)
    workspace = getattr(choice.bmreq, "workspace", None)
    return run if workspace is None else _keeping(run, workspace)


def _keeping(run: Run, workspace: object) -> Run:
    """CUTLASS's function knows the address only, and its request forgets it with the next one."""
    kept: Any = functools.partial(run)
    kept.workspace = workspace
    function: Run = kept
    return function


def returned(choice: ChoiceCaller, value: object) -> Tensor | None:
    """What the choice computed, if it returns that; else it writes to its output."""
    if isinstance(choice, _select.ExternKernelCaller):
        return None if choice.has_out_variant else _tensor(value)
    return _tensor(value) if isinstance(choice, _Subgraph) else None


def _tensor(value: Any) -> Tensor:
    """Raises TypeError, also where there are several."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        (value,) = value
    if not isinstance(value, Tensor):
        raise TypeError(f"it returned {type(value).__name__}, and not one tensor")
    return value


def request_of(choice: ChoiceCaller) -> Any:
    """What runs a template's kernel; None where the choice has none."""
    return None if isinstance(choice, _Subgraph) else getattr(choice, "bmreq", None)


def gpu_spin(cycles: int) -> None:
    """Keep the GPU busy with nothing, so that the host can queue work behind it."""
    torch.cuda._sleep(cycles)
