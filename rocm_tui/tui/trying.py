"""Trials that a screen asks for: the graph is shown, then a worker tries it."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from textwrap import dedent

from backend.counted import counted
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.choice import Choice
from backend.model.graph import Arm
from rocm_tui.actions.trial import (
    GraphText,
    Trying,
    accept,
    arms_for,
    choices_to_try,
    graph_for,
    text_of,
)
from rocm_tui.environment import lane
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.queue import Job, Order
from rocm_tui.jobs.run import RunJob
from rocm_tui.render.choices import name_of
from rocm_tui.render.graphs import graph_title, short
from rocm_tui.render.jobs import problem_title
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from rocm_tui.session.model import Row
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.dialogs import ConfirmScreen

SHOWN = 6
"""Lines of a graph's text that the question shows."""
WIDTH = 62


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be tried in which graph, of which this is the text."""

    row: Row
    graph: GraphRow
    text: GraphText
    choices: Sequence[Choice]
    arms: tuple[Arm, ...]


async def ask_for_trial(host: Host, row: Row, marked: AbstractSet[str]) -> Job | None:
    """Show the graph that is to run; the job, if the person says yes to it."""
    if host.asking:
        return None
    wanted = [choice for choice in row.tuning.choices if name_of(choice) in marked]
    graphs = graph_rows(host.feed.model, host.layout)
    try:
        plan = await to_thread(_plan, row, graphs, wanted, host.layout)
    except (RocmTuiError, StoreError) as error:
        host.refuse(str(error))
        return None
    if host.asking:
        return None
    names = ", ".join(choice.label for choice in plan.choices)
    command = host.shell.trial(row, plan.choices, plan.graph.id)
    question = ConfirmScreen(
        f"Try {names} in the whole graph",
        "Run",
        question_lines(plan),
        command=lambda note: command,
    )
    if await host.push_screen_wait(question) is None:
        return None
    try:
        await to_thread(accept, host.layout, plan.text)
    except (StoreError, OSError) as error:
        host.refuse(str(error))
        return None
    return host.jobs.submit(replace(trial_order(plan, host.layout), command=command))


def _plan(row: Row, graphs: Sequence[GraphRow], wanted: Sequence[Choice], layout: Layout) -> Plan:
    """Raises NotTried and NoSuchChoice."""
    graph = graph_for(row, graphs)
    choices = choices_to_try(row, wanted)
    arms = arms_for(row, [graph], choices)
    return Plan(row, graph, text_of(layout, graph.id), choices, arms)


def question_lines(plan: Plan) -> list[str]:
    """The graph, where its text is, how it begins, and what becomes of it."""
    body = plan.text.body
    begin = dedent("\n".join(line.partition(";")[0].rstrip() for line in body[:SHOWN]))
    first = [line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in begin.split("\n")]
    more = len(body) - len(first)
    return [
        graph_title(plan.graph.graph),
        str(plan.text.path),
        "",
        *(f"  {line}" for line in first),
        *([f"  … {counted(more, 'more line')}"] if more > 0 else []),
        "",
        "A worker compiles it with each choice and times whole passes.",
        "Nothing is pinned; caches and pins stay as they are.",
    ]


def trial_order(plan: Plan, layout: Layout) -> Order:
    """The work of a trial, for the queue."""
    threads = plan.graph.session.threads if plan.graph.session else None

    def work(run: RunJob) -> str:
        return short(Trying(run, layout, plan.graph.id, plan.arms, threads=threads).once())

    tuning = plan.row.tuning
    return Order(
        kind="trial",
        title=f"{problem_title(tuning)} in graph {plan.graph.id}",
        lane=lane(None, tuning.device),
        work=work,
        key=tuning.key,
        tuning=plan.row.id,
    )
