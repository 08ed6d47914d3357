"""Entries: other tuners' tables that are watched, all their rows, and a line to find some."""

from __future__ import annotations

import shlex
import time
from array import array
from asyncio import to_thread
from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from backend.counted import counted
from rocm_tui.actions.lint_apart import Checked, lint_apart
from rocm_tui.actions.shelve import Shelving, shelve, tables_among, values_in_words
from rocm_tui.harmless import plain
from rocm_tui.render.lint import counts_text
from rocm_tui.tables.shelf import Shelf, wanted_of
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.entries_grid import EntriesGrid, EntryDetail
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key, OneLine

_FIRST = 200
"""Entries that are enough to be shown before all are found."""
_SLICE = 0.02
"""Seconds that are looked for at a time; keys are heard between."""
_NOTHING = "No table of another tuner is among the sources: `rocm-tui watch FILE...` reads them."
_NONE = "No entry has that."
_WORDS = "words, M=16, tuner:aiter, file:llama, device:gfx942, lint:error, lint:duplicate"


class EntriesScreen(BaseScreen):
    """All entries that have the words; how many do is counted meanwhile, and what is wrong with
    them is looked for."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#entries"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "search", "entries.search", "find entries: words, M=16, lint:error"),
        key("y", "copy", "entries.copy", "copy the row's place, FILE:LINE"),
        key("p", "copy_command", "entries.command", "copy the command that pins a solution there"),
        key("r", "reload", "entries.reload", "read the tables again"),
        key("enter", "whole", "entries.whole", "more room for what the entry tells; and less"),
        key("escape", "back", "entries.back", "end the search, else back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("/", "find", "search"),
        ("enter", "details", "whole"),
        ("p", "copy pin command", "copy_command"),
        ("y", "copy place", "copy"),
        ("r", "read again", "reload"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._shelving = Shelving(Shelf(()))
        self._paths: list[str] = []
        self._words = ""
        self._numbers: Sequence[int] = ()
        self._found = 0
        self._checked = False
        self._lint = ""
        self._reading = self._again = self._finding = False

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="about")
        yield EntriesGrid(id="entries")
        yield EntryDetail(id="entry")

    def on_mount(self) -> None:
        super().on_mount()
        self._describe()
        self.action_reload()

    @property
    def _grid(self) -> EntriesGrid:
        return self.query_one("#entries", EntriesGrid)

    def update(self) -> None:
        """What was read has changed: the first table may have been found."""
        if not self._paths:
            self.tick()

    def tick(self) -> None:
        """Time has passed: another table may have been found."""
        if not self._reading and tables_among(self.program.feed.watcher.sources()) != self._paths:
            self.action_reload()

    # Reading, finding and checking, apart from the event loop.

    def action_reload(self) -> None:
        """Asked while it reads, it reads once more: what it has read may be the older file."""
        self._again = self._reading
        if not self._reading:
            self._reading = True
            self._read()

    @work(group="read")
    async def _read(self) -> None:
        self._describe()
        before = self._shelving
        while True:
            self._again = False
            self._paths = tables_among(self.program.feed.watcher.sources())
            self._shelving = await to_thread(shelve, self._paths, self._shelving)
            if not self._again:
                break
        self._reading = False
        if self._shelving.stamps == before.stamps and self._checked:
            self._shelving.shelf.marks = before.shelf.marks
        else:
            self._checked, self._lint = False, "lint: checking …"
            self._check()
        self._find()

    @work(group="check", exclusive=True)
    async def _check(self) -> None:
        """What `lint` finds in them is marked once it is known."""
        shelf = self._shelving.shelf
        checked = await lint_apart(shelf.tables)
        shelf.marks, self._checked, self._lint = checked.marks, True, _told(checked)
        if wanted_of(self._words).lint is not None:
            self._find()
        else:
            self._grid.show(shelf, self._numbers)
        self._describe()

    @work(group="find", exclusive=True)
    async def _find(self) -> None:
        """The first entries are shown as soon as they are there."""
        shelf, wanted = self._shelving.shelf, wanted_of(self._words)
        if wanted.everything:
            self._put(range(len(shelf)))
            return
        self._finding, found = True, array("Q")
        numbers, put = shelf.find(wanted), False
        while True:
            more, over = await to_thread(_slice, numbers)
            found.extend(more)
            self._found = len(found)
            if not put and (over or len(found) >= _FIRST):
                self._put(found)
                put = True
            if over:
                break
            self._describe()
        self._finding = False
        self._grid.grow()
        self._describe()

    def _put(self, numbers: Sequence[int]) -> None:
        self._numbers, self._found = numbers, len(numbers)
        self._grid.show(self._shelving.shelf, numbers)
        self._describe()

    def _describe(self) -> None:
        shelf, found = self._shelving.shelf, self._found
        tables = counted(len(shelf.tables), "table")
        facts = [f"{tables}, {counted(len(shelf), 'entry', 'entries')}"]
        if self._shelving.left_out:
            facts.append(f"{counted(self._shelving.left_out, 'table')} not read")
        self.show_title("Entries", facts)
        if self._reading:
            told = "reading the tables …"
        elif not shelf.tables:
            told = _NOTHING
        elif not self._finding and not found:
            told = _NONE
        elif self._words:
            told = counted(found, "entry has", "entries have") + f" {plain(self._words)}"
            told += " so far" if self._finding else ""
        else:
            told = counted(found, "entry", "entries")
        checked = f"{self._lint} " if shelf.tables else ""
        self.query_one("#about", OneLine).put(((f" {told}", "head"),), ((checked, "head"),))
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
        current = self._grid.current
        if current is not None:
            self.program.copy(current.path_line, "the place")

    def action_copy_command(self) -> None:
        current = self._grid.current
        if current is not None:
            values = values_in_words(current.table, current.entry)
            words = ("rocm-tui", "pin", current.path_line, values)
            self.program.copy(shlex.join(words), "the command, for the solution that you want")


def _slice(numbers: Iterator[int | None]) -> tuple[list[int], bool]:
    """What is found in a short while, and whether that was all."""
    found: list[int] = []
    end = time.perf_counter() + _SLICE
    for at, number in enumerate(numbers):
        if number is not None:
            found.append(number)
        if not at % 64 and time.perf_counter() > end:
            return found, False
    return found, True


def _told(checked: Checked) -> str:
    """What `lint` found in all of them."""
    if checked.trouble:
        return checked.trouble
    device = f" for {checked.device}" if checked.device else ""
    told = f"lint{device}: {counts_text(checked.marks.levels())}"
    if checked.left_out:
        told += f"; {counted(checked.left_out, 'table')} not checked here: rocm-tui lint"
    return told
