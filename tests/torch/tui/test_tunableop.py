"""`t` on an entry of TunableOp's untuned list: its whole list for PyTorch's own tuner, the command
before it runs. What lies below `torch.cuda.tunable` is tests/support/tunableop_worker.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.tui import tunableop
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens import watch
from rocm_tui.tui.screens.dialogs import ConfirmScreen, Tick, TuneScreen
from tests.support.places import ROOT
from tests.support.screen_lab import all_text, panes_of, running, until

pytestmark = pytest.mark.torch

ROWS = [f"GemmTunableOp_Half_NN,nn_{m}_8_32_ld_{m}_32_{m}" for m in (11, 14)]


def untuned(tmp_path: Path) -> Path:
    path = tmp_path / "tunableop_untuned0.csv"
    path.write_text("\n".join(ROWS) + "\n")
    return path


def tunes(tmp_path: Path) -> Path:
    """A Python whose TunableOp finds something for each product."""
    python, worker = tmp_path / "python", ROOT / "tests" / "support" / "tunableop_worker.py"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{worker}" "$@"\n')
    python.chmod(0o755)
    return python


MISS = "missing params_signature, returning null ResultEntry for {}\n"
OLDER = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_8_8_8_ld_8_8_8"


def log_of(tmp_path: Path, *products: str) -> Path:
    log = tmp_path / "server.log"
    log.write_text("".join(MISS.format(product) for product in products))
    return log


async def test_the_list_is_tuned_into_the_table_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunableop, "may_have_gpus", lambda: True)
    python = tunes(tmp_path)
    path, results = untuned(tmp_path), tmp_path / "tunableop_results0.csv"
    app = RocmTui([str(path)], Layout(tmp_path / "cache"), python=str(python))
    async with app.run_test(size=(140, 40)) as pilot:
        try:
            await panes_of(app, pilot, 2)
            await pilot.press("t")
            await until(pilot, lambda: isinstance(app.screen, TuneScreen))
            offered = "TunableOp instead: the whole list, into tunableop_results0.csv"
            await until(pilot, lambda: offered in all_text(app))
            app.screen.query_one("#tunableop", Tick).action_turn()
            command = f"rocm-tui tune {path} --tunableop -o {results} --python {python}"
            shown = app.screen.query_one("#command")
            await until(pilot, lambda: command in str(shown.render()))  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(pilot, lambda: app.jobs.jobs() and app.jobs.jobs()[0].over)
            (job,) = app.jobs.jobs()
            assert job.outcome == f"2 rows put into {results}", job
            assert job.command.startswith(command)
            lines = results.read_text().splitlines()
            assert lines[-2:] == [f"{row},Gemm_Hipblaslt_1,0.5" for row in ROWS]
        finally:
            app.stop_feed()


async def test_without_a_gpu_it_is_dim_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunableop, "may_have_gpus", lambda: False)
    async with running(tmp_path / "cache", untuned(tmp_path)) as (app, pilot):
        await panes_of(app, pilot, 2)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TuneScreen))
        assert app.screen.query_one("#tunableop", Tick).disabled
        await until(pilot, lambda: "TunableOp instead: no GPU is seen here" in all_text(app))


@pytest.mark.parametrize("keys", ["t", "S t"])
async def test_what_a_log_missed_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.setattr(tunableop, "may_have_gpus", lambda: True)
    monkeypatch.setattr(watch, "_MISSES_AFTER", 0.01)
    log, results = log_of(tmp_path, *ROWS, OLDER), tmp_path / "tunableop_results0.csv"
    app = RocmTui([str(log)], Layout(tmp_path / "cache"), python=str(tunes(tmp_path)))
    async with app.run_test(size=(140, 40)) as pilot:
        try:
            await until(pilot, lambda: app.missed)
            await pilot.press(*keys.split())
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            assert "Let TunableOp tune 2 products" in all_text(app)
            assert "1 left out: an fp8 product without its scales" in all_text(app)
            assert not app.jobs.jobs()
            await pilot.press("enter")
            await until(pilot, lambda: app.jobs.jobs() and app.jobs.jobs()[0].over)
            (job,) = app.jobs.jobs()
            assert job.outcome == f"2 rows put into {results}", job
            assert f"rocm-tui tune {log} --tunableop -o {results}" in job.command
        finally:
            app.stop_feed()


@pytest.mark.parametrize(
    ("products", "why"),
    [
        (ROWS, "no GPU is seen here, and TunableOp tunes on GPUs; there: `rocm-tui tune "),
        ([OLDER], "(1 an fp8 product without its scales, as an older PyTorch recorded it): "),
    ],
)
async def test_what_a_log_missed_is_refused_with_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, products: list[str], why: str
) -> None:
    monkeypatch.setattr(tunableop, "may_have_gpus", lambda: False)
    monkeypatch.setattr(watch, "_MISSES_AFTER", 0.01)
    async with running(tmp_path / "cache", log_of(tmp_path, *products)) as (app, pilot):
        await until(pilot, lambda: app.missed)
        for keys in ("t", "S t"):
            app.clear_notifications()
            await pilot.press(*keys.split())
            await until(pilot, lambda: any(why in n.message for n in app._notifications))
            assert not app.asking


async def test_an_entry_that_tells_too_little_says_what_records_it(tmp_path: Path) -> None:
    path = tmp_path / "tunableop_untuned0.csv"
    path.write_text(f"{OLDER}\n")
    async with running(tmp_path / "cache", path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("t")
        why = "PYTORCH_TUNABLEOP_RECORD_UNTUNED=1 with a newer PyTorch records it with them"
        await until(pilot, lambda: any(why in n.message for n in app._notifications))
        assert not app.asking
