"""The server: a page, the files of its terminal, and a screen for each page that is open.

The terminal in the page is that of textual-serve, which with aiohttp is an extra of this package:
neither is imported before `serve` runs. A screen is a process of `rocm-tui watch` whose
terminal is a pair of pipes. Textual's web driver speaks packets: a letter, the length in four
bytes, and as many bytes. `D` is what a terminal would get or send, `M` is a message as JSON. The
process ends when its stdin does, so none is left when the server dies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import string
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backend.counted import counted
from rocm_tui.errors import RocmTuiError
from rocm_tui.tui.browser.guard import Guard, Thing

_TERMINAL = ("js/textual.js", "css/xterm.css", "fonts/RobotoMono-VariableFont_wght.ttf")
"""The files of textual-serve that the page loads."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; font-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_WAIT = 6.0
"""Seconds that a page waits for a free place: a reloaded page takes its own, whose screen may need
the time of `_end_screen` to end."""
_MOST_BYTES = 1 << 20
"""The maximum length of a message from a page: it contains pasted text."""
_READY = b"__GANGLION__\n"
"""The first line that the web driver writes."""
_PATIENCE = 4.0
"""Seconds for a screen to end its jobs before it is killed."""
_MOST_CELLS = 1000
"""The maximum width or height of a screen."""


class NotServed(RocmTuiError):
    """The server cannot start: something is not installed, or the address is in use."""


INSTALL = "pip install 'textual-serve>=1.1.3,<2' 'aiohttp>=3.11,<4'"


def require_extra() -> Path:
    """Return the folder of the terminal's files. Raises NotServed."""
    if find_spec("aiohttp") is None or find_spec("textual_serve") is None:
        raise NotServed(f"serve needs packages that are not installed: {INSTALL}")
    folder = Path(str(resources.files("textual_serve"))) / "static"
    missing = [name for name in _TERMINAL if not (folder / name).is_file()]
    if missing:
        raise NotServed(f"this textual-serve has no {missing[0]}: {INSTALL}")
    return folder


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address. Raises NotServed."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, number)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise NotServed(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "--port N takes another, --port 0 a free one"
        ) from None
    return bound


class Site:
    """The handlers of requests. `command` starts a screen; at most `most` may be open."""

    def __init__(self, guard: Guard, command: Sequence[str], folder: Path, most: int) -> None:
        """Raises ImportError without aiohttp."""
        self._web: Any = import_module("aiohttp.web")
        self._guard = guard
        self._command = command
        ours = Path(str(resources.files("rocm_tui.tui.browser")))
        self._page = string.Template((ours / "page.html").read_text())
        # What the page loads; nothing else is served.
        self._files = {"page.js": ours / "page.js"} | {name: folder / name for name in _TERMINAL}
        self._most = most
        self._places = asyncio.Semaphore(most)
        self._sockets: set[Any] = set()

    def application(self) -> Any:
        """Return the routes behind the guard: an `aiohttp.web.Application`."""
        web = self._web

        async def guarded(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[web.middleware(guarded)])
        app.add_routes([web.get("/", self._give_page), web.get("/screen/{ticket}", self._screen)])
        app.add_routes([web.get(f"/static/{name}", self._give_file) for name in self._files])
        app.on_shutdown.append(self._close)
        return app

    async def _guarded(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Refuse, or answer with headers that keep others out. A missing page and a forbidden page
        get the same answer."""
        things: dict[str, Thing] = {"": "page", "screen": "screen"}
        thing = things.get(request.path.lstrip("/").partition("/")[0], "file")
        shown = {
            "token": request.query.get("token", ""),
            "cookie": request.cookies.get(self._cookie_name(request), ""),
            "ticket": request.path.rpartition("/")[2],
        }
        why = self._guard.refusal(thing, request.method, request.headers, shown)
        if why is not None:
            return self._web.Response(status=403, text=f"Refused: {why}\n", headers=_HEADERS)
        try:
            response = await handler(request)
        except self._web.HTTPException as error:  # there is no such page
            error.headers.update(_HEADERS)
            raise
        if not response.prepared:  # those of a screen were sent when it began
            response.headers.update(_HEADERS)
        return response

    def _cookie_name(self, request: Any) -> str:
        """Return a cookie's name. Cookies ignore ports: two servers on one host must not overwrite
        each other's."""
        return f"rocm-tui-{request.transport.get_extra_info('sockname')[1]}"

    async def _give_page(self, request: Any) -> Any:
        font = request.query.get("font", "")
        text = self._page.substitute(
            screen=f"ws://{request.host}/screen/{self._guard.ticket}",
            font=font if font.isascii() and font.isdigit() and 6 <= int(font[:3]) <= 60 else "16",
            again=f"/?token={self._guard.token}",
        )
        response = self._web.Response(text=text, content_type="text/html")
        response.set_cookie(
            self._cookie_name(request), self._guard.cookie, httponly=True, samesite="Strict"
        )
        return response

    async def _give_file(self, request: Any) -> Any:
        return self._web.FileResponse(self._files[request.path.removeprefix("/static/")])

    async def _screen(self, request: Any) -> Any:
        """Run a screen as long as its page is open."""
        socket = self._web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_BYTES)
        await socket.prepare(request)
        try:
            await asyncio.wait_for(self._places.acquire(), _WAIT)
        except asyncio.TimeoutError:
            await socket.send_bytes(
                f"{counted(self._most, 'screen is', 'screens are')} open, and no more are "
                "allowed: close a screen, or start `rocm-tui serve` with --screens N.\r\n".encode()
            )
            await socket.close()
            return socket
        self._sockets.add(socket)
        try:
            await self._show(socket, request.query.get("width"), request.query.get("height"))
        finally:
            self._sockets.discard(socket)
            self._places.release()
        return socket

    async def _show(self, socket: Any, width: object, height: object) -> None:
        """Start a screen, carry bytes both ways, and end it."""
        env = _environment(os.environ, *_size(width, height))
        process = await _start_screen(self._command, env)
        drawing = asyncio.ensure_future(self._draw(process, socket))
        try:
            async for message in socket:
                if message.type == self._web.WSMsgType.TEXT:
                    with suppress(ValueError, RecursionError):  # half a character, or too nested
                        await _act_on(process, socket, message.json())
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing
            await asyncio.shield(_end_screen(process))

    async def _draw(self, process: asyncio.subprocess.Process, socket: Any) -> None:
        with suppress(ConnectionError):  # the page is gone
            async for text in _drawn(process):
                await socket.send_bytes(text)
        await socket.close()

    async def _close(self, app: Any) -> None:
        await asyncio.gather(*(socket.close() for socket in set(self._sockets)))


async def _act_on(process: asyncio.subprocess.Process, socket: Any, message: object) -> None:
    """Act on a message of the page; ignore anything else. Raises ValueError and RecursionError."""
    kind, value = message if isinstance(message, list) and len(message) == 2 else (None, None)
    if isinstance(message, list) and message in (["focus"], ["blur"]):
        await _send_message(process, message[0])
    elif kind == "stdin" and isinstance(value, str):
        await _typed(process, value)
    elif kind == "resize" and isinstance(value, dict):
        columns, rows = _size(value.get("width"), value.get("height"))
        await _send_message(process, "resize", width=columns, height=rows)
    elif kind == "ping":
        await socket.send_json(["pong", value])


async def run(site: Site, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal, then end all screens."""
    web = import_module("aiohttp.web")
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, over.set)
    # No log of requests: their URLs hold the token, anybody's junk would fill stderr, and a stderr
    # that nobody reads would stop the server. With a handler Python does not use its own.
    logging.getLogger().addHandler(logging.NullHandler())
    runner = web.AppRunner(site.application(), access_log=None, shutdown_timeout=10.0)
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        ready()
        await over.wait()
    finally:
        await runner.cleanup()


def _environment(env: Mapping[str, str], width: int, height: int) -> dict[str, str]:
    """Return the environment of a screen in a browser: true colour, and a size."""
    columns, rows = _size(width, height)
    return {
        **env,
        "TERM": "xterm-256color",
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(columns),
        "ROWS": str(rows),
    }


def _size(width: object, height: object) -> tuple[int, int]:
    """Return a number of cells within what can be drawn; 80x24 if it is not a number."""

    def cells(value: object, usual: int) -> int:
        with suppress(ValueError, TypeError):
            return max(1, min(_MOST_CELLS, int(str(value))))
        return usual

    return cells(width, 80), cells(height, 24)


async def _start_screen(command: Sequence[str], env: Mapping[str, str]) -> Process:
    """A session of its own: Ctrl-C at the server is the server's to pass on."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=env, start_new_session=True
    )


async def _drawn(process: Process) -> AsyncIterator[bytes]:
    """Yield what the screen draws until it ends; nothing if it did not begin."""
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


async def _typed(process: Process, text: str) -> None:
    """Send keys, mouse and pasted text, as a terminal does."""
    await _send(process, b"D", text.encode())


async def _send_message(process: Process, kind: str, **values: int) -> None:
    """Send a message: `resize` with width and height, `focus`, `blur`, `quit`."""
    await _send(process, b"M", json.dumps({"type": kind, **values}).encode())


async def _send(process: Process, letter: bytes, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # it is ending
        process.stdin.write(letter + len(payload).to_bytes(4, "big") + payload)
        await process.stdin.drain()


async def _end_screen(process: Process) -> None:
    """Ask the screen to end, and wait until it has; kill it if it does not react."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_send_message(process, "quit"), 0.5)
    process.stdin.close()
    try:
        await asyncio.wait_for(_over(process), _PATIENCE)
    except asyncio.TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()


async def _over(process: Process) -> None:
    """Discard what it still draws: otherwise it would wait for a reader forever."""
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass
    await process.wait()
