"""One screen: a process of `rocm-tui watch` whose terminal is a pair of pipes.

Textual's web driver speaks packets: a letter, the length in four bytes, and as many bytes. `D` is
what a terminal would get or send, `M` is a message as JSON. The process ends when its stdin does,
so none is left when the server dies.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

_READY = b"__GANGLION__\n"
"""What the web driver says first."""
_PATIENCE = 4.0
"""Seconds that a screen has to end its jobs before it is killed."""
_MOST_CELLS = 1000
"""A side of a screen."""


def environment(env: Mapping[str, str], width: int, height: int) -> dict[str, str]:
    """Of a screen in a browser: true colour, and a size."""
    columns, rows = size(width, height)
    return {
        **env,
        "TERM": "xterm-256color",
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(columns),
        "ROWS": str(rows),
    }


def size(width: object, height: object) -> tuple[int, int]:
    """Cells, within what can be drawn; 80x24 of what is no number."""

    def cells(value: object, usual: int) -> int:
        with suppress(ValueError, TypeError):
            return max(1, min(_MOST_CELLS, int(str(value))))
        return usual

    return cells(width, 80), cells(height, 24)


async def start(command: Sequence[str], env: Mapping[str, str]) -> Process:
    """A session of its own: Ctrl-C at the server is the server's to pass on."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=env, start_new_session=True
    )


async def drawn(process: Process) -> AsyncIterator[bytes]:
    """What the screen draws, until it ends; nothing of one that did not begin."""
    assert process.stdout is not None
    if await process.stdout.readline() != _READY:
        return
    with suppress(asyncio.IncompleteReadError):
        while True:
            head = await process.stdout.readexactly(5)
            payload = await process.stdout.readexactly(int.from_bytes(head[1:], "big"))
            if head[:1] == b"D":
                yield payload
            elif head[:1] == b"M" and json.loads(payload).get("type") == "exit":
                return


async def typed(process: Process, text: str) -> None:
    """Keys, mouse and pasted text, as a terminal sends them."""
    await _send(process, b"D", text.encode())


async def tell(process: Process, kind: str, **values: int) -> None:
    """A message: `resize` with width and height, `focus`, `blur`, `quit`."""
    await _send(process, b"M", json.dumps({"type": kind, **values}).encode())


async def _send(process: Process, letter: bytes, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # it is ending
        process.stdin.write(letter + len(payload).to_bytes(4, "big") + payload)
        await process.stdin.drain()


async def end(process: Process) -> None:
    """Ask it to end, and wait until it has; kill it if it does not listen."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(tell(process, "quit"), 0.5)
    process.stdin.close()
    try:
        await asyncio.wait_for(_over(process), _PATIENCE)
    except asyncio.TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()


async def _over(process: Process) -> None:
    """Read what it still draws: it would wait for a reader for ever."""
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass
    await process.wait()
