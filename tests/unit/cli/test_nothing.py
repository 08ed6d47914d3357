"""An empty list says why, on stderr; the exit code stays 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.session import Session, SessionStarted
from rocm_tui.actions.measure import PeakElsewhere, require_here
from rocm_tui.cli.entry import main
from rocm_tui.session.peaks import TunedDevice
from tests.support.screen_lab import write_cache


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ls", *words]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def test_no_cache_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = said(capsys, "--cache-dir", str(tmp_path / "none"))
    assert missing == f"rocm-tui: {tmp_path / 'none'}: no such file or folder\n"
    empty = said(capsys, "--cache-dir", str(tmp_path))
    assert "no autotune cache, session or log in it; `rocm-tui run --max-autotune" in empty


def test_the_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1: loss 2.5\n")
    assert "a.log: no AUTOTUNE table and no time of a choice in it\n" in said(capsys, str(log))
    assert f"{tmp_path}: 1 file read, and no tuning found\n" in said(capsys, str(tmp_path))
    log.write_bytes(bytes(range(256)))
    assert said(capsys, str(log)).count("\n") == 1  # its own problem says enough


def test_sessions_that_tuned_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session("s", host="h", pid=1, started=1.0, device="cpu")
    writer = EventWriter(Layout(tmp_path), session)
    writer.write(SessionStarted(session))
    writer.close()
    assert "1 session is recorded there, in which nothing was tuned" in said(
        capsys, "--cache-dir", str(tmp_path)
    )


def test_a_filter_that_hides_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cache(tmp_path, 16, 32)
    text = said(capsys, "--tied", "--cache-dir", str(tmp_path))
    assert "2 tunings found, none of which passes the filter" in text


def test_no_peak_is_measured_for_a_device_that_nobody_names() -> None:
    with pytest.raises(PeakElsewhere, match="No source names the device"):
        require_here(TunedDevice(""))
