"""Count the tunings, rows, times and differences of logs and tables in another way: by regular
expressions that share no code with the program, and compare what its JSON says.

    python -m tests.recount FOLDER
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any

from rocm_tui.cli.entry import main as rocm_tui

_HEADER = re.compile(r"AUTOTUNE (\w+)\(([^)]*)\)")
_ROW = re.compile(r"(\S+) (\d+\.\d+) ms \d+\.\d+%")
_TOOK = re.compile(
    r"AUTOTUNE (?:benchmarking )?takes (\d+\.\d+) seconds(?: and (\d+\.\d+) seconds precomp)?"
)
_PROCESS = re.compile(r"\[(?:rank|default)\d+\]")


@dataclass
class Block:
    """One AUTOTUNE table: its op, the sizes as text, and its rows."""

    op: str
    sizes: str
    rows: list[tuple[str, float]] = field(default_factory=list)
    seconds: float | None = None

    @property
    def problem(self) -> tuple[str, str]:
        return self.op, self.sizes

    @property
    def best_ms(self) -> float:
        return min(ms for _, ms in self.rows)


@dataclass
class Log:
    """The tables of a log; a footer behind none is of a table that the excerpt lacks."""

    blocks: list[Block]

    @property
    def seconds(self) -> float:
        return sum(block.seconds or 0.0 for block in self.blocks)

    @property
    def bests(self) -> dict[tuple[str, str], list[float]]:
        """The smallest times of the tables of each problem."""
        bests: dict[tuple[str, str], list[float]] = defaultdict(list)
        for block in self.blocks:
            bests[block.problem].append(block.best_ms)
        return bests


def read_log(path: Path) -> Log:
    blocks: list[Block] = []
    current: dict[str, Block] = {}
    for line in path.read_text(errors="replace").splitlines():
        process = "".join(_PROCESS.findall(line)[:1])
        if header := _HEADER.search(line):
            sizes = header[2].replace(" ", "")
            current[process] = Block(header[1], sizes)
            blocks.append(current[process])
        elif (row := _ROW.search(line)) and process in current:
            current[process].rows.append((row[1], float(row[2])))
        elif (took := _TOOK.search(line)) and process in current:
            current.pop(process).seconds = float(took[1]) + float(took[2] or 0.0)
    return Log([block for block in blocks if block.rows])


def said(*words: str) -> dict[str, Any]:
    """The JSON that a command prints; whatever its exit code is."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        rocm_tui([*words, "--json"])
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def _sizes(shapes: Sequence[Sequence[int]]) -> str:
    return ",".join("x".join(map(str, shape)) for shape in shapes)


def _problem(tuning: dict[str, Any]) -> tuple[str, str]:
    return tuning["op"], _sizes(tuning["shapes"])


def log_faults(path: Path, log: Log) -> Iterator[str]:
    """What `ls` and `report` say of one log and the tables do not."""
    listed = said("ls", str(path))["tunings"]
    rows = Counter(
        (*_problem(tuning), choice["name"], choice["ms"])
        for tuning in listed
        for choice in tuning["choices"]
        if choice["ms"] is not None
    )
    own = Counter((*b.problem, name, ms) for b in log.blocks for name, ms in b.rows)
    full = {(*key[:3], round(key[3], 4)): n for key, n in rows.items()}
    if dict(own) != full:
        yield f"rows: {sum(own.values())} counted, {sum(rows.values())} listed"
    tunings = Counter(map(_problem, (t for t in listed if any(c["ms"] for c in t["choices"]))))
    if tunings != Counter(block.problem for block in log.blocks):
        yield f"tunings: {len(log.blocks)} counted, {sum(tunings.values())} listed"
    for tuning in listed:
        times = [choice["ms"] for choice in tuning["choices"] if choice["ms"] is not None]
        if times and times[0] != min(times):
            yield f"{tuning['id']}: its first choice is not the fastest"
    saved = said("report", str(path))["saved"]
    if saved["tuned"] != len(log.blocks):
        yield f"report: {saved['tuned']} tuned, {len(log.blocks)} counted"
    if not isclose(saved["seconds"], log.seconds, abs_tol=1e-3 * max(1, len(log.blocks))):
        yield f"report: {saved['seconds']} s, {log.seconds} counted"
    counted = [t for t in saved["tunings"] if t["measured"] and not (t["tied"] or t["unclear"])]
    total = sum((t["saved_ms"] or 0.0) * (t["calls"] or 1) for t in counted)
    if not isclose(saved["saved_ms"], total, abs_tol=1e-9):
        yield f"report: saves {saved['saved_ms']} ms, its rows {total}"


def pair_faults(paths: tuple[Path, Path], logs: tuple[Log, Log]) -> Iterator[str]:
    """What `compare` says of two logs and the tables, or its own rows, do not."""
    document = said("compare", *map(str, paths))
    common, totals = document["common"], document["totals"]
    for side, log in zip("ab", logs, strict=True):
        alone = {_problem(point) for point in document[f"only_{side}"]}
        both = {_problem(pair[side]) for pair in common}
        rest = {_problem(tuning) for tuning in document["untimed"]}
        if missing := log.bests.keys() - alone - both - rest:
            yield f"{side}: {missing} is nowhere"
        if strange := (alone | both) - log.bests.keys():
            yield f"{side}: {strange} is in no table"
        for pair in common:
            point, bests = pair[side], log.bests.get(_problem(pair[side]), [])
            if not any(isclose(point["ms"], ms, abs_tol=1e-4) for ms in (*bests, median(bests))):
                one_of = any(
                    name == point["choice"] and isclose(ms, point["ms"], abs_tol=1e-4)
                    for block in log.blocks
                    for name, ms in block.rows
                )
                if not one_of and point["from"] != "median":
                    yield f"{side}: {point['id']} takes {point['ms']} ms, the tables say {bests}"
    verdicts = Counter(pair["verdict"] for pair in common)
    if dict(verdicts) != {name: n for name, n in totals["verdicts"].items() if n}:
        yield f"verdicts: {dict(verdicts)}, {totals['verdicts']}"
    decided = [pair for pair in common if pair["verdict"] != "unclear"]
    sums = {
        "a_ms": sum(p["a"]["ms"] * (p["calls"] or 1) for p in decided),
        "b_ms": sum(p["b"]["ms"] * (p["calls"] or 1) for p in decided),
        "lost_ms": sum(p["lost_total_ms"] for p in common if p["verdict"] == "slower"),
        "gained_ms": -sum(p["lost_total_ms"] for p in common if p["verdict"] == "faster"),
    }
    for name, value in sums.items():
        if not isclose(totals[name], value, abs_tol=1e-9):
            yield f"{name}: {totals[name]}, its rows {value}"
    for pair in common:
        known = {"faster": pair["high"] < 1, "slower": pair["low"] > 1}.get(pair["verdict"], True)
        if not known or not isclose(pair["lost_ms"], pair["b"]["ms"] - pair["a"]["ms"]):
            yield f"{pair['id']}: {pair['verdict']}, {pair['low']} to {pair['high']}"


def read_csv(path: Path) -> list[dict[str, str]] | None:
    """The rows of a table of AITER or TunableOp; None for another file."""
    lines = path.read_text(errors="replace").splitlines()
    if not lines or path.suffix != ".csv":
        return None
    if lines[0].startswith("Validator,"):
        cells = [line.split(",") for line in lines if line and not line.startswith("Validator,")]
        return [{"op": c[0], "params": c[1]} for c in cells if len(c) > 3 and c[3]]
    return list(csv.DictReader(lines)) if "M" in lines[0] or "token" in lines[0] else None


def read_cache(path: Path) -> Counter[tuple[str, str | None]] | None:
    """The numbers of an autotune cache by op and choice hash; None for another file."""
    try:
        cache = json.loads(path.read_text())["cache"]
    except (ValueError, LookupError, TypeError):
        return None
    every = (
        (op, timings)
        for op, by_inputs in cache.items()
        for by_precision in by_inputs.values()
        for timings in by_precision.values()
    )
    return Counter((op, hash) for op, timings in every for hash in timings)


def cache_faults(path: Path, counted: Counter[tuple[str, str | None]]) -> Iterator[str]:
    listed = said("ls", str(path))["tunings"]
    shown = Counter((t["op"], choice["hash"]) for t in listed for choice in t["choices"])
    if shown != counted:
        yield f"cache: {counted.total()} times counted, {shown.total()} listed"


def table_faults(path: Path, rows: list[dict[str, str]]) -> Iterator[str]:
    counted = said("lint", str(path), "--device", "MI300X")["rows"]
    if counted != len(rows):
        yield f"lint: {counted} rows, {len(rows)} counted"


def cover_faults(
    untuned: list[dict[str, str]], tuned: list[dict[str, str]], paths: Sequence[Path]
) -> Iterator[str]:
    """Which products of AITER's untuned list have a row of the same columns."""
    document = said("cover", *map(str, paths))
    columns = list(untuned[0])
    asked = {tuple(row[name] for name in columns) for row in untuned}
    there = {tuple(row[name] for name in columns) for row in tuned}
    covered = sum(row["outcome"] == "covered" for row in document["rows"])
    if (document["products"], covered) != (len(asked), len(asked & there)):
        got = f"{document['products']} products, {covered} covered"
        yield f"cover: {got}; {len(asked)} and {len(asked & there)} counted"


def recount(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return how many logs, pairs and tables were compared, and every difference."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    logs = {path: log for path in paths if path.suffix == ".log" and (log := read_log(path)).blocks}
    tables = {path: rows for path in paths if (rows := read_csv(path))}
    faults = [f"{p.name}: {what}" for p, log in logs.items() for what in log_faults(p, log)]
    pairs = list(permutations(logs, 2))
    for a, b in pairs:
        names = f"{a.name}, {b.name}"
        faults += [f"{names}: {what}" for what in pair_faults((a, b), (logs[a], logs[b]))]
    for path, rows in tables.items():
        faults += [f"{path.name}: {what}" for what in table_faults(path, rows)]
    caches = {path: times for path in paths if (times := read_cache(path))}
    for path, times in caches.items():
        faults += [f"{path.name}: {what}" for what in cache_faults(path, times)]
    covers = [
        (a, b)
        for a, b in permutations(tables, 2)
        if tables[a][0].keys() < tables[b][0].keys() and "untuned" in a.name
    ]
    for a, b in covers:
        found = cover_faults(tables[a], tables[b], (a, b))
        faults += [f"{a.name}, {b.name}: {what}" for what in found]
    counts = {"logs": len(logs), "pairs": len(pairs), "tables": len(tables), "covers": len(covers)}
    counts["caches"] = len(caches)
    return counts, faults


if __name__ == "__main__":
    counts, faults = recount(Path(sys.argv[1]))
    print(", ".join(f"{number:,} {name}" for name, number in counts.items()))
    print("\n".join(faults) or "all agree")
    sys.exit(bool(faults))
