"""Trials, searches and proofs of whole graphs, and the pins that a search proposes.

Each first shows what will happen, and is started by `BaseApp.act`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from textwrap import dedent

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.graph import Arm
from rocm_tui.actions.improve import (
    GraphSearch,
    PinProposal,
    SearchProgress,
    pin_proposals,
    plan_proposals,
    proposals,
    result_of,
    rows_of,
)
from rocm_tui.actions.prove import PAIRS, Proving, annotate
from rocm_tui.actions.trial import (
    CapturedGraph,
    GraphTrial,
    accept,
    arms_for,
    choices_to_try,
    graph_for,
    text_of,
)
from rocm_tui.config.settings import config
from rocm_tui.environment import lane
from rocm_tui.jobs.queue import JobKind, Order, QueueRun
from rocm_tui.jobs.run import RunJob
from rocm_tui.render.choices import name_of
from rocm_tui.render.graphs import graph_title, short
from rocm_tui.render.improve import (
    beside_pins,
    gain_text,
    no_gain_text,
    note_of,
    proof_figure,
    proposal_text,
    step_text,
    subject_title,
    summary,
)
from rocm_tui.render.jobs import problem_title
from rocm_tui.search.types import Search
from rocm_tui.session import numbers as fmt
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.screens.dialogs import confirm

_SHOWN = 6
"""Lines of a graph's text that the question shows."""
_WIDTH = 62


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The choices to try in a graph of this text, beside its baseline."""

    row: Row
    graph: GraphRow
    text: CapturedGraph
    choices: Sequence[Choice]
    arms: tuple[Arm, ...]


async def try_choices(app: BaseApp, row: Row, marked: AbstractSet[str]) -> None:
    """Show the graph, then queue the trial of the marked choices in it."""
    if app.asking:
        return
    wanted = [choice for choice in row.tuning.choices if name_of(choice) in marked]
    graphs = graph_rows(app.feed.model, app.layout)
    plan = await to_thread(_plan, row, graphs, wanted, app.layout)
    names = ", ".join(choice.label for choice in plan.choices)
    command = app.shell.trial(row, plan.choices, plan.graph.id)
    lines = [
        *_about(plan.graph, plan.text),
        "",
        "A worker compiles it with each choice and times whole passes.",
        "Nothing is pinned; caches and pins stay as they are.",
    ]
    if await confirm(app, f"Try {names} in the whole graph", "Run", lines, command):
        await to_thread(accept, app.layout, plan.text)
        order = trial_order(plan, app.layout)
        app.queue(order, command, f"Trial of {order.title}")


def _plan(
    row: Row, graphs: Sequence[GraphRow], wanted: Sequence[Choice], layout: Layout
) -> TrialPlan:
    """Raises NotTried and NoSuchChoice."""
    graph = graph_for(row, graphs)
    choices = choices_to_try(row, wanted)
    arms = arms_for(row, [graph], choices)
    return TrialPlan(row, graph, text_of(layout, graph.id), choices, arms)


def trial_order(plan: TrialPlan, layout: Layout) -> Order:
    """Return a trial for the queue."""
    threads = plan.graph.session.threads if plan.graph.session else None

    def work(run: RunJob) -> str:
        return short(GraphTrial(run, layout, plan.graph.id, plan.arms, threads=threads).once())

    tuning = plan.row.tuning
    return Order(
        kind="trial",
        title=f"{problem_title(tuning)} in graph {plan.graph.id}",
        lane=lane(None, tuning.device),
        work=work,
        key=tuning.key,
        tuning=plan.row.id,
    )


async def improve(app: BaseApp, graph: GraphRow) -> None:
    """Show the graph, then queue the search for choices that make it faster."""
    lines = [
        f"A worker tries choices of its {counted(len(graph.tunings), 'tuning')} in it, for "
        f"{fmt.seconds(config().budgets.improve)} at most.",
        "Nothing is pinned; what is found is proposed here.",
    ]
    command = app.shell.improve(graph.id)
    if await _accepted(app, graph, f"Improve graph {graph.id}", lines, command):
        app.queue(improve_order(graph, app.layout), command)


async def prove(app: BaseApp, graph: GraphRow) -> None:
    """Ask, then queue the comparison of stock processes, with the graph's pins and without."""
    lines = [
        f"{2 * PAIRS} new processes of stock PyTorch compile it, half of them with the pins.",
        "The figure goes into the notes of its pins.",
    ]
    command = app.shell.prove(graph.id)
    if await _accepted(app, graph, f"Prove the pins of graph {graph.id}", lines, command):
        app.queue(prove_order(graph, app.layout), command)


async def _accepted(
    app: BaseApp, graph: GraphRow, title: str, lines: list[str], command: str
) -> bool:
    """Return whether the person agreed to run just this text."""
    text = await to_thread(text_of, app.layout, graph.id)
    if not await confirm(app, title, "Run", [*_about(graph, text), "", *lines], command):
        return False
    await to_thread(accept, app.layout, text)
    return True


def _about(graph: GraphRow, text: CapturedGraph) -> list[str]:
    """Return lines about the graph: where its text is, and how it begins."""
    body = text.body
    begin = dedent("\n".join(line.partition(";")[0].rstrip() for line in body[:_SHOWN]))
    first = [
        line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in begin.split("\n")
    ]
    more = len(body) - len(first)
    lines = [graph_title(graph.graph), str(text.path), "", *(f"  {line}" for line in first)]
    return [*lines, f"  … {counted(more, 'more line')}"] if more > 0 else lines


def improve_order(graph: GraphRow, layout: Layout) -> Order:
    """Return a search for the queue."""

    def work(run: QueueRun) -> str:
        def tell(news: SearchProgress) -> None:
            run.tell(step_text(news.search, news.step), left=news.left)

        improving = GraphSearch(run, layout, graph, tell=tell)
        search = improving.go()
        gain = result_of(search)
        if gain is None:
            return "; ".join((no_gain_text(search, improving.budget), *summary(search)[:1]))
        return f"{gain_text(gain)} with {proposal_text(gain.arm)}, which Trials (8) proposes"

    return _order("improve", graph, work)


def prove_order(graph: GraphRow, layout: Layout) -> Order:
    """Return a proof for the queue."""

    def work(run: QueueRun) -> str:
        def tell(number: int, total: int, pinned: bool) -> None:
            run.tell(f"process {number} of {total}", number - 1, total)

        proof = Proving(run, layout, graph, tell=tell).go()
        trouble = annotate(layout, proof, proof_figure(proof))
        return f"{gain_text(proof)}; {trouble}" if trouble else gain_text(proof)

    return _order("prove", graph, work)


def _order(kind: JobKind, graph: GraphRow, work: Callable[[QueueRun], str]) -> Order:
    title = graph_title(graph.graph).removeprefix("graph ")
    return Order(kind=kind, title=title, lane=lane(None, graph.graph.device), work=work)


async def pin_found(app: BaseApp, graph: GraphRow, search: Search) -> None:
    """Show the pins that a search proposes, then pin them."""
    wanted, gain = proposals(search), result_of(search)
    if gain is None:
        app.warn("No pin is proposed for this graph; i searches.")
        return
    beside = beside_pins(gain.arm)
    how = f"`rocm-tui improve {graph.id}` prints how a program sets that"
    if not wanted:
        app.warn(f"The gain needs no pin but {beside}: {how}.")
        return
    rows, sessions = rows_of(graph), app.feed.model.sessions
    planned = await to_thread(plan_proposals, wanted, rows, sessions, app.layout)
    lines = [f"graph {graph.id} is {gain_text(gain)} with", ""]
    lines += [line for proposal in wanted for line in _pin_lines(proposal)]
    if beside:
        lines += ["", f"together with {beside}:", how]
    note = note_of(search, gain)
    command = _pins_command(app, graph, wanted, note)
    if await confirm(app, f"Pin {len(wanted)} proposed", "Pin", lines, command):
        pinned = await to_thread(pin_proposals, planned, app.layout, note)
        active = sum(done.active for done in pinned)
        app.did(command, f"Pinned {len(pinned)}, {active} active; v proves it.")
        app.feed.reconciler.poke()


def _pins_command(app: BaseApp, graph: GraphRow, wanted: Sequence[PinProposal], note: str) -> str:
    """Return the commands of the pins whose choices still exist, joined by `&&`."""
    rows = rows_of(graph)
    commands = []
    for proposal in wanted:
        row = rows.get(proposal.subject.key)
        choices = row.tuning.choices if row else ()
        choice = next((c for c in choices if c.hash == proposal.candidate.hash), None)
        if row is not None and choice is not None:
            commands.append(app.shell.pin(row, choice, note))
    return " && ".join(commands)


def _pin_lines(proposal: PinProposal) -> list[str]:
    current = proposal.subject.current
    return [
        f"{subject_title(proposal.subject)} ({proposal.subject.id})",
        f"  {current.name if current else '?'} → {proposal.candidate.name}",
    ]
