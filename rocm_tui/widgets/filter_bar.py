"""The inline filter: words to match, and a banner for as long as it hides something."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from rocm_tui.harmless import plain
from rocm_tui.widgets.one_line import OneLine


class FilterBar(Horizontal):
    """Hidden without a filter. Enter keeps the filter, escape clears it."""

    DEFAULT_CSS = """
    FilterBar {
        height: 1; display: none; background: $background;
        &.-open, &.-active { display: block; }
        Input { display: none; width: 2fr; margin-left: 1; background: $background; }
        &.-open Input { display: block; }
        OneLine { width: 3fr; }
    }
    """

    class Changed(Message):
        """The words changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The person is done typing."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text = ""

    def compose(self) -> ComposeResult:
        yield OneLine(id="banner")

    async def open(self) -> None:
        """Let the person type."""
        self.add_class("-open")
        if not self.query(Input):
            entry = Input(
                self.text, placeholder="words: op, shape, type, winner, pinned", compact=True
            )
            await self.mount(entry, before=0)
        self.query_one(Input).focus()

    def clear(self) -> None:
        """Show everything again."""
        if self.query(Input):
            self.query_one(Input).value = ""
        self._close()

    def told(self, found: int, total: int) -> None:
        """Say what the filter does."""
        banner = self.query_one("#banner", OneLine)
        if self.text:
            text = plain(self.text)
            what = f" filter active: {text}" if not self.has_class("-open") else " filter active"
            banner.put(((what, "title"), (f"  {found} of {total} · esc clears", "head")))
        else:
            banner.put(((" filter", "title"), ("  words that a row must hold", "head")))

    def _close(self) -> None:
        self.remove_class("-open")
        self.post_message(self.Closed())

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.text = event.value.strip()
        self.set_class(bool(self.text), "-active")
        self.post_message(self.Changed(self.text))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()
        self.post_message(self.Changed(self.text))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.clear()
