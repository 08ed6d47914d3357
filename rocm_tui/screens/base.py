"""What every screen of the program shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Static

from rocm_tui.widgets.one_line import Key, KeyBar, TitleBar

if TYPE_CHECKING:
    from rocm_tui.screens.program import RocmTui

SMALLEST = (60, 15)
_TOO_SMALL = "Terminal too small.\nMake it at least {}×{}; everything goes on."


class BaseScreen(Screen[None]):
    """A title line, a body, a line of keys; a sentence instead where the terminal is too small."""

    KEYS: ClassVar[tuple[Key, ...]] = ()

    @property
    def program(self) -> RocmTui:
        return cast("RocmTui", self.app)

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title")
        with Vertical(id="body"):
            yield from self.compose_body()
        yield KeyBar(id="keys")

    def compose_body(self) -> ComposeResult:
        """The widgets between the title and the keys."""
        raise NotImplementedError

    def on_mount(self) -> None:
        if self.KEYS:
            self.query_one("#keys", KeyBar).show(self.KEYS)

    def on_resize(self, event: events.Resize) -> None:
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        told = self.query("#too-small")
        if small and not told:
            notice = Static(_TOO_SMALL.format(*SMALLEST), id="too-small", markup=False)
            notice.styles.padding = (1, 2)
            self.mount(notice)
        elif not small:
            told.remove()
        for widget in self.query("#title, #body, #keys"):
            widget.display = not small

    def show_title(self, place: str, facts: list[str], notice: str = "") -> None:
        self.query_one("#title", TitleBar).show(place, facts, notice)
