"""How often `compare` blames a kernel that is the same, and finds one that works a fifth longer.

    python benchmarks/bench_compare.py [--runs 40] [--draws 3000]

Measures a real bmm again and again, each time in a process of its own, as it is and with a fifth
more work, first as the machine stands, then beside a process that fills caches and memory by turns.
Then draws measurements of both from them, a run of some on each side, and asks for the verdict.
Prints one JSON object for each number of measurements a side: how many per cent of the draws fail
at 10 % for the same kernel, and for the one with more work, by what was beside A and beside B.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.choice import MeasuredChoice, Measurement
from backend.model.events import TuningMeasured
from rocm_tui.compare.verdict import by_measurement, in_units
from tests.support.compare_sessions import PLANTED, Sessions

SAME, MORE = "same", f"more{PLANTED}"
REGRESSION = 1.10
NEIGHBOUR = """
import random, time, torch
torch.set_num_threads(1)
big, other = torch.empty(64 << 20), torch.empty(64 << 20)
near, close = torch.empty(4 << 20), torch.empty(4 << 20)
square = torch.randn(2048, 2048)
work = [lambda: other.copy_(big), lambda: close.copy_(near), lambda: square @ square,
        lambda: time.sleep(0.1)]
while True:
    chosen, end = random.choice(work), time.time() + random.uniform(2, 12)
    while time.time() < end:
        chosen()
"""

Found = dict[str, dict[str, list[Measurement]]]
"""Measurements by what was beside them (`nothing`, `neighbour`) and by kernel, in order."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--draws", type=int, default=3000)
    args = parser.parse_args()
    found = _measured(args.runs)
    random.seed(0)
    for times in (1, 2, 3, 5):
        print(json.dumps({"measurements": times, **judged(found, times, args.draws)}), flush=True)
    return 0


def _measured(runs: int) -> Found:
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as folder:
        sessions = Sessions(Path(folder))
        for name in (SAME, MORE):
            sessions.tune(name)
        for beside in ("nothing", "neighbour"):
            with _neighbour() if beside == "neighbour" else contextlib.nullcontext():
                for _ in range(runs):
                    sessions.measure(SAME)
                    sessions.measure(MORE)
            for name in (SAME, MORE):
                known = _measurements(Path(folder, name))
                before = found.get("nothing", {}).get(name, [])
                found.setdefault(beside, {})[name] = known[len(before) :]
        sessions.close()
    return found


@contextlib.contextmanager
def _neighbour() -> Iterator[None]:
    other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", NEIGHBOUR])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def _measurements(cache_dir: Path) -> list[Measurement]:
    """All that lie in the session logs of a cache dir, oldest first."""
    logs = Layout(cache_dir).sessions.glob("*.jsonl")
    events = [event for log in logs for event in read_log(log)[0]]
    told = [event.measurement for event in events if isinstance(event, TuningMeasured)]
    return sorted(told, key=lambda one: one.when)


def judged(found: Found, times: int, draws: int) -> dict[str, dict[str, float]]:
    """Per cent of the draws that fail, by what was beside A and B and by B's kernel."""
    told: dict[str, dict[str, float]] = {}
    for then, now in itertools.product(found, found):
        fails = {
            name: sum(
                _fails(_drawn(found[then][SAME], times), _drawn(found[now][name], times))
                for _ in range(draws)
            )
            for name in (SAME, MORE)
        }
        told[f"{then}, {now}"] = {n: round(100 * k / draws, 2) for n, k in fails.items()}
    return told


def _drawn(known: Sequence[Measurement], times: int) -> Sequence[Measurement]:
    """So many that were made one after the other: neighbours stay for a while."""
    at = random.randrange(len(known) - times + 1)
    return known[at : at + times]


def _fails(then: Sequence[Measurement], now: Sequence[Measurement]) -> bool:
    """As `compare --fail-on-regression 10` says of ATen's choice."""
    hash = next(c.hash for c in now[0].choices if c.name == "bmm")
    a, b = (min(side, key=lambda one: _of(one, hash).ms) for side in (then, now))
    ruling = by_measurement(
        _of(a, hash),
        _of(b, hash),
        in_units(hash, hash, then, now),
        times=min(len(then), len(now)),
        trouble=[*a.trouble, *b.trouble],
    )
    return ruling.verdict == "slower" and ruling.ratio > REGRESSION


def _of(one: Measurement, hash: str) -> MeasuredChoice:
    found = one.of(hash)
    assert found is not None
    return found


if __name__ == "__main__":
    sys.exit(main())
