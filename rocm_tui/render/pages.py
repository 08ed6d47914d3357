"""The pages of the report on the screen: sentences, and rows of cells below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render import report as words
from rocm_tui.render.agree import DIFFERING
from rocm_tui.render.plot import number
from rocm_tui.render.table import Cells, Column, Field, Span, cells, fields_of
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.report.agreement import Agreement, DifferingProblem, Selection
from rocm_tui.report.job import MissingBackend, Repeated, Report, Savings
from rocm_tui.report.roofline import Point, Roofline
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.devices import Peak
from rocm_tui.session.model import Row

_PROBLEM = PROBLEM[1:]


@dataclass(frozen=True, slots=True)
class _RankLine:
    """What one rank of a job uses for a problem; the problem is beside the first."""

    differing: DifferingProblem
    selection: Selection

    @property
    def style(self) -> str:
        return "" if self.differing.standing == "apart" else "dim"

    @property
    def time(self) -> str:
        """Its own time: a median if it was measured, else what was taken once."""
        tuning, choice = self.selection.tuning, self.selection.choice
        text = fmt.duration(stats.time_ms(tuning, choice))
        return fmt.once(text) if stats.once(tuning, choice) else text


_RANKS: tuple[Field[_RankLine], ...] = (
    *fields_of(_PROBLEM, lambda line: line.differing.row),
    Field(
        "who", "WHO", 8, 24, good=14, text=lambda line: plain(line.selection.by.name),
        about="the rank, process or log",
    ),
    Field(
        "use", "IN USE", 12, 40, text=lambda line: plain(line.selection.choice.label),
        style=lambda line: line.style, about="the choice that it uses",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, text=lambda line: line.time,
        style=lambda line: line.style, about="its own time for that; ~ taken once",
    ),
    *fields_of(DIFFERING[len(PROBLEM) :], lambda line: line.differing),
)  # fmt: skip
_OF_PROBLEM = [field for field in _RANKS if field.key not in ("who", "use", "time")]
"""Cells that are the same for all ranks."""


@dataclass(frozen=True, slots=True)
class _Reason:
    """One reason why a backend is missing; the backend is beside the first."""

    backend: MissingBackend
    why: str


def _where(line: _Reason) -> str:
    if line.backend.everywhere:
        return "all tunings"
    return counted(line.backend.tunings, "tuning")


_WHY = 46
"""Cells of a reason, which is folded: a sentence that is cut in its middle says nothing."""
_REASONS: tuple[Field[_Reason], ...] = (
    Field(
        "backend", "BACKEND", 7, 16, text=lambda line: plain(line.backend.backend),
        style="strong", about="of Inductor, as its option names it",
    ),
    Field("where", "IN", 9, 14, drop=2, text=_where, style="dim", about="where it is missing"),
    Field(
        "ops", "OPS", 6, 24, drop=1, text=lambda line: plain(", ".join(line.backend.ops)),
        style="dim", about="the ops of which it has no choice to use",
    ),
    Field(
        "what", "WHAT", 9, 18, style="warn", about="no choice appeared, or all failed",
        text=lambda line: f"{line.backend.failed} failed" if line.backend.failed else "no choice",
    ),
    Field(
        "why", "WHY", _WHY, _WHY, text=lambda line: line.why,
        about="the reason, as far as one is known",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _PointLine:
    """A tuning and the roof above it; its device is named where there are several."""

    roofline: Roofline
    point: Point
    several: bool

    @property
    def percent(self) -> str:
        share = self.point.share
        if share is None:
            return fmt.NONE
        return self._marked(fmt.percent(share, self._error).removesuffix(" %"))

    @property
    def rate(self) -> str:
        return self._marked(fmt.flops(self.point.tflops, self._error))

    @property
    def _error(self) -> float:
        tuning = self.point.row.tuning
        return stats.rounding(tuning, stats.winner(tuning))

    @property
    def once(self) -> bool:
        """Whether it is made of a time that was taken once."""
        tuning = self.point.row.tuning
        return stats.once(tuning, stats.winner(tuning))

    @property
    def bound(self) -> str:
        """`memory`, `in L2`, `compute`; above them all, which number is wrong."""
        point, peak = self.point, self.roofline.peak
        if point.wrong == "time":
            return "time wrong (once)"
        if point.wrong == "peak":
            measured = isinstance(peak, Peak) and peak.measured
            return f"peak wrong ({'measured' if measured else 'published'})"
        return f"in {plain(point.cache.name)}" if point.cache else point.bound or ""

    def _marked(self, text: str) -> str:
        mark = fmt.SUSPECT if self.point.row.suspect else fmt.ONCE
        return fmt.once(text, mark) if self.once else text


_POINTS: tuple[Field[_PointLine], ...] = (
    *fields_of(_PROBLEM, lambda line: line.point.row),
    Field(
        "intensity", "FLOP/B", 6, 7, right=True, about="operations a byte that has to be moved",
        text=lambda line: number(round(line.point.intensity, 1)),
    ),
    Field(
        "rate", "FLOP/s", 7, 7, right=True, text=lambda line: line.rate,
        style=lambda line: "" if line.once else "strong",
        about="what the fastest achieves; ~ by a time that was taken once, ? suspect",
    ),
    Field(
        "roof", "ROOF", 6, 7, drop=1, right=True, style="dim",
        text=lambda line: fmt.flops(line.point.roof),
        about="what the device can do at best at that intensity",
    ),
    Field(
        "share", "%", 6, 6, right=True, text=lambda line: line.percent,
        style=lambda line: "warn" if line.point.wrong else "",
        about="of the roof; above 100 a number is wrong: a time that was taken once, or the peak",
    ),
    Field(
        "bound", "BOUND BY", 8, 22, drop=2, text=lambda line: line.bound,
        style=lambda line: "warn" if line.point.wrong else "dim",
        about="what makes the roof: memory, a cache that holds all operands, or compute",
    ),
    Field(
        "device", "DEVICE", 10, 30, drop=3, style="dim", about="where it was tuned",
        text=lambda line: plain(line.roofline.machine.label) if line.several else "",
    ),
)  # fmt: skip
PAGES: Mapping[str, tuple[Column, ...]] = {
    "saved": words.GAINS[1:],
    "repeated": words.REPEATED[1:],
    "ranks": _RANKS,
    "missing": _REASONS,
    "roofline": _POINTS,
}
"""The columns of every page, by its name."""


@dataclass(frozen=True, slots=True)
class Page:
    """Sentences, the rows below them with the tuning that each is about, and how many things."""

    sentences: tuple[Span, ...]
    cells: tuple[Cells, ...]
    rows: tuple[Row, ...]
    count: int


def pages(report: Report, points: Sequence[tuple[Roofline, Point]]) -> dict[str, Page]:
    """Every page by its name."""
    return {
        "saved": _saved(report.savings),
        "repeated": _repeated(report.repeated),
        "ranks": _ranks(report.jobs),
        "missing": _missing(report.missing, report.backends_known),
        "roofline": roofline_page(points),
    }


def _saved(savings: Savings) -> Page:
    lines = words.saved_lines(savings) if savings.gains else ["No tuning has times to compare yet."]
    rows = [gain.row for gain in savings.gains]
    return _page(lines, [cells(words.GAINS, gain) for gain in savings.gains], rows)


def _page(
    sentences: Iterable[str], lines: Sequence[Cells], rows: Iterable[Row], count: int | None = None
) -> Page:
    """Return a page; `count` is that of things with several lines each."""
    styled = tuple((sentence, "") for sentence in sentences)
    return Page(styled, tuple(lines), tuple(rows), len(lines) if count is None else count)


def _repeated(repeated: Sequence[Repeated]) -> Page:
    more = sum(problem.seconds for problem in repeated)
    sentence = words.TUNED_ONCE
    if repeated:
        problems = counted(len(repeated), "problem was", "problems were")
        least = "at least " if any(problem.untold for problem in repeated) else ""
        took = f"which took {least}{fmt.seconds(more)} more" if more else "tuning time unknown"
        sentence = f"{problems} tuned again, {took}."
    lines = [cells(words.REPEATED, problem) for problem in repeated]
    return _page([sentence], lines, [problem.row for problem in repeated])


def _without(keys: Iterable[Column], line: Cells) -> Cells:
    """Return the line with these cells blank, because the line above has them."""
    return {**line, **dict.fromkeys((column.key for column in keys), ("", ""))}


def _ranks(jobs: Sequence[Agreement]) -> Page:
    rows, lines = [], []
    problems = [differing for job in jobs for differing in job.differing]
    for differing in problems:
        for at, selection in enumerate(differing.selections):
            line = cells(_RANKS, _RankLine(differing, selection))
            rows.append(selection.row)
            lines.append(_without(_OF_PROBLEM, line) if at else line)
    return _page(words.rank_lines(jobs), lines, rows, len(problems))


def _missing(backends: Sequence[MissingBackend], known: bool) -> Page:
    lines = []
    for backend in backends:
        said = (wrap(why, _WHY, subsequent_indent="  ") for why in words.reason_lines(backend))
        for at, why in enumerate(chain.from_iterable(said)):
            line = cells(_REASONS, _Reason(backend, why))
            lines.append(_without(_REASONS[:-1], line) if at else line)
    sentence = words.ALL_WORK
    if backends:
        sentence = "Requested backends without a usable choice."
    elif not known:
        sentence = words.BACKENDS_UNKNOWN
    return _page([sentence], lines, (), len(backends))


def by_share(rooflines: Iterable[Roofline]) -> list[tuple[Roofline, Point]]:
    """Return every point with its roofline, the least share of the roof first."""
    points = [(roofline, point) for roofline in rooflines for point in roofline.points]
    return sorted(points, key=lambda pair: (pair[1].share is None, pair[1].share or 0.0))


def roofline_page(points: Sequence[tuple[Roofline, Point]]) -> Page:
    """The page of these points, in this order."""
    several = len({roofline.machine for roofline, _ in points}) > 1
    none = ["No matrix product was tuned whose operations and bytes are known."]
    lines = [cells(_POINTS, _PointLine(*pair, several)) for pair in points]
    return _page([] if points else none, lines, [point.row for _, point in points])
