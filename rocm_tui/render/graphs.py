"""Compiled graphs as `graphs` prints them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.records import KernelTime
from rocm_tui.render.pins import moment
from rocm_tui.render.shares import SIGNS
from rocm_tui.render.table import Field, attributes, hanging, text_table
from rocm_tui.render.trials import short, trial_json
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.graph_rows import GraphRow, GraphTuning


def _captured(row: GraphRow) -> str:
    if row.path is not None:
        return "yes"
    return "gone" if row.graph.captured else "no"


GRAPHS: tuple[Field[GraphRow], ...] = (
    Field("id", "ID", text=lambda row: row.id, about="of the graph's text and its inputs"),
    Field(
        "kind", "KIND", drop=5, text=lambda row: row.graph.kind,
        about="inference, forward or backward",
    ),
    Field(
        "title", "TITLE", text=lambda row: fmt.shorten(plain(row.graph.title), 30),
        about="where in the program it comes from",
    ),
    Field(
        "device", "DEVICE", drop=4, text=lambda row: plain(row.graph.device or ""),
        about="where it runs",
    ),
    Field(
        "nodes", "NODES", drop=8, right=True,
        text=lambda row: fmt.count(row.graph.nodes) if row.graph.nodes else "",
        about="how many ops it has",
    ),
    Field(
        "tunings", "TUNINGS", drop=3, right=True, text=lambda row: fmt.count(len(row.tunings)),
        about="whose choices it calls, as far as they are known",
    ),
    Field(
        "calls", "CALLS", right=True, text=lambda row: fmt.count(row.times.calls),
        about="how often the latest program that has it called it",
    ),
    Field(
        "ms", "A CALL", right=True, text=lambda row: fmt.duration(row.times.ms),
        about="mean time of those of its calls that were timed",
    ),
    Field(
        "share", "SHARE", right=True, text=lambda row: fmt.percent(row.share),
        about="of that program's time in compiled graphs, as far as it was seen",
    ),
    Field(
        "captured", "CAPTURED", drop=6, text=_captured,
        about="whether its text is kept, for trials; gone: it was removed",
    ),
    Field(
        "program", "PROGRAM", drop=2, text=lambda row: plain(row.program),
        about="that program: its process, or a profiler's trace",
    ),
)  # fmt: skip


def graphs_text(rows: Iterable[GraphRow]) -> str:
    """What `graphs` prints."""
    return text_table(GRAPHS, rows)


def _problem(tuning: GraphTuning) -> str:
    row = tuning.row
    if row is None:
        return tuning.use.inputs
    return f"{stats.sizes_text(row.tuning)} {stats.dtype_of(row.tuning)}"


def _choice(tuning: GraphTuning) -> str:
    choices = tuning.row.tuning.choices if tuning.row else ()
    known = next((choice.label for choice in choices if choice.hash == tuning.use.hash), None)
    return known or tuning.use.hash or fmt.NONE


GRAPH_TUNINGS: tuple[Field[GraphTuning], ...] = (
    Field("id", "TUNING", text=lambda tuning: tuning.use.key.id, about="the tuning's id, for show"),
    Field("op", "OP", text=lambda tuning: plain(tuning.use.op), about="what was tuned"),
    Field(
        "problem", "SHAPE", text=lambda tuning: fmt.shorten(plain(_problem(tuning)), 44),
        about="sizes and types of the operands",
    ),
    Field(
        "count", "COUNT", right=True, text=lambda tuning: fmt.count(tuning.use.count),
        about="how many nodes of the graph call its choice",
    ),
    Field(
        "choice", "CHOICE", text=lambda tuning: fmt.shorten(plain(_choice(tuning)), 36),
        about="the choice that they call",
    ),
    Field(
        "share", "SHARE", right=True,
        text=lambda tuning: fmt.NONE
        if tuning.share is None
        else SIGNS[tuning.told] + fmt.percent(tuning.share),
        about="of the graph's time; ~ by a time taken once, ≤ at most",
    ),
)  # fmt: skip
KERNELS: tuple[Field[KernelTime], ...] = (
    Field("name", "KERNEL", text=lambda kernel: plain(kernel.name), about="as a profiler saw it"),
    Field(
        "count", "A CALL", right=True, text=lambda kernel: f"{kernel.count:g}",
        about="how often a call of the graph runs it",
    ),
    Field(
        "ms", "TIME", right=True, text=lambda kernel: fmt.duration(kernel.ms),
        about="what it takes of such a call",
    ),
)  # fmt: skip
_MOST_KERNELS = 40


def graph_text(row: GraphRow) -> str:
    """What `graphs ID` prints: the facts, its tunings, its kernels where a profiler saw them, and
    its trials."""
    lines = [hanging(f"{name:<11}", value) for name, value in _facts(row)]
    if row.tunings:
        lines += ["", text_table(GRAPH_TUNINGS, row.tunings.values())]
    if row.kernels:
        kernels = _by_name(row.kernels)
        lines += ["", text_table(KERNELS, kernels[:_MOST_KERNELS])]
        more = len(kernels) - _MOST_KERNELS
        lines += [f"and {counted(more, 'more kernel')}"] if more > 0 else []
    if row.trials:
        lines += ["", "Trials:"]
        lines += [f"{moment(trial.when)}  {short(trial)}" for trial in row.trials]
    return "\n".join(lines)


def _by_name(kernels: Iterable[KernelTime]) -> list[KernelTime]:
    """Whatever launched them, longest first."""
    sums: dict[str, KernelTime] = {}
    for kernel in kernels:
        before = sums.get(kernel.name, KernelTime(kernel.name, 0.0, 0.0))
        sums[kernel.name] = replace(
            before, count=before.count + kernel.count, ms=before.ms + kernel.ms
        )
    return sorted(sums.values(), key=lambda kernel: -kernel.ms)


def _facts(row: GraphRow) -> Sequence[tuple[str, str]]:
    graph, times = row.graph, row.times
    by = "events of the device" if times.by == "device" else "the host's clock"
    called = f"{counted(times.calls, 'time')} by {row.program}"
    each = (
        f", {fmt.duration(times.ms)} each (of {counted(times.timed, 'call')}, by {by})"
        if times.ms
        else ""
    )
    kept = str(row.path) if row.path is not None else ""
    why = graph.uncaptured or ("its text was removed" if graph.captured else "not captured")
    known = [
        ("graph", f"{graph.id}, {graph.kind}"),
        ("title", graph.title),
        ("device", graph.device or ""),
        ("nodes", str(graph.nodes or "")),
        ("key", graph.key or ""),
        ("called", called + each),
        ("share", f"{fmt.percent(row.share)} of that program's time in graphs"),
        ("text", kept or why),
    ]
    return [(name, plain(value)) for name, value in known if value]


def graph_json(row: GraphRow) -> dict[str, Any]:
    """One graph; unknown values are null."""
    return {
        **attributes(row.graph, "id kind key title device nodes captured uncaptured"),
        "calls": row.times.calls,
        "timed": row.times.timed,
        "ms": row.times.ms,
        "by": row.times.by,
        "share": row.share,
        "program": row.program,
        "session": row.session.id if row.session else None,
        "when": row.when or None,
        "path": str(row.path) if row.path else None,
        "tunings": [_tuning_json(tuning) for tuning in row.tunings.values()],
        "kernels": [attributes(kernel, "name count ms op nth") for kernel in row.kernels],
        "trials": [trial_json(trial) for trial in row.trials],
    }


def _tuning_json(tuning: GraphTuning) -> dict[str, Any]:
    known = tuning.share is not None
    return {
        "id": tuning.use.key.id,
        **attributes(tuning.use, "op inputs precision count hash"),
        "share": tuning.share,
        "share_by": tuning.told if known else None,
    }
