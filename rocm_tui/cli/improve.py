"""`rocm-tui improve` and `prove`: choices that make a graph faster, and what its pins gain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.actions.improve import (
    Improving,
    News,
    Proposal,
    Rows,
    is_finished,
    pick_graph,
    pin_proposals,
    plan_proposals,
    proposals,
    result_of,
    rows_of,
)
from rocm_tui.actions.measure import check_percent
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.prove import PAIRS, Proving, annotate
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.cli.work import Work, asked, consent, ended_by_signals, with_log
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.render.improve import (
    PINS,
    SURE,
    PinLine,
    gain_table,
    news_text,
    no_gain_text,
    note_of,
    proof_figure,
    proof_json,
    proof_sentences,
    proof_text,
    search_json,
    subject_title,
    summary,
)
from rocm_tui.render.table import text_table
from rocm_tui.search.types import Search
from rocm_tui.session.graph_rows import graph_rows
from rocm_tui.session.model import Model


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
def improve_command(**given: Any) -> int:
    """Try choices in a captured graph, and propose to pin those that make the whole graph faster.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result is confirmed in new processes. An interrupted search is continued. Exit code 0 if
    something faster was found; nothing is pinned without a yes.
    """
    args = CommandArguments(**given)
    budget = seconds_given(args.budget, "--budget")
    within = check_percent(args.within, "--within")
    layout = common.layout_of(args)
    model = load_model(layout, also=args.sources)
    graph = pick_graph(graph_rows(model, layout), args.graph)
    rows = rows_of(graph)
    consent(layout, graph.graph, args.yes)
    work = Work(layout, args.python, args.device)
    teller = _Teller(work)
    improving = Improving(
        work,
        layout,
        graph,
        budget=budget,
        within=within,
        restart=args.restart,
        tell=teller.tell,
    )
    try:
        with ended_by_signals():
            search = improving.go()
    except (KeyboardInterrupt, SystemExit):
        if improving.search is not None and not args.json:
            _print_cut(improving.search)
        raise
    finally:
        work.line.show("")
    if args.json:
        say.out_json(search_json(search))
    else:
        _print(search, rows, improving.budget)
    _offer(args, layout, model, rows, search)
    return ExitCode.of(result_of(search) is not None)


class _Teller:
    """Says in the live line what the search does."""

    def __init__(self, work: Work) -> None:
        self._line = work.line
        self._anew = ""

    def tell(self, news: News) -> None:
        if news.anew != self._anew:
            self._anew = news.anew
            self._line.show("")
            say.err(news.anew)
        text = news_text(news.search, news.step, news.left)
        self._line.title = f"graph {news.search.graph}: {text}"
        self._line.show("starting a worker" if news.step is not None else "")


def pin_lines(found: Sequence[Proposal]) -> list[PinLine]:
    return [PinLine(one.subject, one.candidate, one.graph) for one in found]


def _print(search: Search, rows: Rows, budget: float) -> None:
    gain, found = result_of(search), proposals(search)
    if gain is not None:
        say.out(gain_table(search, gain))
        say.out()
        say.out(text_table(PINS, pin_lines(found)))
        say.out()
    sentences = [*summary(search), *pinned_sentences(search, rows)]
    if gain is None:
        sentences.append(no_gain_text(search, budget))
    for sentence in sentences:
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
    args: CommandArguments, layout: Layout, model: Model, rows: Rows, search: Search
) -> None:
    """Pin what was found, if a person says so; else say how."""
    gain = result_of(search)
    wanted = [one for one in proposals(search) if not _is_pinned(one, rows)]
    if gain is None or not wanted:
        return
    these = "this" if len(wanted) == 1 else f"these {len(wanted)}"
    asks = sys.stdin.isatty() and not args.json
    planned = plan_proposals(wanted, rows, model.sessions, layout) if asks or args.yes else []
    if args.yes or (asks and asked(f"pin {these}? [y/N] ")):
        note = note_of(search, gain)
        for pinned in pin_proposals(planned, layout, note):
            detail = f": {pinned.detail}" if pinned.detail else ""
            say.err(f"pinned {plain(pinned.choice.label)}, {pinned.state}{detail}")
        say.err(f"To prove it in stock processes: rocm-tui prove {search.graph}")
    elif not args.json:
        say.out("To pin them:")
        for one in wanted:
            note = note_of(search, gain)
            say.out(f"  rocm-tui pin {one.subject.id} {one.candidate.hash} --note '{note}'")


def _is_pinned(proposal: Proposal, rows: Rows) -> bool:
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
def prove_command(**given: Any) -> int:
    """Compare a captured graph with and without the pins, in new processes of stock PyTorch.

    GRAPH is a graph's id or its first digits (default: the graph with most of the program's time).
    The result goes into the notes of the graph's pins. Exit code 0 if the graph is faster with
    them.
    """
    args = CommandArguments(**given)
    budget = seconds_given(args.budget, "--budget")
    if args.pairs < 3:
        raise UsageError("--pairs is a number, 3 or more: fewer tell nothing of their differences")
    layout = common.layout_of(args)
    graph = pick_graph(graph_rows(load_model(layout, also=args.sources), layout), args.graph)
    work = Work(layout, args.python, args.device)

    def tell(number: int, total: int, pinned: bool) -> None:
        which = "with the pins" if pinned else "without"
        work.line.part(number - 1, total)
        work.line.title = f"graph {graph.id}: process {number} of {total}, {which}"
        work.line.show("starting a worker")

    proving = Proving(work, layout, graph, pairs=args.pairs, budget=budget, tell=tell)
    consent(layout, graph.graph, args.yes)
    try:
        with ended_by_signals():
            proof = proving.go()
    except JobError as error:
        raise JobError(with_log(error)) from error
    finally:
        work.line.show("")
    annotate(layout, proof, proof_figure(proof))
    if args.json:
        say.out_json(proof_json(proof))
    else:
        say.out(proof_text(proof))
        say.out()
        for sentence in proof_sentences(proof):
            say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    return ExitCode.of(proof.verdict == "faster" and not proof.contradicted)
