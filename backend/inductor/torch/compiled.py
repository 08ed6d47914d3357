"""Private names of torch around compiled graphs: where they are compiled, where they become
callable, what they contain, and events on a GPU's stream.

Every compiled graph passes `CompiledFxGraph.post_compile` once, whether it was just compiled or
came from FxGraphCache or AOTAutogradCache; from then on it is called through its
`current_callable`, whose outermost layer (CUDA graphs, aligned inputs) is added there. Callbacks
for torch must not raise: callers guard them.

Checked with torch 2.8 to 2.15 (`torch/_inductor/compile_fx.py`, `output_code.py`,
`torch/_functorch/_aot_autograd/aot_autograd_result.py`, `torch/cuda/graphs.py`). Importing this
module imports torch._inductor.

The hooks of graphs load this as soon as `compile_fx` is imported, possibly by another module of
this folder that is still loading: so this and the others do not import each other.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch._guards import TracingContext
from torch._inductor import compile_fx as _compile_fx
from torch._inductor import output_code as _output_code

from backend.model.graph import GraphKind

ReadyGraph = Any
"""torch._inductor.output_code.CompiledFxGraph."""
Calling = Callable[[Any], Any]
"""Runs a compiled graph: takes the list of its inputs, which it empties."""


def wrap_compiling(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function that compiles a graph, or loads it from FxGraphCache, by `wrap(stock)`.

    `compile_fx_inner` is bound as a default in many places, but only calls this function, by its
    name. A graph from AOTAutogradCache does not pass here.
    """
    stock = _compile_fx._compile_fx_inner
    _compile_fx._compile_fx_inner = functools.wraps(stock)(wrap(stock))


def watch_ready(on_ready: Callable[[ReadyGraph], None]) -> None:
    """Call `on_ready` with each compiled graph that becomes callable."""
    stock = _output_code.CompiledFxGraph.post_compile

    @functools.wraps(stock)
    def post_compile(self: ReadyGraph, *args: Any, **kwargs: Any) -> Any:
        result = stock(self, *args, **kwargs)
        on_ready(self)
        return result

    _output_code.CompiledFxGraph.post_compile = post_compile


def wrap_calling(graph: ReadyGraph, wrap: Callable[[Calling], Calling]) -> None:
    """Call `graph` through `wrap` of what runs it. A cached graph has no `current_callable`, so
    nothing of ours is cached."""
    graph.current_callable = wrap(graph.current_callable)


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """The contents of a compiled graph, in the process that compiled it and in all that load it.
    `text` is the graph as Inductor lowers it, with sizes, strides, dtypes and devices."""

    text: str
    key: str | None
    kind: GraphKind
    device: str | None
    cudagraphs: bool


def facts_of(graph: ReadyGraph) -> GraphFacts:
    kwargs = graph.fx_kwargs
    kind: GraphKind = "inference" if kwargs.get("is_inference") else "forward"
    if kwargs.get("is_backward"):
        kind = "backward"
    return GraphFacts(
        text=graph.inductor_post_grad_graph_str,
        key=graph._fx_graph_cache_key,
        kind=kind,
        device=_device_of(graph),
        cudagraphs=graph.cudagraph_info is not None,
    )


def _device_of(graph: ReadyGraph) -> str | None:
    """Return `cpu`, `cuda` or `cuda:1`, the GPU's if it has one."""
    kinds = [kind for kind in graph.device_types if kind not in ("cpu", "meta")]
    if not kinds:
        return "cpu" if "cpu" in graph.device_types else None
    numbers = list(graph.device_idxs)
    return f"{kinds[0]}:{numbers[0]}" if len(numbers) == 1 else str(kinds[0])


_TOOLS = (
    f"{torch.__file__.rpartition('/')[0]}/",
    f"{Path(__file__).parents[2]}/",  # backend
)
_LIBRARY = f"{os.__file__.rpartition('/')[0]}/"
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.*)_at_(?P<line>\d+)")


def place_in_program() -> str:
    """Return the beginning of the function that Dynamo compiles in this thread: `model.py:17
    forward`; after a graph break, the line where it continues. Empty outside of Dynamo."""
    context = TracingContext.try_get()
    codes: Sequence[CodeType] = getattr(context, "traced_code", None) or ()
    if not codes:
        return ""
    # Dynamo, `no_grad` and containers of modules wrap the program's functions.
    code = next((c for c in codes if _is_programs(c)), None)
    if code is None:  # only a container of PyTorch's modules: the line that calls it
        return _calling_line() or _place(
            codes[0].co_filename, codes[0].co_firstlineno, codes[0].co_name
        )
    resumed = _RESUMED.fullmatch(code.co_name)
    if resumed is not None:
        return _place(code.co_filename, int(resumed["line"]), resumed["name"])
    return _place(code.co_filename, code.co_firstlineno, code.co_name)


def _calling_line() -> str:
    """Return the innermost line of the program on this thread's stack; empty if there is none."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not _is_programs(frame.f_code):
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else ""


def _is_programs(code: CodeType) -> bool:
    """Return whether a function is the program's: not PyTorch's, ours or the standard library's."""
    name = code.co_filename
    if name.startswith((*_TOOLS, "<frozen ")):
        return False
    return not name.startswith(_LIBRARY) or "-packages/" in name


def _place(file: str, line: int, name: str) -> str:
    return f"{file.rsplit('/', 1)[-1]}:{line} {name}"


# Timing on a GPU


class StreamTimes:
    """Times of calls on one GPU, from pairs of events on the current stream; nothing waits. Nothing
    is recorded or queried while any thread captures a CUDA graph."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._unused: list[tuple[Any, Any]] = []

    def begin(self) -> tuple[Any, Any] | None:
        """Record the first event of a pair, and return the pair, or None."""
        if _capturing or torch.cuda.is_current_stream_capturing():
            return None
        try:
            pair = self._unused.pop()
        except IndexError:  # another thread took the last one
            pair = _timing_event(), _timing_event()
        pair[0].record(torch.cuda.current_stream(self._device))
        return pair

    def end(self, pair: tuple[Any, Any]) -> bool:
        """Record the second event; False if that is impossible."""
        if _capturing or torch.cuda.is_current_stream_capturing():
            return False
        pair[1].record(torch.cuda.current_stream(self._device))
        return True

    def passed(self, pair: tuple[Any, Any]) -> float | None:
        """Return milliseconds between the two events of a pair, which may then be reused; None if
        the second has not happened yet."""
        if _capturing or not pair[1].query():
            return None
        ms = float(pair[0].elapsed_time(pair[1]))
        self._unused.append(pair)
        return ms


def _timing_event() -> Any:
    return torch.cuda.Event(enable_timing=True)


_capturing: set[int] = set()
"""The CUDA graphs (object ids) being captured."""


def watch_captures() -> None:
    """Track from now on when CUDA graphs are captured. Querying an event in another thread would
    break a capture in mode `global`."""
    kind = torch.cuda.CUDAGraph
    begin, end = kind.capture_begin, kind.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _capturing.add(id(self))
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            _capturing.discard(id(self))
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        finally:
            _capturing.discard(id(self))

    kind.capture_begin, kind.capture_end = capture_begin, capture_end
