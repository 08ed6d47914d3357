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
from rocm_tui.render.table import Cells, Column, Field, Span, cells, fields_of
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.report.agreement import Agreement, DifferingProblem, Selection
from rocm_tui.report.job import MissingBackend, Repeated, Report, Savings
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
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


PAGES: Mapping[str, tuple[Column, ...]] = {
    "saved": words.GAINS[1:],
    "repeated": words.REPEATED[1:],
    "ranks": _RANKS,
    "missing": _REASONS,
}
"""The columns of every page, by its name."""


@dataclass(frozen=True, slots=True)
class Page:
    """Sentences, the rows below them with the tuning that each is about, and how many things."""

    sentences: tuple[Span, ...]
    cells: tuple[Cells, ...]
    rows: tuple[Row, ...]
    count: int


def pages(report: Report) -> dict[str, Page]:
    """Return every page by its name."""
    return {
        "saved": _saved(report.savings),
        "repeated": _repeated(report.repeated),
        "ranks": _ranks(report.jobs),
        "missing": _missing(report.missing, report.backends_known),
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
