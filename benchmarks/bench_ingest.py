"""How fast big logs are read, in what memory, and how soon an appended table is known.

    python benchmarks/bench_ingest.py [--gib 1]

Makes logs in a temporary folder and removes them. Speeds are ratios to `grep -c AUTOTUNE` on the
same file, both warm, the median of several runs taken in turns. By wall clock two cores that are
free help us and not grep; by processor time (`cpu_ratio`) neither they nor a busy machine matter.
grep is given the word that it finds fastest: for what we look for, `AUTOTUNE ` with its space, it
needs several times as long, and `same_word_ratio` is against that. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import Record

RUNS = 5
APPENDS = 200
MIB = 1 << 20
WORD = "AUTOTUNE"
Page = Callable[[random.Random], str]

SCAN = """
import os, sys, time
from pathlib import Path
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.records import Seen
def peak_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
before = peak_kib()
start, processor = time.perf_counter(), time.process_time()
records = Tailer(sys.argv[1]).poll()
seconds, processor = time.perf_counter() - start, time.process_time() - processor
count = len({r.uid for r in records if isinstance(r, Seen)})
print(seconds, processor, count, before, peak_kib())
"""
"""Run in a process of its own, for its memory."""


class Cost(NamedTuple):
    """Seconds by the wall clock, and of the processor."""

    wall: float
    cpu: float


def table(rng: random.Random) -> str:
    """One AUTOTUNE block as torch 2.13 prints it, ten rows."""
    m, k, n = (rng.choice((64, 512, 4096, 17408)) for _ in range(3))
    best = rng.uniform(0.01, 3.0)
    first = rng.randrange(10**4)  # Inductor numbers its kernels through
    rows = []
    for at in range(10):
        ms = best * (1 + 0.07 * at)
        config = f"ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=64, BLOCK_M={16 << at % 4}, "
        config += "BLOCK_N=128, EVEN_K=True, GROUP_M=8, num_stages=4, num_warps=8"
        rows.append(f"  triton_mm_{first + at} {ms:.4f} ms {best / ms:.1%} {config}\n")
    stats = {"num_choices": 22, "best_kernel": f"triton_mm_{first}", "best_time": best}
    return (
        f"Autotune Choices Stats:\n{json.dumps(stats)}\n"
        f"AUTOTUNE mm({m}x{k}, {k}x{n})\nstrides: [{k}, 1], [{n}, 1]\n"
        f"dtypes: torch.bfloat16, torch.bfloat16\n{''.join(rows)}"
        "SingleProcess AUTOTUNE benchmarking takes 2.2 seconds and 0.1 seconds precompiling "
        "for 22 choices\n"
    )


def training(rng: random.Random) -> str:
    """1 MiB of what a training run prints."""
    lines = []
    size = 0
    while size < MIB:
        line = (
            f"[titan] 2026-05-19 21:{rng.randrange(60):02}:{rng.randrange(60):02},375 - root - "
            f"INFO - step: {rng.randrange(10**6):6}  loss: {rng.random() * 10:.5f}  grad_norm: "
            f"{rng.random():.4f}  memory: 23.66GiB(12.32%)  tps: {rng.randrange(9999)}\n"
        )
        lines.append(line)
        size += len(line)
    return "".join(lines)


def shouting(rng: random.Random) -> str:
    """1 MiB full of the letters that the marker is made of."""
    lines = []
    size = 0
    while size < MIB:
        line = (
            f"[rank0]:I0519 21:15:{rng.randrange(60):02}.{rng.randrange(10**6):06} 812 utils.py:"
            f"{rng.randrange(999)}] DEBUG CUDA OUTPUT UINT8 AUTO step={rng.randrange(10**6)}\n"
        )
        lines.append(line)
        size += len(line)
    return "".join(lines)


def make_log(path: Path, mib: int, page: Page, every: int) -> int:
    """Write `mib` pages of 1 MiB, with a table after each `every`th; return how many tables."""
    rng = random.Random(1)
    pages = [page(rng) for _ in range(8)]
    count = 0
    with path.open("w") as log:
        for at in range(mib):
            log.write(pages[at % 8])
            if at % every == 0:
                log.write(table(rng))
                count += 1
    return count


def make_dense(path: Path, mib: int) -> int:
    """Write a log of nothing but tables; return how many."""
    rng = random.Random(1)
    count = mib * MIB // 2100
    with path.open("w") as log:
        log.writelines(table(rng) for _ in range(count))
    return count


def grep(path: Path, word: str) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(["grep", "-c", word, str(path)], stdout=subprocess.PIPE, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def scan_once(path: Path) -> tuple[Cost, int, float, float]:
    """What it costs, tables found, peak MiB, and how many of them came with the scan."""
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(path)], capture_output=True, text=True, check=True
    )
    wall, cpu, count, before, peak = map(float, done.stdout.split())
    return Cost(wall, cpu), int(count), peak / 1024, (peak - before) / 1024


def compare(path: Path, tables: int, what: str) -> dict[str, float]:
    grep(path, WORD)
    greps, same, scans, peaks, grown = [], [], [], [], []
    for _ in range(RUNS):
        greps.append(grep(path, WORD))
        cost, count, peak, more = scan_once(path)
        same.append(grep(path, WORD + " "))
        assert count == tables, (count, tables)
        scans.append(cost)
        peaks.append(peak)
        grown.append(more)
    size = path.stat().st_size
    path.unlink()
    theirs, word, ours = map(median, (greps, same, scans))
    print(
        f"{what}: {size / MIB:.0f} MiB, {tables} tables: {ours.wall:.3f} s = "
        f"{size / ours.wall / 1e9:.2f} GB/s; grep -c {size / theirs.wall / 1e9:.2f} GB/s; "
        f"ratio {theirs.wall / ours.wall:.3f}, by processor time {theirs.cpu / ours.cpu:.3f}, to "
        f"grep for the same word {word.wall / ours.wall:.3f}; peak RSS {max(peaks):.0f} MiB, "
        f"{max(grown):.0f} of them from the scan"
    )
    return {
        "ratio": round(theirs.wall / ours.wall, 3),
        "cpu_ratio": round(theirs.cpu / ours.cpu, 3),
        "same_word_ratio": round(word.wall / ours.wall, 3),
        "cpu_ms": round(ours.cpu * 1e3, 1),
        "peak_mib": round(max(peaks), 1),
        "grown_mib": round(max(grown), 1),
    }


def median(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def latency(folder: Path, polling: bool) -> dict[str, float]:
    """Milliseconds from before a table is appended until the sink has it."""
    path = folder / "live.log"
    path.write_text("start\n")
    rng = random.Random(2)
    news: list[float] = []
    came = threading.Condition()

    def sink(_: list[Record]) -> None:
        with came:
            news.append(time.perf_counter())
            came.notify()

    watcher = Watcher([str(path)], sink, polling=polling)
    watcher.start()
    time.sleep(0.5)
    found = []
    for _ in range(APPENDS if not polling else APPENDS // 10):
        text = table(rng)
        with came:
            news.clear()
            with path.open("a") as log:
                log.write(text)
                start = time.perf_counter()
            came.wait_for(lambda: bool(news), 10)
            found.append((news[0] - start) * 1e3)
        time.sleep(0.01)
    watcher.stop()
    found.sort()
    p50, p95 = found[len(found) // 2], found[int(len(found) * 0.95)]
    print(f"append to sink, {'polling' if polling else 'inotify'}: p50 {p50:.2f}, p95 {p95:.2f} ms")
    return {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0, help="size of the training log")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-ingest-"))
    try:
        log = folder / "train.log"
        mib = int(args.gib * 1024)
        result: dict[str, object] = {}
        count = make_log(log, mib, training, 1)
        result["training_log"] = compare(log, count, "a table every MiB")
        count = make_log(log, mib, training, 16)
        result["few_tables"] = compare(log, count, "a table every 16 MiB")
        count = make_log(log, mib // 4, shouting, 1)
        result["capitals"] = compare(log, count, "capital letters, a table every MiB")
        count = make_dense(log, mib // 32)
        dense = compare(log, count, "nothing but tables")
        dense["us_a_table"] = round(dense["cpu_ms"] * 1e3 / count, 1)
        dense["kib_a_table"] = round(dense["grown_mib"] * 1024 / count, 2)
        result["dense_log"] = dense
        result["inotify"] = latency(folder, polling=False)
        result["polling"] = latency(folder, polling=True)
        result["own_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
