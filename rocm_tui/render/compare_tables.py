"""A comparison of two tables of another tuner: for a terminal, a pull request, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from backend.counted import counted, noun
from backend.model.choice import parse_config
from rocm_tui.compare.tables import (
    SameKey,
    TableComparison,
    device_of,
    slower,
    solution,
    told,
    told_ms,
)
from rocm_tui.harmless import plain
from rocm_tui.render.table import (
    Column,
    Field,
    attributes,
    code_span,
    fields_of,
    markdown_table,
    problem_line,
    text_table,
)
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.session import numbers as fmt
from rocm_tui.session.model import Row

NO_SOLUTION = "not tuned"
NO_TIMES = "no times to compare: these tables tell none"


def change(a: str, b: str) -> str:
    """What B took in place of A: of two configs the values that differ, else both, of long names
    that begin or end alike what differs."""
    ours, theirs = parse_config(a), parse_config(b)
    if not ours or not theirs:
        return " → ".join(plain(text) or NO_SOLUTION for text in _apart(a, b))
    names = [*ours, *(name for name in theirs if name not in ours)]
    return "  ".join(
        plain(f"{name} {ours.get(name, fmt.NONE)} → {theirs.get(name, fmt.NONE)}")
        for name in names
        if ours.get(name) != theirs.get(name)
    )


def _apart(a: str, b: str) -> tuple[str, str]:
    """Two names without the words that both begin and end with, but for the very first."""
    ours, theirs = _WORDS.findall(a), _WORDS.findall(b)
    same = [one == other for one, other in zip(ours, theirs, strict=False)]
    begin = (same.index(False) if False in same else len(same)) if same else 0
    if begin < 2:
        return a, b
    rest = min(len(ours), len(theirs)) - begin
    back = [x == y for x, y in zip(ours[::-1][:rest], theirs[::-1][:rest], strict=False)]
    end = back.index(False) if False in back else len(back)

    def between(words: list[str]) -> str:
        middle = "".join(words[begin : len(words) - end])
        return f"{words[0]}…{middle}{'…' if end else ''}"

    return between(ours), between(theirs)


_WORDS = re.compile(r"[^_ ]*[_ ]|[^_ ]+")
_DEVICE: Field[Row] = Field(
    "device", "DEVICE", text=lambda row: plain(device_of(row)), about="what it was tuned on"
)
_SOLUTION: Field[Row] = Field(
    "solution", "SOLUTION", text=lambda row: plain(solution(row)) or NO_SOLUTION,
    about="what was taken",
)  # fmt: skip
_TIME: Field[Row] = Field(
    "time", "TIME", right=True, text=lambda row: fmt.duration(told_ms(row)),
    about="how long it took there, as the table tells",
)  # fmt: skip
_CHANGE: Field[SameKey] = Field(
    "change", "A → B", name="A → B",
    text=lambda same: change(solution(same.a), solution(same.b)), fold=True,
    about="what was taken in A and in B",
)  # fmt: skip
_TIMES: tuple[Field[SameKey], ...] = (
    Field("a", "A", right=True, name="A", text=lambda same: fmt.duration(told_ms(same.a))),
    Field("b", "B", right=True, name="B", text=lambda same: fmt.duration(told_ms(same.b))),
    Field("ratio", "B/A", right=True, name="B/A", text=lambda same: fmt.factor(same.ratio)),
)


CHANGES: tuple[Column, ...] = (_CHANGE,)
ENTRY: tuple[Column, ...] = (_DEVICE, _SOLUTION, _TIME)
"""Columns that only comparisons of tables have."""


def _fields(pairs: Sequence[SameKey]) -> tuple[Field[SameKey], ...]:
    """No columns of times where no table tells one."""
    timed = any(told_ms(row) is not None for same in pairs for row in (same.a, same.b))
    return (*fields_of(PROBLEM, lambda same: same.b), *(_TIMES if timed else ()), _CHANGE)


def _alone(rows: Sequence[Row]) -> tuple[Field[Row], ...]:
    fields = [*PROBLEM]
    fields += [_DEVICE] if any(map(device_of, rows)) else []
    fields += [_TIME] if any(told_ms(row) is not None for row in rows) else []
    return (*fields, _SOLUTION)


def text(comparison: TableComparison) -> str:
    """Keys with another solution, what one of them has alone, then all in numbers."""
    blocks = [f"A  {plain(comparison.a)}\nB  {plain(comparison.b)}"]
    if other := comparison.other:
        blocks.append(f"other solutions\n{text_table(_fields(other), other)}")
    for label, rows in (("A", comparison.only_a), ("B", comparison.only_b)):
        if rows:
            blocks.append(f"only in {label}\n{text_table(_alone(rows), rows)}")
    return "\n\n".join([*blocks, "\n".join(summary(comparison))])


def summary(comparison: TableComparison) -> list[str]:
    """All of it in sentences."""
    common, other = len(comparison.common), len(comparison.other)
    lines = [_both(common, other)] if common else ["no key in both"]
    if comparison.only_a or comparison.only_b:
        lines.append(f"{len(comparison.only_a):,} only in A, {len(comparison.only_b):,} only in B")
    for name, twice in (("A", comparison.a_twice), ("B", comparison.b_twice)):
        if twice:
            stand = noun(twice, "entry has a key that stands", "entries have a key that stands")
            lines.append(f"{twice:,} {stand} in {name} before: the fastest, or the last, is taken")
    if common:
        lines.append(_times(comparison))
    if devices := _devices(comparison):
        lines.append(devices)
    return lines


def _both(common: int, other: int) -> str:
    keys = f"{counted(common, 'key')} in both"
    if other in (0, common):
        return f"{keys}: " + ("another solution each" if other else "the same solutions")
    return f"{keys}: {common - other:,} with the same solution, {other:,} with another"


def _times(comparison: TableComparison) -> str:
    ratios = comparison.ratios
    if not ratios:
        return NO_TIMES
    told = f"B takes {fmt.factor(comparison.median)} of A's time"
    if len(ratios) > 1:
        told += f" at the median of {len(ratios):,}"
        told += f", from {fmt.factor(min(ratios))} to {fmt.factor(max(ratios))}"
    return f"{told}; as the tables tell, not measured here"


def _devices(comparison: TableComparison) -> str:
    """That the two are of two devices, which a line of the table does not say."""
    pairs = {(device_of(same.a), device_of(same.b)) for same in comparison.common}
    apart = sorted(f"{a} in A, {b} in B" for a, b in pairs if a != b and a and b)
    return plain(f"other device: {'; '.join(apart[:3])}") if apart else ""


def markdown(comparison: TableComparison) -> str:
    """The same for a pull request."""
    lines = [f"A is {code_span(comparison.a)}, B is {code_span(comparison.b)}.", ""]
    if other := comparison.other:
        lines += [*markdown_table(_fields(other), other), ""]
    lines += [f"- {line}" for line in summary(comparison)]
    for label, rows in (("A", comparison.only_a), ("B", comparison.only_b)):
        for row in rows:
            solved = code_span(_SOLUTION.text(row))
            lines.append(f"- only in {label}: {code_span(problem_line(PROBLEM, row))}, {solved}")
    return "\n".join(lines)


def slower_lines(comparison: TableComparison, per_cent: float) -> Iterable[str]:
    """What `--fail-on-regression` says of each key."""
    for same in slower(comparison, per_cent):
        took = _SOLUTION.text(same.b)
        if not same.same_solution:
            took = change(solution(same.a), solution(same.b))
        times = f"{fmt.duration(told_ms(same.a))} then, {fmt.duration(told_ms(same.b))} now"
        yield f"{problem_line(PROBLEM, same.b)}: {took}: {times}"


def tables_json(comparison: TableComparison) -> dict[str, Any]:
    """Times in milliseconds, ratios B over A; what is not told is null."""
    return {
        **attributes(comparison, "a b"),
        "tables": True,
        "common": [
            {
                **_asked_json(same.b),
                "a": _told_json(same.a),
                "b": _told_json(same.b),
                **attributes(same, "same_solution ratio"),
            }
            for same in comparison.common
        ],
        "only_a": [{**_asked_json(row), **_told_json(row)} for row in comparison.only_a],
        "only_b": [{**_asked_json(row), **_told_json(row)} for row in comparison.only_b],
        "totals": {
            "common": len(comparison.common),
            "other_solution": len(comparison.other),
            "median_ratio": comparison.median,
            **attributes(comparison, "a_twice b_twice"),
        },
    }


def _asked_json(row: Row) -> dict[str, Any]:
    entry = row.tuning.entry
    return {
        "tuner": entry.tuner if entry else None,
        "op": row.tuning.op,
        "key": row.tuning.inputs_key,
    }


def _told_json(row: Row) -> dict[str, Any]:
    """What one table says of one key."""
    choice, entry = told(row), row.tuning.entry
    return {
        "id": row.id,
        "solution": choice.label if choice else None,
        "ms": choice.ms if choice else None,
        "device": (entry.device or None) if entry else None,
        "line": entry.line if entry else None,
        "sources": list(row.tuning.sources),
    }
