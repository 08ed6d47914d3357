"""Read-only: whatever writes or starts work is refused, by one rule; a drifted pin stays so."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from rocm_tui.tui import graph_actions, job_actions, pin_actions, tunableop
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens import output
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.watch_keys import KEYS
from tests.support.places import ROOT
from tests.support.screen_lab import (
    asked,
    panes_of,
    running,
    screen_text,
    typed,
    until,
    write_cache,
)

MODULES = (pin_actions, job_actions, graph_actions, tunableop, output)
"""Where the actions are that write or start work."""
WORK = {"submit", "queue", "pin_choice", "take_back", "undo", "reconcile", "press"}
"""Names of what such an action calls."""


def writing_actions() -> dict[str, Callable[..., Any]]:
    """Each coroutine function of these modules that the app may be asked for, by `module.name`."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def references(tree: ast.AST) -> Iterator[str]:
    """The actions that a file names, other than to have them done by `act`."""
    names = {name for action in writing_actions() for name in (action, action.split(".")[1])}
    allowed = {
        id(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".act") and call.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in allowed:
            text = ast.unparse(node)
            if text in names and ("." in text or text == "interrupt"):
                yield text


def test_each_action_that_writes_is_started_by_act_alone() -> None:
    assert len(writing_actions()) > 12
    homes = {Path(cast(str, module.__file__)).name for module in MODULES}
    for path in sorted((ROOT / "rocm_tui" / "tui").rglob("*.py")):
        tree = ast.parse(path.read_text())
        assert not list(references(tree)), path
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if path.name not in homes | {"base.py"}:
            assert not {call for call in calls if call.rpartition(".")[2] in WORK}, path


def test_the_table_of_keys_knows_which_act() -> None:
    for entry in KEYS:
        action = inspect.getsource(getattr(WatchScreen, f"action_{entry.id}"))
        assert entry.acts == (".act(" in action), entry.id


def content(folder: Path) -> Mapping[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def said(app: RocmTui, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


async def test_no_key_writes_or_starts_anything(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8, 900)
    old = path.read_bytes()
    layout = Layout(tmp_path)
    store = PinStore(layout)
    app = RocmTui((tmp_path,), layout, read_only=True)
    async with app.run_test(size=(140, 40)) as pilot:
        panes = await panes_of(app, pilot, 2)
        row = panes.table.current
        assert row is not None and row.tuning.key is not None
        store.pin(None, row.tuning.key, "mm-bb", note="by another program")
        path.write_bytes(old)  # it has drifted
        await until(pilot, lambda: row.key and app.feed.pins and "↻ #2" in screen_text(panes.table))
        before = content(tmp_path)
        for key in ("p", "u", "v", "t", "m", "a", "w", "z"):
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: said(app, "Read-only"))
            assert isinstance(app.screen, WatchScreen), key
        for key in ("r", "v", "a", "u", "z"):
            await pilot.press("3")
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: said(app, "Read-only"))
            await pilot.press("escape")
        for name, action in writing_actions().items():
            app.clear_notifications()
            app.act(action)  # it is not even called
            await until(pilot, lambda: said(app, "Read-only"))
            assert not [worker for worker in app.workers if worker.group == "actions"], name
        assert not app.jobs.jobs() and content(tmp_path) == before
        assert "READ-ONLY" in screen_text(app.screen).splitlines()[0]
        await pilot.press("ctrl+r")
        await until(pilot, lambda: said(app, "--no-read-only"))
        assert app.read_only
        app.stop_feed()
    assert store.status()[0].state == "drifted"


async def test_the_key_turns_it_on_and_after_a_question_off(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("ctrl+r", "p")
        await until(pilot, lambda: said(app, "Read-only (ctrl+r)"))
        assert isinstance(app.screen, WatchScreen)
        title = "READ-ONLY"
        await until(pilot, lambda: title in screen_text(app.screen).splitlines()[0])
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert app.read_only and cast(bool, app.feed.reconciler.read_only)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, lambda: not app.read_only and isinstance(app.screen, WatchScreen))
        assert title not in screen_text(app.screen).splitlines()[0]
        before = path.read_bytes()
        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        assert path.read_bytes() != before


def test_no_program_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["watch", "--read-only", "--cache-dir", str(tmp_path), "--", "touch", "made"]
    assert main(command) == 2
    assert "starts no program" in capsys.readouterr().err


async def test_a_saved_filter_is_said_to_last_until_the_end(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    app = RocmTui([tmp_path], Layout(tmp_path), read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        try:
            await panes_of(app, pilot, 1)
            await pilot.press("slash")
            await typed(pilot, "op:mm save slow", "enter")
            said = "Saved as @slow until this screen ends (read-only): op:mm"
            await until(pilot, lambda: [n.message for n in app._notifications] == [said], 20)
        finally:
            app.stop_feed()
