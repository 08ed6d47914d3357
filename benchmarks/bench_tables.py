"""Other tuners' tables: a million entries in 500 files on the screen. Prints one JSON object.

    python benchmarks/bench_tables.py [--files 500] [--rows 2000] [--runs 3]

Ready is a row of `watch` on the folder; entries are listed once the screen of entries (E) shows the
first ones, from the key on, and checked once it tells what lint found. A filter is three words
typed into it; found is from the last key to the screen that shows the first entries that have
them. Seconds by the clock, beside a bare Textual app's start; MiB at the peak, all processes. The
budgets: ready 2 s, a filter's first entries 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_complete import shown
from bench_terminal import BARE, Screen, until

HEAD = "Validator,PT_VERSION,2.13.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
WORDS = (b"_4096_", b"Gemm_Rocblas_77", b"solution=Gemm_Hipblaslt_31337")


def make(folder: Path, files: int, rows: int) -> None:
    """Tables of TunableOp's with products drawn from sizes that models have."""
    draw = random.Random(11)
    for n in range(files):
        lines = []
        for row in range(rows):
            m, k = (draw.choice((1024, 4096, 5120, 8192, 14336, 28672)) for _ in range(2))
            library = draw.choice(("Hipblaslt", "Hipblaslt", "Hipblaslt", "Rocblas"))
            solution = f"Gemm_{library}_{draw.randrange(90_000)}"
            size = f"tn_{m}_{n * rows + row + 1}_{k}_ld_{k}_{k}_{m}"
            lines.append(
                f"GemmTunableOp_BFloat16_TN,{size},{solution},{draw.uniform(0.005, 2):.5f}"
            )
        (folder / f"tunableop_results{n}.csv").write_text(HEAD + "\n".join(lines) + "\n")


def entries(command: list[str], total: int) -> dict[str, float]:
    """The screen of entries, opened once the tables are found."""
    screen = Screen.start(command)
    time.sleep(0.2)
    screen.go()
    until(screen, "20,000 entries", 0)
    screen.read(5.0)
    took: dict[str, float] = {}
    since, begun = len(screen.data), time.perf_counter()
    os.write(screen.fd, b"E")
    took["entries listed_s"] = until(screen, f" {total:,} entr", since) - begun
    took["entries checked_s"] = until(screen, "not checked here|nothing found", since) - begun
    screen.read(2.0)
    os.write(screen.fd, b"/")
    screen.read(0.5)
    for word in WORDS:
        os.write(screen.fd, b"\x15" + word[:-1])
        screen.read(1.5)
        since, begun = len(screen.data), time.perf_counter()
        os.write(screen.fd, word[-1:])
        name = word.decode()
        took[f"{name} found_ms"] = (
            until(screen, "entr(y has|ies have)|No entry", since) - begun
        ) * 1e3
        screen.read(1.5)
    took["peak_mib"] = screen.peak_mib()
    screen.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    here, found = Path(__file__).resolve().parent.parent, dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), args.files, args.rows)
        none = f"{name}/none"
        command = [sys.executable, "-m", "rocm_tui", "watch", "--cache-dir", none, name]
        for _ in range(args.runs):
            took = {"bare_s": shown([sys.executable, "-c", BARE], here, "READY")[1]}
            took["ready_s"] = shown(command, here, "Gemm_")[1]
            took |= entries(command, args.files * args.rows)
            for what, value in took.items():
                found.setdefault(what, []).append(value)
    medians = {what: round(statistics.median(values), 2) for what, values in found.items()}
    print(json.dumps(medians, indent=1))


if __name__ == "__main__":
    main()
