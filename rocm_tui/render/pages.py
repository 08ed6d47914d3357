"""The pages of the report on the screen: sentences, and rows of cells below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render import report as words
from rocm_tui.render.table import Cells, Column, Field, Span, cells, fields_of
from rocm_tui.render.tunings import PROBLEM
from rocm_tui.report.job import MissingBackend, Repeated, Report, Savings
from rocm_tui.report.ranks import Disagreement, Party
from rocm_tui.session import numbers as fmt
from rocm_tui.session.model import Row

_PROBLEM = PROBLEM[1:]


@dataclass(frozen=True, slots=True)
class _PartyLine:
    """One party of a disagreement; the problem is beside the first."""

    disagreement: Disagreement
    party: Party

    @property
    def style(self) -> str:
        return "" if self.disagreement.matters else "dim"

    @property
    def others(self) -> str:
        times = (
            f"{fmt.shorten(plain(label), 30)} {fmt.once(fmt.duration(ms))}"
            for label, ms in self.party.rivals_ms
        )
        return ", ".join(times) or "not timed"


_PARTIES: tuple[Field[_PartyLine], ...] = (
    *fields_of(_PROBLEM, lambda line: line.disagreement.row),
    Field(
        "who", "WHO", 8, 24, good=14, text=lambda line: plain(line.party.who),
        about="the rank, process or log",
    ),
    Field(
        "use", "IN USE", 12, 40, text=lambda line: plain(line.party.choice.label),
        style=lambda line: line.style, about="the choice that it uses",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, text=lambda line: words.party_time(line.party),
        style=lambda line: line.style, about="its own time for that; ~ taken once",
    ),
    Field(
        "others", "OTHERS THERE", 20, 60, drop=1, text=lambda line: line.others, style="dim",
        about="its own times for what the others use",
    ),
)  # fmt: skip


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
    "ranks": _PARTIES,
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
        "ranks": _ranks(report),
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


def _ranks(report: Report) -> Page:
    disagreements = report.disagreements
    rows, lines = [], []
    for disagreement in disagreements:
        for at, party in enumerate(disagreement.parties):
            line = cells(_PARTIES, _PartyLine(disagreement, party))
            rows.append(party.row)
            lines.append(_without(_PROBLEM, line) if at else line)
    sentence = words.agreement(report.compared, report.not_compared)
    if disagreements:
        matter = sum(disagreement.matters for disagreement in disagreements)
        what = counted(len(disagreements), "problem")
        tied = sum(disagreement.tied for disagreement in disagreements)
        unclear = len(disagreements) - matter - tied
        counts = ((matter, "differ by more than a tie"), (tied, "tie"), (unclear, "are unclear"))
        parts = [f"{what} for {count:,} of them" for count, what in counts if count]
        how = f"Their times {', '.join(parts)}."
        how += f" {words.not_compared(report.not_compared)}." if report.not_compared else ""
        sentence = f"Ranks or hosts use different choices for {what}. {how} {words.TO_AGREE}"
    return _page([sentence], lines, rows, len(disagreements))


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
