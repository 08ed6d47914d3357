"""What a screen asks for about a graph: make it faster, pin what was found, prove what pins gain.
Each shows first what will happen."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from dataclasses import replace

from backend.counted import counted
from backend.disk.layout import Layout
from backend.errors import StoreError
from rocm_tui.actions.improve import (
    Improving,
    News,
    Proposal,
    pin_proposals,
    plan_proposals,
    proposals,
    result_of,
    rows_of,
)
from rocm_tui.actions.prove import PAIRS, Proving, annotate
from rocm_tui.actions.trial import GraphText, accept, text_of
from rocm_tui.config.reading import config
from rocm_tui.environment import lane
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.queue import Job, JobKind, Order, QueueRun
from rocm_tui.render.graphs import graph_title
from rocm_tui.render.improve import (
    gain_text,
    no_gain_text,
    note_of,
    proof_figure,
    proof_result,
    step_text,
    subject_title,
    summary,
)
from rocm_tui.search.types import Search
from rocm_tui.session import numbers as fmt
from rocm_tui.session.graph_rows import GraphRow
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.trying import SHOWN, WIDTH


async def ask_to_improve(host: Host, graph: GraphRow) -> Job | None:
    """Show the graph that is to run; the job, if the person says yes to it."""
    tell = [
        f"A worker tries choices of its {counted(len(graph.tunings), 'tuning')} in it, for "
        f"{fmt.seconds(config().budgets.improve)} at most.",
        "Nothing is pinned; what is found is proposed here.",
    ]
    command = host.shell.improve(graph.id)
    if not await _agreed(host, graph, f"Improve graph {graph.id}", tell, command):
        return None
    return host.jobs.submit(replace(improve_order(graph, host.layout), command=command))


async def ask_to_prove(host: Host, graph: GraphRow) -> Job | None:
    """Say what will run; the job, if the person says yes to it."""
    tell = [
        f"{2 * PAIRS} new processes of stock PyTorch compile it, half of them with the pins.",
        "The figure goes into the notes of its pins.",
    ]
    command = host.shell.prove(graph.id)
    if not await _agreed(host, graph, f"Prove the pins of graph {graph.id}", tell, command):
        return None
    return host.jobs.submit(replace(prove_order(graph, host.layout), command=command))


async def _agreed(host: Host, graph: GraphRow, title: str, tell: list[str], command: str) -> bool:
    """Whether the person agreed to run just this text."""
    if host.asking:
        return False
    try:
        text = await to_thread(text_of, host.layout, graph.id)
    except (RocmTuiError, StoreError) as error:
        host.refuse(str(error))
        return False
    if host.asking:
        return False
    lines = [*_about(graph, text), "", *tell]
    question = ConfirmScreen(title, "Run", lines, command=lambda note: command)
    if await host.push_screen_wait(question) is None:
        return False
    try:
        await to_thread(accept, host.layout, text)
    except (StoreError, OSError) as error:
        host.refuse(str(error))
        return False
    return True


def _about(graph: GraphRow, text: GraphText) -> list[str]:
    """The graph, where its text is, and how it begins."""
    body = text.body
    first = [line.strip().partition(";")[0][:WIDTH] for line in body[:SHOWN]]
    more = len(body) - len(first)
    lines = [graph_title(graph.graph), str(text.path), "", *(f"  {line}" for line in first)]
    return [*lines, f"  … {counted(more, 'more line')}"] if more > 0 else lines


def improve_order(graph: GraphRow, layout: Layout) -> Order:
    """The work of a search, for the queue."""

    def work(run: QueueRun) -> str:
        def tell(news: News) -> None:
            run.tell(step_text(news.search, news.step), left=news.left)

        improving = Improving(run, layout, graph, tell=tell)
        search = improving.go()
        gain = result_of(search)
        if gain is None:
            return "; ".join((no_gain_text(search, improving.budget), *summary(search)[:1]))
        count = len(gain.arm)
        return f"{gain_text(gain)} with {counted(count, 'pin')}, which T proposes"

    return _order("improve", graph, work)


def prove_order(graph: GraphRow, layout: Layout) -> Order:
    """The work of a proof, for the queue."""

    def work(run: QueueRun) -> str:
        def tell(number: int, total: int, pinned: bool) -> None:
            run.tell(f"process {number} of {total}", number - 1, total)

        proof = Proving(run, layout, graph, tell=tell).go()
        annotate(layout, proof, proof_figure(proof))
        return proof_result(proof)

    return _order("prove", graph, work)


def _order(kind: JobKind, graph: GraphRow, work: Callable[[QueueRun], str]) -> Order:
    title = graph_title(graph.graph).removeprefix("graph ")
    return Order(kind=kind, title=title, lane=lane(None, graph.graph.device), work=work)


async def ask_to_pin_found(host: Host, graph: GraphRow, search: Search) -> None:
    """Show what is proposed; pin it, if the person says so."""
    wanted, gain = proposals(search), result_of(search)
    if host.asking:
        return
    if gain is None or not wanted:
        host.warn("No pin is proposed for this graph; i searches.")
        return
    rows, sessions = rows_of(graph), host.feed.model.sessions
    try:
        planned = await to_thread(plan_proposals, wanted, rows, sessions, host.layout)
    except (RocmTuiError, StoreError, OSError) as error:
        host.refuse(str(error))
        return
    if host.asking:
        return
    lines = [f"graph {graph.id} is {gain_text(gain)} with", ""]
    lines += [line for one in wanted for line in _pin_lines(one)]
    command = _pins_command(host, graph, wanted, note_of(search, gain))
    question = ConfirmScreen(
        f"Pin {len(wanted)} proposed", "Pin", lines, command=lambda note: command
    )
    if await host.push_screen_wait(question) is None:
        return
    try:
        pinned = await to_thread(pin_proposals, planned, host.layout, note_of(search, gain))
    except (StoreError, OSError) as error:
        host.refuse(str(error))
        host.feed.look()
        return
    active = sum(one.active for one in pinned)
    host.did(command, f"Pinned {len(pinned)}, {active} active; v proves it.")
    host.feed.look()


def _pins_command(host: Host, graph: GraphRow, wanted: Sequence[Proposal], note: str) -> str:
    """A command for each pin, of those that are still known."""
    rows = rows_of(graph)
    commands = []
    for one in wanted:
        row = rows.get(one.subject.key)
        choices = row.tuning.choices if row else ()
        choice = next((c for c in choices if c.hash == one.candidate.hash), None)
        if row is not None and choice is not None:
            commands.append(host.shell.pin(row, choice, note))
    return " && ".join(commands)


def _pin_lines(proposal: Proposal) -> list[str]:
    current = proposal.subject.current
    return [
        f"{subject_title(proposal.subject)} ({proposal.subject.id})",
        f"  {current.name if current else '?'} → {proposal.candidate.name}",
    ]
