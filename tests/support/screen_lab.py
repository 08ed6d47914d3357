"""The program on files of its own, without a terminal: what its screens hold."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.events import Key
from textual.pilot import Pilot
from textual.widget import Widget

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice, MeasuredChoice, Measurement, Output
from backend.model.events import TuningMeasured
from backend.model.session import Session
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import KeyBar
from rocm_tui.tui.widgets.panes import Panes

SIZES = [(80, 24), (200, 60)]

SYSTEM = "4" * 64


def inputs(m: int) -> str:
    return (
        f"[('cpu', 'torch.float32', {m}, 64, 64, 1, 0), ('cpu', 'torch.float32', 64, 64, 64, 1, 0)]"
    )


def write_cache(cache: Path, *rows: int) -> Path:
    """A persistent cache with an mm of each size, as Inductor writes it."""
    times = {"triton_mm-aa": 0.01, "mm-bb": 0.02, "triton_mm-cc": 0.04, "bad-dd": float("inf")}
    entries = {inputs(m): {"highest": {name: ms * m for name, ms in times.items()}} for m in rows}
    path = cache / "cache" / SYSTEM
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"system": {}, "cache": {"mm": entries}}))
    return path


def measured(root: Path, outputs: dict[str, Output], *failed: Choice) -> None:
    """A measurement of the 8 of `write_cache`: what these compute; those that `failed`."""
    told = [
        MeasuredChoice(hash, 1.0, 0.9, 1.1, 0.0, 9, 1.0, 1.0, 1.0, "tied", None, output)
        for hash, output in outputs.items()
    ]
    found = Measurement("mm", inputs(8), "highest", 1.8e9, tuple(told), failed, system_hash=SYSTEM)
    writer = EventWriter(Layout(root), Session("m", "node", 9, started=1.8e9))
    writer.write(TuningMeasured(found))
    writer.close()


@asynccontextmanager
async def running(
    cache: Path, *paths: Path, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[RocmTui, Pilot[int]]]:
    app = RocmTui(paths, Layout(cache))
    async with app.run_test(size=size) as pilot:
        try:
            yield app, pilot
        finally:
            app.stop_feed()


_TURNS = 50
"""What paints by itself is never quiet."""
_WAIT = Pilot._wait_for_screen


async def _settled(pilot: Pilot[int], timeout: float = 90.0) -> bool:
    """Textual's pilot goes on when each queue has done what was in it. A key climbs from queue to
    queue, and on a busy core none of them may have had a turn while the pilot rested: it goes on
    when they are empty, twice, as what one did last may have filled another."""
    quiet = 0
    for _ in range(_TURNS):
        if not await _WAIT(pilot, timeout):
            return False
        stack = pilot.app.screen_stack if pilot.app.is_running else []
        pumps = [pilot.app, *(one for screen in stack for one in screen.walk_children(Widget))]
        quiet = 0 if any(pump.message_queue_size for pump in (*pumps, *stack)) else quiet + 1
        if quiet == 2:
            break
    return True


Pilot._wait_for_screen = _settled  # type: ignore[method-assign]


async def until(pilot: Pilot[int], true: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until it holds, and the screen of that moment has its widgets."""
    end = time.monotonic() + seconds
    while not (true() and all(screen.is_mounted for screen in pilot.app.screen_stack[-1:])):
        assert time.monotonic() < end, screen_text(pilot.app.screen)
        await pilot.pause(0.02)


async def typed(pilot: Pilot[int], text: str, *then: str) -> None:
    """Letters in one burst, as over a slow line, `then` keys: the pilot rests after each key."""
    for letter in text:
        pilot.app.post_message(Key(letter, letter))
    await pilot.press(*then) if then else await pilot.pause()


def screen_text(widget: Widget) -> str:
    """The lines of a widget, or of all in a screen."""
    views = [widget] if isinstance(widget, LineView) else widget.query(LineView)
    lines = [view.render_line(y).text for view in views for y in range(view.size.height)]
    return "\n".join(lines)


def keys_of(app: RocmTui) -> set[str]:
    """The actions in the line of keys."""
    return {action for _, _, action in app.screen.query_one("#keys", KeyBar).keys}


def all_text(app: RocmTui) -> str:
    """All that stands on the screen, questions and lines to type in too."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def panes_of(app: RocmTui, pilot: Pilot[int], rows: int) -> Panes:
    screen = app.screen
    assert isinstance(screen, WatchScreen)
    await until(pilot, lambda: screen.panes and screen.panes.table.total == rows)
    assert screen.panes is not None
    table = screen.panes.table
    await until(pilot, lambda: screen.focused is table and table.size)
    return screen.panes


def wheel() -> type:
    from textual.events import MouseScrollDown

    return MouseScrollDown


async def asked(app: RocmTui, pilot: Pilot[int]) -> None:
    """Wait until a question stands there and says what will change."""

    def told() -> bool:
        lines = app.screen.query("#lines") if isinstance(app.screen, ConfirmScreen) else ()
        return any("Looking up" not in str(line.render()) for line in lines)

    await until(pilot, told)
