"""Comparisons of tunings, and of other tuners' tables: as text, Markdown and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import field

from backend.counted import counted, noun
from backend.model.choice import Choice, Verdict, parse_config
from rocm_tui.compare.comparison import taken
from rocm_tui.compare.tables import (
    SameKey,
    TableComparison,
    chosen,
    device_of,
    entry_ms,
    slower,
    solution,
)
from rocm_tui.compare.types import Comparison, Noise, Pair, Standpoint
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.table import (
    Column,
    Field,
    code_span,
    fields_of,
    markdown_table,
    problem_line,
    text_table,
)
from rocm_tui.render.tuning_json import ProblemJson
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.model import Row

VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "tied", "unclear")


def winners(pair: Pair) -> str:
    """The choice in use, or both where they differ; `=` between two names of one kernel, which
    has another hash on another device."""
    a, b = pair.a.choice, pair.b.choice
    several = a.label != b.label and a.hash and b.hash and a.hash != b.hash
    if pair.same_choice and not several:
        return _short(b, 36)
    return f"{_short(a, 24)} {'=' if pair.same_choice else '→'} {_short(b, 24)}"


def _short(choice: Choice, width: int) -> str:
    return fmt.shorten(plain(choice.label), width)


def time_text(point: Standpoint) -> str:
    """Return a time, with `~` if it was taken once or is the median of several such, with `±` and
    its interval if it was measured."""
    if point.basis != "measured":
        return fmt.once(fmt.duration(point.ms))
    if point.low is None or point.high is None:
        return fmt.duration(point.ms)
    half = (point.high - point.low) / 2 / point.ms
    return f"{fmt.duration(point.ms)} ±{fmt.percent(half)}"


def lost_text(ms: float) -> str:
    """Time lost with its sign: `+12.00 µs`."""
    return f"{'+' if ms >= 0 else '−'}{fmt.duration(abs(ms))}"


def _name(point: Standpoint) -> str:
    return code_span(problem_line(PROBLEM, point.row))


def _lost(pair: Pair) -> str:
    return fmt.NONE if pair.verdict == "unclear" else lost_text(pair.lost_ms)


def _marked(pair: Pair) -> str:
    """A verdict that a reader of a pull request must not miss."""
    bold = "**" if pair.verdict == "slower" else ""
    return f"{bold}{pair.verdict}{bold}: {plain(pair.reason)}"


_TIMES: tuple[Field[Pair], ...] = (
    Field(
        "a", "A", 9, 16, right=True, name="A", text=lambda pair: time_text(pair.a),
        about="its time then; ~ taken once, or the median of such; ± a measured interval",
    ),
    Field(
        "b", "B", 9, 16, right=True, name="B", text=lambda pair: time_text(pair.b),
        about="its time now",
    ),
    Field(
        "ratio", "B/A", 6, 8, right=True, name="B/A",
        text=lambda pair: fmt.factor(pair.ratio, pair.error) if pair.alike else fmt.NONE,
        about="now over then, freed from what the whole machine became slower by",
    ),
)  # fmt: skip
_CALLS: Field[Pair] = Field(
    "calls", "PER PASS", 8, 8, drop=4, right=True, text=lambda pair: fmt.count(pair.calls),
    about="how often one pass of the model calls it",
)  # fmt: skip
PAIRS: tuple[Field[Pair], ...] = (
    *fields_of(PROBLEM, lambda pair: pair.b.row),
    Field(
        "winner", "IN USE", 12, 44, text=winners,
        about="the choice in use, or both where they differ",
    ),
    *_TIMES,
    Field(
        "lost", "LOST", 9, 11, drop=2, right=True, text=_lost, about="what a call takes longer now"
    ),
    _CALLS,
    Field(
        "verdict", "VERDICT", 7, 8, text=lambda pair: pair.verdict,
        about="slower, faster, tied, unclear",
    ),
    Field(
        "because", "BECAUSE", 16, 90, drop=3, text=lambda pair: plain(pair.reason),
        about="why the verdict is that",
    ),
)  # fmt: skip
"""What both have, as a terminal shows it."""
_MARKDOWN: tuple[Field[Pair], ...] = (
    Field("tuning", "TUNING", text=lambda pair: _name(pair.b)),
    Field("winner", "IN USE", text=lambda pair: code_span(winners(pair))),
    *_TIMES,
    Field("lost", "LOST A CALL", right=True, text=_lost),
    _CALLS,
    Field("verdict", "VERDICT", text=_marked),
)
ALONE: tuple[Field[Standpoint], ...] = (
    *fields_of(PROBLEM, lambda point: point.row),
    Field(
        "winner", "IN USE", text=lambda point: _short(point.choice, 36), about="the choice in use"
    ),
    Field("time", "TIME", right=True, text=time_text, about="its time"),
    Field(
        "from", "FROM", text=lambda point: point.basis,
        about="measured, the median of several tunings, or a single one",
    ),
)  # fmt: skip


def text(comparison: Comparison) -> str:
    """Tables of what is common and of what is not, then the totals."""
    pairs = pairs_shown(comparison)
    common = text_table(PAIRS, pairs) if pairs else ""
    alone = (text_table(ALONE, side) for side in (comparison.only_a, comparison.only_b) if side)
    return _blocks(comparison, common, alone, summary(comparison))


def _blocks(
    of: Comparison | TableComparison, common: str, alone: Iterable[str], totals: Iterable[str]
) -> str:
    labels = [label for label, side in (("A", of.only_a), ("B", of.only_b)) if side]
    blocks = [f"A  {plain(of.a)}\nB  {plain(of.b)}", *filter(None, [common])]
    blocks += [f"only in {label}\n{side}" for label, side in zip(labels, alone, strict=True)]
    return "\n\n".join([*blocks, "\n".join(totals)])


def pairs_shown(comparison: Comparison) -> list[Pair]:
    """The pairs that get a line: one and the same tuning says nothing of then and now."""
    return [pair for pair in comparison.common if not pair.same_tuning]


def summary(comparison: Comparison) -> list[str]:
    """The totals in sentences, and what must be known to read them."""
    totals, noise = comparison.totals, comparison.noise
    lines = []
    if comparison.common and not pairs_shown(comparison):
        lines.append(_all_the_same(comparison))
    elif comparison.common:
        counts = ", ".join(
            f"{totals.verdicts[verdict]:,} {verdict}"
            for verdict in VERDICTS
            if totals.verdicts.get(verdict)
        )
        lines.append(f"{len(comparison.common):,} in both: {counts}")
        if same := len(comparison.common) - len(pairs_shown(comparison)):
            lines.append(
                f"{same:,} of them the very same tuning, taken from the cache or read twice"
            )
        lines += _sums(comparison)
    else:
        lines.append("nothing in both")
    if comparison.only_a or comparison.only_b:
        lines.append(f"{len(comparison.only_a)} only in A, {len(comparison.only_b)} only in B")
    if comparison.untimed:
        lines.append(f"{len(comparison.untimed)} without a time in A or in B")
    took = [
        _took(*part)
        for part in (
            ("A", totals.a_seconds, totals.a_unknown),
            ("B", totals.b_seconds, totals.b_unknown),
        )
    ]
    if any(took):
        lines.append(f"tuning took {', '.join(part for part in took if part)}")
    if any(pair.b.basis != "measured" for pair in pairs_shown(comparison)):
        lines.append(_noise_text(noise.band, noise.choices))
    return [*lines, *(plain(note) for note in comparison.notes)]


def _all_the_same(comparison: Comparison) -> str:
    """Of two that have nothing but the same tunings."""
    count = len(comparison.common)
    every = "the one tuning" if count == 1 else f"all {counted(count, 'tuning')}"
    for name, other, rows in (
        ("A", "B", [row for pair in comparison.common for row in pair.a.rows]),
        ("B", "A", [row for pair in comparison.common for row in pair.b.rows]),
    ):
        if all(map(taken, rows)):
            return f"{name} timed nothing: it took {every} from the cache, as {other} had them"
    return f"{every} of both {noun(count, 'is', 'are')} the very same: no difference"


def _sums(comparison: Comparison) -> list[str]:
    """What all takes that has a verdict; what is left out is said."""
    totals, unclear = comparison.totals, comparison.totals.verdicts.get("unclear", 0)
    if not any(pair.alike for pair in comparison.common):
        return ["nothing comparable, no total"]
    if not totals.a_ms:
        return ["every verdict is unclear: no total, and whether time was lost is not known"]
    change = fmt.signed(totals.b_ms / totals.a_ms - 1, totals.error)
    sums = f"{fmt.duration(totals.a_ms)} in A, {fmt.duration(totals.b_ms)} in B ({change})"
    rest = (
        f", without {unclear:,} of {len(comparison.common):,} that are unclear" if unclear else ""
    )
    sums_ = [("lost", totals.lost_ms), ("gained", totals.gained_ms)]
    parts = [f"{fmt.duration(ms)} {what}" for what, ms in sums_ if ms]
    same = "of these nothing is slower or faster" if unclear else "nothing is slower or faster"
    decided = [pair for pair in comparison.common if pair.verdict != "unclear"]
    single = sum("measured" not in (pair.a.basis, pair.b.basis) for pair in decided)
    partly = ", partly" if single < len(decided) else ""
    how = f"{partly} by single times" if single else ""
    return [f"weighted by call count: {sums}{rest}", (", ".join(parts) or same) + how]


def _took(name: str, seconds: float, untold: int) -> str:
    """What tuning one part took, as far as that is known; empty where nothing is."""
    if not seconds:
        return ""
    least = "at least " if untold else ""
    return f"{least}{fmt.seconds(seconds)} in {name}" + (f" ({untold} unknown)" if untold else "")


def _noise_text(band: float, choices: int) -> str:
    given = (
        counted(choices, "choice of both was", "choices of both were") + " compared"
        if choices
        else "the default"
    )
    tie = fmt.percent(stats.TIE_BAND)
    return (
        f"single timings are tied up to {tie} apart and unclear up to {fmt.percent(band)} ({given})"
    )


def markdown(comparison: Comparison) -> str:
    """The same for a pull request: one table, the rest in lines below it."""
    pairs = pairs_shown(comparison)
    items = summary(comparison)
    for label, points in (("A", comparison.only_a), ("B", comparison.only_b)):
        items += [f"only in {label}: {_name(point)}, {time_text(point)}" for point in points]
    return _markdown(comparison, markdown_table(_MARKDOWN, pairs) if pairs else [], items)


def _markdown(of: Comparison | TableComparison, common: Sequence[str], items: Iterable[str]) -> str:
    head = [f"A is {code_span(of.a)}, B is {code_span(of.b)}.", "", *common]
    return "\n".join([*head, *([""] if common else []), *(f"- {item}" for item in items)])


def regression_lines(pairs: Iterable[Pair]) -> list[str]:
    """What `--fail-on-regression` says of each pair that is too slow."""
    return [
        f"{pair.id} {plain(pair.b.tuning.op)} {plain(stats.sizes_text(pair.b.tuning))}: "
        f"{winners(pair)}: {fmt.duration(pair.a.ms)} then, {fmt.duration(pair.b.ms)} now, "
        f"{plain(pair.reason)}"
        for pair in pairs
    ]


class StandpointJson(JsonObject):
    """What one part knows of one problem; times in milliseconds, unknown values are null."""

    id: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    choice: str
    hash: str | None
    basis: str = field(name="from")
    ms: float
    low: float | None
    high: float | None
    calls: int | None
    measurements: int
    occurrences: int
    sources: tuple[str, ...]

    @classmethod
    def of(cls, point: Standpoint) -> StandpointJson:
        return fill(
            cls,
            point,
            point.tuning,
            id=point.row.id,
            choice=point.choice.label,
            hash=point.choice.hash,
            measurements=len(point.measurements),
            occurrences=len(point.rows),
        )


class PairJson(ProblemJson):
    """A problem of both parts; ratios are those of B over A."""

    a: StandpointJson
    b: StandpointJson
    same_choice: bool
    same_tuning: bool
    ratio: float
    raw_ratio: float
    low: float
    high: float | None
    lost_ms: float
    calls: int | None
    lost_total_ms: float
    verdict: str
    reason: str
    alike: bool

    @classmethod
    def of(cls, pair: Pair) -> PairJson:
        a, b = StandpointJson.of(pair.a), StandpointJson.of(pair.b)
        row = pair.b.row
        return fill(cls, pair, row.tuning, id=row.id, a=a, b=b, raw_ratio=pair.raw)


class ComparisonTotalsJson(JsonObject):
    a_ms: float
    b_ms: float
    lost_ms: float
    gained_ms: float
    # Not of Verdict: msgspec lists its values in the schema from 0.23 on, and did not before.
    verdicts: Mapping[str, int]
    a_tuning_seconds: float
    b_tuning_seconds: float
    a_tuning_untold: int
    b_tuning_untold: int


class ComparisonJson(Document, tag="rocm-tui/compare/1"):
    a: str
    b: str
    common: list[PairJson]
    only_a: list[StandpointJson]
    only_b: list[StandpointJson]
    untimed: list[str]
    totals: ComparisonTotalsJson
    noise: Noise
    notes: tuple[str, ...]

    @classmethod
    def of(cls, comparison: Comparison) -> ComparisonJson:
        totals = comparison.totals
        return fill(
            cls,
            comparison,
            common=[PairJson.of(pair) for pair in comparison.common],
            only_a=[StandpointJson.of(point) for point in comparison.only_a],
            only_b=[StandpointJson.of(point) for point in comparison.only_b],
            untimed=[row.id for row in comparison.untimed],
            totals=fill(
                ComparisonTotalsJson,
                totals,
                a_tuning_seconds=totals.a_seconds,
                b_tuning_seconds=totals.b_seconds,
                a_tuning_untold=totals.a_unknown,
                b_tuning_untold=totals.b_unknown,
            ),
        )


NO_SOLUTION = "not tuned"
NO_TIMES = "no times to compare: these tables have none"


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
    same = [mine == other for mine, other in zip(ours, theirs, strict=False)]
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
    "time", "TIME", right=True, text=lambda row: fmt.duration(entry_ms(row)),
    about="the time in the table, measured elsewhere",
)  # fmt: skip
_CHANGE: Field[SameKey] = Field(
    "change", "A → B", name="A → B",
    text=lambda same: change(solution(same.a), solution(same.b)), fold=True,
    about="what was taken in A and in B",
)  # fmt: skip
_TABLE_TIMES: tuple[Field[SameKey], ...] = (
    Field("a", "A", right=True, name="A", text=lambda same: fmt.duration(entry_ms(same.a))),
    Field("b", "B", right=True, name="B", text=lambda same: fmt.duration(entry_ms(same.b))),
    Field(
        "ratio", "B/A", right=True, name="B/A", text=lambda same: fmt.factor(same.ratio, same.error)
    ),
)


CHANGES: tuple[Column, ...] = (_CHANGE,)
ENTRY: tuple[Column, ...] = (_DEVICE, _SOLUTION, _TIME)
"""Columns that only comparisons of tables have."""


def _fields(pairs: Sequence[SameKey]) -> tuple[Field[SameKey], ...]:
    """Leave out the columns of times if no table has one."""
    timed = any(entry_ms(row) is not None for same in pairs for row in (same.a, same.b))
    return (*fields_of(PROBLEM, lambda same: same.b), *(_TABLE_TIMES if timed else ()), _CHANGE)


def _alone(rows: Sequence[Row]) -> tuple[Field[Row], ...]:
    fields = [*PROBLEM]
    fields += [_DEVICE] if any(map(device_of, rows)) else []
    fields += [_TIME] if any(entry_ms(row) is not None for row in rows) else []
    return (*fields, _SOLUTION)


def tables_text(comparison: TableComparison) -> str:
    """Keys with another solution, what one of them has alone, then all in numbers."""
    other, alone = comparison.other, filter(None, (comparison.only_a, comparison.only_b))
    common = f"other solutions\n{text_table(_fields(other), other)}" if other else ""
    tables = (text_table(_alone(rows), rows) for rows in alone)
    return _blocks(comparison, common, tables, tables_summary(comparison))


def tables_summary(comparison: TableComparison) -> list[str]:
    """Return the totals in sentences."""
    common, other = len(comparison.common), len(comparison.other)
    lines = [_both(common, other)] if common else ["no key in both"]
    if comparison.only_a or comparison.only_b:
        lines.append(f"{len(comparison.only_a):,} only in A, {len(comparison.only_b):,} only in B")
    for name, twice in (("A", comparison.a_twice), ("B", comparison.b_twice)):
        if twice:
            what = noun(twice, "entry has a key that is", "entries have a key that is")
            lines.append(f"{twice:,} {what} in {name} before: the fastest, or the last, is taken")
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
    error = max(same.error for same in comparison.common)
    text = f"B takes {fmt.factor(comparison.median, error)} of A's time"
    if len(ratios) > 1:
        text += f" at the median of {len(ratios):,}"
        text += f", from {fmt.factor(min(ratios), error)} to {fmt.factor(max(ratios), error)}"
    return f"{text}; by the times in the tables, not measured here"


def _devices(comparison: TableComparison) -> str:
    """That the two are of two devices, which a line of the table does not say."""
    pairs = {(device_of(same.a), device_of(same.b)) for same in comparison.common}
    apart = sorted(f"{a} in A, {b} in B" for a, b in pairs if a != b and a and b)
    return plain(f"other device: {'; '.join(apart[:3])}") if apart else ""


def tables_markdown(comparison: TableComparison) -> str:
    """The same for a pull request."""
    other, items = comparison.other, tables_summary(comparison)
    for label, rows in (("A", comparison.only_a), ("B", comparison.only_b)):
        for row in rows:
            solved = code_span(_SOLUTION.text(row))
            items.append(f"only in {label}: {code_span(problem_line(PROBLEM, row))}, {solved}")
    return _markdown(comparison, markdown_table(_fields(other), other) if other else [], items)


def slower_lines(comparison: TableComparison, per_cent: float) -> Iterable[str]:
    """What `--fail-on-regression` says of each key."""
    for same in slower(comparison, per_cent):
        took = _SOLUTION.text(same.b)
        if not same.same_solution:
            took = change(solution(same.a), solution(same.b))
        times = f"{fmt.duration(entry_ms(same.a))} then, {fmt.duration(entry_ms(same.b))} now"
        yield f"{problem_line(PROBLEM, same.b)}: {took}: {times}"


class TableValueJson(JsonObject):
    """What one table has under a key; unknown values are null."""

    id: str
    solution: str | None
    ms: float | None
    device: str | None
    line: int | None
    sources: tuple[str, ...]


class TableEntryJson(TableValueJson):
    """A key of one table alone."""

    tuner: str | None
    op: str
    key: str | None


class SameKeyJson(JsonObject):
    """A key of both tables."""

    tuner: str | None
    op: str
    key: str | None

    a: TableValueJson
    b: TableValueJson
    same_solution: bool
    ratio: float | None


class TableTotalsJson(JsonObject):
    common: int
    other_solution: int
    median_ratio: float | None
    a_twice: int
    b_twice: int


class TableComparisonJson(Document, tag="rocm-tui/compare-tables/1"):
    """Times in milliseconds, ratios B over A."""

    a: str
    b: str
    tables: bool
    common: list[SameKeyJson]
    only_a: list[TableEntryJson]
    only_b: list[TableEntryJson]
    totals: TableTotalsJson

    @classmethod
    def of(cls, comparison: TableComparison) -> TableComparisonJson:
        return fill(
            cls,
            comparison,
            tables=True,
            common=[
                fill(
                    SameKeyJson,
                    same,
                    **_key_members(same.b),
                    a=TableValueJson(**_value_members(same.a)),
                    b=TableValueJson(**_value_members(same.b)),
                )
                for same in comparison.common
            ],
            only_a=[_table_entry(row) for row in comparison.only_a],
            only_b=[_table_entry(row) for row in comparison.only_b],
            totals=fill(
                TableTotalsJson,
                comparison,
                common=len(comparison.common),
                other_solution=len(comparison.other),
                median_ratio=comparison.median,
            ),
        )


def _table_entry(row: Row) -> TableEntryJson:
    return TableEntryJson(**_key_members(row), **_value_members(row))


def _key_members(row: Row) -> dict[str, Any]:
    entry = row.tuning.entry
    tuner = entry.tuner if entry else None
    return {"tuner": tuner, "op": row.tuning.op, "key": row.tuning.inputs_key}


def _value_members(row: Row) -> dict[str, Any]:
    choice, entry = chosen(row), row.tuning.entry
    return {
        "id": row.id,
        "solution": choice.label if choice else None,
        "ms": choice.ms if choice else None,
        "device": (entry.device or None) if entry else None,
        "line": entry.line if entry else None,
        "sources": row.tuning.sources,
    }
