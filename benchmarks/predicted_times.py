"""How well AMD's analytical model predicts which kernel of a tuning is faster.

    pip download --no-deps --no-binary :all: rocm-origami && tar xf rocm_origami-*.tar.gz
    git clone https://github.com/ROCm/aiter
    python benchmarks/predicted_times.py --origami rocm_origami-0.0.3 --aiter aiter [LOGS]

LOGS is a folder with `amd_mi200*.log` (default: $ROCM_TUI_CORPUS). Needs g++ and no GPU. Prints
docs/data/predicted-times.csv, with the 5th and 95th percentile behind each median.

- *Inductor*: tunings in logs, each with the times of up to ten choices; those that the log cut off
  are left out. The logs do not show the type.
- *rivals*: shapes for which the history of AITER's tuned tables has times of several kernels. They
  won different runs of different versions, so part of their difference is not the kernel's.
- *winners*: AITER's tables name the fastest kernel of each shape, alone. Its rank is sought among
  all kernels that won some shape of the same operation, device and library.

The model sees a kernel's tile and the parts of K; as TORCHINDUCTOR_ORIGAMI calls it, it chooses the
parts itself (`split by Origami`). Kernels with equal predictions are in random order. Clocks are
the peaks of data sheets; that of the MI308X (80 units) is assumed.

Rules, fixed before the first run:
order   median tau is at least 0.5, and the predicted first is within 5 % of the best in 80 %
prune   a choice within 2 % of the best is in the predicted faster half in 99 %
expect  predicted / measured of the winner is within a factor of 1.5 in 90 %
slow    at most 5 % of winners, all of them tuned, take over 1.5 times their prediction
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import TypeVar

from amd_tunings import Kernel, Problem, Row, Tuning, inductor, tables
from origami_model import Model

Item = TypeVar("Item", Row, Tuning)
Timed = tuple[Problem, Kernel, float]
Record = dict[str, str | int]


def spread(values: Iterable[float]) -> str:
    """Format the median with the 5th and 95th percentile."""
    ordered = sorted(values)
    low, mid, high = (ordered[round(q * (len(ordered) - 1))] for q in (0.05, 0.5, 0.95))
    return f"{mid:.2f} ({low:.2f} to {high:.2f})"


def tau(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return Kendall's tau-b, None if all values of one side are equal."""
    pairs = combinations(zip(xs, ys, strict=True), 2)
    signs = [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in pairs]
    norm = sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs)
    return sum(x * y for x, y in signs) / norm**0.5 if norm else None


def draws(keys: Sequence[float], dice: random.Random) -> list[list[int]]:
    """Return 20 orders by key, ties at random."""
    return [sorted(range(len(keys)), key=lambda i: (keys[i], dice.random())) for _ in range(20)]


def judge(evidence: str, group: str, tunings: list[Tuning], model: Model) -> Iterator[Record]:
    """Yield how the model's order does in tunings with several times, beside other orders."""
    dice, taus = random.Random(1), []
    losses: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    near, kept = Counter[str](), Counter[str]()
    for problem, choices in tunings:
        times = [us for _, us in choices]
        predicted = model.us(problem, [kernel for kernel, _ in choices])
        taus.append(tau(predicted, times))
        keys: dict[str, Sequence[float]] = {"model": predicted, "random": [0] * len(times)}
        if problem.op == "inductor":
            keys["as listed"] = range(len(times))
        for order, values in keys.items():
            for draw in draws(values, dice):
                lost = [times[i] / min(times) - 1 for i in draw]
                near[order] += (lost[0] <= 0.05) / 20 / len(tunings)
                kept[order] += (min(lost[: ceil(len(lost) / 2)]) <= 0.02) / 20 / len(tunings)
                for k in (1, 3, 5):
                    losses[order][k].append(100 * min(lost[:k]))
    defined = [value for value in taus if value is not None]
    for order in losses:
        record: Record = {
            "evidence": evidence,
            "group": group,
            "order": order,
            "count": len(tunings),
        }
        record |= {"kernels": spread(len(choices) for _, choices in tunings)}
        record |= {"first within 5 %": f"{near[order]:.1%}", "best in half": f"{kept[order]:.1%}"}
        record |= {f"% lost by {k}": spread(values) for k, values in losses[order].items()}
        if order == "model":
            good = statistics.median(defined) >= 0.5 and near[order] >= 0.8
            rules = f"order: {verdict(good)}, prune: {verdict(kept[order] >= 0.99)}"
            record |= {"tau": spread(defined), "rules": rules}
        yield record


def rank(evidence: str, group: str, rows: list[Row], model: Model) -> Iterator[Record]:
    """Yield where the model has the one kernel that a table names, beside other orders."""
    families: dict[tuple[str, str], Counter[Kernel]] = defaultdict(Counter)
    for problem, library, _, kernel, _ in rows:
        families[problem.op, library][kernel] += 1
    hits: dict[str, Counter[str]] = defaultdict(Counter)
    sizes = []
    for problem, library, _, winner, _ in rows:
        family = families[problem.op, library]
        legal = [c for c in family if c.split * c.k <= problem.k or c == winner]
        if len(legal) < 4:
            continue
        sizes.append(len(legal))
        wins = {kernel: (kernel == winner) - family[kernel] for kernel in legal}
        orders = {"model": dict(zip(legal, model.us(problem, legal), strict=True))}
        orders |= {"wins elsewhere": wins, "random": dict.fromkeys(legal, 0)}
        places = {"is first": 1, "in first 3": 3, "in first 5": 5}
        places["best in half"] = ceil(len(legal) / 2)
        for order, values in orders.items():
            before = sum(value < values[winner] for value in values.values())
            equal = sum(value == values[winner] for value in values.values())
            for label, k in places.items():
                hits[order][label] += min(1, max(0, (k - before) / equal))
    for order, counts in hits.items():
        record: Record = {"evidence": evidence, "group": group, "order": order, "count": len(sizes)}
        record |= {"kernels": spread(sizes)}
        record |= {label: f"{n / len(sizes):.1%}" for label, n in counts.items()}
        if order == "model":
            record["rules"] = f"prune: {verdict(counts['best in half'] >= 0.99 * len(sizes))}"
        yield record


def expect(evidence: str, group: str, winners: list[Timed], model: Model) -> Record:
    """Return how the predicted times of winners compare with the measured ones."""
    ratios = [model.us(problem, [kernel])[0] / us for problem, kernel, us in winners]
    middle = statistics.median(ratios)
    close, scaled = (
        sum(1 / 1.5 <= ratio / by <= 1.5 for ratio in ratios) / len(ratios) for by in (1, middle)
    )
    slow = sum(ratio < 1 / 1.5 for ratio in ratios) / len(ratios)
    return {
        "evidence": evidence,
        "group": group,
        "order": "times",
        "count": len(ratios),
        "predicted / measured": spread(ratios),
        "within 1.5": f"{close:.1%}",
        "within 1.5 of the median": f"{scaled:.1%}",
        "slow": f"{slow:.1%}",
        "rules": f"expect: {verdict(close >= 0.9)}, slow: {verdict(slow <= 0.05)}",
    }


def verdict(held: bool) -> str:
    """Say whether a rule is met."""
    return "yes" if held else "no"


def rivals(rows: list[Row]) -> list[Tuning]:
    """Gather the kernels of one problem; a kernel that was timed again counts with its median."""
    times: dict[Problem, dict[tuple[str, Kernel], list[float]]] = defaultdict(dict)
    for problem, _, name, kernel, us in rows:
        times[problem].setdefault((name, kernel), []).append(us)
    return [
        (problem, [(kernel, statistics.median(us)) for (_, kernel), us in group.items()])
        for problem, group in times.items()
        if len(group) > 1
    ]


def thinned(rows: list[Row]) -> list[Row]:
    """Draw one row for each operation, library, N, K and power of two of M: some have hundreds."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        size = replace(row[0], m=row[0].m.bit_length())
        groups[size, row[1]].append(row)
    dice = random.Random(1)
    return [dice.choice(group) for group in groups.values()]


def by_device(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Group by device and type where there are 20, all of them first."""
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups["all"].append(item)
        groups[f"{item[0].arch} ({item[0].units} units) {item[0].type}"].append(item)
    return {name: group for name, group in groups.items() if len(group) >= 20}


def records(model: Model, logs: Path | None, aiter: Path | None) -> Iterator[Record]:
    """Yield every comparison."""
    for kind in ("f32", "f16") if logs else ():
        logged = list(inductor(Path(logs), kind))
        yield from judge("Inductor", f"gfx90a {kind}", logged, model)
        auto = [(p, [(replace(c, split=0), us) for c, us in choices]) for p, choices in logged]
        yield from judge("Inductor, split by Origami", f"gfx90a {kind}", auto, model)
        best = [(p, *min(choices, key=lambda choice: choice[1])) for p, choices in logged]
        yield expect("Inductor", f"gfx90a {kind}", best, model)
    if aiter:
        for group, tunings in by_device(rivals(tables(aiter, history=True))).items():
            yield from judge("rivals", group, tunings, model)
        rows = tables(aiter, history=False)
        few = [(p, c, us) for p, _, _, c, us in rows if p.m <= 8]
        yield expect("winners", "at most 8 rows", few, model)
        for evidence, chosen in (("winners", rows), ("winners, thinned", thinned(rows))):
            for group, members in by_device(chosen).items():
                if group != "all":
                    yield from rank(evidence, group, members, model)
                timed = [(p, c, us) for p, _, _, c, us in members]
                yield expect(evidence, group, timed, model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", default=os.environ.get("ROCM_TUI_CORPUS"))
    parser.add_argument("--origami", type=Path, required=True)
    parser.add_argument("--aiter", type=Path)
    args = parser.parse_args()
    comparisons = list(records(Model(args.origami), args.logs, args.aiter))
    columns = dict.fromkeys(key for record in comparisons for key in record)
    table = csv.DictWriter(sys.stdout, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows(comparisons)


if __name__ == "__main__":
    main()
