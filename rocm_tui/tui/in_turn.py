"""Keys one after another: what one of them does is done before the next is looked at.

Each widget has a queue of its own. A letter is taken by the field that gets it, while a bound key
(backspace, home, enter, what opens or closes a screen) climbs from queue to queue up to the app
first. Over a slow line keys come in one burst, and a letter would overtake what stands ahead of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from textual.app import App
from textual.events import Key
from textual.message_pump import MessagePump

_LEVELS = 3
"""So often what a key did may have something else done: enter submits, that closes, that moves the
focus."""
_PATIENCE = 2.0
"""Seconds after which the next key is looked at all the same."""


class InTurn:
    """The keys of an app. `send` gives one to what has the focus."""

    def __init__(self, app: App[int], send: Callable[[Key], Awaitable[None]]) -> None:
        self._app = app
        self._send = send
        self._waiting: deque[Key] = deque()
        self._turn: object | None = None
        self._late: asyncio.TimerHandle | None = None

    async def take(self, key: Key) -> None:
        """Now, or when those before it are done."""
        self._waiting.append(key)
        if self._turn is None:
            await self._next()

    async def _next(self) -> None:
        if not self._waiting:
            return
        screen = self._app.screen
        focused = self._app.focused or screen
        self._turn = turn = object()
        self._late = asyncio.get_running_loop().call_later(_PATIENCE, self._go_on, turn)
        if screen.is_mounted:  # else it stands when this climb is over
            await self._send(self._waiting.popleft())
        self._climb(turn, focused, [focused] * (_LEVELS - 1))

    def _climb(self, turn: object, pump: MessagePump, levels: list[MessagePump]) -> None:
        """Behind the key through the queues on its way; what closes takes nothing more."""
        while pump is not self._app:
            above = pump._parent or self._app
            if pump.call_later(self._climb, turn, above, levels):
                return
            pump = above
        if not pump.call_later(self._arrived, turn, levels):
            self._turn = None

    async def _arrived(self, turn: object, levels: list[MessagePump]) -> None:
        if turn is not self._turn:
            return
        if levels:
            self._climb(turn, levels[0], levels[1:])
        else:
            await self._over()

    def _go_on(self, turn: object) -> None:
        """Something in the way of that key takes long, or went with what was in its queue."""
        self._app.call_later(self._arrived, turn, [])

    async def _over(self) -> None:
        self._turn = None
        if self._late is not None:
            self._late.cancel()
        await self._next()
