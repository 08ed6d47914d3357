"""What whole models gain by Inductor's options, by other choices, by our kernels, and by all of it.

    python benchmarks/bench_model.py [NAME...] [--gpus 1] [--budget 170] [--templates] [--pairs 4]
        [--seconds S] [--timeout 400] [--cache FOLDER] [--out FOLDER]

For each program of `models.py`: `run --capture` tunes it; `improve --yes --options` searches and
confirms a plan, with `--templates` also with our kernels. Then new processes of stock PyTorch and
of the program with that plan alternate; without a plan stock PyTorch runs once. Each compiles anew,
because Inductor times fused kernels again whenever it compiles, and two compiled programs differ by
that. The last column has the 95 % interval over these pairs. The best option,
choice and our kernels are verdicts of single trials of the search, which flatter.

Times are those that `models.py` prints: device microseconds of a pass; on a CPU, by the clock.

Each GPU takes the next program when it is free. No step begins after `--seconds`, and no search
that would end later; with `--cache` the same command goes on with the next step. A step that fails,
or takes longer than `--timeout`, is recorded. `capture` then ends its program, as does `improve`
without a gain; after other steps the next one follows. With `--out`: `models.csv`, all rows in
`models.json`, and a log of each program.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.cache.autotune import copy_unpinned
from backend.disk.layout import Layout
from backend.measure.trial import LEAST_PROCESSES, across_processes
from backend.processes import tree
from rocm_tui.session import numbers as fmt

HERE = Path(__file__).resolve().parent
TUI = [sys.executable, "-m", "rocm_tui"]
NAMES = (
    *("llama-prefill", "training", "llama-decode", "moe-prefill", "decoder"),
    *("conv-prefill", "encoder", "moe-decode", "conv-decode", "towers"),
)
"""The programs for a GPU; what takes longest comes first."""
ANEW = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}


class OutOfTime(Exception):
    """The next step would end after `--seconds`."""


class Bench:
    """Measures programs, one step after another; a step whose result is kept is not repeated."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.lock = threading.Lock()
        """Held by whoever changes a row, or reads the rows of all threads."""
        self._args, self._folder = args, folder
        self._end = time.monotonic() + args.seconds

    def row(self, name: str) -> dict[str, Any]:
        """Return what an earlier call of the bench left."""
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else {"name": name, "steps": {}}

    def measure(self, row: dict[str, Any], gpu: int) -> None:
        """Add the remaining steps. Raises OutOfTime and StoreErrors."""
        cache = self._folder / row["name"]
        stock = cache / "stock"
        program = [sys.executable, str(HERE / "models.py"), row["name"], "--json"]

        def step(name: str, words: Sequence[str], folder: Path = cache, **how: Any) -> Any:
            if name not in row["steps"]:
                env = {"CUDA_VISIBLE_DEVICES": str(gpu), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
                self._step(row, name, words, env | how.pop("env", {}), **how)
            return row["steps"][name]["value"]

        if step("capture", [*TUI, "run", "--capture", "--quiet", "--", *program]) is None:
            return
        templates = ["--templates"] if self._args.templates else []
        budget = ["--budget", f"{self._args.budget:g}"]
        improve = [*TUI, "improve", "--yes", "--options", *templates, *budget, "--json"]
        plan = plan_of(step("improve", improve, needs=self._args.budget))
        if plan is None:
            step("stock", program)
            return
        copy_unpinned(Layout(cache), Layout(stock))
        for pair in range(1, self._args.pairs + 1):
            step(f"stock {pair}", program, stock, env=ANEW)
            step(f"plan {pair}", [*plan, *program], env=ANEW)

    def _step(
        self,
        row: dict[str, Any],
        step: str,
        command: Sequence[str],
        env: Mapping[str, str],
        needs: float = 0.0,
    ) -> None:
        """Run the command and keep the JSON that it prints last, or why there is none."""
        begin = time.monotonic()
        if begin + needs > self._end:
            raise OutOfTime
        process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            cwd=HERE.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=self._args.timeout)
            failed = f"exit code {process.returncode}: {err.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            tree.end(process.pid, bury=False)
            out, err = process.communicate()
            failed = f"took longer than {self._args.timeout:g} s"
        seconds = round(time.monotonic() - begin, 1)
        value = last_json(out)
        result = {"seconds": seconds, "code": process.returncode, "value": value}
        with self.lock:
            row["steps"][step] = result if value else {**result, "failed": failed}
            self.write(row)
        if self._args.out:
            with (self._args.out / f"{row['name']}.log").open("a") as log:
                log.write(f"== {step}: exit code {process.returncode}, {seconds} s\n")
                log.write(f"{out[-20000:]}\n-- stderr\n{err[-6000:]}\n")

    def write(self, row: dict[str, Any]) -> None:
        (self._folder / f"{row['name']}.json").write_text(json.dumps(row, indent=1))


def last_json(text: str) -> dict[str, Any] | None:
    """Return the document that is the whole text or its last line, unless it is an error."""
    for part in (text, text.strip().rpartition("\n")[2]):
        try:
            value = json.loads(part)
        except ValueError:
            continue
        return value if isinstance(value, dict) and "error" not in value else None
    return None


def plan_of(improved: Mapping[str, Any] | None) -> list[str] | None:
    """Return how a program is started with what `improve` confirmed; the pins are in the cache."""
    gain = improved and improved["gain"]
    if not gain:
        return None
    options = [f"--option={name}={value}" for name, value in gain["options"].items()]
    templates = ["--templates"] if gain["templates"] else []
    return [*TUI, "run", "--quiet", "--no-shares", *options, *templates, "--"]


# The table.


def summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the CSV; None where a step has no result."""
    steps = row["steps"]
    pairs = list(_pairs(steps))
    before = _us(steps.get("stock"))
    improved = (steps.get("improve") or {}).get("value") or {}
    gain = improved.get("gain") or {}
    fields: dict[str, Any] = {
        "program": row["name"],
        "stock_us": statistics.median(pair[0] for pair in pairs) if pairs else before,
        "plan_us": statistics.median(pair[1] for pair in pairs) if pairs else None,
        "pairs": len(pairs),
        "ratio": None,
        "low": None,
        "high": None,
        "verdict": None,
        "search_seconds": (steps.get("improve") or {}).get("seconds"),
        "search_ratio": gain.get("ratio"),
        "plan": " ".join(_plan_names(gain)),
    }
    if len(pairs) >= LEAST_PROCESSES:
        _, arm = across_processes(pairs)
        fields |= {"ratio": arm.ratio, "low": arm.ratio_low, "high": arm.ratio_high}
        fields["verdict"] = arm.verdict
    for kind in ("option", "choice", "kernels"):
        tried = [arm for of, arm in _tried(improved) if of == kind]
        right = filter(_agrees, tried)
        best = min(right, key=lambda arm: (arm["verdict"] != "faster", arm["ratio"]), default=None)
        fields[f"{kind}_tried"] = len(tried)
        fields |= {f"{kind}_{key}": best and best[key] for key in ("name", "ratio", "verdict")}
    failed = [f"{name}: {step['failed']}" for name, step in steps.items() if "failed" in step]
    fields["failed"] = "; ".join([*failed, *([row["failed"]] if "failed" in row else [])])
    return fields


def _pairs(steps: Mapping[str, Any]) -> Iterator[dict[int, float]]:
    for name in steps:
        stock, plan = _us(steps[name]), _us(steps.get(name.replace("stock ", "plan ")))
        if name.startswith("stock ") and stock and plan:
            yield {0: stock, 1: plan}


def _us(step: Mapping[str, Any] | None) -> float | None:
    times = ((step or {}).get("value") or {}).get("us")
    return statistics.median(times) if times else None


def _tried(improved: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what `improve` tried, with the verdict of its first trial in the graph."""
    for subject in improved.get("tunings", ()):
        for candidate in subject["candidates"]:
            kind = "choice" if subject["op"] else candidate["maker"]
            first = next((arm for arm in candidate["graph"] if arm["ratio"]), None)
            if first is not None:
                yield kind, {**first, "name": candidate["name"]}


def _agrees(arm: Mapping[str, Any]) -> bool:
    """As the search has it; JSON has null for an error that is not finite."""
    return arm["error"] is not None and arm["error"] <= (arm["allowed"] or 0.0)


def _plan_names(gain: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name}={value}" for name, value in gain.get("options", {}).items())
    yield from (choice["name"] for choice in gain.get("choices", ()))
    if gain.get("templates"):
        yield "kernels"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = "program", "stock, µs", "best option", "best choice", "our kernels", "plan"
    heads = *heads, "search, s", "with the plan, µs", "the program is"
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        fields = summary(row)
        cells = [
            fields["program"],
            _number(fields["stock_us"]),
            *(_best(fields, kind) for kind in ("option", "choice", "kernels")),
            fields["plan"] or ("–" if fields["search_seconds"] is None else "none"),
            _number(fields["search_seconds"]),
            _number(fields["plan_us"]),
            _gain(fields),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def _best(fields: Mapping[str, Any], kind: str) -> str:
    """`combo_kernels=True: 7.1 % faster`; `none of 12`, if none is."""
    if not fields[f"{kind}_tried"]:
        return "–"
    if fields[f"{kind}_verdict"] != "faster":
        return f"none of {fields[f'{kind}_tried']}"
    return f"{fields[f'{kind}_name']}: {fmt.change(fields[f'{kind}_ratio'], 'faster')}"


def _gain(fields: Mapping[str, Any]) -> str:
    """`7.1 % faster (6.8 to 7.4 %)`; or why there is none, in one line."""
    if fields["ratio"] is None:
        return " ".join(fields["failed"].split())[-80:].replace("|", "/") or "–"
    verdict = fields["verdict"]
    clear = verdict in ("faster", "slower")
    change = fmt.change(fields["ratio"], verdict) if clear else verdict
    return f"{change} ({fmt.between(fields['low'], fields['high'])})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--budget", type=float, default=170.0, help="seconds of `improve`")
    parser.add_argument("--templates", action="store_true", help="let it try our kernels")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds of a step")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.cache or Path(temporary)).absolute()
        for each in filter(None, (folder, args.out)):
            each.mkdir(parents=True, exist_ok=True)
        bench = Bench(args, folder)
        rows = {name: bench.row(name) for name in args.names}
        waiting = iter(rows.values())

        def report(*finished: dict[str, Any]) -> None:
            with bench.lock:
                print(table(finished), flush=True)
                if args.out:
                    write(args.out, [*rows.values()])

        def work(gpu: int) -> None:
            for row in waiting:
                try:
                    bench.measure(row, gpu)
                except OutOfTime:
                    return
                except Exception as error:  # the other programs go on
                    with bench.lock:
                        row["failed"] = f"{type(error).__name__}: {error}"
                finally:
                    report(row)

        threads = [threading.Thread(target=work, args=(gpu,)) for gpu in range(args.gpus)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report(*rows.values())


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "models.json").write_text(json.dumps(rows, indent=1))
    fields = [summary(row) for row in rows]
    with (folder / "models.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields[0])
        writer.writeheader()
        writer.writerows(fields)


if __name__ == "__main__":
    main()
