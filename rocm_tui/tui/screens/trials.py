"""Trials: the compiled graphs, the trials of each, and what makes them faster."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.errors import StoreError
from backend.model.graph import Arm, Trial, TrialArm, swaps_of
from rocm_tui.actions.improve import read_search
from rocm_tui.actions.trial import text_of
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.render.graphs import (
    arm_label,
    arm_verdict,
    captured_text,
    interval,
    output,
)
from rocm_tui.render.improve import best_text, gain_text, proposal_text
from rocm_tui.render.pins import moment
from rocm_tui.render.table import Field, Line, Span, cells
from rocm_tui.search.steps import search_status
from rocm_tui.search.types import Search, agrees, differs
from rocm_tui.session import numbers as fmt
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from rocm_tui.tui import graph_actions
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

_NOTHING = "No compiled graph yet: `rocm-tui run --capture -- CMD` records them."
_UNTRIED = "Nothing was tried in this graph yet: i improves it; w in Watch tries choices."
_STYLES = {"faster": "good", "slower": "bad", "unclear": "dim"}


def _trials(row: GraphRow) -> int:
    """Count the trials with two arms or more; a process of `prove` runs only one arm."""
    return sum(len(trial.arms) > 1 for trial in row.trials)


GRAPHS: tuple[Field[GraphRow], ...] = (
    Field("id", "GRAPH", 7, 7, text=lambda row: row.id, style="dim", about="the graph's id"),
    Field(
        "title", "TITLE", 12, 40, good=20, style="strong",
        text=lambda row: plain(row.graph.title) or row.graph.kind,
        about="where in the program it comes from",
    ),
    Field(
        "kind", "KIND", 8, 9, drop=4, text=lambda row: row.graph.kind, style="dim",
        about="inference, forward or backward",
    ),
    Field(
        "tunings", "TUNINGS", 7, 7, drop=5, right=True,
        text=lambda row: fmt.narrow_count(len(row.tunings)),
        about="whose choices it calls, as far as they are known",
    ),
    Field(
        "calls", "CALLS", 6, 6, drop=2, right=True,
        text=lambda row: fmt.narrow_count(row.times.calls),
        about="by the latest program that has it",
    ),
    Field(
        "ms", "A CALL", 8, 9, right=True, text=lambda row: fmt.duration(row.times.ms),
        about="mean time of those of its calls that were timed",
    ),
    Field(
        "share", "SHARE", 7, 7, right=True, text=lambda row: fmt.percent(row.share),
        about="of that program's time in compiled graphs",
    ),
    Field(
        "captured", "CAPTURED", 8, 8, text=captured_text,
        style=lambda row: "" if row.path is not None else "dim",
        about="whether its text is kept, which trials need",
    ),
    Field(
        "tried", "TRIALS", 6, 6, drop=1, right=True, text=lambda row: str(_trials(row) or ""),
        about="how many were made",
    ),
    Field(
        "program", "PROGRAM", 8, 40, drop=5, text=lambda row: plain(row.program), style="dim",
        about="that program, and the session's id",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tried:
    """An arm of a trial; the baseline is not shown."""

    trial: Trial
    arm: TrialArm

    @property
    def more(self) -> Arm:
        """What this arm changes and the baseline does not."""
        return tuple(swap for swap in self.arm.swaps if swap not in self.trial.arms[0].swaps)

    @property
    def less(self) -> Arm:
        """What the baseline changes and this arm does not."""
        keys = {swap.key for swap in self.arm.swaps}
        return tuple(swap for swap in self.trial.arms[0].swaps if swap.key not in keys)

    @property
    def label(self) -> str:
        if self.more:
            return arm_label(self.more)
        return f"without {arm_label(self.less)}" if self.less else arm_label(())

    @property
    def tunings(self) -> str:
        return " ".join(swap.key.id for swap in swaps_of(self.more or self.less))


def _style(tried: _Tried) -> str:
    """Return the style of the verdict; an arm is good only where its output agrees."""
    arm = tried.arm
    if arm.failed or differs(arm):
        return "bad"
    verdict = arm_verdict(tried.trial, arm)
    return _STYLES.get(verdict, "") if agrees(arm) or verdict != "faster" else ""


TRIALS: tuple[Field[_Tried], ...] = (
    Field(
        "verdict", "THE GRAPH IS", 12, 12, text=lambda tried: arm_verdict(tried.trial, tried.arm),
        style=_style,
        about="faster, tied, slower, or unclear with this choice, the same code, or as retuned: "
        "faster, but not clearly more than with all choices benchmarked again",
    ),
    Field(
        "interval", "BY", 18, 20, right=True, text=lambda tried: interval(tried.arm),
        about="interval of how much longer a pass takes",
    ),
    Field(
        "output", "OUTPUT", 9, 19, text=lambda tried: output(tried.arm),
        style=lambda tried: "bad" if differs(tried.arm) else "dim",
        about="how far the outputs differ from the baseline's",
    ),
    Field(
        "choice", "CHOICE", 16, 60, good=26, text=lambda tried: tried.label, style="strong",
        about="what was put in place, besides what the baseline of that trial has",
    ),
    Field(
        "tuning", "TUNING", 7, 31, drop=5, text=lambda tried: tried.tunings, style="dim",
        about="the id of the tuning whose choice that is",
    ),
    Field(
        "pass", "A PASS", 8, 9, drop=2, right=True,
        text=lambda tried: fmt.duration(tried.arm.ms), about="median time of a whole pass",
    ),
    Field(
        "kernels", "KERNELS", 7, 7, drop=1, right=True,
        text=lambda tried: "" if tried.arm.kernels is None else str(tried.arm.kernels),
        about="how many a pass calls",
    ),
    Field(
        "when", "WHEN", 16, 16, drop=6, text=lambda tried: moment(tried.trial.when), style="dim",
        about="when it was tried",
    ),
    Field(
        "changed", "NEW KERNELS", 12, 80, drop=7,
        text=lambda tried: plain(tried.arm.failed or ", ".join(tried.arm.added)), style="dim",
        about="kernels that only this arm calls; or why it failed",
    ),
)  # fmt: skip


class TrialsScreen(BaseScreen):
    """The graphs above, longest share first; the trials of the one under the cursor below."""

    PLACE = "Trials"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#graphs"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("i", "improve", "trials.improve",
            "find choices that make the graph faster; asks first", footer="improve"),
        key("p", "pin", "trials.pin", "pin the choices that `improve` found; asks first",
            footer="pin"),
        key("v", "prove", "trials.prove",
            "prove in stock processes what its pins gain; asks first", footer="prove"),
        key("x", "cancel", "trials.cancel", "cancel the search or the proof of this graph",
            footer="cancel"),
        key("enter", "text", "trials.text", "copy the path of the graph's text",
            footer="copy path"),
        key("tab", "app.focus_next", "trials.other", "between the graphs and their trials",
            footer="trials"),
        key("y", "copy", "trials.copy", "copy the graph's id", footer="copy id"),
        key("escape", "back", "trials.back", "back"),
    ]  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield Grid(GRAPHS, _NOTHING, id="graphs")
        yield OneLine(id="about")
        yield Grid(TRIALS, "", id="trials")

    def on_mount(self) -> None:
        self._rows: list[GraphRow] = []
        self._searches: dict[str, Search | str] = {}
        self.update()

    @property
    def current(self) -> GraphRow | None:
        """The graph under the cursor."""
        return self.query_one("#graphs", Grid).pick(self._rows)

    def update(self) -> None:
        """Show the graphs as they are known now; the cursor stays on its graph."""
        self._rows = graph_rows(self.program.feed.model, self.program.layout)
        rows = [cells(GRAPHS, row) for row in self._rows]
        self.query_one("#graphs", Grid).put(rows, [row.id for row in self._rows])
        captured = sum(row.path is not None for row in self._rows)
        count = len(self._rows)
        self.show_title([f"{counted(count, 'graph')}, {captured} captured"])
        self._describe()
        self.reload()

    def _describe(self) -> None:
        row = self.current
        about = self.query_one("#about", OneLine)
        self.sync_keys()
        if row is None:
            about.put(((" Trials", "head"),))
            self._show_trials([], [], "")  # no graph, so no claim that nothing was tried in it
            return
        about.put(self._about(row))
        tried = [_Tried(trial, arm) for trial in row.trials for arm in trial.arms[1:]]
        names = [f"{arm.trial.when} {arm.arm.swaps}" for arm in tried]
        self._show_trials([cells(TRIALS, arm) for arm in tried], names, _UNTRIED)

    def applies(self, action: str) -> bool:
        """Every key needs a graph under the cursor."""
        row = self.current
        if row is None:
            return False
        return {
            "cancel": self._job(row) is not None,
            "pin": isinstance(self._searches.get(row.id), Search),
            "improve": row.path is not None,
            "text": row.path is not None,
        }.get(action, True)

    def _show_trials(self, rows: list[dict[str, Span]], names: list[str], nothing: str) -> None:
        grid = self.query_one("#trials", Grid)
        grid.nothing = nothing
        grid.put(rows, names)

    def _about(self, row: GraphRow) -> Line:
        """Describe the search for the graph: running, its result, or none."""
        job = self._job(row)
        if job is not None:
            text = job.step or job.progress.what or job.state
            return ((f" {job.kind}: {text}", "accent"),)
        search = self._searches.get(row.id)
        if isinstance(search, str):
            return ((f" {search}", "warn"),)
        if search is None:
            return ((" Trials", "head"),)
        sure = search_status(search).sure
        if sure is None:
            return ((f" improve: {best_text(search)}", "head"),)
        key = " (p)" if swaps_of(sure.arm) else ""
        proposed = f", {proposal_text(sure.arm)} proposed{key}"
        return ((f" improve: {gain_text(sure)}", "good"), (proposed, "head"))

    def _job(self, row: GraphRow) -> Job | None:
        """The running or waiting search or proof of a graph."""
        mine = (job for job in self.program.unfinished if job.title.startswith(row.id))
        return next((job for job in mine if job.kind in ("improve", "prove")), None)

    def reload(self) -> None:
        """Read the search of the graph under the cursor again."""
        if self.display and self.current is not None:
            self.read_latest(self._read)

    async def _read(self) -> None:
        row = self.current
        if row is None:
            return
        graph = row.id
        try:
            search = await self.in_thread(read_search, self.program.layout, graph)
        except (RocmTuiError, StoreError) as error:
            self._searches[graph] = plain(str(error))
        else:
            self._searches.pop(graph, None)
            if search is not None:
                self._searches[graph] = search
        row = self.current
        if row is not None and row.id == graph:
            self.query_one("#about", OneLine).put(self._about(row))
            self.sync_keys()

    @on(LineView.CursorMoved, "#graphs")
    def _moved(self) -> None:
        self._describe()
        self.reload()

    def action_improve(self) -> None:
        if (row := self.require(self.current, "graph")) is not None:
            self.program.act(graph_actions.improve, row)

    def action_prove(self) -> None:
        if (row := self.require(self.current, "graph")) is not None:
            self.program.act(graph_actions.prove, row)

    def action_pin(self) -> None:
        if (row := self.require(self.current, "graph")) is None:
            return
        search = self._searches.get(row.id)
        if isinstance(search, Search):
            self.program.act(graph_actions.pin_found, row, search)
        else:
            self.program.warn("This graph has not been searched yet; i searches it.")

    def action_cancel(self) -> None:
        if (row := self.require(self.current, "graph")) is None:
            return
        job = self._job(row)
        if job is None:
            self.program.warn("No search or proof of this graph is at work.")
        else:
            self.program.jobs.cancel(job.id)

    @on(LineView.Chosen, "#graphs")
    async def action_text(self) -> None:
        """Copy the path of the graph's text; `graphs ID --text` prints the text."""
        if (row := self.require(self.current, "graph")) is None:
            return
        try:
            text = await to_thread(text_of, self.program.layout, row.id)
        except RocmTuiError as error:
            self.program.refuse(str(error))
            return
        self.program.copy(
            str(text.path), f"the path of its text, {counted(len(text.lines), 'line')}"
        )

    def action_copy(self) -> None:
        if (row := self.require(self.current, "graph")) is not None:
            self.program.copy(row.id, "the graph's id, for graphs, improve and prove")
