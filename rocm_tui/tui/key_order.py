"""Handle keys one after another: the effects of one are complete before the next is sent.

Each widget has a queue of its own. A letter is taken by the field that gets it, while a bound key
(backspace, home, enter, one that opens or closes a screen) first climbs from queue to queue up to
the app. Over a slow line keys arrive in one burst, and a letter would overtake the key before it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from textual import events
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.message_pump import MessagePump

_LEVELS = 3
"""How many further effects the effect of a key may have: enter submits, which closes, which moves
the focus."""
_PATIENCE = 2.0
"""Seconds after which the next key is sent anyway."""


class KeysInOrder(App[int]):
    """An app that queues keys, and sends the next one when the previous one is done."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: deque[events.Key] = deque()
        self._key_at_work: object | None = None
        self._deadline: asyncio.TimerHandle | None = None

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        self._keys.append(event)
        if self._key_at_work is None:
            await self._send_next_key()

    async def _send_next_key(self) -> None:
        if not self._keys:
            return
        screen = self.screen
        focused = self.focused or screen
        self._key_at_work = key = object()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_PATIENCE, self.call_later, self._key_arrived, key, [])
        if screen.is_mounted:  # else it is mounted when this climb is over
            await super().on_event(self._keys.popleft())
        self._climb(key, focused, [focused] * (_LEVELS - 1))

    def _climb(self, key: object, pump: MessagePump, levels: list[MessagePump]) -> None:
        """Follow the key through the queues on its way; a closed pump takes nothing more."""
        while pump is not self:
            above = pump._parent or self
            if pump.call_later(self._climb, key, above, levels):
                return
            pump = above
        if not self.call_later(self._key_arrived, key, levels):
            self._key_at_work = None

    async def _key_arrived(self, key: object, levels: list[MessagePump]) -> None:
        if key is not self._key_at_work:
            return
        if levels:
            self._climb(key, levels[0], levels[1:])
            return
        self._key_at_work = None
        if self._deadline is not None:
            self._deadline.cancel()
        await self._send_next_key()

    def pop_screen(self) -> AwaitComplete:
        """Close a screen; in a burst of keys, those after the one that closed the last screen do
        nothing."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()
