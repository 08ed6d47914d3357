"""Help: every key, what each column means, what a terminal must allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rocm_tui.render.tunings import COLUMNS
from rocm_tui.screens.base import BaseScreen
from rocm_tui.widgets.line_view import Line, LineView
from rocm_tui.widgets.one_line import Key

_KEYS = (
    (
        "Move",
        (
            ("j k ↓ ↑", "one line; the mouse wheel scrolls, a click selects"),
            ("g G home end", "first (newest) and last line"),
            ("ctrl+d ctrl+u", "half a page"),
            ("tab", "between the table and the choices"),
            ("enter l h", "into the choices, back to the table; enter there pins"),
        ),
    ),
    (
        "Watch",
        (
            ("/", "filter by words: op, shape, type, winner, pinned; esc clears"),
            ("s", "sort by the next of: newest, gain, lead, time, op"),
            ("p", "pin the choice under the cursor, in the table the winner; asks"),
            ("u", "take the pin back; asks"),
            ("space c", "mark choices; compare them, else those near the best"),
            ("t", "tune again in a worker; asks what to try"),
            ("m", "measure the marked choices, else those near the best"),
            ("x", "cancel the job about this tuning, and whatever it started"),
            ("y", "copy the tuning's id, or the choice's hash"),
        ),
    ),
    (
        "Everywhere",
        (
            ("P", "pins: state and history; r applies again, u takes back"),
            ("C", "report: time saved, ranks, missing backends, roofline, ..."),
            ("J", "jobs: progress, results, logs; x cancels"),
            ("S", "sources: what is read, how far, what could not be used"),
            ("ctrl+p", "every command that applies now"),
            ("? F1", "this help; esc goes back"),
            ("q", "quit"),
        ),
    ),
    (
        "Compare and report",
        (
            ("h l", "another choice; another page, as do tab and 1 to 5"),
            ("d e", "the choices' sources that differ; keys that are equal, too"),
            ("enter m", "the tuning in Watch; measure the roof where it is not known"),
        ),
    ),
)
_CHOICES = (
    ("│━├─●─┤", "time over the best's, and its 95 % interval, when measured"),
    ("│━━━━━○", "the same of one number; ▸ is beyond the scale"),
    ("VS BEST", "how much longer than the best choice a call takes"),
    ("VERDICT", "fastest, tied, slower, or unclear: more rounds may tell"),
    ("apart", "same key, but no program is known that offers it beside these"),
)
_GOOD_TO_KNOW = (
    "A time without ± is one number; of such, up to 2 % apart is a tie.",
    "A pinned tuning shows measured times; the cache holds its rivals raised.",
    "Copying uses OSC 52. In tmux: set -g set-clipboard on",
    "A log has the best ten choices; caches and `rocm-tui run` have all.",
)


class HelpText(LineView):
    """Lines to read; the cursor only scrolls them."""

    def __init__(self) -> None:
        super().__init__(id="text")
        self._lines = list(_lines())

    def count(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:
        return self._lines[index]


class HelpScreen(BaseScreen):
    """One page of text."""

    AUTO_FOCUS = "#text"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", id="help.back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("j k", "scroll", "scroll"),
        ("esc", "back", "app.pop_screen"),
        ("q", "quit", "app.quit"),
    )

    def compose_body(self) -> ComposeResult:
        yield HelpText()

    def on_mount(self) -> None:
        self.show_title("Help", [])

    def action_scroll(self) -> None:
        self.query_one(HelpText).action_page(1)


def _lines() -> Iterator[Line]:
    for group, keys in _KEYS:
        yield ((group, "accent"),)
        for key, what in keys:
            yield ((f"  {key:<14}", "strong"), (what, ""))
        yield ()
    yield (("Columns", "accent"),)
    for column in COLUMNS:
        yield ((f"  {column.title:<14}", "strong"), (column.about, ""))
    yield ()
    yield (("Choices", "accent"),)
    for mark, what in _CHOICES:
        yield ((f"  {mark:<14}", "strong"), (what, ""))
    yield ()
    yield (("Good to know", "accent"),)
    for text in _GOOD_TO_KNOW:
        yield ((f"  {text}", ""),)
