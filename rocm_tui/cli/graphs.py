"""`rocm-tui graphs`, `trial`, `improve` and `prove`: compiled graphs, and how to speed them up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from backend.disk.layout import Layout
from backend.measure.trial import LEAST_PROCESSES
from backend.model.graph import Arm, Trial
from rocm_tui import say
from rocm_tui.actions.improve import (
    GraphSearch,
    PinProposal,
    Rows,
    SearchProgress,
    is_finished,
    pick_graph,
    pin_proposals,
    plan_proposals,
    proposals,
    result_of,
    rows_of,
)
from rocm_tui.actions.measure import check_percent
from rocm_tui.actions.prove import PAIRS, Proving, annotate
from rocm_tui.actions.sources import known_graphs, load_model, pick_tuning
from rocm_tui.actions.trial import (
    GraphTrial,
    arms_for,
    choices_to_try,
    combined,
    graph_for,
    text_of,
)
from rocm_tui.actions.trial_program import SKIP, steps_of, try_program
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode, ProgramCommand
from rocm_tui.cli.work import LiveLine, Work, asked, consent, ended_by_signals, with_log
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.jobs.program import ProgramRun
from rocm_tui.json_output import JsonObject
from rocm_tui.render.graphs import (
    GraphJson,
    ProgramTrialJson,
    TrialJson,
    graph_text,
    graph_title,
    graphs_text,
    pin_command,
    program_sentences,
    program_text,
    run_line,
    sentences,
    short,
    trial_text,
)
from rocm_tui.render.improve import (
    PINS,
    SURE,
    PinLine,
    ProofJson,
    SearchJson,
    gain_table,
    news_text,
    no_gain_text,
    note_of,
    proof_figure,
    proof_sentences,
    proof_text,
    subject_title,
    summary,
)
from rocm_tui.render.table import hanging, text_table
from rocm_tui.search.types import Search
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.graph_rows import GraphRow, find_graph, graph_rows
from rocm_tui.session.model import Model, Row


class GraphsJson(JsonObject):
    graphs: list[GraphJson]


@click.command()
@click.argument("id", metavar="[ID]", type=common.GRAPH, required=False)
@click.option("--text", is_flag=True, help="Print the captured text of graph ID.")
@common.from_option
@common.cache_dir_option
@common.json_option
def graphs_command(
    id: str | None, text: bool, sources: Sequence[str], cache_dir: Path | None, json: bool
) -> int:
    """List the compiled graphs that `rocm-tui run` or a torch.profiler trace (--from) recorded.

    For each graph: its calls, the time of a call, its share of the time in compiled graphs. With
    ID: its tunings and their shares, its kernels where a profiler saw them, its trials. Exit code 1
    if there is no graph.
    """
    if text and (id is None or json):
        raise UsageError("--text needs an ID, and is no JSON: graphs ID --text")
    layout = common.layout_at(cache_dir)
    rows = known_graphs(layout, sources)
    if id is not None:
        row = find_graph(rows, id)
        if text:
            common.print_source(text_of(layout, row.id).data.decode("utf-8", "replace"))
        elif json:
            say.out_json(GraphJson.of(row))
        else:
            say.out(graph_text(row))
        return ExitCode.YES
    if json:
        say.out_json(GraphsJson(graphs=[GraphJson.of(row) for row in rows]))
    elif rows:
        say.out(graphs_text(rows))
    else:
        say.err("no graph is known: `rocm-tui run -- CMD` records them")
    return ExitCode.of(bool(rows))


class TrialsJson(JsonObject):
    """All trials of a tuning in its graph; `trial` combines them."""

    id: str
    trial: TrialJson
    trials: list[TrialJson]


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The options of `trial`."""

    id: str | None
    choices: Sequence[str]
    graph: str | None
    budget: float | None
    rounds: int
    processes: int
    yes: bool
    step: str | None
    skip: int
    pairs: int | None
    device: str | None
    sources: Sequence[str]
    python: str | None
    cache_dir: Path | None
    json: bool
    program: Sequence[str] | None


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
@common.rounds_option
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
    args = TrialOptions(**given)
    if args.program is not None:
        return _try_program(args)
    if args.id is None:
        raise UsageError("give a tuning's ID, or a program: rocm-tui trial -- python train.py")
    budget = seconds_given(args.budget, "--budget")
    if args.processes < 1:
        raise UsageError("--processes is a number, 1 or more")
    layout = common.layout_at(args.cache_dir)
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
        each = [TrialJson.of(one) for one in trials]
        say.out_json(TrialsJson(id=row.id, trial=TrialJson.of(result), trials=each))
    else:
        _print_trial(row, result)
    rivals = result.arms[1:]
    return ExitCode.of(all(arm.verdict != "unclear" and not arm.failed for arm in rivals))


def _try(
    args: TrialOptions,
    layout: Layout,
    graph: GraphRow,
    arms: Sequence[Arm],
    budget: float | None,
) -> list[Trial]:
    """All trials, each in a process of its own; of several, each is told as it comes."""
    work = Work(layout, args.python, args.device, warm=False)
    trying = GraphTrial(
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


def _try_program(args: TrialOptions) -> int:
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
                common.layout_at(args.cache_dir),
                steps,
                pairs=args.pairs,
                budget=seconds_given(args.budget, "--budget"),
                begun=lambda pair, side: line.show(f"pair {pair}, {side} the pins"),
                tell=tell,
            )
        finally:
            line.show("")
    if args.json:
        say.out_json(ProgramTrialJson.of(result))
    else:
        say.out()
        say.out(program_text(result))
        say.out()
        for sentence in program_sentences(result):
            say.out(hanging("", sentence))
    return ExitCode.of(result.verdict.verdict != "unclear")


def _print_trial(row: Row, trial: Trial) -> None:
    say.out(trial_text(trial))
    say.out()
    for sentence in sentences(trial, row.tuning):
        say.out(hanging("", sentence))
    command = pin_command(trial, row.tuning, row.id)
    if command:
        say.out(f"To use it: {command}")


@click.command()
@common.graph_argument
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Search for at most this long, compiling included (default: 600, or as configured).",
)
@click.option(
    "--within",
    type=float,
    default=10.0,
    metavar="PCT",
    help="Try choices at most PCT per cent slower, and the fastest of each kind (default: 10).",
)
@click.option("--restart", is_flag=True, help="Discard an earlier search.")
@click.option(
    "--yes", is_flag=True, help="Run the text of the graph and pin the result without asking."
)
@common.device_option
@common.from_option
@common.python_option
@common.cache_dir_option
@common.json_option
def improve_command(
    graph: str | None,
    budget: float | None,
    within: float,
    restart: bool,
    yes: bool,
    device: str | None,
    sources: Sequence[str],
    python: str | None,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Try choices in a captured graph, and propose to pin those that make the whole graph faster.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result is confirmed in new processes. An interrupted search is continued. Exit code 0 if
    something faster was found; nothing is pinned without a yes.
    """
    limit = seconds_given(budget, "--budget")
    margin = check_percent(within, "--within")
    layout = common.layout_at(cache_dir)
    model = load_model(layout, also=sources)
    picked = pick_graph(graph_rows(model, layout), graph)
    rows = rows_of(picked)
    consent(layout, picked.graph, yes)
    work = Work(layout, python, device)
    teller = _Teller(work)
    improving = GraphSearch(
        work,
        layout,
        picked,
        budget=limit,
        within=margin,
        restart=restart,
        tell=teller.tell,
    )
    try:
        with ended_by_signals():
            search = improving.go()
    except (KeyboardInterrupt, SystemExit):
        if improving.search is not None and not json:
            _print_cut(improving.search)
        raise
    finally:
        work.line.show("")
    if json:
        say.out_json(SearchJson.of(search))
    else:
        _print_search(search, rows, improving.budget)
    _offer(layout, model, rows, search, yes=yes, json=json)
    return ExitCode.of(result_of(search) is not None)


class _Teller:
    """Says in the live line what the search does."""

    def __init__(self, work: Work) -> None:
        self._line = work.line
        self._anew = ""

    def tell(self, news: SearchProgress) -> None:
        if news.anew != self._anew:
            self._anew = news.anew
            self._line.show("")
            say.err(news.anew)
        text = news_text(news.search, news.step, news.left)
        self._line.title = f"graph {news.search.graph}: {text}"
        self._line.show("starting a worker" if news.step is not None else "")


def pin_lines(found: Sequence[PinProposal]) -> list[PinLine]:
    return [PinLine(one.subject, one.candidate, one.graph) for one in found]


def _print_search(search: Search, rows: Rows, budget: float) -> None:
    gain, found = result_of(search), proposals(search)
    if gain is not None:
        say.out(gain_table(search, gain))
        say.out()
        say.out(text_table(PINS, pin_lines(found)))
        say.out()
    lines = [*summary(search), *pinned_sentences(search, rows)]
    if gain is None:
        lines.append(no_gain_text(search, budget))
    for sentence in lines:
        say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    if gain is not None:
        say.out(SURE)
    if not is_finished(search):
        say.out(f"More may be found: rocm-tui improve {search.graph}")


def _print_cut(search: Search) -> None:
    for sentence in summary(search):
        say.err(f"{sentence[0].upper()}{sentence[1:]}.")
    say.err(f"To go on: rocm-tui improve {search.graph}")


def pinned_sentences(search: Search, rows: Rows) -> list[str]:
    """What to know of tunings of the graph that are pinned already."""
    proposed = {one.subject.key: one.candidate.hash for one in proposals(search)}
    lines = []
    for subject in search.subjects:
        row = rows.get(subject.key)
        if row is None or row.pin is None:
            continue
        pin = row.pin.pin
        text = f"{subject_title(subject)} ({row.id}) is pinned to {plain(pin.label)}"
        if proposed.get(subject.key) == pin.hash:
            lines.append(f"{text}, which is proposed too; `before` is without it")
        else:
            lines.append(f"{text}, which the search does not propose; `before` is without it")
    return lines


def _offer(
    layout: Layout, model: Model, rows: Rows, search: Search, *, yes: bool, json: bool
) -> None:
    """Pin what was found, if a person agrees; else print how."""
    gain = result_of(search)
    wanted = [one for one in proposals(search) if not _is_pinned(one, rows)]
    if gain is None or not wanted:
        return
    these = "this" if len(wanted) == 1 else f"these {len(wanted)}"
    asks = sys.stdin.isatty() and not json
    planned = plan_proposals(wanted, rows, model.sessions, layout) if asks or yes else []
    if yes or (asks and asked(f"pin {these}? [y/N] ")):
        note = note_of(search, gain)
        for pinned in pin_proposals(planned, layout, note):
            detail = f": {pinned.detail}" if pinned.detail else ""
            say.err(f"pinned {plain(pinned.choice.label)}, {pinned.state}{detail}")
        say.err(f"To prove it in stock processes: rocm-tui prove {search.graph}")
    elif not json:
        say.out("To pin them:")
        for one in wanted:
            note = note_of(search, gain)
            say.out(f"  rocm-tui pin {one.subject.id} {one.candidate.hash} --note '{note}'")


def _is_pinned(proposal: PinProposal, rows: Rows) -> bool:
    row = rows.get(proposal.subject.key)
    return row is not None and row.pin is not None and row.pin.pin.hash == proposal.candidate.hash


@click.command()
@common.graph_argument
@click.option(
    "--pairs",
    type=int,
    default=PAIRS,
    metavar="N",
    help=f"Processes with the pins, and as many without (default: {PAIRS}; at least 3).",
)
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Time passes for at most this long in each process (default: 10, or as configured).",
)
@common.yes_to_graph_option
@common.device_option
@common.from_option
@common.python_option
@common.cache_dir_option
@common.json_option
def prove_command(
    graph: str | None,
    pairs: int,
    budget: float | None,
    yes: bool,
    device: str | None,
    sources: Sequence[str],
    python: str | None,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Compare a captured graph with and without the pins, in new processes of stock PyTorch.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result goes into the notes of the graph's pins. Exit code 0 if the graph is faster with
    them.
    """
    limit = seconds_given(budget, "--budget")
    if pairs < 3:
        raise UsageError("--pairs is a number, 3 or more: fewer tell nothing of their differences")
    layout = common.layout_at(cache_dir)
    rows = graph_rows(load_model(layout, also=sources), layout)
    picked = pick_graph(rows, graph)
    work = Work(layout, python, device)

    def tell(number: int, total: int, pinned: bool) -> None:
        which = "with the pins" if pinned else "without"
        work.line.part(number - 1, total)
        work.line.title = f"graph {picked.id}: process {number} of {total}, {which}"
        work.line.show("starting a worker")

    proving = Proving(work, layout, picked, pairs=pairs, budget=limit, tell=tell)
    consent(layout, picked.graph, yes)
    try:
        with ended_by_signals():
            proof = proving.go()
    except JobError as error:
        raise JobError(with_log(error)) from error
    finally:
        work.line.show("")
    annotate(layout, proof, proof_figure(proof))
    if json:
        say.out_json(ProofJson.of(proof))
    else:
        say.out(proof_text(proof))
        say.out()
        for sentence in proof_sentences(proof):
            say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    return ExitCode.of(proof.verdict == "faster" and not proof.contradicted)
