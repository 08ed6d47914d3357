"""The filter above the table: an input line, its completions, and the number of rows that pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from rocm_tui.harmless import plain
from rocm_tui.render.table import Line
from rocm_tui.session.numbers import shorten
from rocm_tui.session.query.complete import ORDERS, Suggestion
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

_NAME = re.compile(r"@?([A-Za-z0-9_-]+)")
_WORD = 22
"""Cells of a completion's word; its meaning is beside it."""
_FEW, _MANY = 5, 10
"""Completions shown at once, in a low terminal and in others."""


def order_in(text: str) -> tuple[str, str, str]:
    """`op:mm save mine` is a filter, an order and a name; most texts are only a filter."""
    *before, word, name = ["", "", *text.rsplit(None, 2)]
    if name in ORDERS and (before[-1] or word):
        return text.removesuffix(name).rstrip(), name, ""
    match = _NAME.fullmatch(name)
    if word not in ORDERS or match is None:
        return text, "", ""
    return before[-1], word, match[1]


class Offers(LineView, can_focus=False):
    """The completions, in a list above the table that is only as high as it must be."""

    DEFAULT_CSS = """
    Offers {
        layer: offers; width: 78; max-width: 100%; height: 1; offset: 0 1;
        background: $panel; display: none;
    }
    """

    class Taken(Message):
        """A completion was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="offers")
        self._offers: Sequence[Suggestion] = ()
        self.chosen: int | None = None
        self._fault = ""

    def put(self, offers: Sequence[Suggestion], chosen: int | None) -> None:
        """Show these completions; `chosen` is the index of the one in the line."""
        self._offers, self.chosen = offers, chosen
        self.cursor = chosen or 0
        self._show()

    def complain(self, fault: str) -> None:
        """Show above them which part of the filter is not valid."""
        if fault != self._fault:
            self._fault = fault
            self._show()

    def _show(self) -> None:
        most = _FEW if self.screen.size.height < 40 else _MANY
        height = min(len(self._offers), most) + bool(self._fault)
        self.display = height > 0
        if height and self.styles.height is not None and self.styles.height.value != height:
            self.styles.height = height
        self._reveal()
        self.sync()

    def heading(self, width: int) -> list[Line]:
        return [((f" {plain(self._fault)}", "warn"),)] if self._fault else []

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = self.top + event.y - bool(self._fault)
        if 0 <= index < self.count():
            self.post_message(self.Taken(index))

    def count(self) -> int:
        return len(self._offers)

    def line(self, index: int, width: int) -> Line:
        offer = self._offers[index]
        word = f"{shorten(plain(offer.word), _WORD):<{_WORD}}"
        room = max(0, width - _WORD - 2)
        about = shorten(plain(offer.about), room)
        mark = ("›", "title") if index == self.chosen else (" ", "head")
        return (mark, (word, "title"), (f" {about}", "head"), (" " * width, "head"))


class _Ghost(Suggester):
    """The first completion, as dim text behind the cursor."""

    def __init__(self, first: Callable[[str], str | None]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._first = first

    async def get_suggestion(self, value: str) -> str | None:
        return self._first(value)


class FilterBar(Horizontal):
    """A filter, and a banner for as long as it hides something. Hidden without one.

    Tab and right take what is offered; down goes through the offers, up through what was typed
    before; enter keeps the filter, escape clears it. `offers` returns what may follow a text.
    """

    DEFAULT_CSS = """
    FilterBar {
        height: 1; display: none; background: $background;
        &.-open, &.-active { display: block; }
        Input { display: none; width: 3fr; margin-left: 1; background: $background; }
        &.-open Input { display: block; }
        OneLine { width: 2fr; }
    }
    """

    class Changed(Message):
        """The filter changed; while the person is `typing` it may be incomplete."""

        def __init__(self, text: str, *, typing: bool) -> None:
            super().__init__()
            self.text = text
            self.typing = typing

    class Ordered(Message):
        """Save this filter under a name, or forget the one of that name."""

        def __init__(self, order: str, name: str, text: str) -> None:
            super().__init__()
            self.order = order
            self.name = name
            self.text = text

    class Closed(Message):
        """The person has finished typing."""

    def __init__(
        self,
        offers: Callable[[str], list[Suggestion]],
        past: Callable[[], Sequence[str]],
        check: Callable[[str], str],
        shown: Offers,
        *,
        id: str | None = None,
    ) -> None:
        """`past` are the filters of before, the latest first; `check` says what cannot be read of
        one; `shown` shows the offers."""
        super().__init__(id=id)
        self.text = ""
        self._ask = offers
        self._past = past
        self._check = check
        self._list = shown
        self._typed = ""
        self._offers: list[Suggestion] = []
        self._place = 0
        self._set: str | None = None

    def compose(self) -> ComposeResult:
        yield OneLine(id="banner")

    async def open(self) -> None:
        """Open the line for typing."""
        self.add_class("-open")
        if not self.query(Input):
            entry = Input(
                self.text,
                placeholder="op:mm dtype:bf16 gain>1.2 !pinned, or words",
                suggester=_Ghost(self._ghost),
                compact=True,
                select_on_focus=False,
            )
            await self.mount(entry, before=0)
        entry = self.query_one(Input)
        if entry.value != self.text:
            self._write(self.text)
        self.screen.set_focus(entry)  # at once: the next key may be waiting
        self._begin(self.text)

    def clear(self) -> None:
        """Show everything again."""
        self.take("")
        self._close()

    def take(self, text: str) -> None:
        """Set this filter, as if it had been typed."""
        self.text = text
        if self.query(Input):
            self._write(text)
        self.set_class(bool(text), "-active")
        self.post_message(self.Changed(text, typing=False))

    def count(self, passed: int, total: int, fault: str = "") -> None:
        """Show how many rows pass the filter, or the part that cannot be parsed."""
        self._list.complain(fault if self.has_class("-open") and not self._offers else "")
        banner = self.query_one("#banner", OneLine)
        opened = self.has_class("-open")
        text, order, name = order_in(self.text)
        number = f" {passed:,} of {total:,}"
        if opened and order:
            what = f"enter saves it as @{name}" if order == "save" else f"enter forgets @{name}"
            banner.put((("  " + what if name else f"  {order}: a name", "title"),))
        elif opened:
            hint = "esc clears" if text else "tab, ↓ complete"
            banner.put(((number, "title"), (f" · {hint}", "head")))
        else:
            said = f" filter active: {plain(self.text)}"
            banner.put(((said, "title"), (f" {number} · esc clears", "head")))

    def _close(self) -> None:
        self.remove_class("-open")
        self._list.put([], None)
        self.post_message(self.Closed())

    # Completions: the typed text is at place 0, completions are below, past filters above.

    def _begin(self, typed: str) -> None:
        """A text was typed: its completions are known now."""
        if self._typed != typed or not self._offers:
            self._typed, self._offers = typed, self._ask(typed)
        self._place = 0
        self._list.put(self._offers, None)

    def _ghost(self, value: str) -> str | None:
        if not value or (value != self._typed and self._place):
            return None
        offers = self._offers if value == self._typed else self._ask(value)
        first = offers[0].text if offers else ""
        return first if first.startswith(value) and first != value else None

    def _catch_up(self, value: str) -> None:
        """Handle a key; in a burst of keys it may come before the event of the changed text."""
        if self._place == 0 and value != self._typed:
            self._begin(value)

    def _go(self, by: int) -> None:
        self._catch_up(self.query_one(Input).value)
        past = self._past()
        self._place = max(-len(past), min(self._place + by, len(self._offers)))
        place = self._place
        if place > 0:
            self._write(self._offers[place - 1].text)
        else:
            self._write(past[-place - 1] if place else self._typed)
        self._list.put(self._offers if place >= 0 else [], place - 1 if place > 0 else None)

    def _write(self, text: str) -> None:
        """Put a text into the line without counting as typing."""
        entry = self.query_one(Input)
        self._set = text if entry.value != text else None
        entry.value = text
        entry.cursor_position = len(text)

    def take_offer(self, index: int = 0) -> None:
        """Take this completion; or the one that is in the line already, if any."""
        entry = self.query_one(Input)
        self._catch_up(entry.value)
        if self._place == 0 and self._offers:
            entry.value = self._offers[index].text
            entry.cursor_position = len(entry.value)
        else:
            self._begin(entry.value)
        if not entry.has_focus:
            entry.focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        value = event.input.value  # keys may come in a burst: the value of the event may be old
        self.text = value.strip()
        self.set_class(bool(self.text), "-active")
        if value == self._set:
            self._set = None
        elif self.has_class("-open"):
            self._begin(value)
        self.post_message(self.Changed(self.text, typing=self.has_class("-open")))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.text = event.input.value.strip()  # in a burst, tab may have come in between
        text, order, name = order_in(self.text)
        fault = self._check(text)
        if fault or (order and not name):
            self._list.complain(fault)
            return
        if order:
            self.post_message(self.Ordered(order, name, text))
            self.take(text)
        else:
            self.post_message(self.Changed(self.text, typing=False))
        self._close()

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("escape", "tab", "down", "up"):
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.clear()
        elif event.key == "tab":
            self.take_offer()
        else:
            self._go(1 if event.key == "down" else -1)
