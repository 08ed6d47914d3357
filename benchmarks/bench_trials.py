"""How often a trial's verdict is wrong: against 200 later A/B runs of the same graph on a CPU.

    python benchmarks/bench_trials.py [NAME...] [--budget 15] [--lanes 1] [--first-cpu 0]

For each CPU program of `models.py`: it is tuned and captured by `run --capture`. For each tuning of
each of its graphs the choice that Inductor takes is compared with the next one: by `trial`, by
`measure` of the kernels alone, and by 200 A/B runs in four fresh processes, whose passes are timed
by a plain loop that knows nothing of how a trial judges. `wrong` is a trial that says faster or
slower where the median of the A/B runs lies on the other side of 1. Each lane has two cores of its
own. Prints a table in Markdown, and then what was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend.measure.trial import across_processes

HERE = Path(__file__).resolve().parent
CPUS = 2
PROCESSES, RUNS = 4, 50
LEAST_SECONDS = 0.003
"""Of one side of an A/B run: so many passes as that takes."""


def ab_runs(path: str, swap: Mapping[str, str]) -> None:
    """In a process of its own: compile the graph without and with the swap, and print the ratios of
    their times, run by run."""
    import torch

    from backend.model.graph import Swap
    from backend.worker.jobs.trial import compile_arm
    from backend.worker.trial.drawn import drawn_constants, drawn_inputs
    from backend.worker.trial.program import program_of

    program = program_of(Path(path).read_text())
    torch.set_num_threads(program.head.threads)
    constants = drawn_constants(program)
    inputs = drawn_inputs(program)
    arms = [
        compile_arm(program, constants, inputs, arm, stock=False) for arm in ((), (Swap(**swap),))
    ]
    mutated = sorted(arms[0].mutated | arms[1].mutated)

    def seconds(arm: Any, passes: int) -> float:
        lists = []
        for _ in range(passes):
            own = list(inputs)
            for at in mutated:
                own[at] = own[at].clone()
            lists.append(own)
        begin = time.perf_counter()
        with torch.no_grad():
            for own in lists:
                arm.call(own)
        return (time.perf_counter() - begin) / passes

    passes = [max(1, int(LEAST_SECONDS / max(seconds(arm, 5), 1e-6))) for arm in arms]
    ratios = []
    for _ in range(RUNS):
        times = {}
        for at in random.sample((0, 1), 2):
            times[at] = seconds(arms[at], passes[at])
        ratios.append(times[1] / times[0])
    print(json.dumps({"ratios": ratios}))


class Lane:
    """Two cores on which one command runs after another."""

    def __init__(self, number: int, first_cpu: int, folder: Path, budget: float) -> None:
        low = first_cpu + CPUS * number
        self._pinned = ["taskset", "-c", f"{low}-{low + CPUS - 1}"]
        self._env = {**os.environ, "OMP_NUM_THREADS": str(CPUS), "CUDA_VISIBLE_DEVICES": ""}
        self._folder, self._budget = folder, budget

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        cache = self._folder / name
        where = ["--cache-dir", str(cache)]
        program = [sys.executable, str(HERE / "models.py"), name, "--steps", "40"]
        self._tui(cache, "run", "--capture", "--quiet", *where, "--", *program)
        tunings = {t["id"]: t for t in self._json(cache, "ls", "--json", *where)["tunings"]}
        for graph in self._json(cache, "graphs", "--json", *where)["graphs"]:
            if not graph["captured"]:
                yield {"name": name, "graph": graph["id"], "uncaptured": graph["uncaptured"]}
                continue
            for use in graph["tunings"]:
                tuning = tunings.get(use["id"])
                timed = [c for c in (tuning or {}).get("choices", []) if c["ms"] is not None]
                if len(timed) > 1:
                    yield self._row(name, cache, graph, use, timed)

    def _row(
        self, name: str, cache: Path, graph: Any, use: Any, timed: list[Any]
    ) -> dict[str, Any]:
        taken, rival = timed[0], timed[1]
        where = ["--json", "--cache-dir", str(cache)]
        row: dict[str, Any] = {"name": name, "graph": graph["id"], "kind": graph["kind"]}
        row |= {"tuning": use["id"], "op": use["op"], "rival": rival["name"]}
        budget = ["--budget", str(self._budget)]
        chosen = [use["id"], rival["hash"], "--graph", graph["id"], "--yes", *budget]
        trial = self._json(cache, "trial", *chosen, *where)
        if trial is None:
            return {**row, "uncaptured": "the trial failed"}
        arm = trial["trial"]["arms"][-1]
        if arm["failed"]:
            return {**row, "uncaptured": arm["failed"]}
        row["trial"] = {k: arm[k] for k in ("verdict", "ratio", "ratio_low", "ratio_high", "error")}
        alone = self._json(
            cache, "measure", use["id"], taken["hash"], rival["hash"], *budget, *where
        )
        row["alone"] = _alone(alone, taken["hash"], rival["hash"])
        row["ab"] = self._ab(cache, graph["id"], use, rival["hash"])
        return row

    def _ab(self, cache: Path, graph: str, use: Any, hash: str) -> dict[str, float] | None:
        swap = {"op": use["op"], "inputs": use["inputs"], "precision": use["precision"]}
        path = cache / "rocm_tui" / "graphs" / f"{graph}.py"
        private = cache / "rocm_tui" / "graphs" / "cache"
        text = json.dumps({**swap, "hash": hash})
        ratios: list[list[float]] = []
        for _ in range(PROCESSES):
            command = [sys.executable, __file__, "--ab", str(path), text]
            done = self._run(private, command)
            if done.returncode:
                print(done.stderr[-500:], file=sys.stderr)
                return None
            ratios.append(json.loads(done.stdout.strip().splitlines()[-1])["ratios"])
        _, arm = across_processes([{0: 1.0, 1: statistics.median(part)} for part in ratios])
        every = statistics.median(ratio for part in ratios for ratio in part)
        return {"ratio": every, "low": arm.ratio_low, "high": arm.ratio_high}

    def _tui(self, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(cache, [sys.executable, "-m", "rocm_tui", *words])

    def _json(self, cache: Path, *words: str) -> Any:
        done = self._tui(cache, *words)
        try:
            return json.loads(done.stdout)
        except ValueError:
            print(f"{words[0]}: {done.stderr[-400:]}", file=sys.stderr)
            return None

    def _run(self, cache: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
        env = {**self._env, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        env["PYTHONPATH"] = os.pathsep.join((str(HERE.parent), env.get("PYTHONPATH", "")))
        return subprocess.run(
            [*self._pinned, *command], env=env, cwd=HERE.parent, capture_output=True, text=True
        )


def _alone(measured: Any, taken: str, rival: str) -> dict[str, Any] | None:
    """What `measure` says of the rival against the choice that is taken."""
    if measured is None or not measured.get("measurement"):
        return None
    choices = {choice["hash"]: choice for choice in measured["measurement"]["choices"]}
    if taken not in choices or rival not in choices:
        return None
    ratio = choices[rival]["ratio"] / choices[taken]["ratio"]
    verdict = choices[rival]["verdict"]
    if choices[rival]["ratio"] == 1.0:
        opposite = {"slower": "faster"}
        verdict = opposite.get(choices[taken]["verdict"], choices[taken]["verdict"])
    return {"ratio": ratio, "verdict": verdict}


def wrong(row: Mapping[str, Any]) -> bool:
    """Whether the trial says faster or slower, and the A/B runs lie on the other side."""
    return _against(row["trial"]["verdict"], row["ab"])


def _against(verdict: str, ab: Mapping[str, float]) -> bool:
    return (verdict == "faster" and ab["ratio"] >= 1) or (verdict == "slower" and ab["ratio"] <= 1)


def line(row: Mapping[str, Any]) -> str:
    if "uncaptured" in row:
        return f"| {row['name']} | {row['graph']} | – | {row['uncaptured'][:60]} | – | – | – |"
    trial, ab, alone = row["trial"], row["ab"], row["alone"]
    interval = (
        f"{trial['ratio']:.3f} ({trial['ratio_low'] or 0:.3f} to {trial['ratio_high'] or 9:.3f})"
    )
    later = f"{ab['ratio']:.3f} ({ab['low']:.3f} to {ab['high']:.3f})" if ab else "–"
    kernel = f"{alone['verdict']}, {alone['ratio']:.3f}" if alone else "–"
    bad = ab is not None and wrong(row)
    cells = row["name"], f"{row['graph']} {row['kind']}", f"{row['op']} {row['rival']}"
    return f"| {' | '.join((*cells, trial['verdict'], interval, later, kernel))} |" + " WRONG" * bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--first-cpu", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ab", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ab:
        ab_runs(args.ab[0], json.loads(args.ab[1]))
        return
    from models import PROGRAMS

    names = args.names or [name for name, p in PROGRAMS.items() if p.device == "cpu"]
    rows: list[dict[str, Any]] = []
    waiting = list(reversed(names))

    def work(number: int, folder: Path) -> None:
        lane = Lane(number, args.first_cpu, folder, args.budget)
        while waiting:
            for row in lane.rows(waiting.pop()):
                rows.append(row)
                print(line(row), flush=True)
                if args.out:
                    args.out.write_text(json.dumps(rows))

    with tempfile.TemporaryDirectory() as folder:
        threads = [
            threading.Thread(target=work, args=(at, Path(folder))) for at in range(args.lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    judged = [row for row in rows if row.get("ab") and "trial" in row]
    said = [row for row in judged if row["trial"]["verdict"] in ("faster", "slower")]
    alone = [row for row in judged if row["alone"]]
    bold = [row for row in alone if row["alone"]["verdict"] in ("faster", "slower")]
    against = sum(_against(row["alone"]["verdict"], row["ab"]) for row in bold)
    print(f"{len(judged)} trials: {len(said)} say faster or slower, {sum(map(wrong, said))} wrong")
    print(f"kernels alone: {len(bold)} of {len(alone)} say so, {against} against the graph")


if __name__ == "__main__":
    main()
