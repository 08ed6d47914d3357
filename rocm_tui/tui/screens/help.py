"""Help: every key, column and state; docs/data/glossary.csv has the same words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from textwrap import wrap
from types import MappingProxyType
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rocm_tui.render import glossary
from rocm_tui.render.entries import ENTRIES
from rocm_tui.render.glossary import Entry, Group
from rocm_tui.render.sessions import SESSIONS
from rocm_tui.render.table import Column, Line
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
from rocm_tui.tui.screens.sessions import SessionComparisonScreen, SessionsScreen
from rocm_tui.tui.screens.source import CodeView, SourceScreen
from rocm_tui.tui.screens.sources import PROBLEMS, SOURCES, SourcesScreen
from rocm_tui.tui.screens.trials import GRAPHS, TRIALS, TrialsScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.line_view import LineView

KEYBOARDS: tuple[tuple[str, Iterable[BindingType]], ...] = (
    ("Lists", LineView.BINDINGS),
    ("Everywhere", BaseApp.BINDINGS),
    ("Watch", WatchScreen.BINDINGS),
    ("Compare", CompareScreen.BINDINGS),
    ("Source", (*SourceScreen.BINDINGS, *CodeView.BINDINGS)),
    ("Report", ReportScreen.BINDINGS),
    ("History", HistoryScreen.BINDINGS),
    ("Trials", TrialsScreen.BINDINGS),
    ("Pins", PinsScreen.BINDINGS),
    ("Sessions", SessionsScreen.BINDINGS),
    ("Two sessions", SessionComparisonScreen.BINDINGS),
    ("Jobs", JobsScreen.BINDINGS),
    ("Entries", EntriesScreen.BINDINGS),
    ("Done", DoneScreen.BINDINGS),
    ("Sources", SourcesScreen.BINDINGS),
    ("Output", OutputScreen.BINDINGS),
    (
        "A question",
        (
            *Dialog.BINDINGS,
            *ConfirmScreen.BINDINGS[-1:],
            *TuneScreen.BINDINGS,
            *Tick.BINDINGS,
            *LeaveScreen.BINDINGS,
        ),
    ),
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
"""The groups right behind the keys that are needed most."""
_MOST_NEEDED = 3
_WORDS = 16
"""Cells of a key or a word; what explains it stands beside it."""


def key_groups(own: Mapping[str, str] = MappingProxyType({})) -> Iterator[Group]:
    """The keys of each screen, those that a person chose as they are now; those with one
    explanation are one entry."""
    for title, bindings in KEYBOARDS:
        ours = (binding for binding in bindings if isinstance(binding, Binding))
        entries = []
        for about, same in groupby(ours, key=lambda binding: binding.tooltip):
            keys = " ".join(written(own.get(b.id or "", b.key)) for b in same)
            entries.append(Entry(keys, keys, about))
        yield Group(f"Keys: {title}", tuple(entries))


def screen_groups() -> tuple[Group, ...]:
    """The columns that only screens have."""
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
    return Group(title, tuple(Entry(c.title, c.title.lower(), c.about) for c in columns))


class HelpText(LineView):
    """Lines to read; the cursor only scrolls them."""

    def __init__(self) -> None:
        super().__init__(id="text")
        self._width = 0
        self._lines: list[Line] = []

    def heading(self, width: int) -> list[Line]:
        if width != self._width:
            self._width = width
            own = self.app.own_keys if isinstance(self.app, BaseApp) else {}
            self._lines = list(_lines(width - 3, own))
        return []

    def count(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:
        return self._lines[index]


class HelpScreen(BaseScreen):
    """One page of text."""

    AUTO_FOCUS = "#text"
    BINDINGS: ClassVar[list[BindingType]] = [key("escape", "back", "help.back", "back")]

    def compose_body(self) -> ComposeResult:
        yield HelpText()

    def on_mount(self) -> None:
        self.show_title("Help", [])
        self.show_keys([("j k", "scroll", "scroll")])

    def action_scroll(self) -> None:
        self.query_one(HelpText).action_page(1)


def _lines(width: int, own: Mapping[str, str]) -> Iterator[Line]:
    """All of it, folded where a line is wider than that."""
    signs = Group("Signs", tuple(Entry(sign, sign, about) for sign, about in _SIGNS.items()))
    keys = list(key_groups(own))
    words = _once(sorted((*glossary.groups(), *screen_groups(), signs), key=_place))
    for group in (*keys[:_MOST_NEEDED], *words, *keys[_MOST_NEEDED:]):
        yield ((group.title, "accent"),)
        for entry in group.entries:
            first, *more = wrap(entry.about, max(20, width - _WORDS - 2)) or [""]
            yield ((f"  {entry.title:<{_WORDS}}", "strong"), (first, ""))
            yield from (((" " * (_WORDS + 2), ""), (part, "")) for part in more)
        yield ()
    yield (("Good to know", "accent"),)
    for text in _GOOD_TO_KNOW:
        yield ((f"  {text}", ""),)


def _place(group: Group) -> int:
    starts = (at for at, start in enumerate(_FIRST) if group.title.startswith(start))
    return next(starts, len(_FIRST))


def _once(groups: Iterable[Group]) -> Iterator[Group]:
    """Without columns that stand in an earlier group with the same sentence."""
    explained: set[Entry] = set()
    for group in groups:
        yield Group(group.title, tuple(e for e in group.entries if e not in explained))
        explained.update(group.entries)
