"""Each action shows the command that does the same, copies it, and logs it; the command works."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from textual.pilot import Pilot

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.actions.commands import (
    KEPT,
    CommandRecord,
    ShellCommands,
    read_commands,
    record_command,
)
from rocm_tui.cli.entry import rocm_tui
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import TuneScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import asked, panes_of, running, screen_text, until, write_cache

NOTE = "it's $HOME's; \"quoted\""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """What a person gets who pastes it, `rocm-tui` being on their PATH."""
    env = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    return subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=60)


async def copied(app: RocmTui, pilot: Pilot[int]) -> str:
    await pilot.press("y")
    await until(pilot, lambda: "rocm-tui" in app.clipboard)
    return app.clipboard


def pins(cache: Path) -> list[tuple[str, str, str]]:
    return [(pin.id, pin.hash, pin.note) for pin in PinStore(Layout(cache)).pins()]


async def test_pin_and_unpin_do_the_same_in_a_shell(tmp_path: Path) -> None:
    cache, other = tmp_path / "a cache's", tmp_path / "other"
    path = write_cache(cache, 8)
    shutil.copytree(cache, other)
    original = path.read_bytes()
    async with running(cache) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("tab", "j", "p")
        await asked(app, pilot)
        await pilot.press("n")
        app.screen.query_one("Input").value = NOTE  # type: ignore[attr-defined]
        await pilot.press("tab")
        command = await copied(app, pilot)
        shown = str(app.screen.query_one("#command").render())
        assert f"$ {command}" in shown
        await pilot.press("enter")
        await until(pilot, lambda: pins(cache))
        there = command.replace(shlex.quote(str(cache)), shlex.quote(str(other)))
        assert there != command
        done = shell(there)
        assert done.returncode == 0, done.stderr
        assert pins(other) == pins(cache) and pins(cache)[0][2] == NOTE
        held = (other / "cache" / path.name).read_bytes()
        assert held == path.read_bytes() != original

        await until(pilot, lambda: isinstance(app.screen, WatchScreen) and app.screen.row.pin)  # type: ignore[union-attr]
        await pilot.press("u")
        await asked(app, pilot)
        command = await copied(app, pilot)
        await pilot.press("escape")
        assert shell(command).returncode == 0 and not pins(cache)
        assert path.read_bytes() == original
        await until(pilot, lambda: len(read_commands(Layout(cache))) == 1)
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await pilot.press("4", "d")
        await until(pilot, lambda: "Pinned mm-bb" in screen_text(app.screen))
        assert "rocm-tui pin" in screen_text(app.screen)
        app._clipboard = ""
        await copied(app, pilot)
        assert app.clipboard == read_commands(Layout(cache))[0].command
        (first,) = read_commands(Layout(cache))
        assert (
            first.ok
            and first.outcome.startswith("Pinned mm-bb")
            and NOTE in shlex.split(first.command)
        )


async def test_tune_shows_what_is_answered(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TuneScreen))
        await until(
            pilot, lambda: "rocm-tui tune" in str(app.screen.query_one("#command").render())
        )
        app.screen.query_one("#backends").value = "ATEN,TRITON"  # type: ignore[attr-defined]
        app.screen.query_one("#space").action_turn()  # type: ignore[attr-defined]
        wanted = "--backends ATEN,TRITON --search-space exhaustive"
        shown = app.screen.query_one("#command")
        await until(pilot, lambda: wanted in str(shown.render()))  # type: ignore[attr-defined]
        command = await copied(app, pilot)
        done = shell(f"{command} --dry-run --json")
        assert done.returncode == 0, done.stderr
        (problem,) = json.loads(done.stdout)["problems"]
        assert problem["op"] == "mm"


async def test_a_log_outside_the_cache_is_named(tmp_path: Path) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "else where"
    write_cache(cache, 8)
    found = write_cache(elsewhere, 16)
    async with running(cache, found) as (app, pilot):
        await panes_of(app, pilot, 1)
        screen = app.screen
        assert isinstance(screen, WatchScreen) and screen.row is not None
        command = app.shell.measure(screen.row, screen.row.tuning.choices[:1])
        assert f"--from {shlex.quote(str(found))}" in command
        show = command.replace("measure", "show").replace(" triton_mm-aa", "")
        done = shell(show)
        assert done.returncode == 0 and "16" in done.stdout, done.stderr


def test_the_log_is_bounded_and_survives_what_is_no_line(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for _ in range(3):
        record_command(layout, "rocm-tui pins", "x" * 5000, True)
    text = layout.done.read_text()
    layout.done.write_text("nonsense\n" + text * KEPT)
    record_command(layout, "rocm-tui undo", "done", False)
    known = read_commands(layout)
    assert len(known) == KEPT and not known[-1].ok and known[-1].command == "rocm-tui undo"
    assert all(isinstance(one, CommandRecord) and len(one.outcome) <= 500 for one in known)


async def test_undo_goes_back_beyond_this_screen(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8)
    original = path.read_bytes()
    store = PinStore(Layout(tmp_path))
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        row = panes.table.current
        assert row is not None and row.tuning.key is not None
        store.pin(None, row.tuning.key, "mm-bb", label="mm", note="yesterday")
        store.unpin(row.tuning.key)
        await pilot.press("z")
        await asked(app, pilot)
        assert "Pin mm → mm again." in str(app.screen.query_one("#lines").render())
        command = await copied(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: pins(tmp_path))
        assert pins(tmp_path)[0][1:] == ("mm-bb", "yesterday")
        assert shell(command).returncode == 0
        assert not pins(tmp_path) and path.read_bytes() == original
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await pilot.press("z")
        said = "Nothing is left to undo"
        await until(pilot, lambda: any(said in note.message for note in app._notifications))


async def test_every_command_is_one_that_the_parser_takes(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        row = panes.table.current
        assert row is not None and row.tuning.key is not None
        choices, make = row.tuning.choices[:2], ShellCommands(app.layout, app.paths, sys.executable)
        pin = PinStore(app.layout).pin(None, row.tuning.key, "mm-bb").pin
        for command in (
            make.pin(row, choices[1], "why"),
            make.unpin(pin),
            make.undo(),
            make.reapply(),
            make.verify(pin),
            make.measure(row, choices),
            make.measure_suspects(),
            make.tune(row, TuneOptions(("ATEN",), "default", True, 1.5), "cpu"),
            make.trial(row, choices, "abc"),
            make.improve("abc"),
            make.prove("abc"),
        ):
            words = shlex.split(command)
            assert words[0] == "rocm-tui"
            with rocm_tui.make_context("rocm-tui", []) as context:
                named = rocm_tui.get_command(context, words[1])
                assert named is not None, command
                params = named.make_context(words[1], words[2:]).params
            assert params["cache_dir"] == tmp_path, command
        (tmp_path / "cache" / next((tmp_path / "cache").iterdir()).name).write_bytes(b"{}")
        write_cache(tmp_path, 8)  # it has drifted
        assert shell(make.reapply()).returncode == 0
        (status,) = PinStore(app.layout).status()
        assert status.state == "active"


async def test_the_whole_question_fits_the_smallest_common_terminal(tmp_path: Path) -> None:
    cache = tmp_path / ("a" * 60)
    write_cache(cache, 8)
    async with running(cache, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("tab", "j", "j", "p")
        await asked(app, pilot)
        assert app.screen.query("#warning")
        for name in ("#what", "#warning", "#lines", "#command", "Input", "#yes"):
            region = app.screen.query_one(name).region
            assert region.height and region.bottom < 24, name


async def test_the_copied_command_is_the_one_under_the_cursor_in_whichever_order(
    tmp_path: Path,
) -> None:
    for name in ("first", "second", "third"):
        command = f"rocm-tui pin {name} {'x' * 100}"
        record_command(Layout(tmp_path), command, "Pinned it", ok=True)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await pilot.press("4", "d")
        await until(pilot, lambda: "3 actions" in screen_text(app.screen))
        await pilot.press("j")
        assert "second" in await copied(app, pilot)
