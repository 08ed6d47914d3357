"""Pins: every pin with its state, author, reason and history; verify, unpin and undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.errors import StoreError
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from rocm_tui.harmless import plain
from rocm_tui.render.pins import HISTORY_COLUMNS, PIN_COLUMNS, proof_text, state_text
from rocm_tui.render.table import Line, cells
from rocm_tui.tui import job_actions, pin_actions
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine


class PinsScreen(BaseScreen):
    """The pins above, their history below."""

    PLACE = "Pins"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#pins"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("v", "verify", "pins.verify",
            "verify the pin in a job: does a compile call its choice?", footer="verify"),
        key("u", "unpin", "pins.unpin", "unpin the choice; asks first", footer="unpin"),
        key("z", "undo", "pins.undo", "undo your last pin or unpin; asks first", footer="undo"),
        key("a", "verify_all", "pins.verify_all", "verify all pins", footer="verify all"),
        key("r", "reapply", "pins.reapply", "apply the pins again", footer="re-apply"),
        key("tab", "app.focus_next", "pins.other", "between the pins and their history",
            footer="history"),
        key("y", "copy", "pins.copy", "copy the pinned tuning's id", footer="copy id"),
        key("escape", "back", "pins.back", "back"),
    ]  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield Grid(
            PIN_COLUMNS,
            "Nothing is pinned. In Watch (1), p pins the choice under the cursor.",
            id="pins",
        )
        yield OneLine(id="about")
        yield Grid(HISTORY_COLUMNS, "No history yet.", id="history")

    def on_mount(self) -> None:
        self._pins: Sequence[PinStatus] | None = None
        self.update()

    @property
    def current(self) -> PinStatus | None:
        """The pin under the cursor."""
        return self.query_one("#pins", Grid).pick(self._pins or ())

    def update(self) -> None:
        """Show the pins as they are now; the cursor stays on its pin."""
        pins, problem = self.program.feed.pins, self.program.feed.pin_problem
        if pins != self._pins:
            self._pins = pins
            self.reload()
        names = [(status.pin.key, status.pin.system_hash) for status in pins]
        self.query_one("#pins", Grid).put([cells(PIN_COLUMNS, status) for status in pins], names)
        active = sum(status.state == "active" for status in pins)
        facts = [f"{counted(len(pins), 'pin')}, {active} active"]
        drifts = self.program.feed.drifts
        facts += [f"{counted(drifts, 'drift')} seen"] if drifts else []
        self.show_title(facts, plain(problem.what) if problem else "")
        self._describe()

    @on(LineView.CursorMoved, "#pins")
    def _describe(self) -> None:
        status = self.current
        line: Line = ((" History", "head"),)
        if status is not None:
            text = status.detail or "every later torch.compile takes this choice"
            proof = proof_text(status) or "not verified yet (v)"
            line = ((f" {state_text(status)}: {plain(text)} · {proof}", "head"),)
        self.query_one("#about", OneLine).put(line)
        self.sync_keys()

    def applies(self, action: str) -> bool:
        """Undo and the history need no pin under the cursor."""
        if action == "verify_all":
            return len(self._pins or ()) > 1
        return action in ("undo", "app.focus_next") or self.current is not None

    def tick(self) -> None:
        """Update the ages of the pins."""
        self.update()

    async def _load_history(self) -> None:
        try:
            history = await self.in_thread(PinStore(self.program.layout).history)
        except (StoreError, OSError) as error:
            self.notify(plain(str(error)), severity="error", markup=False)
            return
        newest_first = sorted(history, key=lambda entry: -entry.when)
        grid = self.query_one("#history", Grid)
        grid.put([cells(HISTORY_COLUMNS, entry) for entry in newest_first])

    def reload(self) -> None:
        """Load the history again, which has grown."""
        self.run_worker(self._load_history(), group="history", exclusive=True)

    def action_reapply(self) -> None:
        self.program.act(pin_actions.reapply, self.reload)

    def action_unpin(self) -> None:
        if (status := self.require(self.current, "pin")) is not None:
            self.program.act(pin_actions.unpin, status)

    def action_undo(self) -> None:
        self.program.act(pin_actions.undo)

    def action_verify(self) -> None:
        if (status := self.require(self.current, "pin")) is not None:
            self.program.act(job_actions.verify, status)

    def action_verify_all(self) -> None:
        if self.require(self.current, "pin") is not None and self._pins:
            self.program.act(job_actions.verify_all, self._pins)

    def action_copy(self) -> None:
        if (status := self.require(self.current, "pin")) is not None:
            self.program.copy(status.pin.id, "the pinned tuning's id")
