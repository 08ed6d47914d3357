"""Rows and problems as the JSON that `ls`, `show` and `pins` print (design, section 9)."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from backend.records import Choice, MeasuredChoice, Measurement, Problem
from rocm_tui.session import stats
from rocm_tui.session.model import Row

if TYPE_CHECKING:
    from backend.pins.file import HistoryEntry
    from backend.pins.state import PinPlan, PinReport, PinStatus


def row_json(row: Row) -> dict[str, Any]:
    """One tuning; times in milliseconds and seconds, unknown values are null."""
    tuning = row.tuning
    return {
        "id": row.id,
        "occurrence": row.occurrence,
        "op": tuning.op,
        "shapes": [list(shape) for shape in tuning.shapes],
        "strides": [list(strides) for strides in tuning.strides],
        "dtypes": list(tuning.dtypes),
        "device": tuning.device,
        "precision": tuning.precision,
        "inputs_key": tuning.inputs_key,
        "state": tuning.state,
        "num_choices": None if tuning.num_choices is None else stats.tried(tuning),
        "choices": [
            choice_json(choice, stats.measured(tuning, choice)) for choice in tuning.choices
        ],
        "measurement": measurement_json(tuning.measured) if tuning.measured else None,
        "seconds": {
            "benchmark": tuning.seconds.benchmark,
            "precompile": tuning.seconds.precompile,
        },
        "selected": tuning.selected,
        "selected_by": tuning.selected_by,
        "rank": tuning.rank,
        "session": tuning.session,
        "when": tuning.when,
        "pinned": row.pin.pin.hash if row.pin else None,
        "pin_state": row.pin_state,
        "sources": list(tuning.sources),
    }


def choice_json(choice: Choice, measured: MeasuredChoice | None = None) -> dict[str, Any]:
    """One choice; `measured` is what repeated measurement says of it."""
    return {
        "name": choice.name,
        "hash": choice.hash,
        "ms": choice.ms,
        "config": choice.config,
        "failed": choice.failed,
        "offered": choice.offered,
        "reason": choice.reason,
        "measured": None if measured is None else _measured_json(measured),
    }


def measurement_json(found: Measurement) -> dict[str, Any]:
    """A repeated measurement, best choice first; a number that is not finite is null."""
    return {
        "when": found.when,
        "rounds": found.rounds,
        "seconds": found.seconds,
        "flushed": found.flushed,
        "reference_ms": found.reference_ms,
        "trouble": list(found.trouble),
        "session": found.session,
        "choices": [
            {"name": one.name, "hash": one.hash, **_measured_json(one)} for one in found.choices
        ],
        "failed": [
            {"name": one.name, "hash": one.hash, "reason": one.reason} for one in found.failed
        ],
    }


def _measured_json(one: MeasuredChoice) -> dict[str, Any]:
    numbers = {name: getattr(one, name) for name in _NUMBERS}
    return {
        **{name: value if isfinite(value) else None for name, value in numbers.items()},
        "verdict": one.verdict,
    }


_NUMBERS = ("ms", "low", "high", "spread", "rounds", "ratio", "ratio_low", "ratio_high")


def problem_json(problem: Problem) -> dict[str, Any]:
    return {"source": problem.source, "line": problem.line, "what": problem.what}


def status_json(status: PinStatus) -> dict[str, Any]:
    """One pin with its state; `timings` are the measured milliseconds, null where one failed."""
    pin = status.pin
    return {
        "id": pin.id,
        "op": pin.op,
        "inputs_key": pin.inputs,
        "precision": pin.precision,
        "hash": pin.hash,
        "label": pin.label,
        "state": status.state,
        "detail": status.detail,
        "drifts": pin.drifts,
        "device": pin.device,
        "system_hash": pin.system_hash,
        "who": pin.who,
        "when": pin.when,
        "note": pin.note,
        "timings": {
            precision: {hash_: ms if isfinite(ms) else None for hash_, ms in times.items()}
            for precision, times in pin.timings.items()
        },
    }


def plan_json(plan: PinPlan) -> dict[str, Any]:
    """What a pin would change."""
    return {
        "hash": plan.hash,
        "cache_file": str(plan.path),
        "numbers": plan.numbers,
        "precisions": list(plan.precisions),
        "graphs": [str(graph.path) for graph in plan.graphs],
        "replaces": plan.replaces.hash if plan.replaces else None,
    }


def report_json(report: PinReport) -> dict[str, Any]:
    """What a pin changed, and its state as read back."""
    return {
        "pin": status_json(report.status) if report.status else None,
        "cache_file": str(report.path),
        "numbers": report.numbers,
        "graphs_moved": report.moved,
        "graphs_restored": report.restored,
    }


def history_json(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "when": entry.when,
        "who": entry.who,
        "what": entry.what,
        "op": entry.op,
        "inputs_key": entry.inputs,
        "precision": entry.precision,
        "hash": entry.hash,
        "label": entry.label,
        "note": entry.note,
    }
