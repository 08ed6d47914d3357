"""`rocm-tui measure ID [CHOICE...]`: which choice is really faster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from rocm_tui import say
from rocm_tui.actions.measure import Measuring, check_percent, choices_to_measure, measure_job
from rocm_tui.actions.pick import pick_tuning
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.filtered import add_filter
from rocm_tui.cli.suspects import measure_suspects
from rocm_tui.cli.work import Work, with_log
from rocm_tui.environment import device_to_measure
from rocm_tui.errors import UsageError
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.measured import (
    measured_text,
    measurement_json,
    repeat_line,
    repeats_text,
    sentences,
)
from rocm_tui.render.table import hanging
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.model import Row


def add_measure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run choices of tuning ID again and again, in random order, until it is clear which is "
        "faster or the budget is spent. Exit code 0 only if it is clear. What was found is kept in "
        "the cache dir, where ls, show, watch and pin heed it."
    )
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="a tuning's id, or its first digits (not with suspects)"
    )
    parser.add_argument(
        "choices",
        nargs="*",
        metavar="CHOICE",
        help="a name, a hash, a hash prefix, or #2 (default: all near the best)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="measure no longer than that, compiling not counted (default: 30, or as set)",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=10.0,
        metavar="PCT",
        help="without a CHOICE: all up to this much slower than the best (default: 10)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=0,
        metavar="N",
        help="not fewer, while there is time: `compare` with another day needs some 100",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="measure so often, each time in a process of its own: `compare` believes small "
        "changes from three on",
    )
    caches = parser.add_mutually_exclusive_group()
    caches.add_argument(
        "--cold",
        action="store_const",
        const="cold",
        dest="caches",
        help="what a call reads is in no cache when it begins, as weights are in a model (default "
        "on a GPU, and where one call reads more than a CPU's caches hold)",
    )
    caches.add_argument(
        "--hot",
        action="store_const",
        const="hot",
        dest="caches",
        help="each call reads what the one before has read (default elsewhere)",
    )
    caches.add_argument(
        "--flush", action="store_const", const="cold", dest="caches", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--suspects",
        action="store_true",
        help="measure every tuning whose times are not to be believed, one after another",
    )
    add_filter(parser, "; with --suspects")
    common.add_arguments(parser, "--device", "--from", "--python", "--cache-dir", "--json")


def do_measure(args: argparse.Namespace) -> int:
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
    args: argparse.Namespace, layout: Layout, row: Row, choices: Sequence[Choice]
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
