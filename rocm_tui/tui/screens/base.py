"""What every screen of the program shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import ClassVar, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, Static

from rocm_tui.tui.host import Host
from rocm_tui.tui.keys import key, own_key
from rocm_tui.tui.widgets.one_line import Key, KeyBar, TitleBar

SMALLEST = (60, 15)
_HELP: Key = ("?", "help", "app.help")
_Answer = TypeVar("_Answer")
_TOO_SMALL = "Terminal too small.\nMake it at least {}×{}; everything goes on."


class _Made(Screen[_Answer]):
    """A screen that goes before it is made, as where the program is left at once, has none of the
    widgets that it would set up."""

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Mount) or self.children:
            await super().on_event(event)


class BaseScreen(_Made[None]):
    """A title line, a body, a line of keys; a sentence instead where the terminal is too small."""

    KEYS: ClassVar[tuple[Key, ...]] = ()
    LEAVE: ClassVar[Key] = ("esc q", "back", "app.close")
    _before: Widget | None = None
    """What had the focus before the terminal became too small."""

    @property
    def program(self) -> Host:
        return cast(Host, self.app)

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
            self.show_keys(self.KEYS)

    def update(self) -> None:
        """Show what is known now: the model, the pins or the jobs may have changed."""

    def tick(self) -> None:
        """Time has passed."""

    def action_back(self) -> None:
        """To the screen that this one stands above."""
        self.app.pop_screen()

    def commands(self) -> Iterator[SystemCommand]:
        """What the command palette offers here at this moment: what the line of keys does."""
        for name, label, action in self.query_one("#keys", KeyBar).keys:
            if not action.startswith("app."):
                run = partial(self.run_action, action)
                yield SystemCommand(f"here: {label.capitalize()}", f"Key {name}", run)

    def on_resize(self, event: events.Resize) -> None:
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        notices = self.query("#too-small")
        if small and not notices:
            self._before = self.focused  # hiding it takes the focus away
            notice = Static(_TOO_SMALL.format(*SMALLEST), id="too-small", markup=False)
            notice.styles.padding = (1, 2)
            self.mount(notice)
        elif not small:
            notices.remove()
        for widget in self.query("#title, #devices, #body, #keys"):
            if widget.display == small:  # setting it lays out and paints the whole screen
                widget.display = not small
        if notices and not small and self.focused is None:
            self.set_focus(self._before)

    def show_keys(self, keys: Iterable[Key], idle: Collection[str] = ()) -> None:
        """The most useful keys now, those dim whose actions are `idle`; help and quit are always
        among them."""
        own = self.program.own_keys
        shown = (*keys, _HELP, self.LEAVE)
        if own:
            shown = tuple((own_key(self, do, own) or name, says, do) for name, says, do in shown)
        self.query_one("#keys", KeyBar).show(shown, idle)

    def show_title(self, place: str, facts: list[str], notice: str = "") -> None:
        self.query_one("#title", TitleBar).show(place, facts, notice)


class Dialog(_Made[_Answer | None], ModalScreen[_Answer | None]):
    """A question above the screens: an answer, or None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [key("escape,q", "no", "question.no", "no")]

    def compose_answers(self, verb: str) -> ComposeResult:
        """The buttons below the question."""
        with Horizontal(id="answers"):
            yield Button(f"{verb}  enter", id="yes", compact=True)
            yield Button("Cancel  esc", id="no", compact=True)

    @on(Button.Pressed, "#no")
    def action_no(self) -> None:
        self.answer(None)

    def answer(self, given: _Answer | None) -> None:
        """Leave with this. Keys may come in one burst: only the first that answers counts."""
        if self.is_active:
            self.dismiss(given)
