"""What whole models gain by `improve`, on a GPU, confirmed by stock PyTorch.

    python benchmarks/bench_model.py [NAME...] [--gpus 1] [--budget 300] [--templates]
        [--out FOLDER] [--cache FOLDER]

For each program of `models.py`: it is tuned and captured by `run --capture`; timed under stock
PyTorch (`before`); `improve --yes` searches and pins; timed again (`after`); `prove` repeats the
comparison in fresh processes; all is unpinned, and it is timed once more (`unpinned`). Times are
device microseconds a pass, summed over the kernels by torch.profiler, three profiles in a process.

With `--templates` ours are offered too. The tunings that take most of a pass are measured with
cold caches, the best of ours against the best of the others; where ours win, each is tried alone
in the captured graph, the one that promises most first; what no trial calls slower is pinned.
`after` runs under `run --templates`, and `verify` reads what it called. The table says whose
choices were in use. No measurement begins when `--budget` is over.

Programs go to the GPUs by turns, those of one GPU one after another. Prints a table and, with
`--out`, writes what each command said, step by step; the cache dirs stay below `--cache`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import model_templates as templates

HERE = Path(__file__).resolve().parent
NAMES = (
    "llama-prefill",
    "llama-decode",
    "moe-prefill",
    "conv-prefill",
    "moe-decode",
    "conv-decode",
)


class Lane:
    """Commands on one GPU with a cache dir for each program."""

    def __init__(
        self, gpu: int, folder: Path, out: Path | None, budget: float, templates: bool = False
    ) -> None:
        self._templates = templates
        self._env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "PYTHONUNBUFFERED": "1"}
        self._folder, self._out, self._budget = folder, out, budget

    def measure(self, name: str) -> dict[str, Any]:
        """One row of the table; a step that fails is told, and ends it."""
        cache, begin = self._folder / name, time.monotonic()
        row: dict[str, Any] = {"name": name, "seconds": {}}
        program = [sys.executable, str(HERE / "models.py"), name]
        tui = [sys.executable, "-m", "rocm_tui"]
        where = ["--cache-dir", str(cache)]
        ours = ["--templates"] if self._templates else []
        captured = [*tui, "run", "--capture", *ours, "--quiet", *where, "--", *program]
        tuned = self._step(row, "capture", [*captured, "--steps", "12", "--json"], cache)
        row["tuned"] = self._times(tuned)
        row["before"] = self._times(self._step(row, "before", [*program, "--json"], cache))
        if self._templates:
            steps = templates.Steps(lambda step, words: self._step(row, step, words, cache), where)
            row["templates"] = templates.chosen(steps, begin + self._budget)
            shown = [*tui, "run", *ours, "--quiet", *where, "--", *program, "--json"]
            seen = [*tui, "verify", "--json", *where, "--", *shown]
            text = self._step(row, "after", seen, cache)
            row["after"], row["verify"] = self._times(text), _json(text)
            self._step(row, "pins", [*tui, "pins", *where], cache)
            self._step(row, "unpin", [*tui, "unpin", "--all", *where], cache)
            row["unpinned"] = self._times(self._step(row, "unpinned", [*program, "--json"], cache))
            return row
        graphs = self._step(row, "graphs", [*tui, "graphs", "--json", *where], cache)
        row["graphs"] = _json(graphs)
        budget = ["--budget", str(self._budget)]
        improved = [*tui, "improve", "--yes", "--json", *budget, *where]
        row["improve"] = _json(self._step(row, "improve", improved, cache))
        row["after"] = self._times(self._step(row, "after", [*program, "--json"], cache))
        pairs = ["--pairs", "3", "--budget", "4"]
        proved = [*tui, "prove", "--yes", "--json", *pairs, *where]
        row["prove"] = _json(self._step(row, "prove", proved, cache))
        self._step(row, "pins", [*tui, "pins", *where], cache)
        self._step(row, "unpin", [*tui, "unpin", "--all", *where], cache)
        row["unpinned"] = self._times(self._step(row, "unpinned", [*program, "--json"], cache))
        return row

    def _step(self, row: dict[str, Any], step: str, command: list[str], cache: Path) -> str:
        env = {**self._env, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        begin = time.monotonic()
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=HERE.parent)
        row["seconds"][step] = round(time.monotonic() - begin, 1)
        if self._out is not None:
            (self._out / f"{row['name']}.json").write_text(json.dumps(row, indent=1))
            with (self._out / f"{row['name']}.log").open("a") as log:
                log.write(f"== {step}: exit {done.returncode}, {row['seconds'][step]} s\n")
                log.write(f"{done.stdout[-20000:]}\n-- stderr\n{done.stderr[-6000:]}\n")
        return done.stdout

    @staticmethod
    def _times(text: str) -> list[float]:
        """Of the last line that tells them."""
        for line in reversed(text.splitlines()):
            value = _json(line)
            if isinstance(value, dict) and "us" in value:
                return list(value["us"])
        return []


def _json(text: str) -> Any:
    """The last JSON object of a command's output."""
    for start in (text, text.strip().rpartition("\n")[2]):
        try:
            return json.loads(start)
        except ValueError:
            continue
    return None


def _us(times: list[float]) -> str:
    return f"{statistics.median(times):.1f}" if times else "–"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| program | choices in use | before, us | after | unpinned | after / before |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        before, after = row.get("before") or [], row.get("after") or []
        ratio = "–"
        if before and after:
            ratio = f"{statistics.median(after) / statistics.median(before):.4f}"
        whose = row.get("templates", {}).get("in_use", "PyTorch's own")
        cells = row["name"], whose, _us(before), _us(after), _us(row.get("unpinned") or []), ratio
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--templates", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []

    def work(gpu: int, folder: Path) -> None:
        lane = Lane(args.first_gpu + gpu, folder, args.out, args.budget, args.templates)
        for name in args.names[gpu :: args.gpus]:
            rows.append(lane.measure(name))
            if args.out is not None:
                text = json.dumps(rows[-1], indent=1)
                (args.out / f"{name}.json").write_text(text)
            print(table(rows[-1:]), flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = args.cache or Path(temporary)
        threads = [threading.Thread(target=work, args=(gpu, folder)) for gpu in range(args.gpus)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(table(rows))


if __name__ == "__main__":
    main()
