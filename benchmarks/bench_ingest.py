"""How fast big logs are read, in what memory, and how soon an appended table is known.

    python benchmarks/bench_ingest.py [--gib 1]

Makes logs in a temporary folder and removes them. Speeds are ratios to `grep -c AUTOTUNE` on the
same file, both warm, the median of several runs taken in turns. The last line is JSON.
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
from pathlib import Path

from rocm_tui.ingest.records import Record
from rocm_tui.ingest.watcher import Watcher

RUNS = 5
APPENDS = 200
MIB = 1 << 20

SCAN = """
import os, resource, sys, time
from rocm_tui.ingest.scan import scan
fd = os.open(sys.argv[1], os.O_RDONLY)
start = time.perf_counter()
records, _ = scan(fd, sys.argv[1], os.fstat(fd).st_size)
seconds = time.perf_counter() - start
count = len({r.uid for r in records})
print(seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""Run in a process of its own, for its memory."""


def table(rng: random.Random) -> str:
    """One AUTOTUNE block as torch 2.13 prints it, ten rows."""
    m, k, n = (rng.choice((64, 512, 4096, 17408)) for _ in range(3))
    best = rng.uniform(0.01, 3.0)
    rows = []
    for at in range(10):
        ms = best * (1 + 0.07 * at)
        config = f"ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=64, BLOCK_M={16 << at % 4}, "
        config += "BLOCK_N=128, EVEN_K=True, GROUP_M=8, num_stages=4, num_warps=8"
        rows.append(f"  triton_mm_{at} {ms:.4f} ms {best / ms:.1%} {config}\n")
    stats = {"num_choices": 22, "best_kernel": "triton_mm_0", "best_time": best}
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


def make_log(path: Path, mib: int, dense: bool) -> int:
    """Write a log; return its number of tables."""
    rng = random.Random(1)
    pages = [training(rng) for _ in range(8)]
    count = 0
    with path.open("w") as log:
        for at in range(mib):
            tables = [table(rng) for _ in range(MIB // 2100)] if dense else [table(rng)]
            log.write("".join(tables) if dense else pages[at % 8] + tables[0])
            count += len(tables)
    return count


def grep_seconds(path: Path) -> float:
    start = time.perf_counter()
    subprocess.run(["grep", "-c", "AUTOTUNE", str(path)], stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - start


def scan_once(path: Path) -> tuple[float, int, float]:
    """Seconds, tables found, peak MiB."""
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(path)], capture_output=True, text=True, check=True
    )
    seconds, count, peak = done.stdout.split()
    return float(seconds), int(count), int(peak) / 1024


def compare(path: Path, tables: int, what: str) -> dict[str, float]:
    grep_seconds(path)
    greps, scans, peaks = [], [], []
    for _ in range(RUNS):
        greps.append(grep_seconds(path))
        seconds, count, peak = scan_once(path)
        assert count == tables, (count, tables)
        scans.append(seconds)
        peaks.append(peak)
    size = path.stat().st_size
    grep, ours = statistics.median(greps), statistics.median(scans)
    print(
        f"{what}: {size / MIB:.0f} MiB, {tables} tables: {ours:.3f} s = "
        f"{size / ours / 1e9:.2f} GB/s; grep -c {size / grep / 1e9:.2f} GB/s; "
        f"ratio {grep / ours:.3f}; peak RSS {max(peaks):.0f} MiB"
    )
    return {"ratio": round(grep / ours, 3), "peak_mib": round(max(peaks), 1)}


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
        count = make_log(log, int(args.gib * 1024), dense=False)
        result: dict[str, object] = {"training_log": compare(log, count, "a table every MiB")}
        log.unlink()
        count = make_log(log, int(args.gib * 32), dense=True)
        result["dense_log"] = compare(log, count, "nothing but tables")
        log.unlink()
        result["inotify"] = latency(folder, polling=False)
        result["polling"] = latency(folder, polling=True)
        result["own_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
