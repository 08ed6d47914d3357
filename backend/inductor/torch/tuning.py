"""Private names of torch around a tuning, with types and the differences between versions: the
selector, its arguments, results and failures, settings, the generated code.

Checked with torch 2.8 to 2.15 (`torch/_inductor/select_algorithm.py`, `codecache.py`, `ir.py`,
`autotune_process.py`, `graph.py`). Older versions lack some names, which are looked up here by
`getattr`; then less is observed. Callbacks for torch must not raise: callers guard them. Importing
this module imports torch._inductor.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config, ir
from torch._inductor import select_algorithm as _select
from torch._inductor import utils as _utils
from torch._inductor.codecache import PersistentCache
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import benchmarking as _benchmarking

from backend.inductor.guard import describe as describe
from backend.model.problem import TuningKey

ChoiceCaller = Any
"""torch._inductor.ir.ChoiceCaller."""
Timings = Mapping[ChoiceCaller, float]
"""Milliseconds by choice; infinite for a failed one."""

StockSelector: Any = _select.AlgorithmSelectorCache
StockNoValidChoicesError: Any = _select.NoValidChoicesError


class LazySystem(PersistentCache):  # type: ignore[misc]
    """A cache that queries the device when first needed, not in the constructor. The stock
    constructor does, and so would initialise the GPU in programs that fork later."""

    def __init__(self) -> None:
        pass

    @functools.cached_property
    def system(self) -> Any:
        return self.get_system()


class LazySelector(StockSelector, LazySystem):  # type: ignore[misc]
    """The stock selector, created without touching a device."""


def set_selector(selector: Any) -> None:
    """Make `selector` Inductor's selector; functions registered with the old one are kept. Without
    one, Inductor creates its own at its next selection."""
    old = _select._ALGORITHM_SELECTOR_CACHE
    if old is not None and selector is not None:
        for name in ("preprocessing_fns", "feedback_saver_fns"):
            if hasattr(old, name):
                setattr(selector, name, getattr(old, name))
    _select._ALGORITHM_SELECTOR_CACHE = selector


def selector() -> Any:
    """Return Inductor's selector; None before the first selection."""
    return _select._ALGORITHM_SELECTOR_CACHE


# The tuned op


_benchmark_cache_key: Any = getattr(_select, "create_benchmark_cache_key", None)
"""From torch 2.15 on: times measured in another way are stored under another key."""

_precision_key: Any = getattr(_utils, "fp32_matmul_precision_key", None)
"""From torch 2.15 on: one precision per backend."""


def tuning_key(
    op: str, input_nodes: Sequence[Any], layout: Any, options: Mapping[str, Any]
) -> TuningKey:
    """Return the persistent cache's key for a call of the selector with keywords `options`."""
    inputs = repr([StockSelector.key_of(node) for node in input_nodes])
    cudagraphs = bool(options.get("benchmark_with_cudagraphs", False))
    return TuningKey(op, inputs + key_suffix(layout.device.type, cudagraphs), precision())


def key_suffix(device: str, cudagraphs: bool = False) -> str:
    """Return this torch's text behind the list of inputs, with its current settings."""
    if _benchmark_cache_key is None:
        return ""
    return str(_benchmark_cache_key("", device, cudagraphs))


def precision() -> str:
    """Return the third key of the persistent cache: `highest`, or `cuda:none,mkldnn:none`."""
    if _precision_key is not None:
        return str(_precision_key())
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # set per backend; without a tuning stock PyTorch does not ask either
        return ",".join(f"{name}:{part.fp32_precision}" for name, part in _backends().items())


def _backends() -> Mapping[str, Any]:
    return {"cuda": torch.backends.cuda.matmul, "mkldnn": torch.backends.mkldnn.matmul}


def set_precision(wanted: str) -> None:
    """Set the precision of float32 products as named in a key or by a person. Raises RuntimeError
    or ValueError if this torch has none of that name."""
    if wanted == precision():
        return
    if ":" not in wanted or not hasattr(torch.backends.mkldnn, "matmul"):
        torch.set_float32_matmul_precision(wanted)
        return
    backends = _backends()
    for part in wanted.split(","):
        name, _, value = part.partition(":")
        if name not in backends:
            raise ValueError(f"there is no backend {name}")
        backends[name].fp32_precision = value


def compile_threads(count: int) -> contextlib.AbstractContextManager[None]:
    """A context in which Inductor compiles kernels in at most that many processes."""
    patched: contextlib.AbstractContextManager[None] = config.patch(compile_threads=count)
    return patched


@contextlib.contextmanager
def benchmarks_within(
    around: Callable[[], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """A context in which each of Inductor's benchmarks on a GPU, of choices and of fusions, runs
    within `around()`."""
    stock = _benchmarking.benchmarker.benchmark_gpu
    inside = False  # a kernel that is benchmarked may benchmark its own configs first

    @functools.wraps(stock)
    def benchmark_gpu(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return stock(*args, **kwargs)
        inside = True
        try:
            with around():
                return stock(*args, **kwargs)
        finally:
            inside = False

    _benchmarking.benchmarker.benchmark_gpu = benchmark_gpu
    try:
        yield
    finally:
        del _benchmarking.benchmarker.benchmark_gpu


def wants_tuning() -> bool:
    return bool(config.max_autotune or config.max_autotune_gemm)


def leaves_no_choice_to_ranks(options: Mapping[str, Any]) -> bool:
    """Return whether PyTorch tunes a call with these keywords together on all ranks of a job, or a
    custom op requests more than the fastest, or another process times the choices after the call,
    which PyTorch does only where the selection may be deferred."""
    return pipelined() or bool(
        options.get("is_collective")
        or options.get("min_speedup_threshold", 1.0) > 1.0
        or getattr(config, "distributed_max_autotune_gemm", False)
    )


def setting(name: str) -> Any:
    """Return an option of Inductor, `max_autotune` or `rocm.arch`; None if it is missing."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def modes() -> tuple[str, ...]:
    """Return the unusual ways of autotuning that are on. `origami`: AMD's model of products selects
    a few configurations of Triton's to time; `pipelined`: choices are timed in another process
    while lowering goes on; `profiler`: torch.profiler takes the times, not events; `incremental`:
    Triton kernels are timed in the program's own calls."""
    benchmarker = getattr(_benchmarking, "benchmarker", None)
    ways = {
        "origami": _origami() and setting("max_autotune_gemm_search_space") == "DEFAULT",
        "pipelined": pipelined(),
        "profiler": type(benchmarker).__name__ == "TorchProfilerBenchmarker",
        "incremental": setting("incremental_autotune"),
    }
    return tuple(name for name, on in ways.items() if on)


def _origami() -> bool:
    """Return whether Inductor loaded rocm-origami, which it does once, for ROCm and max-autotune
    (torch 2.13 `template_heuristics/triton.py`, 2.14 `heuristics/template/triton.py`)."""
    names = ("heuristics.template", "template_heuristics")
    modules = (sys.modules.get(f"torch._inductor.{name}.triton") for name in names)
    return any(getattr(module, "origami", None) is not None for module in modules)


def pipelined() -> bool:
    """Return whether another process times choices while lowering goes on. Then PyTorch neither
    reads nor writes the autotune cache (torch 2.13 and 2.14, `do_autotuning`)."""
    return bool(setting("pipeline_max_autotune_gemm"))


def verifies() -> bool:
    """Return whether Inductor compares each choice's output."""
    return bool(getattr(_select, "VERIFY", None))


def deterministic() -> bool:
    return bool(getattr(config, "deterministic", False))


def system_hash() -> str:
    """Return the name of the persistent cache's file."""
    return str(PersistentCache.get_system()["hash"])


def torch_key() -> str | None:
    """Return PyTorch's digest of its own source, in hexadecimal digits; None if it has none."""
    try:
        from torch._inductor.codecache import torch_key as digest

        return str(digest().hex())
    except (ImportError, AttributeError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """`arch` is gcnArchName on ROCm, `sm_NN` on CUDA, the vector extension of a CPU."""

    name: str
    arch: str | None
    compute_units: int | None


def device_facts(device: torch.device | None = None) -> DeviceFacts:
    """Return the facts of `device`; by default the current GPU, else the CPU."""
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        return DeviceFacts("cpu", torch.backends.cpu.get_cpu_capability(), None)
    facts = torch.cuda.get_device_properties(device)
    arch = facts.gcnArchName if torch.version.hip else f"sm_{facts.major}{facts.minor}"
    return DeviceFacts(facts.name, arch, facts.multi_processor_count)


def devices_alike(index: int) -> list[int]:
    """Return the other visible GPUs of GPU `index`'s kind, for which kernels are the same."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        return []
    kind = _kind_of_gpu(index)
    return [other for other in range(count) if other != index and _kind_of_gpu(other) == kind]


def _kind_of_gpu(index: int) -> tuple[object, ...]:
    facts = torch.cuda.get_device_properties(index)
    names = ("name", "gcnArchName", "major", "minor", "multi_processor_count", "warp_size")
    return tuple(getattr(facts, name, None) for name in names)


def threads() -> int:
    """Return the thread count for which Inductor generates C++ kernels."""
    configured = setting("cpp.threads")
    if isinstance(configured, int) and configured > 0:
        return configured
    return int(torch.get_num_threads())


# Results of a selection


def is_extern(choice: ChoiceCaller) -> bool:
    """Return whether a choice is a call of ATen or another library."""
    return isinstance(choice, _select.ExternKernelCaller)


def failed_ahead(choice: ChoiceCaller) -> bool:
    """Return whether it failed to compile before the benchmarks. torch then benchmarks only the
    others and stores no time for it; a later program lacks one, unless it fails there again."""
    return bool(getattr(choice, "failed", False))


def selected_choice(result: Any) -> ChoiceCaller | None:
    """Return the choice that a call of the selector returned; None if undecided or unknown.
    Versions that return no pair return only the node."""
    return result[1] if isinstance(result, tuple) else None


def deferred(result: Any) -> Any:
    """Return the buffer of a selection deferred until fusions are benchmarked; else None."""
    kind = getattr(ir, "MultiTemplateBuffer", None)
    buffer = result[0] if isinstance(result, tuple) else result
    while buffer is not None and kind is not None and not isinstance(buffer, kind):
        buffer = getattr(buffer, "data", None)
    return None if kind is None else buffer


def watch_deferred(
    result: Any,
    choices: Sequence[ChoiceCaller],
    on_timings: Callable[[Timings], None],
    on_selected: Callable[[ChoiceCaller], None],
) -> bool:
    """Return whether the selection was deferred until fusions are benchmarked; the two callbacks
    then follow.

    A Triton choice is final when the buffer is finalised with it, from torch 2.15 on also NVIDIA's
    GEMMs; any other when the scheduler takes its output node.
    """
    buffer = deferred(result)
    if buffer is None:
        return False
    _call_after(buffer, "_choice_timings_fn", lambda timings, *_: on_timings(timings))
    for name in _FINALIZING:
        _call_after(buffer, name, lambda _, *callers: on_selected(*map(_final, callers)))
    for choice in choices:
        _call_after(choice, "output_node", lambda *_, chosen=choice: on_selected(chosen))
    return True


_FINALIZING = (
    "finalize_as_triton_caller",
    "finalize_as_nvgemm_caller",
    "finalize_as_triton_callers",
)


def _final(callers: Any) -> ChoiceCaller:
    """Return the caller, or of several the one for sizes without a hint."""
    return callers.get(None) if isinstance(callers, Mapping) else callers


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
    """`report` each choice that failed to compile before its benchmark, however it is compiled.
    `make_precompile_fn` only logs the exception; this reads the record's arguments."""

    class _Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            args = record.args if isinstance(record.args, tuple) else ()
            if len(args) == 2 and isinstance(args[0], BaseException):
                report(args[1], args[0])
            elif len(args) == 1 and "failed due to timeout" in str(record.msg):
                report(args[0], TimeoutError("compiling it took too long"))
            return True

    _select.log.addFilter(_Filter())


def watch_tuning_processes(
    report: Callable[[ChoiceCaller, float, BaseException | None], None],
) -> None:
    """`report` choice, milliseconds and error of each benchmark in a subprocess, as it ends. The
    pool swallows exceptions; the error is None if the benchmark succeeded."""
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
        error, raised.error = raised.error, None  # its frames would live as long as the error
        report(choice, ms, error)
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


# Compiling only to read the code


MODES: tuple[Mapping[str, bool], ...] = (
    {"max_autotune": True},
    {"max_autotune": True, "coordinate_descent_tuning": True},
    {"max_autotune": False, "max_autotune_gemm": True},
)
"""The ways to enable autotuning: the option, the modes `max-autotune*`, the option for products
only. The hash of a Triton choice depends on it."""


@contextlib.contextmanager
def compile_settings(
    mode: Mapping[str, object], *, freezing: bool, graph_cache: bool
) -> Iterator[None]:
    """Configure Inductor like users of one of the `MODES`, with or without graph caches."""
    import torch._dynamo
    import torch._functorch.config as functorch

    inductor = {**mode, "freezing": freezing}
    if not graph_cache:
        inductor |= {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    caches = {} if graph_cache else {"enable_autograd_cache": False}
    torch._dynamo.reset()
    with config.patch(inductor), functorch.patch(caches):
        yield


class _CodeGenerated(BaseException):
    """Ends the compile. Not an Exception: the graph caches would recompile after one."""


def generated_code(compiles: Callable[[], object]) -> str:
    """Return the Python source of the first graph that `compiles` compiles or takes from the graph
    cache.

    torch calls `save_output_code` as soon as the wrapper is written, or a graph is taken from the
    graph cache. The compile ends there: no kernel is built, nothing is run, no cache entry is
    written. Empty if no graph is compiled; raises earlier errors of the compile.
    """
    codes: list[str] = []

    def stop(code: str) -> None:
        codes.append(code)
        raise _CodeGenerated

    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = staticmethod(stop)
    try:
        with contextlib.suppress(_CodeGenerated), torch.no_grad():
            compiles()
    finally:
        GraphLowering.save_output_code = before
    return codes[0] if codes else ""
