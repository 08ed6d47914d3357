"""What the first rows wait for: nothing is loaded or begun before them that they do not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LATE = (
    "backend.pins.store",
    "backend.pins.graphs",
    "backend.cache.fold",
    "rocm_tui.jobs",
    "rocm_tui.actions",
    "ctypes",
    "rocm_tui.ingest.formats.profiler.graphs",
)

READ = """
import sys, threading, time
from pathlib import Path
from backend.disk.layout import Layout
from rocm_tui.session.feed import Feed
from rocm_tui.tui import doing
from rocm_tui.tui.widgets import panes

log, late = Path(sys.argv[1]), sys.argv[2:]
loaded = lambda: [name for name in late if name in sys.modules]
first, woken = [], threading.Event()

def wake():
    if not first:
        first.append(loaded())
    woken.set()

feed = Feed([str(log)], Layout(log.parent), wake, polling=False)
feed.start()
assert woken.wait(60)
feed.take()
assert len(feed.model.rows()) == 1, feed.model.problems
print(first[0])
end = time.monotonic() + 60
while not {"backend.pins.store", "ctypes"} <= set(loaded()):
    assert time.monotonic() < end, loaded()
    time.sleep(0.05)
with log.open("a") as more:  # and from then on it is watched
    more.write(log.read_text().replace("16x", "32x"))
while len(feed.model.rows()) < 2:
    assert time.monotonic() < end
    time.sleep(0.02)
    feed.take()
feed.stop()
"""
TABLE = """AUTOTUNE mm(16x64, 64x64)
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""


def test_rows_come_first(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(TABLE)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(log), *LATE], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
