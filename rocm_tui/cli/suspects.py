"""`rocm-tui measure --suspects`: those tunings whose times are not to be believed, a line each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from rocm_tui import say
from rocm_tui.actions.measure import NotMeasured
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.suspects import Suspect, find_suspects
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.filtered import passing, query_of
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.measured import measurement_json, standing
from rocm_tui.session.model import Row

NONE = "No tuning is suspect: none has a time that was taken once and cannot be."

Measure = Callable[[Row, Sequence[Choice]], Sequence[Measurement]]
"""Measures choices of a tuning; the last measurement counts."""


def measure_suspects(args: argparse.Namespace, layout: Layout, measure: Measure) -> ExitCode:
    """One after another; what cannot be measured is said, and the others are measured."""
    if args.id is not None:
        raise UsageError("--suspects measures all suspects: without an ID")
    query = query_of(args)
    model = load_model(layout, also=args.sources)
    suspects = find_suspects(passing(model.rows(), query, model.sessions))
    results: list[dict[str, Any]] = []
    clear = not suspects.others
    for suspect in suspects.suspects:
        result, sure = _measured(suspect, measure)
        clear = clear and sure
        results.append(result)
        if not args.json:
            say.out(result.pop("line"), flush=True)
    if args.json:
        values = [{k: v for k, v in result.items() if k != "line"} for result in results]
        say.out_json({"suspects": values, "not_measurable": suspects.others})
    elif not suspects.suspects and not suspects.others:
        say.out(NONE)
    if suspects.missing:
        say.err(suspects.missing)
    return ExitCode.of(clear)


def _measured(suspect: Suspect, measure: Measure) -> tuple[dict[str, Any], bool]:
    """What came of it, and whether that is clear."""
    row = suspect.row
    name = f"{row.id} {problem_title(row.tuning)}"
    known = {"id": row.id, "suspect": row.suspect}
    try:
        last = measure(row, suspect.choices)[-1]
    except (JobError, NotMeasured) as error:
        reason = plain(str(error))
        line = f"{name}: failed: {reason}"
        return {**known, "measurement": None, "reason": reason, "line": line}, False
    line = plain(f"{name}: {standing(row.tuning, last)}")
    sure = not last.failed and all(choice.verdict != "unclear" for choice in last.choices)
    measurement = measurement_json(last)
    return {**known, "measurement": measurement, "reason": None, "line": line}, sure
