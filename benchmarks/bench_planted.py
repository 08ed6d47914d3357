"""Whether `trial --option` finds planted options of Inductor that help, hurt, change the outputs or
do nothing, in graphs that `run --capture` kept, with a real torch.compile on the CPU.

    python benchmarks/bench_planted.py [PROGRAM...] [--budget 15]

The plants and the expected verdicts are in `tests/support/option_plants.py`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.option_plants import PLANTS, Tried, captured, trial


def line(program: str, expected: str, tried: Tried) -> str:
    cells = [program, f"`{tried.option}`", expected, tried.said, interval(tried), outputs(tried)]
    return f"| {' | '.join(cells)} |" + " NOT FOUND" * (tried.said != expected)


def interval(tried: Tried) -> str:
    ratio, low, high = (tried.arm[name] for name in ("ratio", "ratio_low", "ratio_high"))
    if ratio is None:
        return "–"
    return f"{ratio:.2f} ({low:.2f} to {'∞' if high is None else f'{high:.2f}'})"


def outputs(tried: Tried) -> str:
    if tried.arm["failed"]:
        return str(tried.arm["failed"])[:70]
    return f"{tried.arm['error']:.1e} of {tried.arm['allowed']:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("programs", nargs="*", choices=[*PLANTS, []], metavar="PROGRAM")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each trial")
    args = parser.parse_args()
    plants: Mapping[str, Mapping[str, str]] = {
        name: PLANTS[name] for name in args.programs or PLANTS
    }
    right = 0
    print("| program | option | expected | verdict | time, ratio | outputs differ by |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        graphs = captured(Path(folder), list(plants))
        for program, expected in plants.items():
            for tried in trial(Path(folder), graphs[program], *expected, budget=args.budget):
                print(line(program, expected[tried.option], tried), flush=True)
                right += tried.said == expected[tried.option]
    print(f"{right} of {sum(map(len, plants.values()))} found")


if __name__ == "__main__":
    main()
