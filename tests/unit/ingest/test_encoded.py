"""Compressed logs, UTF-16, holes that a cut log has, and links that lead nowhere."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.records import Record, Seen
from tests.support.log_lab import BMM, MM

LOG = ("epoch 1 loss 0.5 é\n" * 3000) + MM + ("epoch 2 loss 0.4\n" * 3000) + BMM


def tunings(records: list[Record]) -> list[Tuning]:
    return list({r.uid: r.tuning for r in records if isinstance(r, Seen)}.values())


def problems(records: list[Record]) -> list[str]:
    return [record.what for record in records if isinstance(record, Fault)]


def assert_both(records: list[Record]) -> None:
    assert not problems(records)
    assert [(t.op, len(t.choices), t.num_choices) for t in tunings(records)] == [
        ("mm", 2, 2),
        ("bmm", 2, 2),
    ]


def test_a_log_in_gzip(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    half = len(LOG) // 2
    members = [gzip.compress(part.encode()) for part in (LOG[:half], LOG[half:])]
    path.write_bytes(b"".join(members))
    assert_both(read_sources([str(path)]))
    assert_both(read_sources([str(tmp_path)]))


def test_a_gzip_file_that_grows_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    data = gzip.compress(LOG.encode())
    tailer = Tailer(str(path))
    records: list[Record] = []
    for end in (1, 20, 300, len(data) - 30, len(data)):
        path.write_bytes(data[:end])
        records += tailer.poll()
    assert_both(records + tailer.close())


def test_a_gzip_file_with_damage_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    data = bytearray(gzip.compress(LOG.encode() + os.urandom(200_000).hex().encode()))
    data[-100_000:-99_000] = b"\xff" * 1000
    path.write_bytes(data)
    records = read_sources([str(path)])
    (problem,) = problems(records)
    assert "damaged gzip data" in problem
    assert len(tunings(records)) == 2


def test_a_bomb_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.ingest.follow.tailer.MAX_UNPACKED", 16 << 20)
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(LOG.encode()) + gzip.compress(b"x" * (64 << 20)))
    records = read_sources([str(path)])
    (problem,) = problems(records)
    assert problem.startswith("more than 16 MiB when unpacked")
    assert len(tunings(records)) == 2


def test_a_document_in_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mm.json.gz"
    path.write_bytes(gzip.compress(b'[{"invoke": "(1, 2, 3)"}]'))
    (problem,) = problems(read_sources([str(path)]))
    assert problem == "mm log in gzip, which is not read: unpack it first"


@pytest.mark.parametrize("name", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_with_and_without_a_mark(tmp_path: Path, name: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(LOG.replace("\n", "\r\n").encode(name))
    assert_both(read_sources([str(path)]))
    big = ("\ufeff" if name == "utf-16-be" else "") + LOG
    path.write_bytes(big.encode(name))
    assert_both(read_sources([str(path)]))


@pytest.mark.parametrize("hole", [2, 5000, 3 << 20])
@pytest.mark.parametrize("before", ["", "cut at noon\n"])
def test_a_cut_log_whose_writer_goes_on_where_it_was(
    tmp_path: Path, hole: int, before: str
) -> None:
    """`: > train.log` under a program that did not open it for appending."""
    path = tmp_path / "train.log"
    with path.open("w") as log:
        log.write("x" * hole + "\n")
        log.flush()
        tailer = Tailer(str(path))
        records = tailer.poll()
        path.write_text(before)  # from outside
        log.write(LOG)
    records += tailer.poll() + tailer.close()
    assert path.read_bytes()[len(before) : hole].strip(b"\0") == b""
    assert_both(records)
    path.unlink()


@pytest.mark.parametrize(
    "log",
    [
        f"epoch 0\0\n{LOG}",
        f"\0{LOG}",
        f"{MM}\0\0\0\n{BMM}",
        f"\0\0\0\0{MM}\0\n{BMM}",
        f"{MM}{BMM}".replace("  ", "\0  "),
        f"{MM}{BMM}".replace("\n", "\n\0"),
        f"{'x' * 20_000}\n{MM}\0{BMM}",
    ],
    ids=["first line", "first", "between", "several", "rows", "lines", "far"],
)
def test_a_nul_hides_nothing(tmp_path: Path, log: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(log)
    assert_both(read_sources([str(path)]))


def test_a_log_that_was_just_cut_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"\0" * 100_000)
    tailer = Tailer(str(path))
    records = tailer.poll()
    assert tailer.format == "empty"
    with path.open("ab") as log:
        log.write(LOG.encode())
    assert_both(records + tailer.poll() + tailer.close())


def test_a_bad_link_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(MM)
    (tmp_path / "loop.log").symlink_to("loop.log")
    (tmp_path / "nowhere.log").symlink_to("/nowhere/at/all.log")
    (tmp_path / "long.log").symlink_to("x" * 300)
    (tmp_path / "z.log").write_text(BMM)
    records = read_sources([str(tmp_path)])
    assert [t.op for t in tunings(records)] == ["mm", "bmm"]
    bad = [(Path(r.source).name, r.what) for r in records if isinstance(r, Fault)]
    assert [name for name, _ in bad] == ["long.log", "loop.log"]
    assert all(what.startswith("cannot read it: ") for _, what in bad)


GROWING = """
import sys
from rocm_tui.ingest.follow.tailer import Tailer
tailer = Tailer(sys.argv[1])
with open(sys.argv[1], "ab", buffering=0) as log:
    for at in range(300):
        log.write(b"x" * (1 << 20))
        tailer.poll()
    log.write(b"\\n" + sys.argv[2].encode())
seen = {record.uid for record in tailer.poll() + tailer.close() if hasattr(record, "tuning")}
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10
print(len(seen), peak)
"""


def test_a_line_without_an_end_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("start\n")
    told = subprocess.run(
        [sys.executable, "-c", GROWING, str(path), MM], capture_output=True, text=True, check=True
    )
    count, peak = map(int, told.stdout.split())
    assert count == 1
    assert peak < 100


SCANNED = GROWING.replace("        tailer.poll()\n", "")


def test_a_long_line_that_is_there_already_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("start\n")
    told = subprocess.run(
        [sys.executable, "-c", SCANNED, str(path), MM], capture_output=True, text=True, check=True
    )
    count, peak = map(int, told.stdout.split())
    assert count == 1
    assert peak < 100
