"""Keys that come in one burst, as they do over a slow line: each reaches what it was meant for."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from textual import events
from textual.await_complete import AwaitComplete
from textual.widget import Widget

from rocm_tui.tui.host import Host
from rocm_tui.tui.in_turn import InTurn


class InOrder(Host):
    """Deals with keys one after another, and sends those again that came before their field."""

    def __init__(self) -> None:
        super().__init__()
        self._sent: WeakKeyDictionary[events.Key, Widget | None] = WeakKeyDictionary()
        self._in_turn = InTurn(self, self._send_key)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._in_turn.take(event)
        else:
            await super().on_event(event)

    async def _send_key(self, event: events.Key) -> None:
        self._sent[event] = self.focused
        await super().on_event(event)

    async def _on_key(self, event: events.Key) -> None:
        """What was typed in one burst with the key that opened a field belongs into the field: it
        was sent to what had the focus before. Tab and enter do as well as letters, in their order.
        """
        field = self.focused
        if field is None or self._sent.get(event) is field:
            return
        if field.check_consume_key("a", "a"):  # it takes text
            event.prevent_default()
            again = events.Key(event.key, event.character).set_sender(field)  # or it stops below us
            self._sent[again] = field
            field.post_message(again)

    def pop_screen(self) -> AwaitComplete:
        """Of keys that come in one burst, those after the one that closed a screen close none."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()
