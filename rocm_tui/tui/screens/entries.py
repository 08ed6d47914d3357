"""Entries: all rows of the watched tables of other tuners, with a search."""

from __future__ import annotations

import shlex
import time
from array import array
from asyncio import sleep
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, overload

from rich.cells import cell_len
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from backend.counted import counted
from rocm_tui.actions.lint import Checked, lint_tables
from rocm_tui.actions.tables import (
    LoadedTables,
    load_tables,
    stamps_of,
    tables_among,
    values_in_words,
)
from rocm_tui.harmless import plain
from rocm_tui.render.entries import ENTRIES, counts_text, entry_lines
from rocm_tui.render.table import Cells, Line, cells
from rocm_tui.tables.collection import TableCollection, TableRow, parse_row_filter
from rocm_tui.tables.findings import NOTHING, RowFindings
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

MOST_SORTED = 5000
"""The maximum rows that are read to be sorted, in a tenth of a second."""
_SAMPLE = 200
"""The number of rows that determine the widths of columns."""
_WIDE = 170
"""The minimum cells with room for rules."""
_KEPT = 2 * MOST_SORTED


class _Rows(Sequence[Cells]):
    """The cells of these entries, created on first access."""

    def __init__(self, shelf: TableCollection, numbers: Sequence[int]) -> None:
        self._shelf, self._numbers = shelf, numbers
        self._cells: dict[int, Cells] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Cells: ...
    @overload
    def __getitem__(self, at: slice) -> list[Cells]: ...
    def __getitem__(self, at: int | slice) -> Cells | list[Cells]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        row = self._cells.get(at)
        if row is None:
            if len(self._cells) >= _KEPT:
                self._cells.clear()
            row = self._cells[at] = cells(ENTRIES, self._shelf[self._numbers[at]])
        return row


class EntriesGrid(Grid):
    """Entries by their numbers, which ascend."""

    def __init__(self, *, id: str | None = None) -> None:
        self._shelf = TableCollection(())
        self._numbers: Sequence[int] = ()
        super().__init__(ENTRIES, "", id=id)

    @property
    def current(self) -> TableRow | None:
        """The entry under the cursor."""
        number = self.pick(self._numbers)
        return None if number is None else self._shelf[number]

    def show(self, shelf: TableCollection, numbers: Sequence[int]) -> None:
        """Show these entries. The cursor stays on its entry; if its table was read again, it moves
        to the most similar entry."""
        before, row = self.current, self.cursor - self.top
        same = self._shelf.tables == shelf.tables
        number = self._numbers[self.at] if before else None
        if before and not same:
            number = shelf.like(before)
        self._shelf, self._numbers = shelf, numbers
        if self._sort is not None and len(numbers) > MOST_SORTED:
            self._sort = None
        self.put(_Rows(shelf, numbers))
        at = len(numbers) if number is None else bisect_left(numbers, number)
        if number is not None and not same:  # the nearest
            at = min(at, len(numbers) - 1)
        cursor = 0
        if 0 <= at < len(numbers) and (not same or numbers[at] == number):
            cursor = self._places.index(at)
            self.top = cursor - row
        self.move_cursor(cursor)

    def wants(self) -> dict[str, int]:
        rows = self._rows[:_SAMPLE]
        wants = {
            column.key: max([cell_len(row[column.key][0]) for row in rows], default=0)
            for column in self._columns
        }
        self._rule = wants["lint"]
        return wants

    def heading(self, width: int) -> list[Line]:
        """Show a finding of lint as a sign if room is short; its rule is below the list."""
        if self._rows:
            self._wants = {**self._wants, "lint": self._rule if width >= _WIDE else 1}
        return super().heading(width)

    def choose_heading(self, x: int) -> None:
        if len(self._rows) > MOST_SORTED:
            self.app.notify(
                f"{len(self._rows):,} entries are not sorted; / finds fewer of them", markup=False
            )
            return
        super().choose_heading(x)


class EntryDetail(LineView, can_focus=False):
    """All about one entry."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entry: TableRow | None = None

    def show(self, entry: TableRow | None) -> None:
        if entry != self._entry:
            self._entry = entry
            self.sync()

    def heading(self, width: int) -> list[Line]:
        return entry_lines(self._entry, width, self.size.height) if self._entry else []


_FIRST = 200
"""The number of matches that are shown before all are found."""
_LOOK = 1.0
"""The minimum seconds between two checks whether files have changed."""
_RESTS = 1500
_CALM = 3
"""The rest after such a check, as a multiple of its duration; after reading the files and before
the next lint, as a multiple of theirs."""
_SLICE = 0.02
"""Seconds of searching at a time; keys are handled between."""
_NOTHING = "No other tuner's table is watched: `rocm-tui watch FILE` reads one."
_NONE = "No entry has that."
_WORDS = "words, M=16, tuner:aiter, file:llama, device:gfx942, lint:error, lint:duplicate"


class EntriesScreen(BaseScreen):
    """All entries that contain the words; meanwhile the matches are counted, and the tables are
    checked."""

    PLACE = "Entries"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#entries"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "search", "entries.search", "find entries: words, M=16, lint:error",
            footer="find"),
        key("enter", "whole", "entries.whole", "more room for the details of the entry, or less",
            footer="details"),
        key("p", "copy_command", "entries.command", "copy the command that pins a solution there",
            footer="copy pin command"),
        key("y", "copy", "entries.copy", "copy the row's place, FILE:LINE", footer="copy place"),
        key("r", "reload", "entries.reload", "read the tables again", footer="read again"),
        key("escape", "back", "entries.back", "end the search, else back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._loaded = LoadedTables(TableCollection(()))
        self._shown = self._loaded.collection
        self._paths: list[str] = []
        self._words = ""
        self._numbers: Sequence[int] = ()
        self._found = 0
        self._lint = "lint: checking …"
        self._checked: Checked | None = None
        self._marks = NOTHING
        self._stale: frozenset[str] = frozenset()
        self._due: float | None = None
        self._took = 0.0
        self._reading = self._again = self._finding = self._checking = False

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="about")
        yield EntriesGrid(id="entries")
        yield EntryDetail(id="entry")

    def on_mount(self) -> None:
        self._describe()
        self.action_reload()
        self._follow()

    @property
    def _grid(self) -> EntriesGrid:
        return self.query_one("#entries", EntriesGrid)

    def update(self) -> None:
        """React to the model: the first table may have been found."""
        if not self._paths:
            self.tick()

    def tick(self) -> None:
        """React to time: another table may have been found."""
        if not self._reading and tables_among(self.program.feed.watcher.sources()) != self._paths:
            self.action_reload()

    # Reading, searching and checking, outside of the event loop.

    def action_reload(self) -> None:
        """Read the tables; if asked while it reads, read once more: the files may have changed
        since."""
        self._again = self._reading
        if not self._reading:
            self._reading = True
            self._read()

    @work(group="read")
    async def _read(self) -> None:
        self._describe()
        if await self._read_anew() or self._checked is None:
            self._check()
        self._find()

    async def _read_anew(self) -> bool:
        """Read the tables; return whether any changed. Findings in unchanged tables are kept."""
        before = self._loaded
        while True:
            self._again = False
            self._paths = tables_among(self.program.feed.watcher.sources())
            self._loaded = await self.in_thread(load_tables, self._paths, self._loaded)
            if not self._again:
                break
        self._reading = False
        changed = self._loaded.changed_since(before)
        self._stale |= changed
        self._mark(self._marks.without(changed))
        return bool(changed)

    @work(group="follow")
    async def _follow(self) -> None:
        """Read tables again that are written while they are shown; check them once the writing has
        stopped. Many or large ones are looked at less often."""
        rest = _LOOK
        while True:
            await sleep(rest)
            if not self.is_current or self._reading:
                continue
            begun = time.monotonic()
            other, took = await self.in_thread(_looked, self._paths, self._loaded)
            rest = max(_LOOK, took * _RESTS)
            if other and not self._reading:
                self._reading = True
                if await self._read_anew():
                    self._due = time.monotonic() + max(_LOOK, _CALM * self._took)
                    self._find(anew=True)
                self._describe()
                rest = max(rest, _CALM * (time.monotonic() - begun))
            elif self._due is not None and time.monotonic() >= self._due:
                self._check()

    @work(group="check")
    async def _check(self) -> None:
        """Run `lint` on the tables, and mark its findings."""
        self._due = None
        if self._checking:
            self._due = time.monotonic()
            return
        self._checking, begun, of = True, time.monotonic(), self._loaded
        try:
            checked = await lint_tables(of.collection.tables)
        finally:
            self._checking = False
        self._took = time.monotonic() - begun
        self._checked, self._stale = checked, self._loaded.changed_since(of)
        if self._stale and self._due is None:
            self._due = time.monotonic() + _CALM * self._took
        self._mark(checked.marks.without(self._stale))
        if parse_row_filter(self._words).lint is not None:
            self._find(anew=True)
        else:
            self._grid.show(self._shown, self._numbers)
        self._describe()

    def _mark(self, marks: RowFindings) -> None:
        self._marks = self._loaded.collection.marks = self._shown.marks = marks
        if self._checked is not None:
            self._lint = _lint_text(replace(self._checked, marks=marks), len(self._stale))

    @work(group="find", exclusive=True)
    async def _find(self, *, anew: bool = False) -> None:
        """Show the first matching entries early; `anew` keeps the old ones until its end."""
        shelf, wanted = self._loaded.collection, parse_row_filter(self._words)
        if wanted.everything:
            self._finding = False
            self._put(range(len(shelf)), shelf)
            return
        anew = anew and not self._finding
        self._finding, matches = not anew, array("Q")
        numbers, put = shelf.find(wanted), False
        while True:
            more, over = await self.in_thread(_slice, numbers)
            matches.extend(more)
            if over:
                break
            if anew:
                continue
            if not put and len(matches) >= _FIRST:
                self._put(matches[:], shelf)  # a copy: what the grid shows does not grow
                put = True
            self._found = len(matches)
            self._describe()
        self._finding = False
        self._put(matches, shelf)

    def _put(self, numbers: Sequence[int], shelf: TableCollection) -> None:
        self._numbers, self._found, self._shown = numbers, len(numbers), shelf
        self._grid.show(shelf, numbers)
        self._describe()

    def applies(self, action: str) -> bool:
        """Search and details need an entry."""
        return (
            action == "reload"
            or (action == "search" and bool(self._words or self._found))
            or (self._grid.current is not None)
        )

    def _describe(self) -> None:
        self.sync_keys()
        shelf, matches = self._loaded.collection, self._found
        tables = counted(len(shelf.tables), "table")
        facts = [f"{tables}, {counted(len(shelf), 'entry', 'entries')}"]
        if self._loaded.left_out:
            facts.append(f"{counted(self._loaded.left_out, 'table')} not read")
        self.show_title(facts)
        if self._reading:
            text = "reading the tables …"
        elif not shelf.tables:
            text = _NOTHING
        elif not self._finding and not matches:
            text = _NONE
        elif self._words:
            text = counted(matches, "entry has", "entries have") + f" {plain(self._words)}"
            text += " so far" if self._finding else ""
        else:
            text = counted(matches, "entry", "entries")
        checked = f"{self._lint} " if shelf.tables else ""
        self.query_one("#about", OneLine).put(((f" {text}", "head"),), ((checked, "head"),))
        self.query_one("#entry", EntryDetail).show(self._grid.current)

    @on(LineView.CursorMoved, "#entries")
    def _moved(self) -> None:
        self.query_one("#entry", EntryDetail).show(self._grid.current)

    # Keys.

    async def action_search(self) -> None:
        if not self.query(Input):
            entry = Input(self._words, placeholder=_WORDS, compact=True)
            await self.query_one("#body").mount(entry)
            entry.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value.strip() != self._words:
            self._words = event.value.strip()
            self._find()

    @on(Input.Submitted)
    def _chosen(self, event: Input.Submitted) -> None:
        event.stop()
        self._close_search()

    def _close_search(self) -> None:
        self.query(Input).remove()
        self._grid.focus()

    @on(LineView.Chosen, "#entries")
    def action_whole(self) -> None:
        self.toggle_class("-whole")

    def action_back(self) -> None:
        if self.query(Input):
            self._close_search()
        else:
            self.app.pop_screen()

    def action_copy(self) -> None:
        if (current := self.require(self._grid.current, "entry")) is not None:
            self.program.copy(current.path_line, "the place")

    def action_copy_command(self) -> None:
        if (current := self.require(self._grid.current, "entry")) is not None:
            values = values_in_words(current.table, current.entry)
            words = ("rocm-tui", "pin", current.path_line, values)
            self.program.copy(shlex.join(words), "the command, for the solution that you want")


def _slice(numbers: Iterator[int | None]) -> tuple[list[int], bool]:
    """Return the entries found within a short time, and whether that was all."""
    numbers_found: list[int] = []
    end = time.perf_counter() + _SLICE
    for at, number in enumerate(numbers):
        if number is not None:
            numbers_found.append(number)
        if not at % 64 and time.perf_counter() > end:
            return numbers_found, False
    return numbers_found, True


def _looked(paths: Sequence[str], loaded: LoadedTables) -> tuple[bool, float]:
    """Return whether a file has changed, and the CPU seconds that this check took."""
    begun = time.thread_time()
    other = stamps_of(paths) != loaded.stamps
    return other, time.thread_time() - begun


def _lint_text(checked: Checked, stale: int) -> str:
    """Summarize the findings of `lint`; `stale` tables have been written since."""
    device = f" for {checked.device}" if checked.device else ""
    text = f"lint{device}: {counts_text(checked.marks.levels())}"
    if stale:
        text += f"; {counted(stale, 'table')} written since"
    if checked.left_out:
        text += f"; {counted(checked.left_out, 'table')} not checked here: rocm-tui lint"
    return text
