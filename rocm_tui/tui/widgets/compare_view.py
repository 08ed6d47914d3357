"""Choices as columns: the first one stays, the others scroll sideways; and a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import drawing as whiskers
from rocm_tui.render.choices import verdict_style
from rocm_tui.render.side_by_side import Fact
from rocm_tui.render.table import Line, Span
from rocm_tui.session import stats
from rocm_tui.session.numbers import shorten
from rocm_tui.tui.widgets.line_view import LineView

_TITLES = (16, 26)
_LEAST, _MOST = 19, 34
"""Least and most cells of the titles, and of a choice's column."""
_DRAWN = 16
"""Cells of a drawn interval."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the view shows: a tuning, some of its choices, and a text of each for each fact."""

    tuning: Tuning
    choices: tuple[Choice, ...]
    facts: tuple[Fact, ...]


class CompareView(LineView):
    """Facts below each other, choices beside each other; `column` is the one chosen."""

    BINDING_GROUP_TITLE = "Choices"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.column = 0
        self._first = 1
        self._title_cells = _TITLES[0]
        self._table: Shown | None = None

    def put(self, shown: Shown) -> None:
        """Show these; the chosen column stays at its place."""
        self._table = shown
        titles = (len(fact.title) + 4 for fact in shown.facts if fact.texts)
        self._title_cells = max(_TITLES[0], min(_TITLES[1], max(titles, default=0)))
        self.column = max(0, min(self.column, len(shown.choices) - 1))
        self.sync()

    @property
    def chosen(self) -> Choice | None:
        """The choice whose column is chosen."""
        shown = self._table
        return shown.choices[self.column] if shown and shown.choices else None

    def choose(self, column: int) -> None:
        """Let this column be the chosen one, and scroll to it."""
        shown = self._table
        if shown is not None:
            self.column = max(0, min(column, len(shown.choices) - 1))
            self.sync()

    def count(self) -> int:
        return len(self._table.facts) if self._table else 0

    # Layout.

    def _columns(self, width: int) -> tuple[list[int], int]:
        """Which choices are seen, and the cells each takes."""
        assert self._table is not None
        count = len(self._table.choices)
        room = width - self._title_cells
        fit = max(1, min(count, room // _LEAST))
        cells = min(_MOST, room // fit)
        behind = max(0, fit - 1)
        last = max(1, count - behind)
        if self.column:
            self._first = min(self.column, max(self._first, self.column - behind + 1))
        self._first = max(1, min(self._first, last))
        return [0, *range(self._first, self._first + behind)], cells

    def heading(self, width: int) -> list[Line]:
        shown = self._table
        if shown is None or not shown.choices:
            return []
        seen, cells = self._columns(width - 2)
        before = self._first > 1
        line: list[Span] = [(" " + ("◂ more" if before else "").ljust(self._title_cells), "head")]
        for at in seen:
            place = shown.tuning.choices.index(shown.choices[at]) + 1
            name = shorten(f"#{place} {plain(shown.choices[at].label)}", cells - 2)
            line.append((name.ljust(cells), "title" if at == self.column else "head"))
        line.append(("▸ more" if seen[-1] < len(shown.choices) - 1 else "", "head"))
        head = detail_lines.filled(tuple(line), width)
        return [detail_lines.verdict(shown.tuning), (), head]

    def line(self, index: int, width: int) -> Line:
        shown = self._table
        assert shown is not None
        fact = shown.facts[index]
        if not fact.texts:
            name, colon, more = fact.title.partition(":")
            return ((name + colon, "accent"), (more, "dim"))
        seen, cells = self._columns(width)
        title = shorten(f"  {fact.title}", self._title_cells - 2)
        line: list[Span] = [(title.ljust(self._title_cells), "dim")]
        for at in seen:
            text = shorten(fact.texts[at], cells - 2)
            line.append((text.ljust(cells), self._style(shown, fact, at)))
        return tuple(line)

    def _style(self, shown: Shown, fact: Fact, at: int) -> str:
        if fact.title == "verdict" or fact.title == whiskers_title(shown.tuning):
            measured = stats.measured(shown.tuning, shown.choices[at])
            if measured is not None:
                return verdict_style(shown.tuning, measured) or "strong"
            clear = fact.texts[at] == "fastest"
            return "good" if clear else "bad" if fact.texts[at] == "failed" else "dim"
        return "accent" if at in fact.differs else ""


def whiskers_title(tuning: Tuning) -> str:
    """The scale of the drawn intervals; empty where nothing was measured."""
    if tuning.measured is None:
        return ""
    scale = whiskers.scale_of(tuning.measured.choices, _DRAWN)
    return f"  0 to +{(scale.high - 1) * 100:.0f} %"


def with_whiskers(tuning: Tuning, choices: Sequence[Choice], facts: Sequence[Fact]) -> list[Fact]:
    """The facts with the intervals drawn below those of the ratios."""
    measurement = tuning.measured
    if measurement is None:
        return list(facts)
    scale = whiskers.scale_of(measurement.choices, _DRAWN)
    measured = [measurement.of(choice.hash) for choice in choices]
    drawn = tuple(whiskers.interval(scale, choice) if choice else "" for choice in measured)
    at = next((i for i, fact in enumerate(facts) if fact.title == "spread"), len(facts))
    return [*facts[:at], Fact(whiskers_title(tuning), drawn), *facts[at:]]


class DiffView(LineView):
    """A unified diff, or why there is none."""

    BINDING_GROUP_TITLE = "Difference"

    def __init__(self) -> None:
        super().__init__(id="diff")
        self._title = ""
        self._lines: list[str] = []
        self._instead = ""

    def put(self, title: str, lines: list[str], instead: str = "") -> None:
        """Show these lines, or the sentence `instead` where there is none."""
        self._title, self._lines, self._instead = title, lines, instead
        self.cursor = self.top = 0
        self.sync()

    def count(self) -> int:
        return len(self._lines)

    def heading(self, width: int) -> list[Line]:
        return [((f" {self._title}", "title"), (" " * width, "head"))]

    def line(self, index: int, width: int) -> Line:
        text = self._lines[index]
        kinds = {"+": "accent", "-": "warn", "@": "dim"}
        return ((text, kinds.get(text[:1], "")),)

    def empty(self, width: int) -> list[Line]:
        return [(), *(((f"  {part}", "dim"),) for part in wrap(self._instead, width - 4))]
