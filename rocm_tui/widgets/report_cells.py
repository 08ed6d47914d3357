"""The pages of the report as rows of cells. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocm_tui import format as fmt
from rocm_tui.format import plain, shorten
from rocm_tui.render.table import Cells, Column, Span
from rocm_tui.session import report_text, stats
from rocm_tui.session.model import Row
from rocm_tui.session.report_types import Absent, Bought, Disagreement, Repeated, Report
from rocm_tui.session.roofline import Point, Roofline
from rocm_tui.widgets.bars import bar
from rocm_tui.widgets.log_plot import number

_BAR = 12
_OP = Column("op", "OP", 6, 16)
_SHAPE = Column("shape", "SHAPE", 12, 34, good=20)
_TYPE = Column("type", "TYPE", 4, 10, drop=5)

BOUGHT = (
    _OP,
    _SHAPE,
    _TYPE,
    Column("use", "IN USE", 12, 40, drop=4),
    Column("saved", "SAVED", 9, 10, right=True),
    Column("calls", "CALLS", 5, 7, drop=2, right=True),
    Column("all", "IN ALL", 9, 10, drop=1, right=True),
    Column("took", "TUNING", 8, 12, right=True),
)
AGAIN = (
    _OP,
    _SHAPE,
    _TYPE,
    Column("times", "TIMES", 5, 6, right=True),
    Column("by", "BY", 9, 14, drop=1),
    Column("took", "AGAIN", 8, 12, right=True),
    Column("winners", "WON BY", 16, 90),
)
RANKS = (
    _OP,
    _SHAPE,
    _TYPE,
    Column("who", "WHO", 8, 24),
    Column("use", "IN USE", 12, 40),
    Column("time", "TIME", 9, 9, right=True),
    Column("others", "OTHERS THERE", 20, 60, drop=1),
)
ABSENT = (
    Column("backend", "BACKEND", 7, 16),
    Column("where", "IN", 9, 14, drop=2),
    Column("ops", "OPS", 6, 24, drop=1),
    Column("what", "WHAT", 9, 18),
    Column("why", "WHY", 20, 120),
)
ROOF = (
    _OP,
    _SHAPE,
    _TYPE,
    Column("intensity", "FLOP/B", 6, 7, right=True),
    Column("rate", "TFLOP/s", 7, 7, right=True),
    Column("roof", "ROOF", 6, 7, drop=1, right=True),
    Column("share", "%", 5, 5, right=True),
    Column("bar", "", _BAR, _BAR, drop=6),
    Column("bound", "BOUND BY", 8, 8, drop=2),
    Column("device", "DEVICE", 10, 30, drop=3),
)


@dataclass(frozen=True, slots=True)
class Page:
    """Sentences, the rows below them with the tuning that each is about, and how many things."""

    said: tuple[Span, ...]
    cells: tuple[Cells, ...]
    rows: tuple[Row, ...]
    count: int


def pages(report: Report, points: Sequence[tuple[Roofline, Point]]) -> dict[str, Page]:
    """Every page by its name."""
    return {
        "saved": _bought(report.bought),
        "repeated": _again(report.repeated),
        "ranks": _ranks(report.disagreements),
        "missing": _absent(report.absent, report.told),
        "roofline": _roofline(points),
    }


def _problem(row: Row) -> dict[str, Span]:
    tuning = row.tuning
    return {
        "op": (plain(tuning.op), "strong"),
        "shape": (plain(fmt.shapes(tuning)) or fmt.NONE, ""),
        "type": (plain(stats.dtype_of(tuning)) or fmt.NONE, "dim"),
    }


def _bought(bought: Bought) -> Page:
    rows, cells = [], []
    for gain in bought.gains:
        *_, use, saved, calls, whole, took = report_text.gain_cells(gain)
        wins = not gain.tied and gain.saved_ms is not None and gain.saved_ms > 0
        loses = not gain.tied and gain.saved_ms is not None and gain.saved_ms < 0
        style = "good" if wins else "warn" if loses else "dim"
        rows.append(gain.row)
        cells.append(
            {
                **_problem(gain.row),
                "use": (use, ""),
                "saved": (saved, style),
                "calls": (calls, "dim"),
                "all": (whole, style),
                "took": (took, ""),
            }
        )
    said = report_text.bought_lines(bought) if bought.gains else ["Nothing was tuned yet."]
    return Page(tuple((line, "") for line in said), tuple(cells), tuple(rows), len(rows))


def _again(found: Sequence[Repeated]) -> Page:
    cells = []
    for each in found:
        *_, times, by, winners, took = report_text.repeated_cells(each)
        several = len(each.winners) > 1
        told = (winners, "" if several else "dim")
        cells.append(
            {
                **_problem(each.row),
                "times": (times, "strong"),
                "by": (by, "dim"),
                "took": (took, ""),
                "winners": told,
            }
        )
    more = sum(each.seconds for each in found)
    said = "No problem was tuned twice."
    if found:
        problems = "One problem was" if len(found) == 1 else f"{len(found)} problems were"
        least = "at least " if any(each.untold for each in found) else ""
        took = f"took {least}{fmt.seconds(more)} more" if more else "took nobody knows how long"
        said = f"{problems} tuned again, which {took}."
    return Page(((said, ""),), tuple(cells), tuple(each.row for each in found), len(found))


def _ranks(found: Sequence[Disagreement]) -> Page:
    rows, cells = [], []
    for each in found:
        for at, party in enumerate(each.parties):
            problem = _problem(each.row)
            blank = dict.fromkeys(problem, ("", ""))
            rivals = ", ".join(
                f"{shorten(plain(label), 30)} {fmt.duration(ms)}" for label, ms in party.rivals_ms
            )
            rows.append(party.row)
            cells.append(
                {
                    **(blank if at else problem),
                    "who": (plain(party.who), ""),
                    "use": (plain(party.choice.label), "" if each.matters else "dim"),
                    "time": (fmt.duration(party.ms), "" if each.matters else "dim"),
                    "others": (rivals or "not timed", "dim"),
                }
            )
    said: list[Span] = [("Ranks and hosts agree: no problem has two choices in use.", "")]
    if found:
        matter = sum(each.matters for each in found)
        what = "one problem" if len(found) == 1 else f"{len(found)} problems"
        how = "All of them are ties." if not matter else f"{matter} of them by more than a tie."
        said = [(f"Ranks or hosts use different choices for {what}. {how}", "")]
        if not all(each.told for each in found):
            said = [(f"Chosen differently by {report_text.parties(found)}: {what}. {how}", "")]
    return Page(tuple(said), tuple(cells), tuple(rows), len(found))


def _absent(found: Sequence[Absent], told: bool) -> Page:
    cells: list[Cells] = []
    for each in found:
        for at, why in enumerate(report_text.reason_lines(each)):
            tunings = "1 tuning" if each.tunings == 1 else f"{each.tunings} tunings"
            what = f"{each.failed} failed" if each.failed else "no choice"
            first = {
                "backend": (plain(each.backend), "strong"),
                "where": ("all tunings" if each.everywhere else tunings, "dim"),
                "ops": (plain(", ".join(each.ops)), "dim"),
                "what": (what, "warn"),
            }
            cells.append({**(dict.fromkeys(first, ("", "")) if at else first), "why": (why, "")})
    said = "Every backend that was asked for has a choice that works."
    if found:
        said = "Backends that were asked for, and of which there is no choice to use."
    elif not told:
        said = "Which backends were asked for is told by sessions of `rocm-tui run` only."
    return Page(((said, ""),), tuple(cells), (), len(found))


def by_share(found: Iterable[Roofline]) -> list[tuple[Roofline, Point]]:
    """Every point with its roofline: those that use least of their roof first."""
    points = [(one, point) for one in found for point in one.points]
    return sorted(points, key=lambda pair: (pair[1].share is None, pair[1].share or 0.0))


def _roofline(points: Sequence[tuple[Roofline, Point]]) -> Page:
    devices = {one.machine for one, _ in points}
    cells = []
    for one, point in points:
        share = point.share
        text = "" if share is None else f"{share * 100:.0f}" if share >= 1 else f"{share * 100:.1f}"
        device = plain(one.machine.label) if len(devices) > 1 else ""
        cells.append(
            {
                **_problem(point.row),
                "intensity": (number(round(point.intensity, 1)), ""),
                "rate": (fmt.throughput(point.tflops), "strong"),
                "roof": (fmt.throughput(point.roof), "dim"),
                "share": (text or fmt.NONE, ""),
                "bar": (bar(share or 0.0, _BAR), "accent"),
                "bound": (point.bound or "", "dim"),
                "device": (device, "dim"),
            }
        )
    said: tuple[Span, ...] = ()
    if not points:
        said = (("No matrix product was tuned whose operations and bytes are known.", ""),)
    return Page(said, tuple(cells), tuple(point.row for _, point in points), len(points))
