"""Two sessions compared: what became slower from the earlier one to the later."""

from __future__ import annotations

import time
from asyncio import to_thread
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from rocm_tui.compare.comparison import compare, of_sessions
from rocm_tui.compare.types import Comparison, Pair, Part
from rocm_tui.harmless import plain
from rocm_tui.render.compare import PAIRS, pairs_shown, summary
from rocm_tui.render.sessions import moment, words_text
from rocm_tui.render.table import Line, cells
from rocm_tui.session.model import Row
from rocm_tui.tui.host import Named
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key


class PairsTable(Grid):
    """The pairs below what can be said of all of them."""

    def __init__(self) -> None:
        super().__init__(PAIRS, "", id="pairs")
        self._names: list[str] = []
        self._sentences: list[str] = ["Comparing…"]
        self.pairs: list[Pair] = []

    def head(self, names: list[str]) -> None:
        """What A and B are."""
        self._names = names
        self.sync()

    def show(self, comparison: Comparison) -> None:
        self._sentences = summary(comparison)
        self.pairs = pairs_shown(comparison)
        self.put([cells(PAIRS, pair) for pair in self.pairs])

    def heading(self, width: int) -> list[Line]:
        lines: list[Line] = [(), *((("  " + name, "strong"),) for name in self._names), ()]
        for text in self._sentences:
            lines += [((f"  {part}", ""),) for part in wrap(text, width - 2)]
        return [*lines, (), *(super().heading(width) if self.pairs else ())]

    def empty(self, width: int) -> list[Line]:
        return []


class SessionComparisonScreen(BaseScreen):
    """Made once, off the event loop."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#pairs"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("y", "copy", "session_comparison.copy", "copy the command that prints this"),
        key("escape", "app.pop_screen", "session_comparison.back", "back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("enter", "in Watch", "open"),
        ("y", "copy command", "copy"),
    )

    def __init__(self, a: Named, b: Named) -> None:
        super().__init__()
        self._a, self._b = a, b

    def compose_body(self) -> ComposeResult:
        yield PairsTable()

    def on_mount(self) -> None:
        self.show_title("Compare", [f"A {plain(self._a[0])} · B {plain(self._b[0])}"])
        model = self.program.feed.model
        known = [(self._a, "A"), (self._b, "B")]
        self.query_one(PairsTable).head([self._about(label, named) for named, label in known])
        a, b = (of_sessions(name, set(ids), model) for name, ids in (self._a, self._b))
        self.run_worker(self._compare(a, b))

    def _about(self, label: str, named: Named) -> str:
        """`A  vm-5163  2.13.0  python train.py`."""
        name, ids = named
        session = self.program.feed.model.sessions.get(next(iter(ids), ""))
        if session is None:
            return f"{label}  {plain(name)}"
        when = moment(session.started, time.time())
        torch = f"torch {plain(session.torch)}" if session.torch else ""
        facts = (plain(name), when, torch, words_text(session.argv))
        return f"{label}  {'   '.join(filter(None, facts))}"

    async def _compare(self, a: Part, b: Part) -> None:
        found = await to_thread(compare, a, b)
        for table in self.query(PairsTable):  # none where this screen was left
            table.show(found)

    @property
    def current(self) -> Row | None:
        table = self.query_one(PairsTable)
        return table.pairs[table.at].b.row if table.at < len(table.pairs) else None

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        if self.current is not None:
            self.program.show_row(self.current)

    def action_copy(self) -> None:
        self.program.copy(f"rocm-tui compare {self._a[0]} {self._b[0]}", "the command")
