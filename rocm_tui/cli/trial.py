"""`rocm-tui trial ID [CHOICE...]`: is the whole graph faster with another choice?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from backend.disk.layout import Layout
from backend.measure.trial import LEAST_PROCESSES
from backend.model.graph import Arm
from backend.model.trial import Trial
from rocm_tui import say
from rocm_tui.actions.pick import pick_tuning
from rocm_tui.actions.trial import Trying, arms_for, choices_to_try, combined
from rocm_tui.actions.trial_graph import graph_for
from rocm_tui.actions.trial_program import SKIP, steps_of, try_program
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.cli.group import ProgramCommand
from rocm_tui.cli.work import LiveLine, Work, consent, ended_by_signals, with_log
from rocm_tui.errors import UsageError
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.jobs.program import ProgramRun
from rocm_tui.render.graphs import (
    graph_title,
    pin_command,
    program_json,
    program_sentences,
    program_text,
    run_line,
    sentences,
    short,
    trial_json,
    trial_text,
)
from rocm_tui.render.table import hanging
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from rocm_tui.session.model import Row


@click.command(cls=ProgramCommand)
@common.optional_id_argument
@common.choices_argument
@click.option(
    "--graph", metavar="GRAPH", type=common.GRAPH, help="The graph (default: where ID counts most)."
)
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Time passes for at most this long (default: 30, for CMD 600, or as configured).",
)
@click.option(
    "--rounds", type=int, default=0, metavar="N", help="Minimum rounds, budget permitting."
)
@click.option(
    "--processes",
    type=int,
    default=1,
    metavar="N",
    help="Try in N processes; from 3 on their spread makes the interval.",
)
@common.yes_to_graph_option
@click.option("--step", metavar="REGEX", help="For CMD: a line that matches ends a timed step.")
@click.option(
    "--skip",
    type=int,
    default=SKIP,
    metavar="N",
    help=f"For CMD: warm-up steps (default: {SKIP}).",
)
@click.option("--pairs", type=int, metavar="N", help="For CMD: runs with the pins, and without.")
@common.device_option
@common.from_option
@common.python_option
@common.cache_dir_option
@common.json_option
def trial_command(**given: Any) -> int:
    """Time whole passes of a captured graph with choices of tuning ID, and without them.

    CHOICE is a name, a hash, the first digits of a hash, or #2 (default: those that may be faster).
    With `-- CMD...` the whole program runs repeatedly, with the pins and without. Exit code 0 only
    if the result is clear. Nothing is pinned, and no cache changes.

    Example: rocm-tui trial --step loss -- python train.py
    """
    args = CommandArguments(**given)
    if args.program is not None:
        return _try_program(args)
    if args.id is None:
        raise UsageError("give a tuning's ID, or a program: rocm-tui trial -- python train.py")
    budget = seconds_given(args.budget, "--budget")
    if args.processes < 1:
        raise UsageError("--processes is a number, 1 or more")
    layout = common.layout_of(args)
    model, row = pick_tuning(layout, args.sources, args.id)
    found = [find_device_choice(row, name) for name in args.choices]
    row = found[0][0] if found else row
    named = [choice for _, choice in found]
    graph = graph_for(row, graph_rows(model, layout), args.graph)
    arms = arms_for(row, [graph], choices_to_try(row, named))
    consent(layout, graph.graph, args.yes)
    trials = _try(args, layout, graph, arms, budget)
    result = combined(trials) if len(trials) > 1 else trials[0]
    if args.json:
        each = [trial_json(one) for one in trials]
        say.out_json({"id": row.id, "trial": trial_json(result), "trials": each})
    else:
        _print(row, result)
    rivals = result.arms[1:]
    return ExitCode.of(all(arm.verdict != "unclear" and not arm.failed for arm in rivals))


def _try(
    args: CommandArguments,
    layout: Layout,
    graph: GraphRow,
    arms: Sequence[Arm],
    budget: float | None,
) -> list[Trial]:
    """All trials, each in a process of its own; of several, each is told as it comes."""
    work = Work(layout, args.python, args.device, warm=False)
    trying = Trying(
        work,
        layout,
        graph.id,
        arms,
        budget=budget,
        rounds=args.rounds,
        threads=graph.session.threads if graph.session else None,
    )
    trials: list[Trial] = []
    for number in range(1, args.processes + 1):
        count = f" ({number} of {args.processes})" if args.processes > 1 else ""
        with work.line.during(graph_title(graph.graph) + count):
            try:
                trials.append(trying.once())
            except JobError as error:
                raise JobError(with_log(error)) from error
        if args.processes > 1 and not args.json:
            say.out(f"{number} of {args.processes}: {short(trials[-1])}", flush=True)
    return trials


def _try_program(args: CommandArguments) -> int:
    if not args.program:
        raise UsageError("-- needs a command: rocm-tui trial --step loss -- python train.py")
    if args.id is not None:
        raise UsageError("give a tuning's ID or a program, not both: CMD runs with all pins")
    if args.pairs is not None and args.pairs < LEAST_PROCESSES:
        raise UsageError(f"--pairs is a number, {LEAST_PROCESSES} or more")
    steps = steps_of(args.step, args.graph, args.skip)
    line = LiveLine("trial")

    def tell(run: ProgramRun) -> None:
        line.show("")
        if not args.json:
            say.out(run_line(run), flush=True)

    with ended_by_signals():
        try:
            result = try_program(
                args.program,
                common.layout_of(args),
                steps,
                pairs=args.pairs,
                budget=seconds_given(args.budget, "--budget"),
                begun=lambda pair, side: line.show(f"pair {pair}, {side} the pins"),
                tell=tell,
            )
        finally:
            line.show("")
    if args.json:
        say.out_json(program_json(result))
    else:
        say.out()
        say.out(program_text(result))
        say.out()
        for sentence in program_sentences(result):
            say.out(hanging("", sentence))
    return ExitCode.of(result.verdict.verdict != "unclear")


def _print(row: Row, trial: Trial) -> None:
    say.out(trial_text(trial))
    say.out()
    for sentence in sentences(trial, row.tuning):
        say.out(hanging("", sentence))
    command = pin_command(trial, row.tuning, row.id)
    if command:
        say.out(f"To use it: {command}")
