"""Sources read by another process: the same records come, it answers, and it ends with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.follow.apart import ReaderProcess
from rocm_tui.ingest.follow.packing import packed, unpacked
from rocm_tui.ingest.follow.watcher import read_sources
from rocm_tui.ingest.records import Dropped, Fault, Gone, Record, Seen

TABLE = """AUTOTUNE mm({m}x64, 64x64)
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""
COUNT = 2500
"""More than come in one message."""


def wait_for(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class Taken:
    """What a reader found, as it came."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        self.settled = threading.Event()
        self.reader = ReaderProcess.begin([str(path)], path.parent, polling=False)
        self.reader.tell(self.records.extend, self.settled.set)

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.records) >= count)


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_it_tells_what_a_thread_tells(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(TABLE.format(m=m + 1) for m in range(COUNT)))
    taken = Taken(log)
    try:
        assert taken.reader.sources() == ()
        taken.reader.start()
        assert taken.settled.wait(60)
        known = read_sources([str(log)])
        assert len(known) == COUNT
        assert taken.records == known
        with log.open("a") as more:
            more.write(TABLE.format(m=COUNT + 1))
        taken.wait_for(COUNT + 1)
        wait_for(lambda: [s.read for s in taken.reader.sources()] == [log.stat().st_size])
        (source,) = taken.reader.sources()  # on a busy machine it has no time to answer
        assert source.format == "stderr log"
    finally:
        taken.reader.stop()
    taken.reader.stop()
    assert len(taken.reader.sources()) == 1


def test_a_folder_without_anything_is_settled_too(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    taken.reader.start()
    assert taken.settled.wait(60)
    assert taken.records == []
    assert [source.path for source in taken.reader.sources()] == [str(tmp_path)]
    taken.reader.stop()


def test_its_end_is_told(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    taken.reader.start()
    assert taken.settled.wait(60)
    os.kill(taken.reader.pid, signal.SIGKILL)
    taken.wait_for(1)
    (fault,) = taken.records
    assert isinstance(fault, Fault)
    assert "the process that reads has ended" in fault.what
    assert len(taken.reader.sources()) == 1  # nobody answers any more
    taken.reader.stop()


def test_it_ends_with_whom_it_reads_for(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from rocm_tui.ingest.follow.apart import ReaderProcess\n"
        "reader = ReaderProcess.begin([sys.argv[1]], Path(sys.argv[1]), polling=False)\n"
        "print(reader.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, timeout=120
    )
    pid = int(done.stdout)
    wait_for(lambda: not _alive(pid))


TUNINGS = [
    Tuning("mm"),
    Tuning("mm", ((1, 2),), choices=(Choice("a"),), dims=(1, 2, 3), threads=4, when=3.0),
    Tuning("convolution", options=(("stride", (1, 1)),), sources=("x",)),
    Tuning("mm", seconds=Seconds(None, 2.0), timed=1, when=0.0),
    Tuning("mm", choices=(Choice("mm", None, 0.5, "A=1", offered=False), Choice()), when=0),
]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [Seen("x#1", Tuning("mm"))],
        [Seen(f"x#{n}", tuning) for n, tuning in enumerate(TUNINGS)],
        [Seen(f"x#{n}", tuning) for n, tuning in enumerate(TUNINGS[:3])],
        [Gone("x"), *(Seen(f"x#{n}", TUNINGS[n]) for n in (4, 1)), Dropped("x#1"), Fault("x", "y")],
        [Seen("x#1", TUNINGS[4]), Gone("x"), Seen("x#1", TUNINGS[4]), Seen("x#2", TUNINGS[4])],
    ],
)
def test_what_is_packed_comes_out_the_same(records: list[Record]) -> None:
    again, statuses = unpacked(packed((records, None)))
    assert statuses is None
    assert repr(again) == repr(records)
    assert again == records
