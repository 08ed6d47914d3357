"""Compare: choices of one tuning side by side, and how the sources of two differ.

The first choice's column stays, the others scroll sideways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import plot as whiskers
from rocm_tui.render import side_by_side
from rocm_tui.render.choices import Footprint, verdict_style
from rocm_tui.render.side_by_side import Fact, footprints
from rocm_tui.render.table import Line, Span, filled, folded, wrapped
from rocm_tui.session import refusals, stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import shorten
from rocm_tui.tui import pin_actions
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import Key, key
from rocm_tui.tui.widgets.line_view import LineView

_TITLES = (16, 26)
_LEAST, _MOST = 19, 34
"""The minimum and maximum cells of the titles, and of a choice's column."""
_DRAWN = 16
"""Cells of a drawn interval."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of the view: a tuning, the choice in use, the compared choices, and for each
    fact a text per choice."""

    tuning: Tuning
    own: Choice | None
    choices: tuple[Choice, ...]
    facts: tuple[Fact, ...]


class CompareView(LineView):
    """Facts as rows, choices as columns; `column` is the selected one."""

    BINDING_GROUP_TITLE = "Choices"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.column = 0
        self._first = 1
        self._title_cells = _TITLES[0]
        self._table: Shown | None = None

    def put(self, shown: Shown) -> None:
        """Show these; the selected column stays at its index."""
        self._table = shown
        titles = (len(fact.title) + 4 for fact in shown.facts if fact.texts)
        self._title_cells = max(_TITLES[0], min(_TITLES[1], max(titles, default=0)))
        self.column = max(0, min(self.column, len(shown.choices) - 1))
        self.sync()

    @property
    def chosen(self) -> Choice | None:
        """The choice of the selected column."""
        shown = self._table
        return shown.choices[self.column] if shown and shown.choices else None

    def choose(self, column: int) -> None:
        """Select this column, and scroll to it."""
        shown = self._table
        if shown is not None:
            self.column = max(0, min(column, len(shown.choices) - 1))
            self.sync()

    def count(self) -> int:
        return len(self._table.facts) if self._table else 0

    # Layout.

    def _columns(self, width: int) -> tuple[list[int], int]:
        """Return which choices are visible, and the cells of each column."""
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
            label = shorten(plain(shown.choices[at].label), cells - len(f"#{place}") - 3)
            name = f"#{place} {label}"
            line.append((name.ljust(cells), "title" if at == self.column else "head"))
        line.append(("▸ more" if seen[-1] < len(shown.choices) - 1 else "", "head"))
        head = filled(tuple(line), width)
        return [*folded(detail_lines.verdict(shown.tuning, shown.own), width - 1), (), head]

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
    """Return the scale of the drawn intervals; empty if nothing was measured."""
    if tuning.measured is None:
        return ""
    scale = whiskers.scale_of(tuning.measured.choices, _DRAWN)
    return f"  0 to +{(scale.high - 1) * 100:.0f} %"


def with_whiskers(tuning: Tuning, choices: Sequence[Choice], facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts, with the intervals drawn below those of the ratios."""
    measurement = tuning.measured
    if measurement is None:
        return list(facts)
    scale = whiskers.scale_of(measurement.choices, _DRAWN)
    measured = [measurement.of(choice.hash) for choice in choices]
    drawn = tuple(whiskers.interval(scale, choice) if choice else "" for choice in measured)
    at = next((i for i, fact in enumerate(facts) if fact.title == "spread"), len(facts))
    return [*facts[:at], Fact(whiskers_title(tuning), drawn), *facts[at:]]


class DiffView(LineView):
    """A unified diff, or the reason why there is none."""

    BINDING_GROUP_TITLE = "Difference"

    def __init__(self) -> None:
        super().__init__(id="diff")
        self._title = ""
        self._lines: list[str] = []
        self._instead = ""

    def put(self, title: str, lines: list[str], instead: str = "") -> None:
        """Show these lines, or the sentence `instead` if there are none."""
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
        return [(), *(((f"  {part}", "dim"),) for part in wrapped(self._instead, width - 4))]


class CompareScreen(BaseScreen):
    """The marked choices, or those near the best; the others are compared with the first column."""

    PLACE = "Compare"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#compare"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l,right", "column(1)", "compare.next", "another choice"),
        key("h,left", "column(-1)", "compare.before", "another choice"),
        key("d", "diff", "compare.diff", "how the choices' sources differ, and back"),
        key("o", "read", "compare.read", "the source of the choice, its assembly, what it takes"),
        key("e", "equal", "compare.equal", "keys of the configuration that are equal, too"),
        key("p", "pin", "compare.pin", "pin the choice; asks"),
        key("y", "copy", "compare.copy", "copy the choice's hash"),
        key("escape", "back", "compare.back", "back"),
    ]

    def __init__(self, row: Row, marked: AbstractSet[str]) -> None:
        super().__init__()
        self._row = row
        self._marked = marked
        self._all_keys = False
        self._footprints: Mapping[str, Footprint] = {}
        self._choices: tuple[Choice, ...] = ()

    def compose_body(self) -> ComposeResult:
        yield CompareView(id="compare")
        yield DiffView()

    @property
    def view(self) -> CompareView:
        return self.query_one("#compare", CompareView)

    @property
    def diff(self) -> DiffView:
        return self.query_one(DiffView)

    def on_mount(self) -> None:
        self.diff.display = False
        self.update()
        self.run_worker(self._look_up(), group="resources", exclusive=True)

    def update(self) -> None:
        """Show the tuning as it is now."""
        now = self.program.feed.model.row(self._row.key)
        changed = now is not None and now is not self._row
        if now is not None:
            self._row = now
        if changed or not self._choices:
            self._fill()

    def _fill(self) -> None:
        tuning = self._row.tuning
        self._choices = side_by_side.chosen(tuning, self._marked)
        facts = side_by_side.facts(tuning, self._choices, self._footprints, all_keys=self._all_keys)
        lines = with_whiskers(tuning, self._choices, facts)
        self.view.put(Shown(tuning, in_use(self._row), self._choices, tuple(lines)))
        self._describe()

    def _describe(self) -> None:
        tuning = self._row.tuning
        facts = [
            f"{plain(tuning.op)} {plain(stats.sizes_text(tuning))}",
            plain(stats.dtype_of(tuning)),
            counted(len(self._choices), "choice"),
            f"id {self._row.id}",
        ]
        self.show_title([fact for fact in facts if fact])
        keys: list[Key] = [("h l", "choice", "next")]
        keys.append(("d", "choices" if self.diff.display else "source diff", "diff"))
        keys.append(("o", "source", "read"))
        keys += [] if self.diff.display else [("e", "equal rows", "equal"), ("p", "pin", "pin")]
        keys.append(("y", "copy", "copy"))
        pin = refusals.why_not_pinned(self._row, self.view.chosen)
        refused = {"diff": self._why_no_diff(), "read": self._why_not_read(), "pin": pin}
        self.show_keys(key for key in keys if not refused.get(key[2]))

    def _why_not_read(self) -> str | None:
        return refusals.why_not_read(self.view.chosen, self._row.tuning)

    def _why_no_diff(self) -> str | None:
        """Return why the sources of the selected column and the first cannot be compared."""
        if len(self._choices) < 2:
            return "there is one choice here, and nothing to compare its source with"
        if self._row.tuning.code:
            return "the choices are configs of one kernel, whose source is the same"
        return next(filter(None, map(refusals.why_not_read, self._pair)), None)

    @property
    def _pair(self) -> tuple[Choice, Choice]:
        """The choices whose sources are compared."""
        at = self.view.column or min(1, len(self._choices) - 1)
        return self._choices[0], self._choices[at]

    async def _look_up(self) -> None:
        """Load the resources that the kernels use, if they are known."""
        self._footprints = await self.in_thread(_kernels, self.program.layout.root, self._choices)
        if self._footprints:
            self._fill()

    # Keys.

    def action_column(self, by: int) -> None:
        self.view.choose(self.view.column + by)
        self._describe()
        if self.diff.display:
            self._start_diff()

    def action_next(self) -> None:
        """Select the column after the selected one; after the last, the first."""
        last = self.view.column == len(self._choices) - 1
        self.action_column(-self.view.column if last else 1)

    def action_equal(self) -> None:
        self._all_keys = not self._all_keys
        self._fill()

    def action_back(self) -> None:
        if self.diff.display:
            self.action_diff()
        else:
            self.app.pop_screen()

    def action_diff(self) -> None:
        """Switch between the tables and the diff of the selected column's source with the
        first's."""
        show = not self.diff.display
        why_not = self._why_no_diff() if show else None
        if why_not:
            self.program.refuse(why_not)
            return
        self.diff.display, self.view.display = show, not show
        self.set_focus(self.diff if show else self.view)
        self._describe()
        if show:
            self._start_diff()

    def _start_diff(self) -> None:
        self.run_worker(self._load_diff(), group="diff", exclusive=True)

    async def _load_diff(self) -> None:
        first, other = self._pair
        title = f"{plain(first.label)} → {plain(other.label)}"
        session = self.program.feed.model.sessions.get(self._row.tuning.session or "")
        self.diff.put(title, [], "Reading…")
        try:
            layout = self.program.layout
            lines = await self.in_thread(
                _difference, self._row.tuning, first, other, session, layout
            )
        except RocmTuiError as error:
            self.diff.put(title, [], plain(str(error)))
            return
        same = "Their sources are the same: only the way of launching differs."
        self.diff.put(title, lines, same)

    def action_read(self) -> None:
        """Show the selected choice's kernel."""
        choice, why_not = self.view.chosen, self._why_not_read()
        if why_not:
            self.program.refuse(why_not)
        elif choice is not None:
            self.program.open_screen("source", self._row, choice)

    def action_pin(self) -> None:
        choice = self.view.chosen
        if choice is not None:
            self.program.act(pin_actions.pin, self._row, choice)

    def action_copy(self) -> None:
        choice = self.view.chosen
        if choice is not None:
            self.program.copy(choice.typed, f"the choice {choice.label}")


# In threads, since loading the templates and jinja2 takes long.


def _kernels(cache_root: Path, choices: Sequence[Choice]) -> dict[str, Footprint]:
    from rocm_tui.session.kernel_resources import KernelResources

    return footprints(KernelResources(cache_root).of(choices))


def _difference(
    tuning: Tuning, first: Choice, other: Choice, session: Session | None, layout: Layout
) -> list[str]:
    from rocm_tui.session.kernel_source import source_diff

    return source_diff(tuning, first, other, session, layout)
