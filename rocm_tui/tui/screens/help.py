"""Help: every key, column and state, with a filter; docs/data/glossary.csv has the same words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key

from rocm_tui.render import glossary
from rocm_tui.render.entries import ENTRIES
from rocm_tui.render.glossary import GlossaryEntry, Group
from rocm_tui.render.sessions import SESSIONS
from rocm_tui.render.table import Column, Line, wrapped
from rocm_tui.tui.base import BaseApp, BaseScreen, Dialog
from rocm_tui.tui.keys import key, written
from rocm_tui.tui.screens.compare import CompareScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen, LeaveScreen, Tick, TuneScreen
from rocm_tui.tui.screens.entries import EntriesScreen
from rocm_tui.tui.screens.history import HistoryScreen
from rocm_tui.tui.screens.jobs import DONE, JOBS, DoneScreen, JobsScreen
from rocm_tui.tui.screens.output import OutputScreen
from rocm_tui.tui.screens.pins import PinsScreen
from rocm_tui.tui.screens.report import ReportScreen
from rocm_tui.tui.screens.sessions import SessionsScreen
from rocm_tui.tui.screens.source import CodeView, SourceScreen
from rocm_tui.tui.screens.sources import PROBLEMS, SOURCES, SourcesScreen
from rocm_tui.tui.screens.trials import GRAPHS, TRIALS, TrialsScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import KeyBar

_SCREENS: tuple[type[BaseScreen], ...] = (
    WatchScreen,
    CompareScreen,
    PinsScreen,
    JobsScreen,
    ReportScreen,
    SourceScreen,
    HistoryScreen,
    TrialsScreen,
    SessionsScreen,
    EntriesScreen,
    DoneScreen,
    SourcesScreen,
    OutputScreen,
)
_QUESTION = (
    *Dialog.BINDINGS,
    *ConfirmScreen.BINDINGS[-1:],
    *TuneScreen.BINDINGS,
    *Tick.BINDINGS,
    *LeaveScreen.BINDINGS,
)
_WITHIN: Mapping[type[BaseScreen], Iterable[BindingType]] = {SourceScreen: CodeView.BINDINGS}
"""The keys of a screen's own widget."""
KEYBOARDS: tuple[tuple[str, Iterable[BindingType]], ...] = (
    ("Lists", LineView.BINDINGS),
    ("Everywhere", BaseApp.BINDINGS),
    *((kind.PLACE, (*kind.BINDINGS, *_WITHIN.get(kind, ()))) for kind in _SCREENS),
    ("A question", _QUESTION),
)
_SIGNS = {
    "│━├─●─┤": "time over the best's, and its 95 % interval, when measured",
    "│━━━━━○": "the same of one number; ▸ is beyond the scale",
    "✓ ●": "before a choice: marked; pinned",
}
_GOOD_TO_KNOW = (
    "A time without ± is one number; of such, up to 2 % apart is a tie.",
    "A pinned tuning shows measured times; the cache holds its rivals raised.",
    "Copying uses OSC 52. In tmux: set -g set-clipboard on",
    "A log has the best ten choices; caches and `rocm-tui run` have all.",
)
_FIRST = ("Tunings", "Choices on", "Verdicts", "States")
"""The groups right after the most important keys."""
_WORDS = 16
"""Cells of a key or a word; the explanation is beside it."""


def key_groups(own: Mapping[str, str] = MappingProxyType({})) -> Iterator[Group]:
    """Yield the keys of each screen as the person has chosen them; keys with the same explanation
    are one entry."""
    for title, bindings in KEYBOARDS:
        ours = (binding for binding in bindings if isinstance(binding, Binding))
        entries = []
        for about, same in groupby(ours, key=lambda binding: binding.tooltip):
            keys = " ".join(written(own.get(b.id or "", b.key)) for b in same)
            entries.append(GlossaryEntry(keys, keys, about))
        yield Group(f"Keys: {title}", tuple(entries))


def screen_groups() -> tuple[Group, ...]:
    """Return the columns that only screens have."""
    return (
        _columns("Graphs on the screen", GRAPHS),
        _columns("Trials", TRIALS),
        _columns("Sessions", SESSIONS),
        _columns("Jobs", JOBS),
        _columns("Entries of other tuners' tables", ENTRIES),
        _columns("Done", DONE),
        _columns("Sources", SOURCES),
        _columns("Problems of sources", PROBLEMS),
    )


def _columns(title: str, columns: Iterable[Column]) -> Group:
    return Group(title, tuple(GlossaryEntry(c.title, c.title.lower(), c.about) for c in columns))


class HelpText(LineView, inherit_bindings=False):
    """Lines to read; typed letters filter the entries."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)"),
        Binding("up", "move(-1)"),
        Binding("pagedown", "page(1)"),
        Binding("pageup", "page(-1)"),
        Binding("home", "move_to(0)"),
        Binding("end", "move_to(-1)"),
    ]

    def __init__(self, place: str, own: Mapping[str, str]) -> None:
        """Begin with the keys of `place`; `own` are the keys that the person chose, by id."""
        super().__init__(id="text")
        self._groups = list(_ordered(place, own))
        self._fitted: object = None
        self._lines: list[Line] = []
        self.words = ""

    def find(self, words: str) -> None:
        """Show only the entries that contain each of these words."""
        self.words = words
        self.cursor = self.top = 0
        self.sync()

    def on_key(self, event: Key) -> None:
        if event.key == "backspace":
            words = self.words[:-1]
        elif event.is_printable and event.character and (self.words or event.key not in _CLOSES):
            words = self.words + event.character
        else:
            return
        event.stop()
        self.find(words.lstrip())

    def heading(self, width: int) -> list[Line]:
        if (self.words, width) != self._fitted:
            self._fitted = self.words, width
            self._lines = list(_lines(self._groups, self.words, width - 3))
        typed = (self.words, "accent") if self.words else ("type to filter this page", "dim")
        return [((" Find: ", "head"), typed, (" " * width, "")), ()]

    def count(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:
        return self._lines[index]

    def empty(self, width: int) -> list[Line]:
        return [(("  No key, column or word here has that; esc clears it.", "dim"),)]


_CLOSES = ("q", "question_mark")
"""Keys that close the help unless something has been typed."""


class HelpScreen(BaseScreen):
    """One page of text, which begins with the keys of the screen below."""

    PLACE = "Help"
    AUTO_FOCUS = "#text"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape", "back", "help.back", "clear what was typed, else back")
    ]

    def compose_body(self) -> ComposeResult:
        below = self.app.screen_stack[-2]
        place = below.PLACE if isinstance(below, BaseScreen) else ""
        yield HelpText(place, self.program.own_keys)

    def on_mount(self) -> None:
        self.show_title([])
        keys = [("↑ ↓", "scroll", "scroll"), ("esc q", "back", "back")]
        self.query_one("#keys", KeyBar).show(keys)

    def action_scroll(self) -> None:
        self.query_one(HelpText).action_page(1)

    def action_back(self) -> None:
        text = self.query_one(HelpText)
        if text.words:
            text.find("")
        else:
            self.app.pop_screen()


def _ordered(place: str, own: Mapping[str, str]) -> Iterator[Group]:
    """Yield the keys of this place and those of all places, the words, and the other keys."""
    signs = Group(
        "Signs", tuple(GlossaryEntry(sign, sign, about) for sign, about in _SIGNS.items())
    )
    needed = [f"Keys: {title}" for title in (place, "Everywhere", "Lists")]
    keys = {group.title: group for group in key_groups(own)}
    yield from (keys[title] for title in needed if title in keys)
    yield from _once(sorted((*glossary.groups(), *screen_groups(), signs), key=_place))
    yield from (group for title, group in keys.items() if title not in needed)
    yield Group("Good to know", tuple(GlossaryEntry("", "", text) for text in _GOOD_TO_KNOW))


def _lines(groups: Iterable[Group], words: str, width: int) -> Iterator[Line]:
    """Yield the entries that contain all words, folded where a line is wider than `width`."""
    for group in groups:
        entries = [entry for entry in group.entries if _has(group, entry, words)]
        if not entries:
            continue
        yield ((group.title, "accent"),)
        for entry in entries:
            first, *more = wrapped(entry.about, width - _WORDS - 2) or [""]
            yield ((f"  {entry.title:<{_WORDS}}", "strong"), (first, ""))
            yield from (((" " * (_WORDS + 2), ""), (part, "")) for part in more)
        yield ()


def _has(group: Group, entry: GlossaryEntry, words: str) -> bool:
    text = f"{group.title} {entry.title} {entry.about}".casefold()
    return all(word in text for word in words.casefold().split())


def _place(group: Group) -> int:
    starts = (at for at, start in enumerate(_FIRST) if group.title.startswith(start))
    return next(starts, len(_FIRST))


def _once(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the groups without columns that an earlier group explains in the same words."""
    explained: set[GlossaryEntry] = set()
    for group in groups:
        yield Group(group.title, tuple(e for e in group.entries if e not in explained))
        explained.update(group.entries)
