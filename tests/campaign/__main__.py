"""`python -m tests.campaign`: attack the program and count what broke.

The exit code is 1 if any promise was broken. `--write` writes docs/data/campaign.csv.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import os
import pkgutil
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import campaign
from tests.campaign import Figure

DOCUMENT = Path(__file__).parents[2] / "docs" / "data" / "campaign.csv"


def main(words: Sequence[str]) -> int:
    parts = sorted(  # a name that begins with `_` helps the parts
        module.name
        for module in pkgutil.iter_modules(campaign.__path__)
        if not module.name.startswith("_")
    )
    args = _parser(parts).parse_args(words)
    chosen = args.only or parts
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"{len(chosen)} parts, {args.minutes:g} minutes in all, --seed {seed}", flush=True)
    figures: list[Figure] = []
    begin = time.monotonic()
    for name in chosen:
        run = importlib.import_module(f"tests.campaign.{name}").run
        with tempfile.TemporaryDirectory(prefix=f"campaign-{name}-") as folder:
            for figure in run(Path(folder), args.minutes * 60 / len(chosen), seed):
                print(f"{name}: {_said(figure)}", flush=True)
                figures.append(figure)
    minutes = (time.monotonic() - begin) / 60
    table = _table(figures, minutes, seed)
    print(table)
    if args.write:
        DOCUMENT.write_text(table)
    return int(any(figure.bad for figure in figures))


def _parser(parts: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="in all")
    parser.add_argument("--only", nargs="+", choices=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--seed", type=int, metavar="N", help="attack again as it was then")
    parser.add_argument("--write", action="store_true", help=f"to docs/data/{DOCUMENT.name}")
    return parser


def _said(figure: Figure) -> str:
    verdict = "0 bad" if not figure.bad else f"{figure.bad:,} BAD"
    note = f" ({figure.note})" if figure.note else ""
    return f"{figure.what}: {figure.tries:,} tries, {verdict}; goal: {figure.goal}{note}"


def _table(figures: Sequence[Figure], minutes: float, seed: int) -> str:
    """Return the text of a CSV file, a row for each figure."""
    run = (
        f"{minutes:.0f} minutes, seed {seed}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}"
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["attack", "tries", "broken", "goal", "note", "run"])
    table.writerows(
        (each.what, each.tries, each.bad, each.goal, each.note, run) for each in figures
    )
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
