"""`rocm-tui measure`: which choice is really faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from rocm_tui import say
from rocm_tui.actions.measure import (
    Measuring,
    NotMeasured,
    Suspect,
    check_percent,
    choices_to_measure,
    find_suspects,
    measure_job,
)
from rocm_tui.actions.sources import load_model, pick_tuning
from rocm_tui.cli import common
from rocm_tui.cli.common import (
    CommandArguments,
    ExitCode,
    filter_option,
    matching_rows,
    parse_filter,
)
from rocm_tui.cli.work import Work, with_log
from rocm_tui.environment import device_to_measure
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.measured import (
    measured_text,
    measurement_json,
    repeat_line,
    repeats_text,
    sentences,
    standing,
)
from rocm_tui.render.table import hanging
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.model import Row

NONE = "No tuning is suspect: none has a time that was taken once and cannot be."

Measure = Callable[[Row, Sequence[Choice]], Sequence[Measurement]]
"""Measures choices of a tuning; the last measurement counts."""


def measure_suspects(args: CommandArguments, layout: Layout, measure: Measure) -> ExitCode:
    """One after another; what cannot be measured is said, and the others are measured."""
    if args.id is not None:
        raise UsageError("--suspects measures all suspects: without an ID")
    query = parse_filter(args.filter)
    model = load_model(layout, also=args.sources)
    suspects = find_suspects(matching_rows(model.rows(), query, model.sessions))
    results: list[dict[str, Any]] = []
    clear = not suspects.others
    for suspect in suspects.suspects:
        result, sure = _measure_suspect(suspect, measure)
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


def _measure_suspect(suspect: Suspect, measure: Measure) -> tuple[dict[str, Any], bool]:
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


@click.command()
@common.optional_id_argument
@common.choices_argument
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Measure for at most this long, compiling excluded (default: 30, or as configured).",
)
@click.option(
    "--within",
    type=float,
    default=10.0,
    metavar="PCT",
    help="Without CHOICE: all at most PCT per cent slower than the best (default: 10).",
)
@click.option(
    "--rounds", type=int, default=0, metavar="N", help="Minimum rounds, budget permitting."
)
@click.option(
    "--repeat",
    type=int,
    default=1,
    metavar="N",
    help="Measure N times, each in a new process; `compare` trusts small changes from 3 on.",
)
@click.option(
    "--cold",
    is_flag=True,
    help="Clear the caches of a call's inputs, as for weights in a model (default on GPUs).",
)
@click.option(
    "--hot",
    is_flag=True,
    help="Keep the inputs in the caches (default on CPUs for small inputs).",
)
@click.option("--suspects", is_flag=True, help="Measure every tuning whose times are doubtful.")
@filter_option
@common.device_option
@common.from_option
@common.python_option
@common.cache_dir_option
@common.json_option
def measure_command(**given: Any) -> int:
    """Measure choices of tuning ID in random order until it is clear which one is faster.

    CHOICE is a name, a hash, the first digits of a hash, or #2 (default: all near the best). The
    result is kept in the cache directory and used by ls, show, watch and pin. --filter goes with
    --suspects. Exit code 0 only if the result is clear.
    """
    args = CommandArguments(**given)
    common.require_at_most_one(cold=args.cold, hot=args.hot)
    args.caches = "cold" if args.cold else "hot" if args.hot else None
    seconds_given(args.budget, "--budget")
    within = check_percent(args.within, "--within")
    if args.repeat < 1:
        raise UsageError("--repeat is how often to measure, 1 or more")
    layout = common.layout_of(args)
    if args.suspects:
        return measure_suspects(args, layout, partial(_measure, args, layout))
    if args.filter:
        raise UsageError("--filter is for --suspects: an ID is one tuning")
    if args.id is None:
        raise UsageError("which tuning? measure ID, or measure --suspects")
    _, row = pick_tuning(layout, args.sources, args.id)
    found = [find_device_choice(row, name) for name in args.choices]
    row = found[0][0] if found else row
    named = [choice for _, choice in found]
    measurements = _measure(args, layout, row, choices_to_measure(row, named, within))
    last = measurements[-1]
    row = replace(row, tuning=replace(row.tuning, measured=last))
    if args.json:
        values = [measurement_json(measurement) for measurement in measurements]
        say.out_json({"id": row.id, "measurement": values[-1], "measurements": values})
    else:
        _print(row, measurements)
    clear = all(choice.verdict != "unclear" for choice in last.choices)
    return ExitCode.of(clear and not last.failed)


def _measure(
    args: CommandArguments, layout: Layout, row: Row, choices: Sequence[Choice]
) -> list[Measurement]:
    """All measurements; of several, each is told as it comes."""
    measure_job(row.tuning, choices)  # what cannot be measured is said before a worker starts
    device = device_to_measure(args.device, row.tuning.device_index)
    work = Work(layout, args.python, device, warm=args.repeat == 1)
    measuring = Measuring(
        work, row.tuning, choices, budget=args.budget, caches=args.caches, rounds=args.rounds
    )
    measurements: list[Measurement] = []
    for number in range(1, args.repeat + 1):
        count = f" ({number} of {args.repeat})" if args.repeat > 1 else ""
        with work.line.during(problem_title(row.tuning) + count):
            try:
                measurements.append(measuring.once())
            except JobError as error:
                raise JobError(with_log(error)) from error
        if args.repeat > 1 and not args.json:
            line = repeat_line(row.tuning, measurements[-1], number, args.repeat)
            say.out(line, flush=True)
    return measurements


def _print(row: Row, measurements: Sequence[Measurement]) -> None:
    """The last measurement in full; of several, how far they agree."""
    last, several = measurements[-1], len(measurements) > 1
    if several:
        say.out()
    say.out(measured_text(row.tuning, last))
    say.out()
    for sentence in sentences(row.tuning, last, row.id, row.pin):
        say.out(hanging("", sentence))
    if several:
        say.out(f"\nMedians of {len(measurements)} measurements:")
        say.out(repeats_text(row.tuning, measurements))
