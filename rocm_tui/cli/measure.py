"""`rocm-tui measure`: which choice is really faster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from backend.model.choice import Caches, Choice, Measurement
from backend.model.origin import device_kind
from backend.model.tuning import Tuning
from rocm_tui import say
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.measure import (
    Measuring,
    NotMeasured,
    Suspects,
    check_percent,
    choices_to_measure,
    find_suspects,
    measure_job,
)
from rocm_tui.actions.sources import load_model, pick_tuning
from rocm_tui.cli import common
from rocm_tui.cli.common import (
    ExitCode,
    filter_option,
    matching_rows,
    parse_filter,
)
from rocm_tui.cli.work import Work, asked
from rocm_tui.environment import CPU, device_to_measure
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.jobs.load import busy_warning
from rocm_tui.json_output import Document, JsonObject
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.measured import (
    MeasurementJson,
    measured_text,
    repeat_line,
    repeats_text,
    sentences,
    standing,
)
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.model import Row

NONE = "No tuning is suspect: none has a time that was taken once and cannot be."

Measure = Callable[[Row, Sequence[Choice]], Measurement]
"""Measures choices of a tuning; the last measurement counts."""


class MeasuredSuspectJson(JsonObject):
    """A suspect tuning, and its measurement or the reason why it has none."""

    id: str
    suspect: str | None
    measurement: MeasurementJson | None
    reason: str | None


class MeasuredSuspectsJson(Document, tag="rocm-tui/measure-suspects/1"):
    suspects: list[MeasuredSuspectJson]
    not_measurable: int


class MeasurementsJson(Document, tag="rocm-tui/measure/1"):
    """All measurements of a tuning; `measurement` is the last one, which counts."""

    id: str
    measurement: MeasurementJson | None
    measurements: list[MeasurementJson | None]


def _measure_suspects(suspects: Suspects, measure: Measure, json: bool) -> ExitCode:
    """Measure one suspect after another; one that fails is reported, and the others go on."""
    results: list[MeasuredSuspectJson] = []
    clear = not suspects.others
    try:
        for suspect in suspects.suspects:
            row = suspect.row
            measurement, reason = None, None
            try:
                measurement = measure(row, suspect.choices)
            except (JobError, NotMeasured) as error:
                reason = plain(str(error))
            clear = clear and measurement is not None and _is_clear(measurement)
            results.append(
                MeasuredSuspectJson(
                    id=row.id,
                    suspect=row.suspect,
                    measurement=MeasurementJson.of(measurement),
                    reason=reason,
                )
            )
            if not json:
                said = (
                    f"failed: {reason}"
                    if measurement is None
                    else standing(row.tuning, measurement)
                )
                say.out(plain(f"{row.id} {problem_title(row.tuning)}: {said}"), flush=True)
    finally:  # also what was done before Ctrl-C
        if json:
            say.out_json(MeasuredSuspectsJson(suspects=results, not_measurable=suspects.others))
    if not json and not suspects.suspects and not suspects.others:
        say.out(NONE)
    if suspects.missing:
        say.err(suspects.missing)
    return ExitCode.of(clear)


def _goes_on(tunings: Sequence[Tuning], yes: bool) -> bool:
    """Warn of a busy machine. Where a person can answer, ask whether to measure anyway."""
    warning = busy_warning(tunings)
    if not warning:
        return True
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        say.err(warning)
        return True
    return asked(f"{warning}. Measure anyway? [y/N] ")


def _is_clear(measurement: Measurement) -> bool:
    return not measurement.failed and all(c.verdict != "unclear" for c in measurement.choices)


@click.command()
@common.optional_id_argument
@common.choices_argument
@common.seconds("--budget", "Measure for at most this long, compiling excluded", "30")
@click.option(
    "--within",
    type=float,
    default=10.0,
    metavar="PCT",
    help="Without CHOICE, take all at most PCT per cent slower than the best (default: 10).",
)
@common.rounds_option
@common.number(
    "--repeat",
    1,
    "Measure N times, each in a new process; `compare` trusts small changes from 3 on.",
)
@common.flag(
    "--cold", "Clear the caches before each call, as for weights in a model (default on GPUs)."
)
@common.flag("--hot", "Keep the inputs in the caches (default on CPUs for small inputs).")
@common.flag("--suspects", "Measure every tuning whose times are doubtful.")
@common.flag("--yes", "Measure on a busy machine without asking.")
@filter_option
@common.dry_run_option
@common.job_options
def measure_command(
    id: str | None,
    choices: Sequence[str],
    budget: float | None,
    within: float,
    rounds: int,
    repeat: int,
    cold: bool,
    hot: bool,
    suspects: bool,
    yes: bool,
    filter: str | None,
    dry_run: bool,
    device: str | None,
    sources: Sequence[str],
    python: str | None,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Measure choices of tuning ID in random order until it is clear which one is faster.

    CHOICE is a name, a hash, the first digits of a hash, or #2 (default: all near the best). The
    result is kept in the cache directory and used by ls, show, watch and pin. --filter goes with
    --suspects. Exit code 0 only if the result is clear.

    Example: rocm-tui measure 3fa91c2
    """
    common.require_at_most_one(cold=cold, hot=hot)
    common.report_settings()
    seconds_given(budget, "--budget")
    margin = check_percent(within)
    if repeat < 1:
        raise UsageError("--repeat is how often to measure, 1 or more")
    layout = common.layout_at(cache_dir)

    def measuring(row: Row, choices: Sequence[Choice]) -> tuple[Work, Measuring]:
        _check_device(row, device)
        own_device = device_to_measure(device, row.tuning.device_index)
        work = Work(layout, python, own_device, warm=repeat == 1)
        caches: Caches | None = "cold" if cold else "hot" if hot else None
        return work, Measuring(
            work, row.tuning, choices, budget=budget, caches=caches, rounds=rounds
        )

    def step(row: Row, choices: Sequence[Choice]) -> str:
        seconds = measuring(row, choices)[1].budget * repeat
        names = ", ".join(choice.label for choice in choices)
        return f"measure {row.id} {problem_title(row.tuning)} for at most {seconds:g} s: {names}"

    measurements: list[Measurement] = []

    def measure(row: Row, choices: Sequence[Choice]) -> Measurement:
        """Keep all measurements, and return the last; of several, each is printed as it comes."""
        work, job = measuring(row, choices)
        for number in range(1, repeat + 1):
            count = f" ({number} of {repeat})" if repeat > 1 else ""
            with work.line.during(problem_title(row.tuning) + count):
                measurements.append(job.once())
            if repeat > 1 and not json:
                say.out(repeat_line(row.tuning, measurements[-1], number, repeat), flush=True)
        return measurements[-1]

    if suspects:
        if id is not None:
            raise UsageError("--suspects measures all suspects: without an ID")
        query = parse_filter(filter)
        model = load_model(layout, also=sources)
        rows = matching_rows(model.rows(), query, model.sessions)
        doubtful = find_suspects(rows)
        for suspect in doubtful.suspects:
            _check_device(suspect.row, device)
        if dry_run:
            return common.print_plan(
                [step(each.row, each.choices) for each in doubtful.suspects], json
            )
        if not _goes_on([suspect.row.tuning for suspect in doubtful.suspects], yes):
            return ExitCode.of(False)
        return _measure_suspects(doubtful, measure, json)
    if filter:
        raise UsageError("--filter is for --suspects: an ID is one tuning")
    if id is None:
        raise UsageError("which tuning? measure ID, or measure --suspects")
    _, row = pick_tuning(layout, sources, id)
    device_choices = [find_device_choice(row, name) for name in choices]
    row = device_choices[0][0] if device_choices else row
    named = [choice for _, choice in device_choices]
    wanted = choices_to_measure(row, named, margin)
    _check_device(row, device)
    measure_job(row.tuning, wanted)  # what cannot be measured fails before a question
    if dry_run:
        return common.print_plan([step(row, wanted)], json)
    if not _goes_on([row.tuning], yes):
        return ExitCode.of(False)
    try:
        last = measure(row, wanted)
    finally:  # also what was measured before a process died
        if json and measurements:
            values = [MeasurementJson.of(measurement) for measurement in measurements]
            say.out_json(MeasurementsJson(id=row.id, measurement=values[-1], measurements=values))
    row = replace(row, tuning=replace(row.tuning, measured=last))
    if not json:
        _print(row, measurements, ShellCommands(layout))
    return ExitCode.of(_is_clear(last))


def _check_device(row: Row, device: str | None) -> None:
    if device not in (None, CPU) and device_kind(row.tuning) == CPU:
        raise UsageError(f"{row.id} was tuned on the CPU and is measured there: omit --device")


def _print(row: Row, measurements: Sequence[Measurement], commands: ShellCommands) -> None:
    """The last measurement in full; of several, how far they agree."""
    last, several = measurements[-1], len(measurements) > 1
    if several:
        say.out()
    explained = sentences(row.tuning, last, row.id, row.pin, commands.line)
    common.print_paragraphs(measured_text(row.tuning, last), explained)
    if several:
        say.out(f"\nMedians of {len(measurements)} measurements:")
        say.out(repeats_text(row.tuning, measurements))
