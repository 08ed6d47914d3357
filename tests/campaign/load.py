"""Much to read: ten times as many tunings, one line without an end, a great many files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaign import Figure

ROOT = Path(__file__).parents[2]
MOST = 11.0
"""Times as long as for a tenth."""
LINE_MIB = 500
MEMORY_MIB = 100
FILES = 20_000
LATEST = 60.0
"""Seconds of the processor for so many files."""


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    """`seed` changes nothing here."""
    yield from _tens(50_000 if seconds >= 240 else 10_000)
    yield _line(folder)
    yield _files(folder)


def _tens(tunings: int) -> Iterator[Figure]:
    words = [sys.executable, "benchmarks/bench_scale.py", "--tunings", str(tunings)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    for what in ("ls", "compare", "watch"):
        told = {name.split()[0]: each for name, each in found.items() if name.endswith(f" {what}")}
        ratios = {kind: each["ratio"] for kind, each in told.items()}
        worst = max(ratios, key=ratios.__getitem__)
        memory = max(each["many_mib"] for each in told.values())
        yield Figure(
            f"`{what}` of {tunings:,} tunings against a tenth of them, {len(told)} kinds",
            len(told),
            sum(not ratio <= MOST for ratio in ratios.values()),
            f"at most {MOST:g} x the time",
            f"worst {ratios[worst]:g} x ({worst}), {memory:g} MiB at most",
        )


def _line(folder: Path) -> Figure:
    log = folder / "train.log"
    with log.open("wb") as out:
        out.write(b"step 1\n")
        for _ in range(LINE_MIB):
            out.write(b"x" * (1 << 20))
    seconds, memory = _cost(["ls", str(log)])
    log.unlink()
    return Figure(
        f"`ls` of one line of {LINE_MIB} MB",
        1,
        int(memory > MEMORY_MIB),
        f"below {MEMORY_MIB} MiB",
        f"{memory:.0f} MiB, {seconds:.1f} s of the processor",
    )


def _files(folder: Path) -> Figure:
    sessions = folder / "many"
    sessions.mkdir()
    for n in range(FILES):
        (sessions / f"{n}.json").write_text('{"a": 1}')
    seconds, memory = _cost(["ls", str(sessions)])
    return Figure(
        f"`ls` of a folder of {FILES:,} other JSON files",
        1,
        int(seconds > LATEST),
        f"below {LATEST:g} s",
        f"{seconds:.1f} s of the processor, {memory:.0f} MiB",
    )


def _cost(words: Sequence[str]) -> tuple[float, float]:
    """Seconds of the processor, and MiB at the peak."""
    child = subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
