"""The report of one job as the JSON that `compare --json` prints."""

from __future__ import annotations

from typing import Any

from rocm_tui.report.types import Absent, Disagreement, Gain, Repeated, Report
from rocm_tui.session.model import Row


def report_json(report: Report) -> dict[str, Any]:
    """Times in milliseconds and seconds; unknown values are null."""
    bought = report.bought
    return {
        "disagreements": [_disagreement(each) for each in report.disagreements],
        "absent": [_absent(each) for each in report.absent],
        "backends_told": report.told,
        "bought": {
            "saved_ms": bought.saved_ms,
            "seconds": bought.seconds,
            "ranks": bought.ranks,
            "unknown": bought.unknown,
            "tuned": bought.tunings,
            "problems": len(bought.gains),
            "problems_without_aten": len(bought.gains) - len(bought.valued),
            "runs_to_pay": bought.runs_to_pay,
            "runs_at_least": bought.at_least,
            "systems": list(bought.systems),
            "since": bought.since,
            "until": bought.until,
            "tunings": [_gain(gain) for gain in bought.gains],
        },
        "repeated": [_repeated(each) for each in report.repeated],
    }


def _problem(row: Row) -> dict[str, Any]:
    tuning = row.tuning
    return {
        "id": row.id,
        "op": tuning.op,
        "shapes": [list(shape) for shape in tuning.shapes],
        "dtypes": list(tuning.dtypes),
    }


def _disagreement(each: Disagreement) -> dict[str, Any]:
    return {
        **_problem(each.row),
        "matters": each.matters,
        "one_job": each.told or None,
        "parties": [
            {
                "who": party.who,
                "choice": party.choice.label,
                "hash": party.choice.hash,
                "ms": party.ms,
                "rivals": [{"choice": label, "ms": ms} for label, ms in party.rivals_ms],
            }
            for party in each.parties
        ],
    }


def _absent(each: Absent) -> dict[str, Any]:
    return {
        "backend": each.backend,
        "ops": list(each.ops),
        "tunings": each.tunings,
        "everywhere": each.everywhere,
        "failed": each.failed,
        "reasons": [{"text": reason.text, "count": reason.count} for reason in each.reasons],
        "sessions": list(each.sessions),
    }


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        **_problem(gain.row),
        "choice": gain.choice.label,
        "hash": gain.choice.hash,
        "saved_ms": gain.saved_ms,
        "tied": gain.tied,
        "waited": gain.waited,
        "calls": gain.calls,
        "seconds": gain.seconds,
        "untold": gain.untold,
    }


def _repeated(each: Repeated) -> dict[str, Any]:
    return {
        **_problem(each.row),
        "times": each.times,
        "processes": each.processes,
        "seconds": each.seconds,
        "untold": each.untold,
        "winners": [{"choice": label, "times": times} for label, times in each.winners],
    }
