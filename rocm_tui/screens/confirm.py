"""A question before something is changed: what exactly, and yes or no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static

from rocm_tui.harmless import plain
from rocm_tui.screens.base import Dialog

_WAITING = ("Looking up what will change …",)


class ConfirmScreen(Dialog[str]):
    """Gives the note (empty without one) for yes, and None for no.

    Without `lines` it waits: it says so and takes no yes until `tell` brings them. `warning` is
    what speaks against it.
    """

    CSS_PATH = "confirm.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "no", "No", id="confirm.no"),
        Binding("enter", "yes", "Yes", id="confirm.yes"),
    ]

    def __init__(
        self,
        title: str,
        verb: str,
        lines: Sequence[str] = (),
        *,
        note: bool = False,
        warning: str | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._warning = warning
        self._verb = verb
        self._note = note

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Static(Content(plain(self._title)), id="what", markup=False)
            yield Static(self._text(), id="lines", markup=False)
            if self._warning:
                yield Static(Content(plain(self._warning)), id="warning", markup=False)
            if self._note:
                yield Input(placeholder="why? (optional note)", max_length=200, compact=True)
            with Horizontal(id="answers"):
                yield Button(f"{self._verb}  enter", id="yes", compact=True)
                yield Button("Cancel  esc", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one(Input if self._note else "#yes").focus()

    def _text(self) -> Content:
        return Content("\n".join(plain(line) for line in self._lines or _WAITING))

    def tell(self, lines: Sequence[str]) -> None:
        """What will change is known now."""
        self._lines = lines
        for shown in self.query("#lines").results(Static):  # none before it opens or after
            shown.update(self._text())

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def action_yes(self) -> None:
        if not self._lines:
            return  # nobody agrees to what has not been said
        note = self.query_one(Input).value.strip() if self._note else ""
        self.answer(note)

    @on(Button.Pressed, "#no")
    def action_no(self) -> None:
        self.answer(None)
