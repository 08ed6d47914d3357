"""An empty list says why, on stderr; the exit code stays 1."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import SessionStarted
from backend.model.session import Session
from rocm_tui.cli.entry import main
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


@pytest.mark.parametrize("folder", ["", "none"])
def test_a_report_of_nothing_says_how_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    cache = tmp_path / folder
    assert main(["report", "--cache-dir", str(cache)]) == 1
    line = f"no tuning in {cache}: `rocm-tui run --max-autotune -- CMD` records a program"
    assert capsys.readouterr().err == f"rocm-tui: {line}\n"


def test_the_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1: loss 2.5\n")
    assert "a.log: no AUTOTUNE table or time of a choice recognised in it\n" in said(
        capsys, str(log)
    )
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


def lost(folder: Path) -> list[str]:
    """Sources of which nothing can be read: no file, a link to none, a damaged cache, a socket."""
    (folder / "link.log").symlink_to(folder / "nowhere")
    (folder / "damaged.json").write_text('{"system": {}, "cache": {"mm": ')
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(folder / "socket"))
    return [str(folder / name) for name in ("missing.log", "link.log", "damaged.json", "socket")]


READERS = ("ls", "sessions", "compare A B", "compare A --also-a", "compare A C --also-b")
SEEKERS = (
    "show ID", "graphs", "pin ID #1", "export", "measure ID", "measure --suspects", "trial ID",
    "tune ID --dry-run", "improve", "prove",
)  # fmt: skip


@pytest.mark.parametrize("words", [*READERS, *(f"{words} --from" for words in SEEKERS)])
def test_a_source_that_was_named_and_cannot_be_read_is_told_and_is_a_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """Though all else that is asked for is there."""
    cache, name = tmp_path / "cache", "h-1-1"
    cache.mkdir()
    write_cache(cache, 16)
    session = Session(name, host="h", pid=1, started=1.0, device="cpu")
    writer = EventWriter(Layout(cache), session)
    writer.write(SessionStarted(session))
    writer.close()
    assert main(["ls", "--json", str(cache), "--cache-dir", str(cache)]) == 0
    id = json.loads(capsys.readouterr().out)["tunings"][0]["id"]
    assert main(["sessions", "--cache-dir", str(cache)]) == 0
    assert main(["pin", id, "#1", "--cache-dir", str(cache)]) == 0
    capsys.readouterr()
    for source in lost(tmp_path):
        named = words.replace("ID", id).replace(" A", f" {cache}").replace(" C", f" {cache}")
        parts = named.replace(" B", "").split()
        sources = [str(cache), source] if words in READERS[:2] else [source]
        assert main([*parts, *sources, "--cache-dir", str(cache)]) == 1, source
        shown = capsys.readouterr()
        assert f"{Path(source).name}" in shown.err.split("\n")[0], shown.err
        assert (id in shown.out) == (words == "ls") and ("h-1" in shown.out) == (
            words == READERS[1]
        )
        if words in READERS[:2]:
            assert main([*parts, *sources, "--json", "--cache-dir", str(cache)]) == 1
            shown = capsys.readouterr()
            assert json.loads(shown.out)[{"ls": "tunings"}.get(words, words)]
            assert source in shown.err
