"""Fleets: a run's hosts and devices, what each does, its problems; cancel one or all.

The record of a run is read while it grows, whoever drives it: this screen only watches.
"""

from __future__ import annotations

import time
from asyncio import to_thread
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.fleet.places import record_path
from rocm_tui.fleet.record import Reader, driver_lives, runs
from rocm_tui.fleet.standing import Standing, UnitStanding
from rocm_tui.harmless import plain
from rocm_tui.render.fleet_tables import DEVICES, UNITS, Device, device_line, devices_of, unit_line
from rocm_tui.render.fleets import state_of_run
from rocm_tui.render.table import cells
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key, OneLine

_EVERY = 1.0
"""Seconds between two looks at the record, while this screen is open."""
_NONE = "No fleet has tuned here yet."
_NOTHING = "No fleet has tuned here yet: `rocm-tui tune --fleet local --all` begins a run."
_ORDER = ("running", "failed", "done", "waiting", "cancelled", "single", "merged")
"""What a person looks for first."""


class SteadyGrid(Grid):
    """A column never becomes narrower: what changes each second must not jump."""

    def wants(self) -> dict[str, int]:
        before = getattr(self, "_wants", {})
        return {key: max(want, before.get(key, 0)) for key, want in super().wants().items()}


class FleetsScreen(BaseScreen):
    """The devices of a run above, its problems below; the newest run first."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#devices-of-run"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("x", "cancel", "fleets.cancel", "cancel the problem under the cursor"),
        key("X", "cancel_run", "fleets.cancel_run", "cancel the whole run; what is merged stays"),
        key("left_square_bracket", "older", "fleets.older", "the run before"),
        key("right_square_bracket", "newer", "fleets.newer", "the run after"),
        key("y", "copy", "fleets.copy", "copy the run's name"),
        key("c", "copy_command", "fleets.command", "copy the command that goes on with the run"),
        key("tab", "app.focus_next", "fleets.other", "between devices and problems"),
        key("escape", "back", "fleets.back", "back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("tab", "problems", "app.focus_next"),
        ("x", "cancel", "cancel"),
        ("X", "cancel all", "cancel_run"),
        ("[", "older", "older"),
        ("]", "newer", "newer"),
        ("c", "copy command", "copy_command"),
        ("y", "copy", "copy"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[str] = []
        self._run: str | None = None
        self._standing = Standing()
        self._reader: Reader | None = None
        self._lives = False
        self._devices: list[Device] = []
        self._units: list[UnitStanding] = []
        self._looking = False

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="about")
        yield SteadyGrid(DEVICES, _NOTHING, id="devices-of-run")
        yield OneLine(id="heading")
        yield SteadyGrid(UNITS, "", id="units")
        yield OneLine(id="all")

    def on_mount(self) -> None:
        super().on_mount()
        self._show()
        self._look()
        self.set_interval(_EVERY, self._look)

    # Reading, apart from the event loop: a record may be hundreds of MB.

    def _look(self) -> None:
        if not self._looking and self.is_current:
            self._looking = True
            self.run_worker(self._take(), group="record")

    async def _take(self) -> None:
        try:
            layout, wanted = self.program.layout, self._run
            self._runs = await to_thread(runs, layout)
            if wanted is None and self._runs:
                wanted = self._runs[-1]
            if wanted is None:
                return
            if wanted != self._run or self._reader is None:
                self._run, self._standing = wanted, Standing()
                self._reader = Reader(record_path(layout, wanted))
            news = await to_thread(self._reader.news)
            lives = await to_thread(driver_lives, layout, wanted)
            if wanted == self._run:
                self._standing.apply(news)
                self._lives = lives and self._standing.over is None
                if not self._lives:
                    self._standing.left_alone()
        finally:
            self._looking = False
            if self.is_attached:
                self._show()

    def _show(self) -> None:
        standing, now = self._standing, time.time()
        self._devices = devices_of(standing, now if self._lives else standing.last or now)
        rows = [cells(DEVICES, one) for one in self._devices]
        self.query_one("#devices-of-run", Grid).put(rows, [one.name for one in self._devices])
        self._units = sorted(standing.units.values(), key=lambda unit: _ORDER.index(unit.state))
        rows = [cells(UNITS, unit) for unit in self._units]
        self.query_one("#units", Grid).put(rows, [unit.unit.id for unit in self._units])
        self._describe(now)

    def _describe(self, now: float) -> None:
        standing, run = self._standing, self._run
        if run is None:
            self.show_title("Fleets", [])
            return
        at = self._runs.index(run) + 1 if run in self._runs else 0
        facts = [plain(run)] + ([f"{at} of {len(self._runs)}"] if len(self._runs) > 1 else [])
        self.show_title("Fleets", facts)
        text = f" {state_of_run(standing, self._lives, now)}"
        over = standing.over
        if not self._lives and over is not None and over.reason:
            text += f"; {plain(over.reason)}"
        self.query_one("#about", OneLine).put(((text, "head"),))
        differ = len(standing.disagreements())
        told = f" {counted(sum(not each.unit.part_of for each in self._units), 'problem')}"
        told += f" · devices disagree on {differ}" if differ else ""
        chosen = standing.chosen
        told += f" · times of {plain(chosen.device_class)}" if chosen is not None else ""
        self.query_one("#heading", OneLine).put(((told, "head"),))
        self._tell_all()

    @on(LineView.CursorMoved)
    def _tell_all(self) -> None:
        """What is under the cursor, uncut."""
        unit, device = self._unit, self._device
        text = unit_line(unit) if unit is not None else device_line(device) if device else ""
        self.query_one("#all", OneLine).put(((f" {text}", "head"),))

    def on_descendant_focus(self) -> None:
        self._tell_all()

    # Keys.

    @property
    def _unit(self) -> UnitStanding | None:
        """The problem under the cursor, where the cursor is among the problems."""
        if self.focused is None or self.focused.id != "units":
            return None
        at = self.query_one("#units", Grid).at
        return self._units[at] if at < len(self._units) else None

    @property
    def _device(self) -> Device | None:
        at = self.query_one("#devices-of-run", Grid).at
        return self._devices[at] if at < len(self._devices) else None

    @property
    def current(self) -> UnitStanding | None:
        """The problem under the cursor; of a device's, the one that it works on."""
        if self._unit is not None or self._device is None:
            return self._unit
        return self._standing.units.get(self._device.agent.unit or "")

    def action_cancel(self) -> None:
        unit = self.current
        if self._run is None:
            self.program.warn(_NONE)
        elif unit is None:
            self.program.warn("This device works on no problem now.")
        elif not self._lives:
            self._dead()
        elif unit.state not in ("waiting", "running"):
            self.program.warn(f"That problem is {unit.state} already.")
        elif self._run is not None:
            self.program.ask.cancel_run(self._run, unit.unit.id, unit.unit.title)

    def action_cancel_run(self) -> None:
        if self._run is not None and self._lives:
            self.program.ask.cancel_run(self._run, None, self._run)
        else:
            self._dead()

    def _dead(self) -> None:
        if self._run is None:
            self.program.warn(_NONE)
            return
        go_on = "c copies the command that goes on with it."
        self.program.warn(f"No driver is at this run: nothing can be cancelled. {go_on}")

    def action_older(self) -> None:
        self._turn(-1)

    def action_newer(self) -> None:
        self._turn(1)

    def _turn(self, by: int) -> None:
        if self._run is None:
            self.program.warn(_NONE)
        elif self._run in self._runs:
            at = self._runs.index(self._run) + by
            if 0 <= at < len(self._runs):
                self._run, self._reader = self._runs[at], None
                self._look()
            else:
                self.program.warn("There is no newer run." if by > 0 else "There is no older run.")

    def action_copy(self) -> None:
        if self._run is None:
            self.program.warn(_NONE)
        else:
            self.program.copy(self._run, "the run's name")

    def action_copy_command(self) -> None:
        if self._run is None:
            self.program.warn(_NONE)
        else:
            command = self.program.shell.resume(self._run)
            self.program.copy(command, "the command that goes on with the run")

    @on(LineView.Chosen, "#devices-of-run")
    def _to_problem(self) -> None:
        """To the problem that the device works on."""
        unit, grid = self.current, self.query_one("#units", Grid)
        if unit is not None and unit in self._units:
            grid.focus()
            grid.go_to(self._units.index(unit))
