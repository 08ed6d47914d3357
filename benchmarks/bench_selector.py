"""Our persistent autotune cache against PyTorch's own, in one run.

    python benchmarks/bench_selector.py [--keys 100 1000 10000] [--processes 16]

Milliseconds of a lookup that hits and of an insert after a miss (benchmarking left out), 30 choices
a key, medians, both on the same disk; and how many entries are kept of those that several processes
insert at once. Prints one JSON object. Works in a temporary folder and removes it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHOICES = 30
INSERTS = 40
STOCK_RUNS = 3
EACH = 25
"""New entries of each of the processes at once."""

TUNE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bench_selector import Choice, cache_of
cache = cache_of(sys.argv[2])
choices = [Choice(f"choice-{i}") for i in range(20)]
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[4])):
    cache.lookup(choices, "mm", f"{sys.argv[3]}-{i}", lambda offered: {c: 0.5 for c in offered})
"""


class Choice:
    """All that a lookup asks of a choice."""

    def __init__(self, name: str) -> None:
        self._name = name

    def hash_key(self) -> str:
        return self._name


def cache_of(kind: str) -> Any:
    """A `PersistentCache`, "stock" or "ours"."""
    if kind == "stock":
        from torch._inductor.codecache import PersistentCache

        return PersistentCache()
    from backend.inductor.hooks.selector import TunedLookup

    return TunedLookup()


def inputs(i: int) -> str:
    return (
        f"[('cuda', 'torch.bfloat16', {i}, 4096, 4096, 1, 0), "
        f"('cuda', 'torch.bfloat16', 4096, {i}, {i}, 1, 0)]"
    )


def fill(path: Path, keys: int) -> None:
    """A cache file with `keys` tunings, in PyTorch's layout."""
    times = {f"triton_mm-c{j:050d}": 0.1 + j for j in range(CHOICES)}
    cache = {"mm": {inputs(i): {"highest": times} for i in range(keys)}}
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"system": {}, "cache": cache}, indent=4))


def measure(kind: str, keys: int) -> None:
    """In a process of its own: print the medians, in ms."""
    from torch._inductor.codecache import PersistentCache

    path = Path(PersistentCache.get_local_cache_path())
    fill(path, keys)
    cache = cache_of(kind)
    choices = [Choice(f"triton_mm-c{j:050d}") for j in range(CHOICES)]
    times = dict.fromkeys(choices, 1.0)
    begin = time.perf_counter()
    cache.lookup(choices, "mm", inputs(0), None)
    first = time.perf_counter() - begin
    stock = kind == "stock"
    lookups, inserts = [], []
    for i in range(STOCK_RUNS if stock else 1_000):
        begin = time.perf_counter()
        found = cache.lookup(choices, "mm", inputs(i % keys), None)
        lookups.append(time.perf_counter() - begin)
        assert len(found) == CHOICES
    for i in range(STOCK_RUNS if stock else INSERTS):
        begin = time.perf_counter()
        cache.lookup(choices, "mm", f"new {i}", lambda _: times)
        inserts.append(time.perf_counter() - begin)
    found = {
        "first_lookup_ms": 1e3 * first,
        "lookup_ms": 1e3 * statistics.median(lookups),
        "insert_ms": 1e3 * statistics.median(inserts),
        "insert_max_ms": 1e3 * max(inserts),
    }
    print(json.dumps(found))


def child(root: Path) -> dict[str, str]:
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(root)}


def measured(kind: str, keys: int, folder: Path) -> dict[str, float]:
    root = folder / f"{kind}-{keys}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--measure", kind, str(keys)],
        env=child(root),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    if kind == "ours":  # what was inserted is in the file that stock PyTorch reads
        cache = json.loads(next((root / "cache").glob("[!.]*")).read_text())["cache"]
        assert len(cache["mm"]) == keys + INSERTS
    shutil.rmtree(root)
    return found


def compare(keys: int, folder: Path) -> dict[str, Any]:
    stock, ours = measured("stock", keys, folder), measured("ours", keys, folder)
    ratios = {f"{name}_ratio": stock[name] / ours[name] for name in ("lookup_ms", "insert_ms")}
    rounded = {
        who: {name: round(ms, 4) for name, ms in found.items()}
        for who, found in (("stock", stock), ("ours", ours))
    }
    return {"keys": keys, **rounded, **{name: round(x, 2) for name, x in ratios.items()}}


def kept(kind: str, processes: int, folder: Path) -> dict[str, Any]:
    """Entries in the file after all processes inserted theirs at once."""
    root = folder / f"{kind}-race"
    begin_each = [sys.executable, "-W", "ignore", "-c", TUNE, str(Path(__file__).parent), kind]
    children = [
        subprocess.Popen(
            [*begin_each, str(i), str(EACH)],
            env=child(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for i in range(processes)
    ]
    for each in children:
        assert each.stdout is not None and each.stdout.readline() == b"ready\n"
    begin = time.perf_counter()
    for each in children:
        assert each.stdin is not None
        each.stdin.write(b"\n")
        each.stdin.flush()
    failed = sum(each.wait() != 0 for each in children)
    seconds = time.perf_counter() - begin
    cache = json.loads(next((root / "cache").glob("[!.]*")).read_text())["cache"]
    shutil.rmtree(root)
    return {
        "expected": processes * EACH,
        "kept": len(cache["mm"]),
        "failed": failed,
        "seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, keys = options.measure
        measure(kind, int(keys))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "choices": CHOICES,
            "sizes": [compare(keys, folder) for keys in options.keys],
            "at_once": {
                "processes": options.processes,
                **{kind: kept(kind, options.processes, folder) for kind in ("stock", "ours")},
            },
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
