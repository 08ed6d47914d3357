"""What two processes read of a folder is what one reads."""

from __future__ import annotations

import os
from pathlib import Path
from weakref import WeakSet

import pytest

from backend.model.session import Fault
from rocm_tui.halves import Aside
from rocm_tui.ingest.follow import shared
from rocm_tui.ingest.follow.shared import read_all, read_each
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.formats import table_entries
from rocm_tui.ingest.records import Record, Seen, is_entry


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr(shared, "LEAST", 1 << 10)


LINES = "AUTOTUNE mm({0}x8, 8x{0})\n  mm 0.0123 ms 100.0% \n  triton_mm_{0} 0.0246 ms 50.0% ACC=1\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder of logs, one of which is damaged."""
    for at in range(12):
        sizes = range(at * 100, at * 100 + 20 + 10 * at)
        (tmp_path / f"{at:02}.log").write_text("".join(map(LINES.format, sizes)))
    with (tmp_path / "05.log").open("r+b") as damaged:
        damaged.seek(400)
        damaged.write(b"\xff\x00\n\x1b[2J" * 40)
    return tmp_path


def followers(logs: Path) -> list[Tailer]:
    """Of each log, and of one that is not there."""
    return [Tailer(str(path)) for path in (*sorted(logs.iterdir()), logs / "no such")]


def test_all_is_told_in_its_order(monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    begun: list[int] = []
    begin = Aside.begin
    monkeypatch.setattr(Aside, "begin", lambda make: begun.append(1) or begin(make))
    known = read_each(followers(logs))
    assert read_all(followers(logs)) == known and begun
    assert len([record for record in known if isinstance(record, Seen)]) > 100


def test_the_other_process_reads_less_than_half(
    monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    here: list[str] = []
    poll = Tailer.poll

    def noted(tailer: Tailer, now: float | None = None) -> list[Record]:
        here.append(tailer.path)
        return poll(tailer, now)

    monkeypatch.setattr(Tailer, "poll", noted)
    read_all(followers(logs))
    read, every = (sum(map(os.path.getsize, paths)) for paths in (here, logs.iterdir()))
    assert 0.55 * every <= read < every


def test_what_it_does_not_tell_is_read_here(monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    me, packed = os.getpid(), shared.packed
    monkeypatch.setattr(shared, "packed", lambda _: os._exit(3) if os.getpid() != me else packed)
    assert read_all(followers(logs)) == read_each(followers(logs))


def test_one_file_is_shared_with_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"AUTOTUNE mm(8x8, 8x8)\n  mm 0.0123 ms 100.0% \n" * 100)
    monkeypatch.setattr(Aside, "begin", lambda _: pytest.fail("it has nothing to read"))
    assert len(read_all([Tailer(str(log))])) == len(read_all([Tailer(str(log))])) > 0
    assert read_all([]) == []


def test_entries_of_tables_have_room_in_all_for_as_many_as_one_process_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(table_entries, "MOST_ROWS", 25)
    monkeypatch.setattr(table_entries, "_LOOK", 1)
    monkeypatch.setattr(table_entries.Share, "_all", WeakSet())  # none of other tests
    for number in range(4):
        rows = (f"GemmTunableOp_float_NN,nn_{n}_8_8,Default,0.5\n" for n in range(10))
        (tmp_path / f"{number}.csv").write_text("".join(rows))

    def tables() -> list[Tailer]:
        return [Tailer(str(path)) for path in sorted(tmp_path.iterdir())]

    alone, both = read_each(tables()), read_all(tables())
    assert list(filter(is_entry, both)) == list(filter(is_entry, alone))
    assert len(list(filter(is_entry, both))) == 25
    faults = [str(tmp_path / name) for name in ("2.csv", "3.csv")]
    assert [record.source for record in both if isinstance(record, Fault)] == faults
