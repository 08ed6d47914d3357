"""`rocm-tui measure ID [CHOICE...]`: which choice is really faster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend.model.choice import Choice
    from backend.model.measurement import Measurement
    from backend.store.paths import Layout
    from rocm_tui.session.model import Row


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "measure",
        help="find out which choice is really faster",
        description="Run choices of tuning ID again and again, in random order, until it is clear "
        "which is faster or the budget is spent. Exit code 0 only if it is clear. What was found "
        "is kept in the cache dir, where ls, show, watch and pin heed it.",
    )
    parser.add_argument("id", metavar="ID", help="a tuning's id, or its first digits")
    parser.add_argument(
        "choices",
        nargs="*",
        metavar="CHOICE",
        help="a name, a hash, a hash prefix, or #2 (default: all near the best)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="measure no longer than that, compiling not counted (default: 30)",
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
    parser.add_argument("--flush", action="store_true", help="empty the caches before each call")
    parser.add_argument("--device", metavar="N", help="a GPU's index, or cpu")
    common.add_from(parser)
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from rocm_tui.errors import UsageError

    if not 0 < args.budget < 1e9:
        raise UsageError("--budget is a number of seconds above 0")
    if not 0 <= args.within < 1e9:
        raise UsageError("--within is a percentage, 0 or more")
    if args.repeat < 1:
        raise UsageError("--repeat is how often to measure, 1 or more")
    layout = common.layout_of(args)
    model = common.load(layout, [str(layout.root), *args.sources])
    row = common.find_row(model, args.id)
    found = _measured(args, layout, row, _chosen(args, row))
    row = replace(row, tuning=replace(row.tuning, measured=found[-1]))
    if args.json:
        from rocm_tui.render.measured import measurement_json

        told = [measurement_json(each) for each in found]
        say.out_json({"id": row.id, "measurement": told[-1], "measurements": told})
    else:
        _tell(row, found)
    clear = all(choice.verdict != "unclear" for choice in found[-1].choices)
    return 0 if clear and not found[-1].failed else 1


def _chosen(args: argparse.Namespace, row: Row) -> Sequence[Choice]:
    from rocm_tui.actions.measure import worth_measuring
    from rocm_tui.session.find import find_choice

    if args.choices:
        return [find_choice(row.tuning, text) for text in args.choices]
    pinned = row.pin.pin.hash if row.pin else None
    return worth_measuring(row.tuning, pinned, args.within / 100)


def _measured(
    args: argparse.Namespace, layout: Layout, row: Row, choices: Sequence[Choice]
) -> list[Measurement]:
    """All measurements; of several, each is told as it comes."""
    from rocm_tui.actions.measure import Measuring, measure_job
    from rocm_tui.commands.work import Work, with_log
    from rocm_tui.jobs.errors import JobError
    from rocm_tui.render.jobs import problem_title
    from rocm_tui.session import measured_again

    measure_job(row.tuning, choices)  # what cannot be measured is said before a worker starts
    work = Work(layout, args.python, args.device)
    measuring = Measuring(
        work, row.tuning, choices, budget=args.budget, flush=args.flush, rounds=args.rounds
    )
    found: list[Measurement] = []
    for at in range(1, args.repeat + 1):
        count = f" ({at} of {args.repeat})" if args.repeat > 1 else ""
        work.line.title = problem_title(row.tuning) + count
        work.line.show("starting a worker")
        try:
            found.append(measuring.once())
        except JobError as error:
            raise JobError(with_log(error)) from error
        finally:
            work.line.show("")
        if args.repeat > 1 and not args.json:
            say.out(repeat_line(row.tuning, found[-1], at, args.repeat), flush=True)
    return found


def _tell(row: Row, found: Sequence[Measurement]) -> None:
    """The last measurement in full; of several, how far they agree."""
    from rocm_tui.render.measured import measured_text, repeats_text, sentences

    last = found[-1]
    if len(found) > 1:
        say.out()
    say.out(measured_text(row.tuning, last))
    say.out()
    for sentence in sentences(row.tuning, last, row.id, row.pin):
        say.out(sentence)
    if len(found) > 1:
        say.out(f"\nMedians of {len(found)} measurements:")
        say.out(repeats_text(row.tuning, found))
