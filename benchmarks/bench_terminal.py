"""Start-up, terminal bytes and idle CPU of the screen, through a pty. Prints one JSON object.

    python benchmarks/bench_terminal.py [--runs 7] [--seconds 10]

Start to ready is a ratio to a bare Textual app that shows one line, run in turns with ours, so
that a busy machine slows both. Bytes are what our process writes to its terminal (120x40, 256
colours, as over SSH). The budgets: 1.25, 200 B/s idle, 1,000 B a changed
row, 10,000 B/s live, 0.3 % CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningStarted
from backend.model.session import Session

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("READY")
Bare().run()
"""
ROWS, COLUMNS = 40, 120
_NOBODYS = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"), "/dev/null")
"""Nobody's settings and memory: another order would hide the row that is waited for."""
CHOICES = tuple(Choice(name=f"triton_mm_{n}", hash=f"triton_mm_{n}-x") for n in range(20))


@dataclass(slots=True, eq=False)
class Screen:
    """A program in a pty, and every byte that it wrote."""

    pid: int
    fd: int
    data: bytearray

    @classmethod
    def start(cls, command: Sequence[str]) -> Screen:
        pid, fd = pty.fork()
        if pid == 0:
            env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **_NOBODYS}
            # Each start would compile our modules, but not those of Textual.
            uncompiled = "PYTHONDONTWRITEBYTECODE"
            for name in ("COLORTERM", "NO_COLOR", "LINES", "COLUMNS", uncompiled):
                env.pop(name, None)
            # The child waits until the size is set.
            sys.stdin.readline()
            os.execvpe(command[0], list(command), env)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        return cls(pid, fd, bytearray())

    def go(self) -> float:
        """Let the child begin; return when."""
        begun = time.perf_counter()
        os.write(self.fd, b"\n")
        return begun

    def read(self, seconds: float) -> int:
        """Take what comes for so long; return how much."""
        before, end = len(self.data), time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.data += os.read(self.fd, 65536)
                except OSError:
                    break
        return len(self.data) - before

    def wait_for(self, text: bytes, seconds: float = 30.0) -> float:
        """Read until `text` was written; return when."""
        end = time.perf_counter() + seconds
        while text not in self.data:
            if time.perf_counter() > end:
                raise SystemExit(f"{text!r} did not appear in {seconds} s: {self.data[-400:]!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self.data += os.read(self.fd, 65536)
        return time.perf_counter()

    @property
    def pids(self) -> list[int]:
        """Its process, and those that it started."""
        pids = [self.pid]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += map(int, task.read_text().split())
        return pids

    def cpu(self) -> float:
        """CPU seconds so far, of all its processes."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """MiB at the peak, all its processes' added."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids]
        return sum(int(text.partition("VmHWM:")[2].split()[0]) for text in texts) / 1024

    def memory(self) -> tuple[float, float]:
        """MiB that all its processes take now: as if nothing else ran, and as their `Pss`.

        The first is what each has for itself, and of pages that several have those of the process
        with most of them. A page of a `Pss` is divided by all who have it, other programs too.
        """
        alone = shared = pss = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):  # it has just ended
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
                alone += kib["Private_Clean"] + kib["Private_Dirty"]
                shared = max(shared, kib["Shared_Clean"] + kib["Shared_Dirty"])
                pss += kib["Pss"]
        return (alone + shared) / 1024, pss / 1024

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        self.read(0.3)
        deadline = time.monotonic() + 5
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            self.read(0.05)
        os.close(self.fd)


def until(screen: Screen, pattern: str, since: int, seconds: float = 60) -> float:
    """Read until what was written behind `since` matches; return when."""
    end, what = time.perf_counter() + seconds, re.compile(pattern.encode())
    while not what.search(screen.data, since):
        if time.perf_counter() > end:
            raise SystemExit(f"{pattern} did not appear: {bytes(screen.data[-400:])!r}")
        if select.select([screen.fd], [], [], 0.1)[0]:
            screen.data += os.read(screen.fd, 65536)
    return time.perf_counter()


def start_to_ready(command: Sequence[str], marker: bytes) -> float:
    screen = Screen.start(command)
    time.sleep(0.2)
    begun = screen.go()
    ready = screen.wait_for(marker)
    screen.stop()
    return ready - begun


class Tuner:
    """Writes the events of a process that tunes, as `rocm-tui run` does."""

    def __init__(self, cache: Path) -> None:
        session = Session("bench", host="here", pid=os.getpid(), started=time.time())
        self._log = EventWriter(Layout(cache), session)
        self._n = 0

    def start(self) -> None:
        self._n += 1
        sizes = ((64 + self._n, 512), (512, 512))
        strides = ((512, 1), (512, 1))
        inputs = [("cpu", "torch.float32", *sizes[0], 512, 1, 0)]
        event = TuningStarted(
            self._n,
            time.time(),
            "mm",
            str(inputs),
            "highest",
            sizes,
            strides,
            ("torch.float32",) * 2,
            "cpu",
            CHOICES,
        )
        self._log.write(event)

    def time(self, choice: int) -> None:
        ms = 0.1 + (choice * 7 + self._n) % 20 / 100
        self._log.write(ChoiceTimed(self._n, str(CHOICES[choice].hash), ms))

    def end(self) -> None:
        best = str(CHOICES[0].hash)
        self._log.write(ChoiceSelected(self._n, time.time(), best, "timing", 1.0, 0.5))

    def whole(self) -> None:
        self.start()
        for choice in range(len(CHOICES)):
            self.time(choice)
        self.end()


def measure_bytes(ours: Sequence[str], cache: Path, seconds: float) -> dict[str, float]:
    """Bytes and CPU with 30 rows shown. Live is one tuning a second, a choice each 50 ms."""
    tuner = Tuner(cache)
    for _ in range(30):
        tuner.whole()
    screen = Screen.start(ours)
    time.sleep(0.2)
    screen.go()
    screen.wait_for(b"94\xc3\x97512\xc3\x97512")
    screen.read(7.0)
    cpu, begun = screen.cpu(), time.perf_counter()
    idle = screen.read(seconds)
    idle_cpu = (screen.cpu() - cpu) / (time.perf_counter() - begun)
    tuner.start()
    screen.read(1.5)
    os.write(screen.fd, b"j")  # away from the newest, so that its details are not shown
    key = screen.read(1.5)
    changed = []
    for choice in range(5):
        tuner.time(choice)
        changed.append(screen.read(0.7))
    os.write(screen.fd, b"k")
    screen.read(1.0)
    with_details = []
    for choice in range(5, 10):
        tuner.time(choice)
        with_details.append(screen.read(0.7))
    live = 0
    for _ in range(round(seconds)):
        tuner.start()
        for choice in range(len(CHOICES)):
            tuner.time(choice)
            live += screen.read(0.05)
        tuner.end()
    screen.stop()
    return {
        "idle_bytes_per_s": idle / seconds,
        "idle_cpu_percent": idle_cpu * 100,
        "cursor_key_bytes": key,
        "changed_row_bytes": statistics.median(changed),
        "changed_row_and_details_bytes": statistics.median(with_details),
        "live_bytes_per_s": live / round(seconds),
    }


TABLE = """AUTOTUNE mm({m}x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.float32, torch.float32
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""


def measure_latency(folder: Path, samples: int) -> dict[str, float]:
    """Milliseconds from the append of a table to a log until its row is on the terminal, and the
    same for `tail -f`, in turns."""
    log = folder / "train.log"
    log.touch()
    words = [sys.executable, "-m", "rocm_tui", "watch"]
    ours = Screen.start([*words, "--cache-dir", str(folder / "none"), str(log)])
    tail = Screen.start(["tail", "-f", str(log)])
    time.sleep(0.2)
    for screen in (ours, tail):
        screen.go()
    ours.wait_for(b"A row appears here")
    ours.read(2.0)
    times: dict[Screen, list[float]] = {ours: [], tail: []}
    for sample in range(samples):
        for turn, (screen, shown) in enumerate(((ours, "{m}×64×64"), (tail, "mm({m}x64"))):
            m = 1000 + 2 * sample + turn
            with log.open("a") as file:
                file.write(TABLE.format(m=m))
            begun = time.perf_counter()
            times[screen].append((screen.wait_for(shown.format(m=m).encode()) - begun) * 1e3)
            for other in (ours, tail):
                other.read(0.3)  # updates wait for their turn after a burst
    for screen in (ours, tail):
        screen.stop()
    return {
        "line_to_screen_p50_ms": statistics.median(times[ours]),
        "line_to_screen_p95_ms": statistics.quantiles(times[ours], n=20)[-1],
        "tail_f_p95_ms": statistics.quantiles(times[tail], n=20)[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench_terminal_"))
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    ours = [sys.executable, "-m", "rocm_tui", "watch", "--cache-dir", str(cache)]
    bare = [sys.executable, "-c", BARE]
    start_to_ready(bare, b"READY")
    start_to_ready(ours, b"A row appears here")
    both: list[tuple[float, float]] = []
    for _ in range(args.runs):
        both.append((start_to_ready(bare, b"READY"), start_to_ready(ours, b"A row appears here")))
    result = {
        "bare_ready_ms": statistics.median(a for a, _ in both) * 1e3,
        "watch_ready_ms": statistics.median(b for _, b in both) * 1e3,
        "ready_ratio": statistics.median(b / a for a, b in both),
        **measure_bytes(ours, cache, args.seconds),
        **measure_latency(folder, 40),
    }
    shutil.rmtree(folder)
    print(json.dumps({name: round(value, 3) for name, value in result.items()}, indent=1))


if __name__ == "__main__":
    main()
