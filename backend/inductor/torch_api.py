"""Private names of torch, with types and with what differs between versions. The only such file.

Read in torch 2.13.0 (`torch/_inductor/select_algorithm.py`, `codecache.py`, `autotune_process.py`,
`ir.py`). Older versions lack some of it: what is looked up by name here may be missing, and then
less is seen. Importing this module imports torch._inductor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import autotune_process as _autotune_process
from torch._inductor import config, ir
from torch._inductor import select_algorithm as _select
from torch._inductor.codecache import PersistentCache
from torch._inductor.codegen import common as _common
from torch._inductor.utils import get_kernel_metadata
from torch._inductor.virtualized import V

ChoiceCaller = Any
"""torch._inductor.ir.ChoiceCaller."""
Timings = Mapping[ChoiceCaller, float]
"""Milliseconds by choice; one that failed has infinity."""

StockSelector: Any = _select.AlgorithmSelectorCache


class LazySystem(PersistentCache):  # type: ignore[misc]
    """Asks for the device when it is first needed, not when the object is made.

    The stock constructor does, and so would initialise the GPU in programs that fork later.
    """

    def __init__(self) -> None:
        pass

    @functools.cached_property
    def system(self) -> Any:
        return self.get_system()


class LazySelector(StockSelector, LazySystem):  # type: ignore[misc]
    """The stock selector, made without touching a device."""


def set_selector(selector: Any) -> None:
    """Make `selector` the one that Inductor asks; functions registered with the old one stay."""
    old = _select._ALGORITHM_SELECTOR_CACHE
    if old is not None:
        for name in ("preprocessing_fns", "feedback_saver_fns"):
            if hasattr(old, name):
                setattr(selector, name, getattr(old, name))
    _select._ALGORITHM_SELECTOR_CACHE = selector


def selector() -> Any:
    """The one that Inductor asks; None before the first question."""
    return _select._ALGORITHM_SELECTOR_CACHE


# What is being tuned


def inputs_key(input_nodes: Sequence[Any]) -> str:
    """The text under which the persistent cache keeps these inputs, without any suffix."""
    return repr([StockSelector.key_of(node) for node in input_nodes])


def precision() -> str:
    """The third key of the persistent cache, up to torch 2.13."""
    return str(torch.get_float32_matmul_precision())


def wants_tuning() -> bool:
    return bool(config.max_autotune or config.max_autotune_gemm)


def setting(name: str) -> Any:
    """One of Inductor's options, `max_autotune` or `rocm.arch`; None where this torch has none."""
    found: Any = config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def deterministic() -> bool:
    return bool(getattr(config, "deterministic", False))


def system_hash() -> str:
    """The name of the persistent cache's file."""
    return str(PersistentCache.get_system()["hash"])


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """`arch` is gcnArchName on ROCm, `sm_NN` on CUDA, the vector extension of a CPU."""

    name: str
    arch: str | None
    compute_units: int | None


def device_facts() -> DeviceFacts:
    """The current GPU, else the CPU."""
    if not torch.cuda.is_available():
        return DeviceFacts("cpu", torch.backends.cpu.get_cpu_capability(), None)
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    arch = found.gcnArchName if torch.version.hip else f"sm_{found.major}{found.minor}"
    return DeviceFacts(found.name, arch, found.multi_processor_count)


# Results of a selection


def selected_choice(result: Any) -> ChoiceCaller | None:
    """The choice that a call of the selector returned; None if it is not decided, or not told.

    Versions that return no pair tell only the node.
    """
    return result[1] if isinstance(result, tuple) else None


def watch_deferred(
    result: Any,
    choices: Sequence[ChoiceCaller],
    on_timings: Callable[[Timings], None],
    on_selected: Callable[[ChoiceCaller], None],
) -> bool:
    """Whether the selection was put off until fusions are benchmarked; then the two are called.

    A Triton choice is final when the buffer is finalised with it; any other when the scheduler
    takes its output node.
    """
    node = result[0] if isinstance(result, tuple) else result
    kind = getattr(ir, "MultiTemplateBuffer", None)
    buffer = node
    while buffer is not None and kind is not None and not isinstance(buffer, kind):
        buffer = getattr(buffer, "data", None)
    if buffer is None or kind is None:
        return False
    _call_after(buffer, "_choice_timings_fn", lambda timings, *_: on_timings(timings))
    _call_after(buffer, "finalize_as_triton_caller", lambda _, caller: on_selected(caller))
    _call_after(buffer, "finalize_as_triton_callers", lambda _, callers: on_selected(callers[None]))
    for choice in choices:
        _call_after(choice, "output_node", lambda _, chosen=choice: on_selected(chosen))
    return True


def _call_after(holder: Any, name: str, action: Callable[..., None]) -> None:
    """Shadow the method `name` of one object: `action(result, *args)` follows each call."""
    method = getattr(holder, name, None)
    if method is None:
        return

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        action(result, *args)
        return result

    setattr(holder, name, called)


# Failures that torch turns into log lines


def watch_precompile_errors(report: Callable[[ChoiceCaller, BaseException], None]) -> None:
    """`report` each choice that failed to compile ahead of its benchmark, however it is compiled.

    `make_precompile_fn` only logs the exception; this reads the record's arguments.
    """

    class _Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            args = record.args if isinstance(record.args, tuple) else ()
            if len(args) == 2 and isinstance(args[0], BaseException):
                report(args[1], args[0])
            elif len(args) == 1 and "failed due to timeout" in str(record.msg):
                report(args[0], TimeoutError("compiling it took too long"))
            return True

    _select.log.addFilter(_Filter())


def watch_tuning_processes(report: Callable[[ChoiceCaller, float, str], None]) -> None:
    """`report` choice, milliseconds and reason of each benchmark in a subprocess, as it ends.

    The pool swallows exceptions; the reason is empty where the benchmark went well.
    """
    from torch._inductor import autotune_process

    pool = autotune_process.get_tuning_process_pool()
    if getattr(pool, "_rocm_tui_watched", False):
        return
    pool._rocm_tui_watched = True
    raised = threading.local()
    for process in getattr(pool, "processes", ()):
        process.get = _keeping_error(process.get, raised)
    target = pool.target

    def watched(choice: ChoiceCaller) -> float:
        raised.error = None
        ms = float(target(choice))
        error = raised.error
        report(choice, ms, "" if error is None else describe(error))
        return ms

    pool.target = watched


def _keeping_error(get: Callable[..., Any], raised: threading.local) -> Callable[..., Any]:
    def kept(*args: Any, **kwargs: Any) -> Any:
        try:
            return get(*args, **kwargs)
        except Exception as error:
            raised.error = error
            raise

    return kept


def describe(error: BaseException) -> str:
    """An exception in one line. A C++ compiler's first `error:` line says most of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if " error: " in line), None)
    return f"{type(error).__name__}: {telling or ' '.join(lines[:2])}"[:400]


# Compiling something to look at its code


@contextlib.contextmanager
def generated_code() -> Iterator[list[str]]:
    """Collects the Python source of each graph compiled, or loaded from the graph cache, inside."""
    from torch._inductor.graph import GraphLowering

    found: list[str] = []
    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = found.append
    try:
        yield found
    finally:
        GraphLowering.save_output_code = before


MODES: tuple[Mapping[str, bool], ...] = (
    {"max_autotune": True},
    {"max_autotune": True, "coordinate_descent_tuning": True},
    {"max_autotune": False, "max_autotune_gemm": True},
)
"""The ways to ask for autotuning: the option, the modes `max-autotune*`, the option for products
alone. The hash of a Triton choice depends on it."""


@contextlib.contextmanager
def compile_settings(
    mode: Mapping[str, object], *, freezing: bool, graph_cache: bool
) -> Iterator[None]:
    """Inductor as users of one of the `MODES` have it, with its graph caches or without any."""
    import torch._dynamo
    import torch._functorch.config as functorch

    inductor = {**mode, "freezing": freezing}
    if not graph_cache:
        inductor |= {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    caches = {} if graph_cache else {"enable_autograd_cache": False}
    torch._dynamo.reset()
    with config.patch(inductor), functorch.patch(caches):
        yield


# What templates are made of

StockNoValidChoicesError: Any = _select.NoValidChoicesError
BenchmarkRequest: Any = _autotune_process.BenchmarkRequest
KernelTemplate: Any = _common.KernelTemplate
TemplateBuffer: Any = ir.TemplateBuffer
StockChoiceCaller: Any = ir.ChoiceCaller
Node = Any
"""torch._inductor.ir.IRNode: a tensor of the graph being compiled."""


def graph() -> Any:
    """torch._inductor.graph.GraphLowering: the graph that is being compiled."""
    return V.graph


def compiles_to_python() -> bool:
    """Whether the wrapper is Python; ahead-of-time compilation makes one in C++."""
    return not (V.graph.cpp_wrapper or getattr(config, "fx_wrapper", False))


def is_extern(choice: ChoiceCaller) -> bool:
    """Whether a choice is a call of ATen or another library."""
    return isinstance(choice, _select.ExternKernelCaller)


def is_view(node: Node) -> bool:
    """Whether a realized tensor has another layout than the buffer it lies in."""
    return isinstance(_unboxed(node), ir.ReinterpretView)


def _unboxed(node: Node) -> Any:
    while isinstance(node, ir.MutableBox):
        node = node.data
    return node


def is_ours_to_align(node: Node) -> bool:
    """Whether the graph allocates the memory of a tensor, or copies it if it is misaligned."""
    name = node.get_name()
    if name in V.graph.unaligned_buffers:
        return False
    if name in V.graph.graph_inputs or name in V.graph.constants:
        return bool(node.get_device().type != "cpu")
    return not isinstance(V.graph.get_buffer(name).layout, ir.NonOwningLayout)


def is_registered(node: Node) -> bool:
    """Whether a tensor is part of the graph, and no stand-in for one to come."""
    name = node.get_name()
    known = (V.graph.graph_inputs, V.graph.constants, V.graph.name_to_buffer)
    return any(name in names for names in known)


def size_hint(expr: Any) -> int:
    """A number for a size; a guess where it is dynamic."""
    return int(V.graph.sizevars.optimization_hint(expr))


def transposed(node: Node) -> Node:
    """A matrix, its dimensions exchanged, in the same memory."""
    data = _unboxed(node)
    old = node.get_layout()
    layout = ir.FixedLayout(
        old.device, old.dtype, [*old.size][::-1], [*old.stride][::-1], old.offset
    )
    base = data.data if isinstance(data, ir.ReinterpretView) else ir.StorageBox(data)
    return ir.ReinterpretView(data=base, layout=layout)


def tensor_box(buffer: Any) -> Any:
    return ir.TensorBox.create(buffer)


def fixed_layout(layout: Any) -> Any:
    """A layout that changes no more."""
    return layout.as_fixed() if isinstance(layout, ir.FlexibleLayout) else layout


def output_buffer(name: str, layout: Any) -> Node:
    """A stand-in for what a choice will write."""
    return ir.Buffer(name=name, layout=layout)


def real_name(name: str) -> str:
    """The buffer that holds a value at this point of the generated code."""
    renamed = V.graph.scheduler.mutation_real_name if V.graph.scheduler else {}
    return str(renamed.get(name, name))


def size_text(expr: Any) -> str:
    """Python of a size, for the generated code."""
    return str(V.graph.wrapper_code.codegen_python_sizevar(expr))


def workspace(bytes_needed: Any, device: torch.device) -> Any:
    """Memory for one call, by whatever allocates the graph's buffers; its content is undefined."""
    return _common.WorkspaceArg(
        count=bytes_needed,
        zero_mode=_common.WorkspaceZeroMode.UNINITIALIZED,
        device=device,
        outer_name=_common.WorkspaceArg.unique_name(),
    )


def pointwise_body(node: Any) -> str | None:
    """The text of a scheduler node that reads one buffer and writes one, both at the same place
    and of the same dtype; None for any other."""
    buffer = getattr(node, "node", None)
    if not isinstance(buffer, ir.ComputedBuffer) or not isinstance(buffer.data, ir.Pointwise):
        return None
    reads, writes = list(node.read_writes.reads), list(node.read_writes.writes)
    if len(reads) != 1 or len(writes) != 1:
        return None
    same_place = (reads[0].index, reads[0].size) == (writes[0].index, writes[0].size)
    if not same_place or V.graph.get_dtype(reads[0].name) != buffer.get_dtype():
        return None
    return str(buffer.data.inner_fn_str())


def remove_buffer(name: str) -> None:
    """Do not allocate a buffer that nobody reads any more."""
    V.graph.removed_buffers.add(name)


def kernel_origins(node_schedule: Sequence[Any]) -> str:
    """Comments that say which ops of the model a kernel serves."""
    return "\n".join(get_kernel_metadata(node_schedule, V.graph.wrapper_code))


def time_cpu(run: Callable[[], Any]) -> float:
    """Milliseconds, measured as Inductor measures its own choices."""
    from torch._inductor.runtime.benchmarking import benchmarker

    return float(benchmarker.benchmark_cpu(run))


def time_gpu(run: Callable[[], Any]) -> float:
    """Milliseconds, measured as Inductor measures its own choices."""
    from torch._inductor.runtime.benchmarking import benchmarker

    return float(benchmarker.benchmark_gpu(run))


def tensor_metas(nodes: Sequence[Node]) -> list[Any]:
    """`TensorMeta` of each: what a benchmark in another process makes tensors from."""
    return [_autotune_process.TensorMeta.from_irnodes(node) for node in nodes]


def wrap_scheduling(device: str, wrap: Callable[[type], type]) -> None:
    """Replace the scheduling class of a kind of device by `wrap` of it."""
    _common.init_backend_registration()
    registered = _common.device_codegens[device]
    stock = registered.scheduling

    def scheduling(scheduler: Any) -> Any:
        return wrap(type(stock(None)))(scheduler)

    _common.device_codegens[device] = dataclasses.replace(registered, scheduling=scheduling)
