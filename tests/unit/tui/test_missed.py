"""A log that says what tuned tables lack, with and without tunings."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rocm_tui.actions import cover
from rocm_tui.cli.entry import main
from rocm_tui.tui.screens import watch
from rocm_tui.tui.screens.watch import Welcome
from tests.support import sample_tables
from tests.support.screen_lab import running, screen_text, until

MISS = (
    "[aiter] shape is M:{m}, N:1536, K:7168, not found tuned config in "
    "/tmp/aiter_configs/a8w8_blockscale_tuned_gemm.csv, will use default config!\n"
)
LOOKUP = "missing params_signature, returning null ResultEntry for GemmTunableOp_BFloat16_TN,{}\n"
HAD = "tn_5120_16_8192_ld_8192_8192_5120"
LACKED = "tn_5120_32_8192_ld_8192_8192_5120"


async def test_watch_names_the_command_that_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MISSES_AFTER", 0.01)
    log = tmp_path / "[red]server\x1b[2J.log"
    log.write_text("".join(MISS.format(m=m) for m in (1, 2, 1)))
    async with running(tmp_path / "cache", log, size=(200, 24)) as (app, pilot):
        view = app.screen.query_one(Welcome)
        await until(pilot, lambda: "missed in tuned tables" in screen_text(view))
        assert "2 products missed in tuned tables: rocm-tui cover " in screen_text(view)
        assert "\x1b" not in screen_text(view)


async def test_a_search_that_takes_longer_than_the_interval_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, begun, go = tmp_path / "server.log", threading.Event(), threading.Event()
    log.write_text(MISS.format(m=1))

    def slowly(paths: list[str], tables: list[str]) -> list[cover.Missed]:
        begun.set()
        assert go.wait(60)
        return missed_in(paths, tables)

    missed_in = cover.missed_in
    monkeypatch.setattr(cover, "missed_in", slowly)
    async with running(tmp_path / "cache", log) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, watch.WatchScreen)
        for _ in range(3):  # as at each interval
            screen._look_for_misses()
            await until(pilot, begun.is_set)
        go.set()
        await until(pilot, lambda: app.missed)
        assert app.missed[0].products == 1


async def test_a_log_with_tunings_and_misses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "_MISSES_AFTER", 0.01)
    *tables, log = sample_tables.write(tmp_path / "tables")
    with log.open("a") as stream:
        stream.write(LOOKUP.format(HAD) + 2 * LOOKUP.format(LACKED))
    told = "1 product missed in tuned tables, which none of the tables here has: "
    assert main(["ls", str(log), str(tables[0])]) == 0
    shown = capsys.readouterr()
    assert "mm" in shown.out and shown.err == f"rocm-tui: {told}rocm-tui cover {log} {tables[0]}\n"
    assert main(["ls", str(log)]) == 0
    assert capsys.readouterr().err.startswith("rocm-tui: 2 products missed in tuned tables: ")
    async with running(tmp_path / "cache", log, tables[0], size=(200, 24)) as (app, pilot):
        await until(pilot, lambda: "1 missed (7)" in screen_text(app.screen))
        await pilot.press("7")
        await until(pilot, lambda: told in screen_text(app.screen))
