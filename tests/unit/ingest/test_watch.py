"""Following files and folders: appends, truncation, rotation, replacement, late ones, failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.model.events import SessionStarted, TuningStarted
from backend.model.session import Fault, Session
from rocm_tui.ingest.follow.sources import SourceSet, read_sources
from rocm_tui.ingest.follow.tailer import HALF_WRITTEN, QUIET, Tailer
from rocm_tui.ingest.records import Dropped, Gone, Seen
from tests.support.format_lab import KEY, STARTED, cache_text, lines
from tests.support.log_lab import BMM, MM
from tests.support.watch_lab import HASH, View

# One file, without threads


def test_appends_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    assert tailer.state == "waiting"
    text = "start\n" + MM + BMM
    with path.open("a") as log:
        for at in range(0, len(text), 37):
            log.write(text[at : at + 37])
            log.flush()
            view.apply(tailer.poll())
    assert view.ops == ["mm", "bmm"]
    assert [t.state for t in view.tunings.values()] == ["done", "done"]
    assert not any(isinstance(r, Gone) for batch in view.batches for r in batch)
    assert (tailer.read, tailer.size, tailer.format) == (len(text), len(text), "stderr log")
    assert tailer.poll() == []


@pytest.mark.parametrize("how", ["truncate", "replace", "delete", "rewrite longer", "copytruncate"])
def test_another_content(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM)
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    if how == "truncate":
        path.write_text(BMM[: len(BMM) // 2])
        view.apply(tailer.poll())
        with path.open("a") as log:
            log.write(BMM[len(BMM) // 2 :])
    elif how == "replace":
        other = tmp_path / "b"
        other.write_text(BMM)
        other.replace(path)
    elif how == "delete":
        path.unlink()
        view.apply(tailer.poll())
        assert (view.ops, tailer.state) == ([], "waiting")
        path.write_text(BMM)
    elif how == "rewrite longer":
        path.write_text("x" * len(MM) + "\n" + BMM)
    else:
        os.truncate(path, 0)
        view.apply(tailer.poll())
        assert view.ops == []
        with path.open("a") as log:
            log.write(BMM)
    view.apply(tailer.poll())
    assert view.ops == ["bmm"]
    (tuning,) = view.tunings.values()
    assert tuning.state == "done"


def test_an_open_table_is_cut_off_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM.rpartition("SingleProcess")[0])
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll(now=100.0))
    assert [t.state for t in view.tunings.values()] == ["running"]
    assert tailer.poll(now=100.5) == []
    view.apply(tailer.poll(now=101.5))
    assert [t.state for t in view.tunings.values()] == ["cut"]
    assert tailer.retry_at is None
    with path.open("a") as log:
        log.write(MM.rpartition("dtypes")[2][30:].splitlines()[-1] + "\n")
    view.apply(tailer.poll(now=102.0))
    assert [t.state for t in view.tunings.values()] == ["done"]


def test_half_a_document_is_no_problem_until_it_stays_broken(tmp_path: Path) -> None:
    entries = [
        {f"({n}, 2, 3)": [{"type": "cublas", "time": n}], "kernel_type": "mm"} for n in (1, 2)
    ]
    path = tmp_path / "mm.json"
    path.write_text(json.dumps(entries[:1], indent=4))
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll(now=10.0))
    assert len(view.tunings) == 1
    text = json.dumps(entries, indent=4)
    path.write_text(text[:-40])
    view.apply(tailer.poll(now=20.0))
    assert (len(view.tunings), view.problems) == (1, [])
    path.write_text(text)
    view.apply(tailer.poll(now=20.5))
    assert (len(view.tunings), view.problems) == (2, [])
    assert [len(batch) for batch in view.batches] == [1, 0, 1]  # only what changed
    path.write_text(text[:-50])
    view.apply(tailer.poll(now=30.0))
    assert tailer.retry_at == 30.0 + HALF_WRITTEN
    for now in (31.5, 33.0):
        view.apply(tailer.poll(now=now))
    assert (len(view.tunings), len(view.problems)) == (2, 1)
    path.write_text(text[:-60])  # broken in another way: already reported
    for now in (34.0, 36.0):
        view.apply(tailer.poll(now=now))
    assert (len(view.tunings), len(view.problems)) == (2, 1)
    path.write_text(text)
    view.apply(tailer.poll(now=40.0))
    assert (len(view.tunings), view.problems) == (2, [])


def test_a_cache_file_tells_only_what_changed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / HASH
    both = {"mm": {KEY: {"highest": {"a": 1.0}}}, "bmm": {KEY: {"highest": {"a": 1.0}}}}
    path.write_bytes(cache_text(both))
    tailer, view = Tailer(str(path), "autotune cache"), View()
    view.apply(tailer.poll())
    both["mm"][KEY]["highest"]["b"] = 0.5
    path.write_bytes(cache_text(both))
    view.apply(tailer.poll())
    (record,) = view.batches[-1]
    assert isinstance(record, Seen) and len(record.tuning.choices) == 2
    del both["bmm"]
    path.write_bytes(cache_text(both))
    view.apply(tailer.poll())
    assert [type(record) for record in view.batches[-1]] == [Dropped]
    path.unlink()
    view.apply(tailer.poll())
    assert view.tunings == {}


def test_a_file_whose_end_is_to_come_does_not_hold_us_up() -> None:
    """The kernel's log waits for a message, though it is a regular file of no bytes."""
    kernel_log = Path("/proc/kmsg")
    if not os.access(kernel_log, os.R_OK):
        pytest.skip("the kernel's log is not for this user")
    began = time.monotonic()
    Tailer(str(kernel_log)).poll()
    assert time.monotonic() - began < 5


def test_what_cannot_be_read_is_told_once_and_forgotten_when_it_can(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.mkdir()
    tailer, view = Tailer(str(path)), View()
    for _ in range(3):
        view.apply(tailer.poll())
    assert [p.what for p in view.problems] == ["cannot read it: not a regular file"]
    assert tailer.state == "unreadable"
    path.rmdir()
    path.write_text(MM)
    view.apply(tailer.poll())
    assert (view.ops, view.problems, tailer.problems) == (["mm"], [], 0)


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (problem,) = read_sources([str(tmp_path / "pipe")])
    assert isinstance(problem, Fault)


def test_problems_of_a_long_log_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM + "step of a training loop\n" * 50_000)
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    with path.open("a") as log:
        log.write(BMM + "AUTOTUNE mm(1x2, 2x3)\n")
    view.apply(tailer.poll())
    assert view.ops == ["mm", "bmm"]
    view.apply(tailer.close())
    number = path.read_text().count("\n")
    assert [p.line for p in view.problems] == [number]


# Reading once


def test_read_sources_of_all_kinds(tmp_path: Path) -> None:
    cache_dir = tmp_path / "inductor"
    sessions = cache_dir / "rocm_tui" / "sessions"
    sessions.mkdir(parents=True)
    (cache_dir / "cache").mkdir()
    (cache_dir / "cache" / HASH).write_bytes(cache_text({"mm": {KEY: {"high": {"a": 1.0}}}}))
    (cache_dir / "cache" / ".1.2.tmp").write_text("{")
    (sessions / "s.jsonl").write_bytes(lines(SessionStarted(Session("s")), STARTED))
    (cache_dir / "ab").mkdir()
    (cache_dir / "ab" / "x.log").write_text(BMM)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "run.log").write_text(BMM)
    (logs / "notes.md").write_text(MM)
    (logs / "data.json").write_text('{"a": 1}')
    (logs / "blob.log").write_bytes(b"\0\1\2" * 100)
    (logs / "tunableop_results0.csv").write_text("Validator,PT_VERSION,2.4.0\n")
    missing = str(tmp_path / "none.log")
    view = View()
    view.apply(read_sources([str(cache_dir), str(logs), missing, str(logs / "notes.md")]))
    assert sorted(view.ops) == ["bmm", "mm", "mm", "mm"]
    assert [(Path(p.source).name, p.what) for p in view.problems] == [
        ("none.log", "no such file or folder"),
    ]


def test_a_corrupt_cache_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / HASH).write_text("not json \x1b[2J")
    for path in (tmp_path, tmp_path / "cache" / HASH):
        (problem,) = read_sources([str(path)])
        assert isinstance(problem, Fault)
        assert HASH in problem.what and "\x1b" not in problem.what and "\n" not in problem.what


def test_binary_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x80" + os.urandom(5000) + b"\0")
    (problem,) = read_sources([str(tmp_path / "a.bin")])
    assert isinstance(problem, Fault) and "not a text file" in problem.what


@pytest.mark.parametrize("piped", ["table", "cache", "nothing"])
def test_standard_input(tmp_path: Path, piped: str) -> None:
    text = {
        "table": MM,
        "cache": cache_text({"bmm": {KEY: {"p": {"a": 1.0}}}}).decode(),
        "nothing": "",
    }
    code = (
        "from rocm_tui.ingest.follow.sources import read_sources\n"
        "print([getattr(r, 'uid', r) for r in read_sources(['-'])])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text[piped], capture_output=True, text=True, check=True
    )
    found = {"table": "['-#1']", "nothing": "[]"}
    assert done.stdout.strip() == found.get(piped, done.stdout.strip())
    assert piped != "cache" or done.stdout.startswith("['-#")


def test_events_of_a_started_tuning_survive_a_torn_line_live(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    data = lines(SessionStarted(Session("s")), STARTED)
    tailer, view = Tailer(str(path), "event log"), View()
    with path.open("ab") as log:
        for byte in range(0, len(data), 11):
            log.write(data[byte : byte + 11])
            log.flush()
            view.apply(tailer.poll())
    assert [t.state for t in view.tunings.values()] == ["running"]
    assert isinstance(STARTED, TuningStarted) and not view.problems


def test_a_folder_that_comes_late_is_no_file_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    sources, view = SourceSet([str(folder)]), View()
    view.apply(sources.find() + sources.look())
    assert not view.tunings and sources.is_known(str(folder))
    folder.mkdir()
    (folder / "train.log").write_text(MM)
    assert not sources.is_known(str(folder)), "the folders to watch are others now"
    batch = sources.look([str(folder)])
    view.apply(batch)
    assert not any(isinstance(record, Fault) for record in batch)
    assert view.ops == ["mm"] and sources.is_known(str(folder / "train.log"))


def test_sources_say_when_a_file_is_due_although_it_does_not_change(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.log", tmp_path / "tunableop_results0.csv"
    whole.write_text(MM)
    torn.write_text("Validator,PT_VERSION,2.13.0\nGemmTunableOp_Half_TN,tn_64_64_64,Default,0.01")
    sources = SourceSet([str(whole), str(torn)])
    begun = time.monotonic()
    sources.find()
    sources.look()
    assert sources.retry_at is not None
    assert begun + QUIET <= sources.retry_at <= time.monotonic() + QUIET
