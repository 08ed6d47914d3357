"""Private names of torch around choices: running them again and again on tensors of our own, and
having choices of ours treated as its own are, where their output may be and what its log of matrix
products says of them.

Read in torch 2.13.0 (`torch/_inductor/select_algorithm.py`, `ir.py`, `autotune_process.py`,
`codegen/subgraph.py`). Importing this module imports torch._inductor.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config as _config
from torch._inductor import ir
from torch._inductor import select_algorithm as _select
from torch._inductor.virtualized import V

from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller, StockSelector, Timings, deferred, is_extern
from backend.model.options import (
    CONVOLUTION,
    CONVOLUTION_RESULTS,
    CONVOLUTION_TENSORS,
    CONVOLUTIONS,
    FROZEN,
    TMA,
    TOLD,
    Options,
    convolution_of_values,
    of_values,
    options,
)
from backend.templates.triton.module_file import interpreter_on

Run = Callable[[], object]
"""Starts a choice once."""

_Subgraph: Any = getattr(_select, "SubgraphChoiceCaller", ())


def description(choice: ChoiceCaller) -> str:
    """`KEY=VALUE, ...` of a choice; empty where it does not say. PyTorch leaves it empty for an
    instance of Composable Kernel, whose parameters are an object's."""
    text = str(getattr(choice, "description", ""))
    kwargs = getattr(choice, "info_kwargs", None)
    given: dict[str, Any] = kwargs if isinstance(kwargs, dict) else {}
    operation: Any = given.get("op")
    if text or not hasattr(operation, "dict_items"):
        return text
    values = [(name, value) for name, value in operation.dict_items() if value is not None]
    values += [(name, value) for name, value in given.items() if isinstance(value, int)]
    return ", ".join(f"{name.upper()}={_parameter(value)}" for name, value in values)


def options_of(op: str, choices: Sequence[ChoiceCaller], inputs: Sequence[Node]) -> Options:
    """What the op that is being lowered was given beside its inputs: as ATen's choice is called,
    else as the graph calls it; and which of its inputs are constants. Nothing for an op whose key
    tells all, or where neither tells."""
    names = TOLD.get(op, ())
    called = next((choice.kwargs for choice in choices if is_extern(choice)), None)
    if op in CONVOLUTIONS:
        return convolution_of_values(_in_graph(op) if called is None else called, op) or ()
    given = dict(of_values(op, {**_in_call(), **(called or {})}))
    constants = getattr(V.graph, "constants", {})
    frozen = tuple(at for at, node in enumerate(inputs) if node.get_name() in constants)
    if FROZEN in names and frozen:
        given[FROZEN] = frozen
    on_gpu = any(str(node.get_device()).startswith("cuda") for node in inputs[:1])
    if TMA in names and on_gpu and getattr(_config.triton, "enable_persistent_tma_matmul", False):
        given[TMA] = (1,)
    return options(given)


def numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Of sizes that are known; none where one is not."""
    try:
        return tuple(int(size) for size in sizes)
    except (TypeError, ValueError):
        return ()


@dataclass(frozen=True, slots=True)
class ExternOptions:
    """What ATen's choice says of its op beside the inputs: a convolution's options, and by its name
    what is done with the result at last."""

    given: Options = ()
    pointwise: str = "none"


def extern_options(op: str, choices: Sequence[ChoiceCaller]) -> ExternOptions:
    """Where ATen has no choice, what the op is without: `pointwise` then is empty, if not known."""
    kwargs = next((choice.kwargs for choice in choices if is_extern(choice)), None)
    if op.startswith("convolution"):
        return ExternOptions(convolution_of_values(kwargs or {}) or ())
    if not op.startswith("linear_"):
        return ExternOptions()
    if kwargs is None:
        return ExternOptions(pointwise="")
    name, algorithm = str(kwargs.get("attr", "none")), kwargs.get("algorithm")
    if scalars := kwargs.get("scalars"):
        name = f"{name}({', '.join(map(str, scalars))})"
    return ExternOptions(pointwise=f"gelu_{algorithm}" if algorithm == "tanh" else name)


def narrow_sums(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether libraries may add up partial sums in `dtype` itself."""
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype)
    if device.type == "cpu" or name is None:
        return False
    setting = f"allow_{name}_reduced_precision_reduction"
    found = getattr(torch.backends.cuda.matmul, setting, False)
    return any(found) if isinstance(found, tuple) else bool(found)


def onednn_takes(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes convolutions of half precision `dtype` on this CPU: bfloat16 needs
    AVX-512, float16 what few CPUs have. Elsewhere PyTorch's own kernels do."""
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    supported = getattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported", None)
    return torch.backends.mkldnn.enabled and supported is not None and bool(supported())


def _in_graph(op: str) -> Mapping[str, Any]:
    node: Any = getattr(V.graph, "current_node", None)
    target, aten = getattr(node, "target", None), torch.ops.aten
    if op == "convolution" and target is aten.convolution.default:
        return dict(zip(CONVOLUTION, node.args[CONVOLUTION_TENSORS:], strict=False))
    if op in CONVOLUTION_RESULTS and target is aten.convolution_backward.default:
        _, image, weight, _, *given = node.args
        result = weight if op == "convolution_bwd_weight" else image
        sizes = list(result.meta["val"].shape)
        return dict(
            zip(
                (*CONVOLUTION, CONVOLUTION_RESULTS[op]),
                (*given[: len(CONVOLUTION)], sizes),
                strict=True,
            )
        )
    return {}


def _in_call() -> Mapping[str, Any]:
    """The arguments of the op that is being lowered, by torch's names; a pattern has none."""
    node: Any = getattr(V.graph, "current_node", None)
    schema: Any = getattr(getattr(node, "target", None), "_schema", None)
    if schema is None:
        return {}
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _parameter(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(str, value))})"
    return str(value).rpartition(":")[2]


def within(graph: Any) -> AbstractContextManager[Any]:
    """A context in which `graph` is the one that is being compiled."""
    manager: AbstractContextManager[Any] = V.set_graph_handler(graph)
    return manager


def prepare(choice: ChoiceCaller) -> None:
    """Compile a choice, while Inductor is still asking, unless Triton interprets its kernels.
    Raises whatever that raises."""
    if isinstance(choice, _Subgraph):
        if not hasattr(choice, "_ensure_compiled"):
            raise RuntimeError("this torch compiles it anew for each benchmark")
        choice._ensure_compiled()
    elif not interpreter_on():
        getattr(choice, "precompile", lambda: None)()


def benchmark_tensors(
    choices: Sequence[ChoiceCaller],
    nodes: Sequence[Node],
    layout: Any,
    generators: Mapping[int, Callable[[Any], Tensor]],
) -> Any:
    """What Inductor benchmarks the choices on: `AutotuneArgs`."""
    return StockSelector.get_inputs(list(choices), list(nodes), layout, dict(generators))


def example(node: Node) -> Tensor:
    """What Inductor benchmarks on where nothing else is said: random numbers."""
    made: Tensor = StockSelector.benchmark_example_value(node)
    return made


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


Describe = Callable[[ChoiceCaller], dict[str, Any] | None]
"""What the log says of a choice; None where that is left to torch."""


def let_output_be_planned(result: Any, ours: Callable[[ChoiceCaller], bool]) -> None:
    """Let the output of a selection that was put off lie within another buffer, as in that of a
    concatenation, where that would be so without our choices. They write wherever they are told."""
    buffer = deferred(result)
    if getattr(buffer, "_output_plannable", None) is False:
        choices = getattr(buffer, "choices", ())
        buffer._output_plannable = all(ours(choice) or _plannable(choice) for choice in choices)


def _plannable(choice: ChoiceCaller) -> bool:
    """As torch decides it of its own."""
    if isinstance(choice, _select.ExternKernelCaller):
        return bool(choice.has_out_variant)
    return isinstance(choice, ir.TritonTemplateCallerBase)


_log_of_thread = threading.local()


@contextlib.contextmanager
def logging(timings: Timings, describe: Describe) -> Iterator[None]:
    """In the block torch writes these times into its logs; what it has no words for is described.

    Each list of a log has an entry for each choice, None where torch has nothing to say.
    """
    _wrap_log()
    _log_of_thread.choices = [(choice, ms, describe) for choice, ms in timings.items()]
    try:
        yield
    finally:
        _log_of_thread.choices = []


@functools.cache
def _wrap_log() -> None:
    stock = getattr(_select, "append_to_log", None)
    if stock is None:
        return

    @functools.wraps(stock)
    def append_to_log(filename: Any, data: Any) -> Any:
        return stock(filename, _filled(data))

    _select.append_to_log = append_to_log


def _filled(data: Any) -> Any:
    choices = getattr(_log_of_thread, "choices", [])
    if not choices or not isinstance(data, dict):
        return data
    return {name: _entries(value, choices) for name, value in data.items()}


def _entries(value: Any, choices: list[tuple[ChoiceCaller, float, Describe]]) -> Any:
    if not isinstance(value, list) or len(value) != len(choices):
        return value
    pairs = zip(value, choices, strict=True)
    return [_described(*choice) if entry is None else entry for entry, choice in pairs]


def _described(choice: ChoiceCaller, ms: float, describe: Describe) -> dict[str, Any] | None:
    said = describe(choice)
    return None if said is None else {**said, "time": ms}
