"""A cache of Triton with 10,000 kernels that `@triton.autotune` timed. Prints one JSON object.

    python benchmarks/bench_kernels.py [--kernels 10000] [--compiled 2] [--runs 3] [--seconds 10]
    python benchmarks/bench_kernels.py --make FOLDER          only make such a cache
    python benchmarks/bench_kernels.py --best                 only Inductor's best configs

Each kernel is a folder `<hash>/<kernel>.autotune.json` with ten to thirty configs, and beside it
lie folders of what was compiled, which are looked into as well. Ready and complete are ratios to a
bare Textual app that is run in turns with ours. What is written is a new kernel's file, as Triton
writes it: into a folder that has been empty for a while, by renaming.

`show` and `pin` are of one kernel among them. Of a cache dir of Inductor's with as many
`*.best_config` files beside their kernels: ready and complete, MiB, and how long until one that is
written anew is on the screen, watched and polled: its title counts one more.

A table is appended to a log beside the kernels, too, which the budget of 20 ms is of.

The budgets: ready 1.25 x bare; complete 4 x (2 x for 5,000); `ls` 3 s and 150 MB for 50,000; a
line of a log on the screen within 20 ms (p95); idle 0.3 % CPU and 0.2 KB/s, watched and polled.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_complete import KEYS, cpu, keys, shown, within
from bench_scale import MAIN, run
from bench_terminal import BARE, TABLE, Screen, until

from tests.support.inductor_kernels import (
    best_config,
    put_compiled,
    put_config,
    put_source,
    source,
)

KERNELS: dict[str, tuple[tuple[str, ...], str]] = {
    "fused_moe_kernel": (("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), "torch.bfloat16"),
    "chunk_gated_delta_rule_fwd_kernel_h": (("BV",), "torch.float32"),
    "chunk_fwd_kernel_o": (("BK", "BV"), "torch.bfloat16"),
    "layer_norm_fwd_kernel": (("BT",), "torch.bfloat16"),
    "_w8a8_block_fp8_matmul": (("BLOCK_M", "BLOCK_N", "BLOCK_K"), "torch.float8_e4m3fn"),
    "attn_fwd": (("BLOCK_M", "BLOCK_N"), "torch.float16"),
    "l2norm_fwd_kernel": (("BD",), "torch.bfloat16"),
}
"""The names of the values that are tuned, and a type."""


def digest(n: int) -> str:
    """As Triton names a folder."""
    return base64.b32encode(hashlib.sha256(str(n).encode()).digest()).decode().rstrip("=")


def kernel_text(n: int) -> tuple[str, str]:
    """The name and the content of the n-th file."""
    draw = random.Random(n)
    name = list(KERNELS)[n % len(KERNELS)]
    values, dtype = KERNELS[name]
    best, configs = draw.uniform(0.005, 2.0), []
    for at, kwargs in enumerate(draw.sample(list(_spaces(values)), draw.randint(10, 30))):
        median = best * (1 + 0.04 * at * draw.random())
        low, high = median * draw.uniform(0.97, 1), median * draw.uniform(1, 1.03)
        told = {"kwargs": kwargs[0], "num_warps": kwargs[1], "num_ctas": 1, "num_stages": kwargs[2]}
        told |= {"maxnreg": None, "pre_hook": None, "ir_override": None}
        times = [float("inf")] * 3 if draw.random() < 0.03 else [median, low, high]
        configs.append([told, times])
    key = [64 + n // 7, 128 << n % 7, 4096, dtype, dtype, dtype]
    return name, json.dumps({"key": key, "configs_timings": configs})


def _spaces(values: tuple[str, ...]) -> Iterator[tuple[dict[str, int], int, int]]:
    for size in range(len(values) * 4):
        kwargs = {value: 16 << (size + 2 * at) % 5 for at, value in enumerate(values)}
        yield from ((kwargs, warps, stages) for warps in (1, 2, 4, 8) for stages in (1, 2, 3, 4))


def make(cache: Path, count: int, compiled: int) -> None:
    """`count` kernels, and so many folders each of what was compiled."""
    for n in range(count):
        name, text = kernel_text(n)
        (cache / digest(n)).mkdir(parents=True)
        (cache / digest(n) / f"{name}.autotune.json").write_text(text)
        for more in range(compiled):
            folder = cache / digest(1_000_000 + n * compiled + more)
            folder.mkdir()
            for suffix in ("json", "ttir", "ttgir", "llir", "amdgcn", "hsaco"):
                (folder / f"{name}.{suffix}").touch()


def typed(n: int) -> bytes:
    """The n-th key of a filter."""
    return b"attn_fwd & time < 1ms".ljust(KEYS)[n : n + 1]


def watch(cache: Path, *more: str) -> list[str]:
    nowhere = str(cache.parent / "none")
    return [sys.executable, "-m", "rocm_tui", "watch", "--cache-dir", nowhere, *more, str(cache)]


def started(command: list[str], text: bytes) -> Screen:
    screen = Screen.start(command)
    time.sleep(0.2)
    screen.go()
    screen.wait_for(text, 60)
    return screen


def idle(screen: Screen, seconds: float) -> dict[str, float]:
    screen.read(5.0)
    before, begun = cpu(screen), time.perf_counter()
    written = screen.read(seconds)
    spent, passed = cpu(screen) - before, time.perf_counter() - begun
    return {
        "cpu_percent": round(spent / passed * 100, 2),
        "bytes_per_s": round(written / passed),
        "peak_mib": round(screen.peak_mib()),
    }


def written(screen: Screen, cache: Path, count: int, samples: int) -> dict[str, float]:
    """Milliseconds from the file's rename until its row is painted (nothing else is: the screen
    is idle) and until the title counts it, and how much processor time one takes."""
    times, rows, before = [], [], cpu(screen)
    for n in range(count, count + samples):
        screen.read(0.5)
        name, text = kernel_text(n)
        folder = cache / digest(n)
        folder.mkdir()
        (folder / "tmp.pid_1").mkdir()
        screen.read(1.0 + n % 7 / 10)  # the configs are timed
        (folder / "tmp.pid_1" / "x").write_text(text)
        since, begun = len(screen.data), time.perf_counter()
        (folder / "tmp.pid_1" / "x").rename(folder / f"{name}.autotune.json")
        rows.append((until(screen, re.escape(name), since) - begun) * 1e3)
        times.append((screen.wait_for(f"{n + 1:,} tuning".encode(), 30) - begun) * 1e3)
    return {
        "row_p50_ms": round(statistics.median(rows), 1),
        "row_p95_ms": round(statistics.quantiles(rows, n=20)[-1], 1),
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        "cpu_ms": round((cpu(screen) - before) / samples * 1e3, 1),
    }


def lines(cache: Path, count: int, samples: int) -> dict[str, float]:
    """Milliseconds until a table that is appended to a log beside them is on the screen, as
    bench_terminal.py has it for the log alone. The first makes columns that all rows have."""
    log, times = cache.parent / "train.log", []
    log.touch()
    screen = started([*watch(cache), str(log)], f"{count:,} tuning".encode())
    screen.read(5.0)
    for m in range(1000, 1000 + samples):
        with log.open("a") as file:
            file.write(TABLE.format(m=m))
        begun = time.perf_counter()
        times.append((screen.wait_for(f"{m}×64×64".encode()) - begun) * 1e3)
        screen.read(0.6 if times[1:] else 4.0)  # updates wait for their turn after a burst
    screen.stop()
    first, *others = times
    return {
        "first_ms": round(first, 1),
        "p50_ms": round(statistics.median(others), 1),
        "p95_ms": round(statistics.quantiles(others, n=20)[-1], 1),
    }


def one(cache: Path) -> dict[str, dict[str, float]]:
    """`show` and `pin` of one among all."""
    nowhere = ("--cache-dir", str(cache.parent / "none"))
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    listed = [sys.executable, "-c", MAIN, "ls", "--json", *nowhere]
    rows = json.loads(subprocess.run(listed, stdout=subprocess.PIPE, check=True).stdout)["tunings"]
    id_ = rows[len(rows) // 2]["id"]
    words = {"show": ("show", id_), "pin": ("pin", id_, "#2"), "unpin": ("unpin", id_)}
    costs = {what: run([*each, *nowhere], 60) for what, each in words.items()}
    del os.environ["TRITON_CACHE_DIR"]
    return {
        what: {"s": round(cost.seconds, 2), "cpu_s": round(cost.cpu, 2), "mib": round(cost.mib)}
        for what, cost in costs.items()
    }


def put_best(root: Path, n: int) -> None:
    """The n-th kernel that Inductor tuned, its best config, and what Triton keeps of it."""
    kernel = put_source(root, source(f"triton_poi_fused_{n}", added=n))
    put_compiled(root, digest(n), kernel)
    config = best_config(32 << n % 6, triton_cache_hash=digest(n))
    put_config(kernel.parent, config, hashlib.sha256(str(n).encode()).hexdigest())


def best_configs(root: Path, count: int, here: Path) -> dict[str, object]:
    """A cache dir of Inductor's with so many of them."""
    (root / "fxgraph").mkdir(parents=True)
    for n in range(count):
        put_best(root, n)
    command = [sys.executable, "-m", "rocm_tui", "watch", "--cache-dir", str(root)]
    result: dict[str, object] = {}
    bare = shown([sys.executable, "-c", BARE], here, "READY")
    for what, text in (("ready", "tuning"), ("complete", f"{count:,} tuning")):
        took = shown(command, here, text)
        result[what] = {
            "wall_s": round(took[1], 2),
            "wall_ratio": round(took[1] / bare[1], 2),
            "cpu_ratio": round(took[0] / bare[0], 2),
        }
    for how, more in (("watched", ()), ("polled", ("--polling",))):
        screen = started([*command, *more], f"{count:,} tuning".encode())
        result[f"idle, {how}"] = idle(screen, 10.0)
        times = []
        for n in range(count, count + 10):
            screen.read(1.0 + n % 7 / 10)
            put_best(root, n)
            begun = time.perf_counter()
            times.append(screen.wait_for(f"{n + 1:,} tuning".encode(), 60) - begun)
        count += 10
        screen.stop()
        middle, worst = statistics.median(times), max(times)
        result[f"written, {how}_s"] = {"p50": round(middle, 2), "worst": round(worst, 2)}
    spent = run(["ls", str(root)], 60)
    return result | {"ls": {"s": round(spent.seconds, 2), "mib": round(spent.mib)}}


def compiling(screen: Screen, cache: Path, first: int, count: int, each: float = 20.0) -> float:
    """Per cent of a core while a program compiles so many kernels a second."""
    before, begun = cpu(screen), time.perf_counter()
    for n in range(first, first + count):
        folder = cache / digest(2_000_000 + n)
        folder.mkdir()
        (folder / "k.json").touch()
        screen.read(1 / each)
    return round((cpu(screen) - before) / (time.perf_counter() - begun) * 100, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--compiled", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--best", action="store_true", help="only the best configs of Inductor's")
    args = parser.parse_args()
    if args.make:
        return make(args.make, args.kernels, args.compiled)
    here, count = Path(__file__).resolve().parent.parent, args.kernels
    result: dict[str, object] = {}
    if args.best:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(best_configs(Path(name), count, here), indent=1))
        return None
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name, "triton")
        make(cache, count, args.compiled)
        turns: dict[str, list[tuple[float, float]]] = {}
        for _ in range(args.runs + 1):  # the first warms the caches
            turns.setdefault("bare", []).append(shown([sys.executable, "-c", BARE], here, "READY"))
            for what, text in (("ready", "tuning"), ("complete", f"{count:,} tuning")):
                turns.setdefault(what, []).append(shown(watch(cache), here, text))
        for what in ("ready", "complete"):
            pairs = list(zip(turns[what], turns["bare"], strict=True))[1:]
            result[what] = {
                "wall_s": round(statistics.median(a[1] for a, _ in pairs), 2),
                "cpu_ratio": round(statistics.median(a[0] / b[0] for a, b in pairs), 2),
                "wall_ratio": round(statistics.median(a[1] / b[1] for a, b in pairs), 2),
            }
        spent = run(["ls", str(cache)], 60)
        result["ls"] = {"s": round(spent.seconds, 2), "mib": round(spent.mib)}
        for what, more in (("watched", ()), ("polled", ("--polling",))):
            screen = started(watch(cache, *more), f"{count:,} tuning".encode())
            result[f"idle, {what}"] = idle(screen, args.seconds)
            if not more:
                result["key_ms"] = round(keys(screen, within), 1)
                os.write(screen.fd, b"j" * 60)
                screen.read(1.0)
                result["key that scrolls_ms"] = round(keys(screen, lambda _: b"j"), 1)
                os.write(screen.fd, b"/")
                screen.read(1.0)
                result["key in the filter_ms"] = round(keys(screen, typed), 1)
                os.write(screen.fd, b"\x1b")
                screen.read(0.5)
                os.write(screen.fd, b"\x1b")
                screen.read(0.5)
            result[f"compiling, {what}_cpu_percent"] = compiling(screen, cache, count * 20, 200)
            result[f"written, {what}"] = written(screen, cache, count, 20)
            count += 20
            screen.stop()
        result["a log beside them"] = lines(cache, count, 40)
        result |= one(cache)
        result["best configs"] = best_configs(Path(name, "inductor"), args.kernels, here)
    print(json.dumps(result, indent=1))
    return None


if __name__ == "__main__":
    main()
