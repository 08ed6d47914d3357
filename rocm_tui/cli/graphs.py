"""`rocm-tui graphs`, `trial`, `improve` and `prove`: compiled graphs, and how to speed them up."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from backend.errors import StoreError
from backend.measure.trial import LEAST_PROCESSES
from backend.model.graph import Arm, Trial, swaps_of
from rocm_tui import say
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.improve import (
    GraphSearch,
    PinProposal,
    Rows,
    SearchProgress,
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
    BASELINE,
    GraphTrial,
    arms_for,
    choices_to_try,
    combined,
    graph_for,
    options_to_try,
    text_of,
)
from rocm_tui.actions.trial_program import (
    SKIP,
    Steps,
    read_spread,
    steps_of,
    try_program,
    tune_cold,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode, ProgramCommand
from rocm_tui.cli.work import LiveLine, Work, asked, consent, ended_by_signals
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import seconds_given
from rocm_tui.jobs.program import ProgramRun
from rocm_tui.jobs.worker import first_gpus
from rocm_tui.json_output import Document
from rocm_tui.render.graphs import (
    ARMS,
    GRAPHS,
    GraphJson,
    ProgramTrialJson,
    TablesTrialJson,
    TrialJson,
    arm_label,
    arm_lines,
    graph_text,
    graph_title,
    options_lines,
    pin_command,
    program_sentences,
    program_text,
    run_line,
    sentences,
    short,
)
from rocm_tui.render.improve import (
    GAINS,
    PINS,
    PROOFS,
    SURE,
    PinLine,
    ProofJson,
    SearchJson,
    news_text,
    no_gain_text,
    note_of,
    proof_figure,
    proof_sentences,
    subject_title,
    summary,
)
from rocm_tui.render.spread import (
    SpreadJson,
    known_spread_text,
    spread_sentences,
    tuning_line,
)
from rocm_tui.render.table import hanging, text_table
from rocm_tui.search.options import graph_option
from rocm_tui.search.steps import finished
from rocm_tui.search.types import Search, best_result
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.graph_rows import GraphRow, find_graph, graph_rows
from rocm_tui.session.model import Model, Row
from rocm_tui.session.spread import LEAST, ColdTuning


class GraphsJson(Document, tag="rocm-tui/graphs/1"):
    graphs: list[GraphJson]


class ShownGraphJson(GraphJson, Document, tag="rocm-tui/graph/1"):
    """One compiled graph."""


@click.command()
@click.argument("id", metavar="[ID]", type=common.GRAPH, required=False)
@common.flag("--text", "Print the captured text of graph ID.")
@common.from_option
@common.output_options
def graphs_command(
    id: str | None, text: bool, sources: Sequence[str], cache_dir: Path | None, json: bool
) -> int:
    """List the compiled graphs that `rocm-tui run` or a torch.profiler trace (--from) recorded.

    The list has each graph's calls, the time of a call, and its share of the time in compiled
    graphs. With ID, its tunings with their shares, its trials, and the kernels that a profiler saw
    are listed. Exit code 1 if there is no graph.

    Example: rocm-tui graphs
    """
    if text and (id is None or json):
        raise UsageError("--text needs an ID, and is no JSON: graphs ID --text")
    layout = common.layout_at(cache_dir)
    rows = known_graphs(layout, sources)
    if id is not None:
        row = find_graph(rows, id)
        if text:
            common.print_source(text_of(layout, row.id).data.decode("utf-8", "replace"))
        else:
            common.print_result(row, json, ShownGraphJson.of, graph_text)
        return ExitCode.YES
    if json:
        say.out_json(GraphsJson(graphs=[GraphJson.of(row) for row in rows]))
    elif rows:
        say.out(text_table(GRAPHS, rows))
    else:
        say.err("no graph is known: `rocm-tui run -- CMD` records them")
    return ExitCode.of(bool(rows))


class TrialsJson(Document, tag="rocm-tui/trial/1"):
    """All trials of a tuning in its graph, or of options in a graph; `trial` combines them. `id` is
    the tuning's, or else the graph's."""

    id: str
    trial: TrialJson
    trials: list[TrialJson]


_GRAPHS = "option options rounds processes device sources python"
_PROGRAMS = "step skip pairs"
"""Parameters of a trial of a graph, and of a program."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The options of `trial`."""

    id: str | None
    choices: Sequence[str]
    graph: str | None
    option: Sequence[str]
    options: bool
    budget: float | None
    rounds: int
    processes: int
    yes: bool
    dry_run: bool
    step: str | None
    skip: int
    pairs: int | None
    spread: int | None
    table: Sequence[Path]
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
    "--graph",
    metavar="GRAPH",
    type=common.GRAPH,
    help="Time this graph (default: where ID counts most).",
)
@common.repeatable(
    "--option", metavar="NAME=VALUE", help="Also compile the graph with this option of Inductor"
)
@common.flag("--options", "Also try the options that often help.")
@common.seconds("--budget", "Time passes for at most this long", "30, of a program 600")
@common.rounds_option
@common.number("--processes", 1, "Use N processes; from 3 on, the interval is their spread.")
@common.yes_to_graph_option
@common.dry_run_option
@click.option("--step", metavar="REGEX", help="End a timed step of CMD at each line that matches.")
@common.number("--skip", SKIP, f"Skip the first N steps of CMD as warm-up (default: {SKIP}).")
@common.number("--pairs", None, "Run CMD N times with the pins, and N times without.")
@common.number("--spread", None, "Run CMD N times with empty caches, and compare its tunings.")
@common.repeatable(
    "--table",
    metavar="FILE",
    help="Run CMD with this tuned table and without, or with two in place of the pins",
    type=common.FILE,
)
@common.job_options
def trial_command(**given: Any) -> int:
    """Time whole passes of a captured graph with choices or options, and without them.

    CHOICE is a name, a hash, the first digits of a hash, or #2 (default: all that may be faster).
    Without ID, --option or --options try options of Inductor in the graph that takes most time.
    With `-- CMD...` the whole program runs repeatedly, with the pins and without, or with one tuned
    table of TunableOp, AITER, vLLM or SGLang and another, or with empty caches (--spread). Exit
    code 0 only if the result is clear. Nothing is pinned, and no cache or table changes.

    Example: rocm-tui trial --step loss -- python train.py
    """
    args = TrialOptions(**given)
    common.report_settings()
    if options := common.options_given(_PROGRAMS if args.program is None else _GRAPHS):
        if args.program is None:
            raise UsageError(f"{options[0]} needs a program: trial --step loss -- python train.py")
        instead = "; use rocm-tui run --option" if options[0] == "--option" else ""
        raise UsageError(f"{options[0]} is for a graph, and goes without CMD{instead}")
    if args.program is not None:
        return _try_program(args)
    if args.spread is not None:
        raise UsageError(
            "--spread needs a program: trial --spread 5 --step loss -- python train.py"
        )
    if args.table:
        raise UsageError(
            "--table needs a program: trial --table FILE --step loss -- python serve.py"
        )
    budget = seconds_given(args.budget, "--budget")
    if args.processes < 1 or 1 < args.processes < LEAST_PROCESSES:
        raise UsageError(f"--processes is 1, or {LEAST_PROCESSES} or more: 2 have no spread")
    tried = [graph_option(text) for text in args.option]
    layout = common.layout_at(args.cache_dir)
    row: Row | None = None
    arms: Sequence[Arm] = (BASELINE,)
    if args.id is not None:
        model, row = pick_tuning(layout, args.sources, args.id)
        device_choices = [find_device_choice(row, name) for name in args.choices]
        row = device_choices[0][0] if device_choices else row
        graph = graph_for(row, graph_rows(model, layout), args.graph)
        arms = arms_for(row, [graph], choices_to_try(row, [choice for _, choice in device_choices]))
    elif tried or args.options:
        graph = pick_graph(known_graphs(layout, args.sources), args.graph)
    else:
        raise UsageError("give a tuning's ID, --options, or a program: trial -- python train.py")
    if args.options:
        tried += options_to_try(text_of(layout, graph.id), graph.graph.device)
    arms = (*arms, *((option,) for option in dict.fromkeys(tried)))
    work = Work(layout, args.python, args.device, warm=False)
    trying = GraphTrial(
        work,
        layout,
        graph.id,
        arms,
        budget=budget,
        rounds=args.rounds,
        threads=graph.session.threads if graph.session else None,
        fresh=args.processes > 1,
    )
    notes = consent(layout, graph.graph, args.yes, dry_run=args.dry_run)
    if args.dry_run:
        names = ", ".join(map(arm_label, arms[1:]))
        seconds = trying.budget * args.processes
        step = f"time {graph_title(graph.graph)} for at most {seconds:g} s with {names}"
        return common.print_plan([" ".join([f"{step};" if notes else step, *notes])], args.json)
    trials: list[Trial] = []
    try:
        _try(args, work, trying, graph, trials)
    finally:  # also what was done before a process died
        if trials and args.json:
            say.out_json(_trials_json(graph.id if row is None else row.id, trials))
    result = _combined(trials)
    if not args.json:
        _print_trial(row, result, ShellCommands(layout))
    clear = (result.verdict(arm) != "unclear" and not arm.failed for arm in result.rivals)
    return ExitCode.of(all(clear))


def _combined(trials: Sequence[Trial]) -> Trial:
    return combined(trials) if len(trials) > 1 else trials[0]


def _trials_json(id: str, trials: Sequence[Trial]) -> TrialsJson:
    each = [TrialJson.of(trial) for trial in trials]
    return TrialsJson(id=id, trial=TrialJson.of(_combined(trials)), trials=each)


def _try(
    args: TrialOptions, work: Work, trying: GraphTrial, graph: GraphRow, trials: list[Trial]
) -> None:
    """Add the trials, each in its own process; print each of several as it ends."""
    for number in range(1, args.processes + 1):
        count = f" ({number} of {args.processes})" if args.processes > 1 else ""
        with work.line.during(graph_title(graph.graph) + count):
            trials.append(trying.once())
        if args.processes > 1 and not args.json:
            say.out(f"{number} of {args.processes}: {short(trials[-1])}", flush=True)


def _try_program(args: TrialOptions) -> int:
    if not args.program:
        raise UsageError("-- needs a command: rocm-tui trial --step loss -- python train.py")
    if args.dry_run:
        raise UsageError("--dry-run goes without CMD, which runs as usual")
    if args.id is not None:
        raise UsageError("give a tuning's ID or a program, not both: CMD runs with all pins")
    if args.pairs is not None and args.pairs < LEAST_PROCESSES:
        raise UsageError(f"--pairs is a number, {LEAST_PROCESSES} or more")
    steps = steps_of(args.step, args.graph, args.skip)
    if args.spread is not None:
        return _tune_cold(args, args.program, steps, args.spread)
    line = LiveLine()

    def tell(run: ProgramRun) -> None:
        line.show("")
        if not args.json:
            say.out(run_line(run), flush=True)

    with ended_by_signals(), line.during("trial", ""):
        result = try_program(
            args.program,
            common.layout_at(args.cache_dir),
            steps,
            tables=args.table,
            pairs=args.pairs,
            budget=seconds_given(args.budget, "--budget"),
            begun=lambda pair, label: line.show(f"pair {pair}, {label}"),
            tell=tell,
        )
    if args.json:
        say.out_json((TablesTrialJson if result.tables else ProgramTrialJson).of(result))
    else:
        say.out()
        common.print_paragraphs(program_text(result), program_sentences(result))
    return ExitCode.of(result.verdict.verdict != "unclear")


def _tune_cold(args: TrialOptions, command: Sequence[str], steps: Steps, count: int) -> int:
    if args.table or args.pairs is not None or args.budget is not None:
        raise UsageError("--spread goes without --table, --pairs and --budget")
    if count < LEAST:
        raise UsageError(f"--spread is a number, {LEAST} or more")
    line = LiveLine()

    def tell(number: int, tuning: ColdTuning) -> None:
        line.show("")
        if not args.json:
            say.out(tuning_line(number, tuning), flush=True)

    with ended_by_signals(), line.during("trial", ""):
        spread = tune_cold(
            command,
            common.layout_at(args.cache_dir),
            steps,
            count,
            begun=lambda number, label: line.show(f"cold tuning {number} of {count}"),
            tell=tell,
        )
    if args.json:
        say.out_json(SpreadJson.of(spread))
    else:
        say.out()
        for sentence in spread_sentences(spread):
            say.out(hanging("", sentence))
    return ExitCode.YES


def _print_trial(row: Row | None, trial: Trial, commands: ShellCommands) -> None:
    table = text_table(ARMS, arm_lines(trial))
    common.print_paragraphs(table, sentences(trial, row.tuning if row else None))
    best = best_result(trial)
    if row is not None and (command := pin_command(trial, row.tuning, row.id, commands.line)):
        say.out(f"To use it: {command}")
    if best is not None:
        _print_options(best.swaps)


def _print_options(arm: Arm) -> None:
    """Print how a program sets the options of a confirmed arm, if it has any."""
    if lines := options_lines(arm):
        pins = " and the pins (the gain is that of both)" if swaps_of(arm) else ""
        say.out(f"To compile with the options{pins}:")
        for line in lines:
            say.out(f"  {line}")


@click.command()
@common.graph_argument
@common.seconds("--budget", "Search for at most this long, compiling included", "600")
@click.option(
    "--within",
    type=float,
    default=None,
    metavar="PCT",
    help="Try choices at most PCT per cent slower, and the fastest of each kind (default: 10).",
)
@common.flag("--options", "Also try options of Inductor, after choices.")
@common.flag("--templates", "Also try our kernels, as one change of the whole graph.")
@common.number(
    "--gpus", 1, "Divide trials and confirming among N visible GPUs of one kind (default: 1)."
)
@common.flag("--restart", "Discard an earlier search.")
@common.flag("--yes", "Run the text of the graph and pin the result without asking.")
@common.job_options
def improve_command(
    graph: str | None,
    budget: float | None,
    within: float | None,
    options: bool,
    templates: bool,
    gpus: int,
    restart: bool,
    yes: bool,
    device: str | None,
    sources: Sequence[str],
    python: str | None,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Try choices in a captured graph, and propose pins that make the whole graph faster.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result is confirmed in new processes. An interrupted search is continued, without --within,
    --options and --templates with its own. Exit code 0 if something faster was found; nothing is
    pinned without a yes.

    Example: rocm-tui improve --budget 300
    """
    common.report_settings()
    limit = seconds_given(budget, "--budget")
    margin = None if within is None else check_percent(within)
    if gpus < 1 or (gpus > 1 and device is not None):
        raise UsageError("--gpus N takes the first N visible GPUs, at least 1; leave out --device")
    several = first_gpus(os.environ, gpus)
    layout = common.layout_at(cache_dir)
    model = load_model(layout, also=sources)
    picked = pick_graph(graph_rows(model, layout), graph)
    rows = rows_of(picked)
    consent(layout, picked.graph, yes)
    work = Work(layout, python, device)
    commands = ShellCommands(layout, python=python)
    teller = _Teller(work)
    improving = GraphSearch(
        work,
        layout,
        picked,
        budget=limit,
        within=margin,
        restart=restart,
        options=options,
        templates=templates,
        gpus=several,
        tell=teller.tell,
    )
    try:
        with ended_by_signals(), work.line.during("", ""):
            search = improving.go()
    except BaseException as error:  # also of a full disk: what was done is printed
        if improving.search is not None and json:
            say.out_json(SearchJson.of(improving.search))
        elif improving.search is not None and isinstance(error, (KeyboardInterrupt, SystemExit)):
            _print_cut(improving.search, commands)
        raise
    if json:
        say.out_json(SearchJson.of(search))
    else:
        trials = [attempt.trial for attempt in search.tries if attempt.trial is not None]
        spread = read_spread(layout, search.graph, trials[-1]) if trials else ()
        _print_search(search, rows, improving.budget, commands, spread)
    try:
        _offer(commands, model, rows, search, yes=yes, json=json)
    except (RocmTuiError, StoreError) as error:
        if not json:
            raise
        say.err(str(error))  # stdout has the one document of this command
        return ExitCode.of_error(error)
    if (gain := result_of(search)) is not None and not json:
        _print_options(gain.arm)
    return ExitCode.of(result_of(search) is not None)


class _Teller:
    """Shows the progress of a search in the live line."""

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
    return [PinLine(proposal.subject, proposal.candidate, proposal.graph) for proposal in found]


def _print_search(
    search: Search,
    rows: Rows,
    budget: float,
    commands: ShellCommands,
    spread: tuple[float, ...] = (),
) -> None:
    gain, proposed = result_of(search), proposals(search)
    if gain is not None:
        say.out(text_table(GAINS, [(search.graph, gain)]))
        say.out()
        if proposed:
            say.out(text_table(PINS, pin_lines(proposed)))
            say.out()
    lines = [*summary(search), *pinned_sentences(search, rows)]
    if gain is None:
        lines.append(no_gain_text(search, budget))
    if spread:
        lines.append(known_spread_text(spread))
    for sentence in lines:
        say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    if gain is not None:
        say.out(SURE)
    if not finished(search):
        say.out(f"More may be found: {commands.improve(search.graph)}")


def _print_cut(search: Search, commands: ShellCommands) -> None:
    for sentence in summary(search):
        say.err(f"{sentence[0].upper()}{sentence[1:]}.")
    say.err(f"To go on: {commands.improve(search.graph)}")


def pinned_sentences(search: Search, rows: Rows) -> list[str]:
    """Return sentences on tunings of the graph that are already pinned."""
    proposed = {proposal.subject.key: proposal.candidate.hash for proposal in proposals(search)}
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
    commands: ShellCommands, model: Model, rows: Rows, search: Search, *, yes: bool, json: bool
) -> None:
    """Pin what was found, if a person agrees; else print how."""
    gain = result_of(search)
    wanted = [proposal for proposal in proposals(search) if not _is_pinned(proposal, rows)]
    if gain is None or not wanted:
        return
    layout = commands.layout
    these = "this" if len(wanted) == 1 else f"these {len(wanted)}"
    asks = sys.stdin.isatty() and not json
    planned = plan_proposals(wanted, rows, model.sessions, layout) if asks or yes else []
    if yes or (asks and asked(f"pin {these}? [y/N] ")):
        note = note_of(search, gain)
        for pinned in pin_proposals(planned, layout, note):
            detail = f": {pinned.detail}" if pinned.detail else ""
            say.err(f"pinned {plain(pinned.choice.label)}, {pinned.state}{detail}")
        say.err(f"To prove it in stock processes: {commands.prove(search.graph)}")
    elif not json:
        say.out("To pin them:")
        note = note_of(search, gain)
        for proposal in wanted:
            words = ("pin", proposal.subject.id, proposal.candidate.hash, "--note", note)
            say.out(f"  {commands.line(*words)}")


def _is_pinned(proposal: PinProposal, rows: Rows) -> bool:
    row = rows.get(proposal.subject.key)
    return row is not None and row.pin is not None and row.pin.pin.hash == proposal.candidate.hash


@click.command()
@common.graph_argument
@common.number(
    "--pairs", PAIRS, f"Run N processes with the pins and N without (default: {PAIRS}; at least 3)."
)
@common.seconds("--budget", "Time passes for at most this long in each process", "10")
@common.yes_to_graph_option
@common.job_options
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
    """Compare a captured graph with and without the pins, in processes of stock PyTorch.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result goes into the notes of the graph's pins. Exit code 0 if the graph is faster with
    them.

    Example: rocm-tui prove
    """
    common.report_settings()
    limit = seconds_given(budget, "--budget")
    if pairs < LEAST_PROCESSES:
        raise UsageError(
            f"--pairs is a number, {LEAST_PROCESSES} or more: fewer say nothing about the spread"
        )
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
    with ended_by_signals(), work.line.during("", ""):
        proof = proving.go()
    if json:
        say.out_json(ProofJson.of(proof))
    else:
        say.out(text_table(PROOFS, [proof]))
        say.out()
        for sentence in proof_sentences(proof):
            say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    if trouble := annotate(layout, proof, proof_figure(proof)):
        say.err(trouble)
    return ExitCode.of(proof.verdict == "faster" and not proof.contradicted)
