"""A comparison as the JSON that `compare --json` prints.

A comparison as the tables that `compare` prints: for a terminal and for a pull request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from backend.records import Choice, Tuning, Verdict
from rocm_tui.compare.types import Comparison, Pair, Standpoint
from rocm_tui.harmless import plain
from rocm_tui.render.table import table
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Times in milliseconds, ratios B over A; unknown values are null."""
    totals, noise = comparison.totals, comparison.noise
    return {
        "a": comparison.a,
        "b": comparison.b,
        "common": [pair_json(pair) for pair in comparison.common],
        "only_a": [point_json(point) for point in comparison.only_a],
        "only_b": [point_json(point) for point in comparison.only_b],
        "untimed": [row.id for row in comparison.untimed],
        "totals": {
            "a_ms": totals.a_ms,
            "b_ms": totals.b_ms,
            "lost_ms": totals.lost_ms,
            "gained_ms": totals.gained_ms,
            "verdicts": dict(totals.verdicts),
            "a_tuning_seconds": totals.a_seconds,
            "b_tuning_seconds": totals.b_seconds,
            "a_tuning_untold": totals.a_untold,
            "b_tuning_untold": totals.b_untold,
        },
        "noise": {
            "band": noise.band,
            "choices": noise.choices,
            "problems": noise.problems,
            "shift": noise.shift,
        },
        "notes": list(comparison.notes),
    }


def pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "id": pair.id,
        "op": pair.b.tuning.op,
        "shapes": [list(shape) for shape in pair.b.tuning.shapes],
        "dtypes": list(pair.b.tuning.dtypes),
        "a": point_json(pair.a),
        "b": point_json(pair.b),
        "same_choice": pair.same_choice,
        "same_tuning": pair.same_tuning,
        "ratio": pair.ratio,
        "raw_ratio": pair.raw,
        "low": pair.low,
        "high": pair.high,
        "lost_ms": pair.lost_ms,
        "calls": pair.calls,
        "lost_total_ms": pair.lost_total_ms,
        "verdict": pair.verdict,
        "reason": pair.reason,
        "alike": pair.alike,
    }


def point_json(point: Standpoint) -> dict[str, Any]:
    """What one part knows of one problem."""
    return {
        "id": point.row.id,
        "op": point.tuning.op,
        "shapes": [list(shape) for shape in point.tuning.shapes],
        "choice": point.choice.label,
        "hash": point.choice.hash,
        "ms": point.ms,
        "from": point.basis,
        "low": point.low,
        "high": point.high,
        "measurements": len(point.measurements),
        "occurrences": len(point.rows),
        "calls": point.calls,
        "sources": list(point.tuning.sources),
    }


HEADER = (
    "id",
    "op",
    "shape",
    "dtype",
    "winner",
    "A",
    "B",
    "B/A",
    "lost",
    "calls",
    "verdict",
    "because",
)
RIGHT = "lllllrrrrrll"
ALONE = ("id", "op", "shape", "dtype", "winner", "time", "from")
ALONE_RIGHT = "lllllrl"
VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "tied", "unclear")


def text(comparison: Comparison) -> str:
    """Tables of what is common and of what is not, then the totals."""
    blocks = [_names(comparison)]
    if told := _told(comparison):
        blocks.append(table(HEADER, [pair_cells(pair) for pair in told], RIGHT))
    for label, points in (("A", comparison.only_a), ("B", comparison.only_b)):
        if points:
            rows = [alone_cells(point) for point in points]
            blocks.append(f"only in {label}\n{table(ALONE, rows, ALONE_RIGHT)}")
    return "\n\n".join([*blocks, "\n".join(summary(comparison))])


def _told(comparison: Comparison) -> list[Pair]:
    """The pairs that get a line: one and the same tuning says nothing of then and now."""
    return [pair for pair in comparison.common if not pair.same_tuning]


def _names(comparison: Comparison) -> str:
    return f"A  {plain(comparison.a)}\nB  {plain(comparison.b)}"


def pair_cells(pair: Pair) -> tuple[str, ...]:
    tuning = pair.b.tuning
    return (
        *_problem(pair.id, tuning),
        winners(pair),
        time_text(pair.a),
        time_text(pair.b),
        *_change_cells(pair),
        pair.verdict,
        plain(pair.reason),
    )


def _change_cells(pair: Pair) -> tuple[str, str, str]:
    """Ratio, time lost, calls; what is not alike has lost nothing that is known."""
    calls = fmt.NONE if pair.calls is None else str(pair.calls)
    if not pair.alike:
        return fmt.NONE, fmt.NONE, calls
    return fmt.factor(pair.ratio), lost_text(pair.lost_ms), calls


def alone_cells(point: Standpoint) -> tuple[str, ...]:
    label = plain(point.choice.label)
    cells = _problem(point.row.id, point.tuning)
    return (*cells, fmt.shorten(label, 36), time_text(point), point.basis)


def _problem(id_: str, tuning: Tuning) -> tuple[str, str, str, str]:
    return id_, plain(tuning.op), plain(stats.sizes_text(tuning)), stats.dtype_of(tuning)


def winners(pair: Pair) -> str:
    """The choice in use, or both where they differ."""
    if pair.same_choice:
        return _short(pair.b.choice, 36)
    return f"{_short(pair.a.choice, 24)} → {_short(pair.b.choice, 24)}"


def _short(choice: Choice, width: int) -> str:
    return fmt.shorten(plain(choice.label), width)


def time_text(point: Standpoint) -> str:
    """A time; `~` stands before the median of several tunings, `±` before a measured interval."""
    if point.basis == "median":
        return f"~{fmt.duration(point.ms)}"
    if point.low is None or point.high is None:
        return fmt.duration(point.ms)
    half = (point.high - point.low) / 2 / point.ms
    return f"{fmt.duration(point.ms)} ±{fmt.percent(half)}"


def lost_text(ms: float) -> str:
    """Time lost with its sign: `+12.00 µs`."""
    return f"{'+' if ms >= 0 else '−'}{fmt.duration(abs(ms))}"


def summary(comparison: Comparison) -> list[str]:
    """The totals in sentences, and what must be known to read them."""
    totals, noise = comparison.totals, comparison.noise
    lines = []
    if comparison.common:
        counts = ", ".join(
            f"{totals.verdicts[verdict]} {verdict}"
            for verdict in VERDICTS
            if totals.verdicts.get(verdict)
        )
        lines.append(f"{len(comparison.common)} in both: {counts}")
        if same := len(comparison.common) - len(_told(comparison)):
            lines.append(f"{same} of them the very same tuning, taken from the cache or read twice")
        lines += _sums(comparison)
    else:
        lines.append("nothing in both")
    if comparison.only_a or comparison.only_b:
        lines.append(f"{len(comparison.only_a)} only in A, {len(comparison.only_b)} only in B")
    if comparison.untimed:
        lines.append(f"{len(comparison.untimed)} without a time in A or in B")
    took = [
        _took(*each)
        for each in (
            ("A", totals.a_seconds, totals.a_untold),
            ("B", totals.b_seconds, totals.b_untold),
        )
    ]
    if any(took):
        lines.append(f"tuning took {', '.join(each for each in took if each)}")
    if any(pair.b.basis != "measured" for pair in comparison.common):
        lines.append(_noise_text(noise.band, noise.choices))
    return [*lines, *(plain(note) for note in comparison.notes)]


def _sums(comparison: Comparison) -> list[str]:
    """What all takes that may be compared; what is left out is said."""
    totals = comparison.totals
    unlike = sum(not pair.alike for pair in comparison.common)
    if not totals.a_ms:
        return ["nothing of it is alike: no sum"]
    change = (totals.b_ms / totals.a_ms - 1) * 100
    sums = f"{fmt.duration(totals.a_ms)} in A, {fmt.duration(totals.b_ms)} in B ({change:+.1f} %)"
    rest = f", without {unlike} of {len(comparison.common)} that are not alike" if unlike else ""
    told = [("lost", totals.lost_ms), ("gained", totals.gained_ms)]
    return [
        f"each as often as it is called: {sums}{rest}",
        ", ".join(f"{fmt.duration(ms) if ms else 'nothing'} {what}" for what, ms in told),
    ]


def _took(name: str, seconds: float, untold: int) -> str:
    """What tuning one part took, as far as that is known; empty where nothing is."""
    if not seconds:
        return ""
    least = "at least " if untold else ""
    return f"{least}{fmt.seconds(seconds)} in {name}" + (f" ({untold} not told)" if untold else "")


def _noise_text(band: float, choices: int) -> str:
    known = f"{choices} choices of both were compared" if choices else "the default"
    return f"single numbers are told apart beyond {fmt.percent(band)} ({known})"


MARKDOWN = ("tuning", "winner", "A", "B", "B/A", "lost a call", "calls", "verdict")
MARKDOWN_RIGHT = "llrrrrrl"


def markdown(comparison: Comparison) -> str:
    """The same for a pull request: one table, the rest in lines below it."""
    lines = [f"A is {_code(comparison.a)}, B is {_code(comparison.b)}.", ""]
    if told := _told(comparison):
        lines.append(_row(MARKDOWN))
        lines.append(_row(["---:" if each == "r" else "---" for each in MARKDOWN_RIGHT]))
        lines += [_row(_markdown_cells(pair)) for pair in told]
        lines.append("")
    lines += [f"- {line}" for line in summary(comparison)]
    for label, points in (("A", comparison.only_a), ("B", comparison.only_b)):
        lines += [f"- only in {label}: {_name(point)}, {time_text(point)}" for point in points]
    return "\n".join(lines)


def _markdown_cells(pair: Pair) -> list[str]:
    bold = "**" if pair.verdict == "slower" else ""
    return [
        _name(pair.b),
        _code(winners(pair)),
        time_text(pair.a),
        time_text(pair.b),
        *_change_cells(pair),
        f"{bold}{pair.verdict}{bold}: {plain(pair.reason)}",
    ]


def _name(point: Standpoint) -> str:
    return _code(" ".join(part for part in _problem(point.row.id, point.tuning) if part))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(value: str) -> str:
    """Foreign text in a code span that it cannot leave: no markup, no mention, no new cell."""
    return f"`{plain(value).replace('`', chr(39)).replace('|', '¦')}`"


def regression_lines(pairs: Iterable[Pair]) -> list[str]:
    """What `--fail-on-regression` says of each pair that is too slow."""
    return [
        f"{pair.id} {plain(pair.b.tuning.op)} {plain(stats.sizes_text(pair.b.tuning))}: "
        f"{winners(pair)}: {fmt.duration(pair.a.ms)} then, {fmt.duration(pair.b.ms)} now, "
        f"{plain(pair.reason)}"
        for pair in pairs
    ]
