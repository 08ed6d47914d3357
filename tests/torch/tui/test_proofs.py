"""v proves a pin in a real compile; a later graph makes that stale; its command proves it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.actions.commands import read_commands
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import asked, panes_of, screen_text, until
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

MODEL = """
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 96, 64)
torch.compile(lambda a, b: torch.relu(torch.bmm(a, b.transpose(1, 2))))(a, b)
"""


def compile_again(cache: Path) -> None:
    subprocess.run([*warm_python(), "-c", MODEL], env=child_env(cache), check=True, timeout=300)


async def test_verified_stale_and_verified_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compile_again(cache)
    layout = Layout(cache)
    store = PinStore(layout)
    app = RocmTui((cache,), layout, python=sys.executable)
    async with app.run_test(size=(140, 45)) as pilot:
        panes = await panes_of(app, pilot, 1)
        await pilot.press("tab", "j", "p")
        await asked(app, pilot)
        assert "Later compiles use" in str(app.screen.query_one("#lines").render())
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen) and app.screen.row.pin)  # type: ignore[union-attr]
        assert "✓" not in screen_text(panes.table)
        await pilot.press("v")
        await until(pilot, lambda: "✓ now" in screen_text(panes.table), 200.0)
        detail = screen_text(panes.detail)
        assert "verified 20" in detail and " by verify · torch " in detail
        (status,) = store.status()
        assert status.proof is not None and status.proof.ok and not status.stale

        compile_again(cache)  # the graph that the pin had moved aside
        await until(pilot, lambda: "✓?" in screen_text(panes.table))
        (status,) = store.status()
        assert status.state == "active" and status.stale == "1 graph was compiled since"
        command = read_commands(layout)[-1].command
        assert command == app.shell.verify(status.pin)
        app.stop_feed()
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (status,) = store.status()
    assert status.proof is not None and status.proof.ok and not status.stale
    assert [entry.what for entry in store.history()] == ["pin", "verify", "verify"]
