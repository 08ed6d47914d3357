"""How soon 5,000 tunings are complete on the screen, and what a key costs. Prints one JSON object.

    python benchmarks/bench_complete.py [--runs 5] [--beside OTHER_TREE]

Ratios by processor time, all threads of all its processes, and by the wall clock, each to a bare
Textual app that is run in turns with ours. The clock is what a person feels: a process that reads
works beside the one that draws. Complete is what shows the number of all tunings. A key
is `j` within the visible lines, and such that the list scrolls by one; beside it stands a bare
DataTable of as many rows and 9 columns, which has no details to show. `--beside` measures another
checkout of ours in the same turns. The budgets: 2 and 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench_scale import one_log, one_session
from bench_terminal import BARE, Screen

TABLE = """
from textual.app import App
from textual.widgets import DataTable
class Bare(App):
    BINDINGS = [("j", "move(1)", ""), ("k", "move(-1)", "")]
    def compose(self):
        yield DataTable(cursor_type="row")
    def on_ready(self):
        table = self.query_one(DataTable)
        table.add_columns(*["a column"] * 9)
        for n in range({count}):
            table.add_row(*[f"cell {{n}}"] * 9)
        table.focus()
    def action_move(self, by):
        table = self.query_one(DataTable)
        table.action_cursor_down() if by > 0 else table.action_cursor_up()
Bare().run()
"""
KEYS = 24
"""In one turn; each but a few of ours stays within the lines that are seen."""


def cpu(screen: Screen) -> float:
    """Seconds of the threads that run, of all its processes, finer than a tick of the clock."""
    spent = 0
    for pid in screen.pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                spent += int((task / "schedstat").read_text().split()[0])
            except OSError:  # it ended meanwhile
                continue
    return spent / 1e9


def shown(command: Sequence[str], tree: Path, what: str) -> tuple[float, float]:
    """Seconds of the processor and by the clock until it has written what the pattern matches."""
    here = Path.cwd()
    os.chdir(tree)
    screen = Screen.start(command)
    os.chdir(here)
    time.sleep(0.2)
    begun, pattern = screen.go(), re.compile(what.encode())
    while not pattern.search(screen.data):
        if time.perf_counter() - begun > 60:
            raise SystemExit(f"{what} did not appear")
        if select.select([screen.fd], [], [], 0.1)[0]:
            screen.data += os.read(screen.fd, 65536)
    spent = max(screen.cpu(), cpu(screen)), time.perf_counter() - begun
    screen.stop()
    return spent


def keys(screen: Screen, key: Callable[[int], bytes]) -> float:
    """Milliseconds of the processor a key."""
    before = cpu(screen)
    for n in range(KEYS):
        os.write(screen.fd, key(n))
        screen.read(0.06)
    return (cpu(screen) - before) / KEYS * 1e3


def within(n: int) -> bytes:
    return b"j" if n // (KEYS // 4) % 2 == 0 else b"k"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tunings", type=int, default=5000)
    parser.add_argument("--beside", type=Path)
    args = parser.parse_args()
    here, count = Path(__file__).resolve().parent.parent, args.tunings
    trees = {"": here} | ({"beside ": args.beside.resolve()} if args.beside else {})
    table = TABLE.format(count=count)
    found: dict[str, list[tuple[float, float]]] = {}
    pressed: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for make in (one_log, one_session):
            Path(name, make.__name__).mkdir()
            make(Path(name, make.__name__), count)
        for run in range(args.runs + 1):  # the first warms the caches
            turn = {"bare": shown([sys.executable, "-c", BARE], here, "READY")}
            for tree, root in trees.items():
                for kind in ("one_log", "one_session"):
                    ours = [sys.executable, "-m", "rocm_tui", "watch", f"{name}/{kind}"]
                    turn[tree + kind] = shown(ours, root, f"({count}|{count:,}) tuning")
            for what, cost in turn.items() if run else ():
                found.setdefault(what, []).append(cost)
        screens = {"bare": Screen.start([sys.executable, "-c", table])}
        for tree, root in trees.items():
            os.chdir(root)
            ours = [sys.executable, "-m", "rocm_tui", "watch", f"{name}/one_log"]
            screens[f"{tree}ours"] = Screen.start(ours)
        time.sleep(0.2)
        for screen in screens.values():
            screen.go()
        for _ in range(20):
            for screen in screens.values():
                screen.read(0.2)
        for _ in range(args.runs):
            for what, screen in screens.items():
                pressed.setdefault(f"{what} key", []).append(keys(screen, within))
        for screen in screens.values():
            os.write(screen.fd, b"j" * 60)
            screen.read(1.0)
        for _ in range(args.runs):
            for what, screen in screens.items():
                pressed.setdefault(f"{what} key that scrolls", []).append(
                    keys(screen, lambda _: b"j")
                )
        for screen in screens.values():
            screen.stop()
    result: dict[str, dict[str, float]] = {}
    for what, costs in found.items():
        pairs = list(zip(costs, found["bare"], strict=True))
        result[what] = {
            "cpu_ms": round(statistics.median(cost[0] for cost in costs) * 1e3),
            "cpu_ratio": round(statistics.median(a[0] / b[0] for a, b in pairs), 2),
            "wall_ratio": round(statistics.median(a[1] / b[1] for a, b in pairs), 2),
        }
    for what, each in pressed.items():
        bare = pressed["bare key that scrolls" if "scrolls" in what else "bare key"]
        ratio = statistics.median(a / b for a, b in zip(each, bare, strict=True))
        result[what] = {"cpu_ms": round(statistics.median(each), 2), "cpu_ratio": round(ratio, 2)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
