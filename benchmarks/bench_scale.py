"""Ten times as many tunings: how much longer, in how much memory. Prints one JSON object.

    python benchmarks/bench_scale.py [--tunings 50000] [--only log]

Each kind of input is made twice, with a tenth of the tunings and with all, in a temporary folder.
`ls`, `compare` and `watch` are run on both; the ratio of their processor times is what counts: at
most 11. Seconds by the wall clock and MiB are those of this machine. `watch` runs in a pty, until
it shows that all is read.

The MiB of a command are its largest resident set. `watch` is two processes, and pages of
libraries that both have would count twice: it runs once more for its memory, and
`/proc/PID/smaps_rollup` of both is read every 20 ms. `many_mib` is the largest sum of what each has
for itself, and of what they share, once: what they take where nothing else runs. `many_steady_mib`
is the same 3 s after all was shown. `many_pss_mib` is the largest sum of their `Pss`, which is less
where other Pythons run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench_terminal import Screen

from backend.model.choice import Choice
from backend.model.events import (
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionEnded,
    SessionStarted,
    TuningStarted,
)
from backend.model.session import Session
from backend.model.tuning import Selection
from backend.wire.events import encode

PROBLEMS = 50
"""Tunings of one model, which each of its sessions does again."""
CHOICES = 5


def one_log(folder: Path, count: int) -> None:
    """One log of stderr, each tuning of another shape."""
    draw = random.Random(0)
    with (folder / "train.log").open("w") as out:
        for n in range(count):
            m, k = 16 + n % 4096, 32 + n // 4096
            best = draw.uniform(0.01, 1)
            out.write(f"step {n} loss {draw.random():.4f}\n")
            out.write(f"AUTOTUNE mm({m}x{k}, {k}x64)\n  mm {best:.4f} ms 100.0% \n")
            out.write(f"  triton_mm_{n} {best * 1.25:.4f} ms 80.0% BLOCK_K=32, num_warps=4\n")
            out.write(
                "SingleProcess AUTOTUNE benchmarking takes 0.1234 seconds and 0.0123 seconds "
            )
            out.write("seconds precompiling for 2 choices\n")


def one_table(folder: Path, count: int) -> None:
    """One log in which the same table comes again and again."""
    table = "AUTOTUNE mm(64x32, 32x64)\n  mm 0.0123 ms 100.0% \n  triton_mm_1 0.0246 ms 50.0% \n"
    table += "SingleProcess AUTOTUNE benchmarking takes 0.1 seconds and 0.1 seconds precompiling\n"
    (folder / "train.log").write_text(table * count)


def one_session(folder: Path, count: int) -> None:
    """One session that tuned nothing twice."""
    _session(folder, 0, [_problem(n) for n in range(count)])


def sessions(folder: Path, count: int) -> None:
    """A model that was tuned by session after session."""
    for at in range(count // PROBLEMS):
        _session(folder, at, [_problem(n) for n in range(PROBLEMS)])


def cached_sessions(folder: Path, count: int) -> None:
    """A model that was tuned once; every later session took what the cache had."""
    for at in range(count // PROBLEMS):
        problems = [_problem(n) for n in range(PROBLEMS)]
        _session(folder, at, problems, by="cache" if at else "timing")


KINDS: dict[str, Callable[[Path, int], None]] = {
    each.__name__: each for each in (one_log, one_table, one_session, sessions, cached_sessions)
}


def _problem(n: int) -> tuple[int, int, int]:
    return 16 + n % 4096, 32 + n // 4096, 64


def _session(
    folder: Path, at: int, problems: Sequence[tuple[int, int, int]], by: Selection = "timing"
) -> None:
    logs = folder / "rocm_tui" / "sessions"
    logs.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{encode(event)}\n" for event in _events(at, problems, by))
    (logs / f"box-{1000 + at}-{1_700_000_000 + at}-{at:08x}.jsonl").write_text(lines)


def _events(at: int, problems: Sequence[tuple[int, int, int]], by: Selection) -> Iterator[Event]:
    draw, when = random.Random(at), 1_700_000_000.0 + at * 100
    yield SessionStarted(Session(id=f"{at:016x}", host="box", pid=1000 + at, started=when))
    for n, (m, k, wide) in enumerate(problems, start=1):
        sizes = ((m, k), (k, wide))
        inputs = (
            f"[('cpu', 'torch.float32', {m}, {k}, {k}, 1, 0), "
            f"('cpu', 'torch.float32', {k}, {wide}, {wide}, 1, 0)]"
        )
        choices = tuple(
            Choice(name="mm", hash="mm-ext") if c == 0
            else Choice(name=f"triton_mm_{c}", hash=f"triton_mm-{c:040x}")
            for c in range(CHOICES)
        )  # fmt: skip
        yield TuningStarted(
            n=n, when=when + n, op="mm", inputs=inputs, precision="highest", shapes=sizes,
            strides=((k, 1), (wide, 1)), dtypes=("torch.float32",) * 2, device="cpu",
            choices=choices,
        )  # fmt: skip
        if by == "timing":
            for c, choice in enumerate(choices):  # as a quiet machine has it: some per cent apart
                yield ChoiceTimed(n, choice.hash or "", (1 + c) * 0.0123 * draw.uniform(0.98, 1.02))
        yield ChoiceSelected(n, when + n + 0.5, choices[1].hash or "", by, 0.1, 0.1)
    yield SessionEnded(when + len(problems) + 1)


COMMANDS: dict[str, tuple[str, ...]] = {"ls": ("ls", "{}"), "compare": ("compare", "{}", "{}")}
MAIN = "import sys; from rocm_tui.cli import main; sys.exit(main())"


class Cost(NamedTuple):
    """Seconds by the wall clock and of the processor, and MiB at the peak; 0 where not asked."""

    seconds: float
    cpu: float
    mib: float


def run(words: Sequence[str], limit: float) -> Cost:
    """One command, from its start to its end; infinite if it takes longer than `limit`."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while True:
        pid, _, usage = os.wait4(child.pid, os.WNOHANG)
        seconds = time.perf_counter() - begun
        if pid:
            return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        if seconds > limit:
            child.kill()
            os.wait4(child.pid, 0)
            return Cost(float("inf"), float("inf"), 0.0)
        time.sleep(0.005)


def watch(folder: Path, shown: int, limit: float) -> Cost:
    """The screen, from its start until it shows that it has so many rows."""
    screen = Screen.start([sys.executable, "-m", "rocm_tui", "watch", str(folder)])
    time.sleep(0.2)
    begun = screen.go()
    try:
        seconds = screen.wait_for(f"{shown:,} tuning".encode(), limit) - begun
        return Cost(seconds, screen.cpu(), 0.0)
    except SystemExit:
        return Cost(float("inf"), float("inf"), 0.0)
    finally:
        screen.stop()


class Memory(NamedTuple):
    """MiB that all processes of the screen take together; infinite if it takes too long."""

    most: float
    steady: float
    pss: float


def memory(folder: Path, shown: int, limit: float) -> Memory:
    """The screen's, until some seconds after it showed that it has so many rows."""
    screen = Screen.start([sys.executable, "-m", "rocm_tui", "watch", str(folder)])
    time.sleep(0.2)
    screen.go()
    end, text, seen = time.perf_counter() + limit, f"{shown:,} tuning".encode(), []
    try:
        while text not in screen.data:
            if time.perf_counter() > end:
                return Memory(*[float("inf")] * 3)
            screen.read(0.02)
            seen.append(screen.memory())
        screen.read(3.0)
        seen.append(screen.memory())
        most, pss = map(max, zip(*seen, strict=True))
        return Memory(most, seen[-1][0], pss)
    finally:
        screen.stop()


def growing_line(folder: Path, mib: int = 500) -> dict[str, float]:
    """Milliseconds from a key to what it paints while one line without an end grows by 50 MiB a
    second, and MiB of the screen at its peak."""
    log = folder / "train.log"
    one_log(folder, 40)
    screen = Screen.start([sys.executable, "-m", "rocm_tui", "watch", str(log)])
    time.sleep(0.2)
    screen.go()
    screen.wait_for(b"40 tunings")
    screen.read(2.0)
    times, end = [], time.perf_counter() + mib / 50
    with log.open("ab") as out:
        while time.perf_counter() < end:
            for _ in range(5):
                out.write(b"x" * (1 << 20))
                out.flush()
                time.sleep(0.02)
            begun, before = time.perf_counter(), len(screen.data)
            os.write(screen.fd, b"k" if len(times) % 2 else b"j")
            while len(screen.data) == before:
                screen.read(0.001)
            times.append((time.perf_counter() - begun) * 1e3)
    peak = screen.peak_mib()
    screen.stop()
    return {
        "grown_mib": round(log.stat().st_size / 2**20),
        "key_median_ms": round(statistics.median(times), 1),
        "key_p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        "key_worst_ms": round(max(times), 1),
        "mib": round(peak),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tunings", type=int, default=50_000)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--what", nargs="+", choices=[*COMMANDS, "watch"])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one command")
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind in args.only:
        with tempfile.TemporaryDirectory() as name:
            few, many = Path(name, "few"), Path(name, "many")
            for folder, count in ((few, args.tunings // 10), (many, args.tunings)):
                folder.mkdir()
                KINDS[kind](folder, count)
            for what in args.what or [*COMMANDS, "watch"]:
                if what == "watch" and kind == "cached_sessions":
                    continue  # all its rows are there long before all is read
                costs = []
                for folder, count in ((few, args.tunings // 10), (many, args.tunings)):
                    if what == "watch":
                        costs.append(watch(folder, count, args.limit))
                    else:
                        words = [word.format(folder) for word in COMMANDS[what]]
                        costs.append(run(words, args.limit))
                short, long = costs
                found[f"{kind} {what}"] = {
                    "few_s": round(short.seconds, 2),
                    "many_s": round(long.seconds, 2),
                    "many_cpu_s": round(long.cpu, 2),
                    "ratio": round(long.cpu / short.cpu, 1),
                    "many_mib": round(long.mib),
                }
                if what == "watch":
                    took = memory(many, args.tunings, args.limit)
                    found[f"{kind} {what}"] |= {
                        "many_mib": round(took.most),
                        "many_steady_mib": round(took.steady),
                        "many_pss_mib": round(took.pss),
                    }
                print(kind, what, found[f"{kind} {what}"], file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        found["growing line"] = growing_line(Path(name))
        print("growing line", found["growing line"], file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
