"""Which tunings are the kernels that a profiler saw within a compiled graph.

A profiler knows the graph by the key of Inductor's cache alone. A session's log may tell of the
same graph which tunings it holds, the cache dir may have its text, which tells the kernels too.
What neither tells stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.model.origin import extern_name, kind_of
from backend.model.problem import TuningKey, device_of
from rocm_tui.ingest.records import GraphSeen, GraphTold, KernelTime

if TYPE_CHECKING:  # types only: the first rows are shown before what needs them is loaded
    from backend.model.graph import Graph, TuningUse

_TEMPLATES = "triton_tem_"
"""How Inductor names the kernels of Triton templates."""


def named(seen: GraphSeen, known: Mapping[str, Graph], told: Mapping[str, GraphTold]) -> GraphSeen:
    """The graph as a log knows it, else with the tunings that its text has."""
    key = seen.graph.key
    if seen.session is not None or not key:
        return seen
    if key in known:
        return replace(seen, graph=known[key])
    if key in told:
        return replace(seen, graph=replace(seen.graph, tunings=told[key].tunings))
    return seen


def tuning_ms(seen: GraphSeen, told: GraphTold | None) -> dict[TuningKey, float]:
    """Milliseconds of a call of the graph that kernels of each tuning take, for those tunings of
    which that can be told. Of a GPU's the host's spans tell nothing: they only launch it."""
    if not seen.kernels or not seen.graph.tunings or seen.times is None:
        return {}
    told = told if told is not None and told.tunings else None
    by_name = dict(told.kernels) if told else {}
    by_call = _calls(seen, told) if told else {}
    on_device = seen.times.by == "device"
    keys = {use.key for use in seen.graph.tunings if on_device or device_of(use.inputs) == "cpu"}
    sums: dict[TuningKey, float] = defaultdict(float)
    for kernel in seen.kernels:
        key = by_name.get(kernel.name) or by_call.get((kernel.op, kernel.nth))
        if key is None and told is None:
            key = _only(kernel, seen.graph.tunings)
        if key in keys:
            sums[key] += kernel.ms
    return dict(sums)


def aten_name(extern: str) -> str:
    """`addmm` of `bias_addmm`: what a wrapper calls, as ATen calls it."""
    return extern.partition(".")[0].removeprefix("bias_")


def _calls(seen: GraphSeen, told: GraphTold) -> dict[tuple[str, int], TuningKey | None]:
    """The tuning of each call of an op. Where another number of them was seen than stands in the
    text, only those ops of which all calls are one tuning's."""
    order: dict[str, list[TuningKey | None]] = defaultdict(list)
    for extern, key in told.externs:
        order[aten_name(extern)].append(key)
    most: dict[str, int] = defaultdict(int)
    for kernel in seen.kernels:
        most[kernel.op] = max(most[kernel.op], kernel.nth)
    calls: dict[tuple[str, int], TuningKey | None] = {}
    for op, keys in order.items():
        same = len(set(keys)) == 1
        for nth in range(1, most[op] + 1):
            if same:
                calls[op, nth] = keys[0]
            elif most[op] == len(keys):
                calls[op, nth] = keys[nth - 1]
    return calls


def _only(kernel: KernelTime, uses: tuple[TuningUse, ...]) -> TuningKey | None:
    """Without a text: the one tuning of the graph whose choice may be called so."""
    if any(use.hash is None for use in uses):
        return None
    hashes = [(use, use.hash or "") for use in uses]
    if kernel.name.startswith(_TEMPLATES):
        fits = [use for use, hash in hashes if kind_of(hash) == "triton"]
    elif kernel.op:
        fits = [
            use
            for use, hash in hashes
            if not kind_of(hash) and aten_name(extern_name(hash)) == kernel.op
        ]
    else:
        fits = []
    return fits[0].key if len(fits) == 1 else None
