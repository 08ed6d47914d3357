"""A comparison as the JSON that `compare --json` prints."""

from __future__ import annotations

from typing import Any

from rocm_tui.session.compare_types import Comparison, Pair, Standpoint


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Times in milliseconds, ratios B over A; unknown values are null."""
    totals, noise = comparison.totals, comparison.noise
    return {
        "a": comparison.a,
        "b": comparison.b,
        "common": [pair_json(pair) for pair in comparison.common],
        "only_a": [point_json(point) for point in comparison.only_a],
        "only_b": [point_json(point) for point in comparison.only_b],
        "untimed": [row.id for row in comparison.untimed],
        "totals": {
            "a_ms": totals.a_ms,
            "b_ms": totals.b_ms,
            "lost_ms": totals.lost_ms,
            "gained_ms": totals.gained_ms,
            "verdicts": dict(totals.verdicts),
            "a_tuning_seconds": totals.a_seconds,
            "b_tuning_seconds": totals.b_seconds,
            "a_tuning_untold": totals.a_untold,
            "b_tuning_untold": totals.b_untold,
        },
        "noise": {
            "band": noise.band,
            "choices": noise.choices,
            "problems": noise.problems,
            "shift": noise.shift,
        },
        "notes": list(comparison.notes),
    }


def pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "id": pair.id,
        "op": pair.b.tuning.op,
        "shapes": [list(shape) for shape in pair.b.tuning.shapes],
        "dtypes": list(pair.b.tuning.dtypes),
        "a": point_json(pair.a),
        "b": point_json(pair.b),
        "same_choice": pair.same_choice,
        "same_tuning": pair.same_tuning,
        "ratio": pair.ratio,
        "raw_ratio": pair.raw,
        "low": pair.low,
        "high": pair.high,
        "lost_ms": pair.lost_ms,
        "calls": pair.calls,
        "lost_total_ms": pair.lost_total_ms,
        "verdict": pair.verdict,
        "reason": pair.reason,
        "alike": pair.alike,
    }


def point_json(point: Standpoint) -> dict[str, Any]:
    """What one part knows of one problem."""
    return {
        "id": point.row.id,
        "op": point.tuning.op,
        "shapes": [list(shape) for shape in point.tuning.shapes],
        "choice": point.choice.label,
        "hash": point.choice.hash,
        "ms": point.ms,
        "from": point.basis,
        "low": point.low,
        "high": point.high,
        "measurements": len(point.measurements),
        "occurrences": len(point.rows),
        "calls": point.calls,
        "sources": list(point.tuning.sources),
    }
