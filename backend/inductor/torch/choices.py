"""Private names of torch around choices: running them repeatedly on tensors of our own, treating
our choices like its own, the location of their output, and their entries in its log of matrix
products.

Checked with torch 2.13.0 (`torch/_inductor/select_algorithm.py`, `ir.py`, `autotune_process.py`,
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
    OPTION_NAMES,
    TMA,
    Options,
    convolution_of_values,
    options,
    options_of_values,
)
from backend.templates.triton.module_file import interpreter_on

Run = Callable[[], object]
"""Starts a choice once."""

_Subgraph: Any = getattr(_select, "SubgraphChoiceCaller", ())


def description(choice: ChoiceCaller) -> str:
    """Return `KEY=VALUE, ...` of a choice; empty if it has none. PyTorch leaves it empty for an
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


def options_of_lowering(
    op: str, choices: Sequence[ChoiceCaller], inputs: Sequence[Node]
) -> Options:
    """Return the options of the op being lowered, beside its inputs: from ATen's choice, else from
    the graph's call; and which of its inputs are constants. Empty for an op whose key is complete,
    or if neither has them."""
    names = OPTION_NAMES.get(op, ())
    called = next((choice.kwargs for choice in choices if is_extern(choice)), None)
    if op in CONVOLUTIONS:
        return convolution_of_values(_in_graph(op) if called is None else called, op) or ()
    given = dict(options_of_values(op, {**_in_call(), **(called or {})}))
    constants = getattr(V.graph, "constants", {})
    frozen = tuple(at for at, node in enumerate(inputs) if node.get_name() in constants)
    if FROZEN in names and frozen:
        given[FROZEN] = frozen
    on_gpu = any(str(node.get_device()).startswith("cuda") for node in inputs[:1])
    if TMA in names and on_gpu and getattr(_config.triton, "enable_persistent_tma_matmul", False):
        given[TMA] = (1,)
    return options(given)


def static_sizes(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Return the sizes as numbers; empty if one is unknown."""
    try:
        return tuple(int(size) for size in sizes)
    except (TypeError, ValueError):
        return ()


@dataclass(frozen=True, slots=True)
class ExternOptions:
    """The options in ATen's choice beside the inputs: a convolution's options, the pointwise
    function applied last, and alpha and beta of a sum, None if unknown."""

    given: Options = ()
    pointwise: str = "none"
    scales: tuple[float, float] | None = (1.0, 1.0)


def extern_options(op: str, choices: Sequence[ChoiceCaller]) -> ExternOptions:
    """Return the options; without ATen's choice the plain op's, with an empty `pointwise`."""
    kwargs = next((choice.kwargs for choice in choices if is_extern(choice)), None)
    if op.startswith("convolution"):
        return ExternOptions(convolution_of_values(kwargs or {}) or ())
    if op in ("addmm", "baddbmm"):
        return ExternOptions(scales=scales_of(_in_sum(op) if kwargs is None else kwargs))
    if not op.startswith("linear_"):
        return ExternOptions()
    if kwargs is None:
        return ExternOptions(pointwise="")
    name, algorithm = str(kwargs.get("attr", "none")), kwargs.get("algorithm")
    if scalars := kwargs.get("scalars"):
        name = f"{name}({', '.join(map(str, scalars))})"
    return ExternOptions(pointwise=f"gelu_{algorithm}" if algorithm == "tanh" else name)


def _in_sum(op: str) -> Mapping[str, Any]:
    """Return the arguments of the sum being lowered; alpha is None if it is another op."""
    node: Any = getattr(V.graph, "current_node", None)
    is_it = getattr(node, "target", None) is getattr(torch.ops.aten, op).default
    return node.kwargs if is_it else {"alpha": None}


def scales_of(kwargs: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return alpha and beta; None if they are not numbers."""
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if isinstance(alpha, (int, float)) and isinstance(beta, (int, float)):
        return float(alpha), float(beta)
    return None


def narrow_sums(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether libraries may add partial sums in `dtype` itself."""
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype)
    if device.type == "cpu" or name is None:
        return False
    setting = f"allow_{name}_reduced_precision_reduction"
    flags = getattr(torch.backends.cuda.matmul, setting, False)
    return any(flags) if isinstance(flags, tuple) else bool(flags)


def onednn_takes(dtype: torch.dtype) -> bool:
    """Return whether oneDNN computes convolutions of half precision `dtype` on this CPU: bfloat16
    needs AVX-512, float16 is supported by few CPUs. Otherwise PyTorch's own kernels do."""
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
        # A symbol taken as a number would be fixed, and the program recompiled for each size.
        sizes = [
            size.node.hint if isinstance(size, torch.SymInt) else size
            for size in result.meta["val"].shape
        ]
        return dict(
            zip(
                (*CONVOLUTION, CONVOLUTION_RESULTS[op]),
                (*given[: len(CONVOLUTION)], sizes),
                strict=True,
            )
        )
    return {}


def _in_call() -> Mapping[str, Any]:
    """Return the arguments of the op being lowered, by torch's names; empty for a pattern."""
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
    """Return a context in which `graph` is being compiled."""
    manager: AbstractContextManager[Any] = V.set_graph_handler(graph)
    return manager


def prepare(choice: ChoiceCaller) -> None:
    """Compile a choice like Inductor, unless Triton interprets its kernels. Raises its errors."""
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
    """Return the tensors on which Inductor benchmarks the choices: `AutotuneArgs`."""
    return StockSelector.get_inputs(list(choices), list(nodes), layout, dict(generators))


def example(node: Node) -> Tensor:
    """Return Inductor's default benchmark tensor: random numbers."""
    tensor: Tensor = StockSelector.benchmark_example_value(node)
    return tensor


def op_inputs(arguments: Any) -> tuple[Tensor, ...]:
    """Return the op's inputs, as ATen gets them."""
    return tuple(arguments.get_benchmark_tensors(True).unpack()[0])


def tensors_for(choice: ChoiceCaller, arguments: Any) -> tuple[Tensor, ...]:
    """Return the set of tensors for a choice, the output last: templates add an offset to the start
    of the memory themselves, ATen gets the view."""
    kinds = (_select.ExternKernelCaller, *([_Subgraph] if _Subgraph else []))
    inputs, out = arguments.get_benchmark_tensors(isinstance(choice, kinds)).unpack()
    if isinstance(choice, _select.DataProcessorChoiceCallerWrapper):
        inputs, out = choice._preprocessor(inputs, out)
    return (*inputs, out)


def run_function(choice: ChoiceCaller, inputs: Sequence[Tensor], out: Tensor) -> Run:
    """Return a function that starts the choice on its tensors. Raises whatever its creation raises.

    A C++ choice's function only has addresses: the caller must keep the tensors. A choice may have
    several.
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
    """Keep a workspace alive, which CUTLASS's request drops while its function has the address."""
    kept: Any = functools.partial(run)
    kept.workspace = workspace
    function: Run = kept
    return function


def returned(choice: ChoiceCaller, value: object) -> Tensor | None:
    """Return the choice's result, if it returns one; else it writes to its output."""
    if isinstance(choice, _select.ExternKernelCaller):
        return None if choice.has_out_variant else _tensor(value)
    return _tensor(value) if isinstance(choice, _Subgraph) else None


def _tensor(value: Any) -> Tensor:
    """Return a single tensor. Raises TypeError for others, and for several."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        (value,) = value
    if not isinstance(value, Tensor):
        raise TypeError(f"it returned {type(value).__name__}, and not one tensor")
    return value


def request_of(choice: ChoiceCaller) -> Any:
    """Return the object that runs a template's kernel; None if the choice has none."""
    return None if isinstance(choice, _Subgraph) else getattr(choice, "bmreq", None)


Describe = Callable[[ChoiceCaller], dict[str, Any] | None]
"""The log's entry for a choice; None leaves it to torch."""


def let_output_be_planned(result: Any, ours: Callable[[ChoiceCaller], bool]) -> None:
    """Permit a deferred selection's output to be within another buffer, such as a concatenation's,
    if that would be permitted without our choices, which can write anywhere."""
    buffer = deferred(result)
    if getattr(buffer, "_output_plannable", None) is False:
        choices = getattr(buffer, "choices", ())
        buffer._output_plannable = all(ours(choice) or _plannable(choice) for choice in choices)


def _plannable(choice: ChoiceCaller) -> bool:
    """Return torch's own decision for a choice."""
    if isinstance(choice, _select.ExternKernelCaller):
        return bool(choice.has_out_variant)
    return isinstance(choice, ir.TritonTemplateCallerBase)


_log_of_thread = threading.local()


@contextlib.contextmanager
def logging(timings: Timings, describe: Describe) -> Iterator[None]:
    """A context in which torch logs these times, with our descriptions of choices that it cannot
    describe.

    Each list of a log has an entry for each choice, None if torch has no description.
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
