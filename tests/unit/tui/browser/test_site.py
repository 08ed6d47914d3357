"""`rocm-tui serve` as it runs, asked by a client that is no browser and lies in its headers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rocm_tui.tui.browser.site import INSTALL
from tests.support.browser_lab import Served, serving, words
from tests.support.log_lab import BMM
from tests.support.terminal_lab import ended as ended_process

aiohttp = pytest.importorskip("aiohttp", reason="pip install '.[serve]'")
pytest.importorskip("textual_serve", reason="pip install '.[serve]'")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "train.log").write_text(BMM)
    (folder / "state").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield from _served(folder)


def _served(folder: Path) -> Iterator[Served]:
    with serving("--screens", "2", "--cache-dir", folder, folder / "train.log") as server:
        yield server


async def status(served: Served, path: str, method: str = "GET", **more: Any) -> int:
    url = f"{served.base}{path}"
    async with aiohttp.ClientSession() as client, client.request(method, url, **more) as answer:
        return int(answer.status)


class Page:
    """What a page of ours holds once it is loaded."""

    def __init__(self, client: Any, served: Served, text: str) -> None:
        self.client = client
        self.screen = text.partition('websocket-url="')[2].partition('"')[0]
        self.origin = served.base

    def open(self, **headers: str) -> Any:
        url = f"{self.screen}?width=100&height=30"
        return self.client.ws_connect(url, headers={"Origin": self.origin} | headers)


async def page(client: Any, served: Served) -> Page:
    """Its cookie stays in `client`."""
    async with client.get(served.url) as answer:
        assert answer.status == 200
        return Page(client, served, await answer.text())


def a_client() -> Any:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def drawn(screen: Any, wanted: str, seconds: float = 120.0) -> str:
    """Read what is drawn until `wanted` stands in it."""
    text = b""

    async def read() -> None:
        nonlocal text
        async for message in screen:
            text += message.data if message.type == aiohttp.WSMsgType.BINARY else b""
            if wanted in words(text):
                return

    await asyncio.wait_for(read(), seconds)
    assert wanted in words(text)
    return words(text)


async def test_without_the_token_there_is_nothing(served: Served) -> None:
    for path in ("/", "/?token=", f"/?token={'x' * 43}", "/static/js/textual.js", "/static/",
                 "/screen/x", "/ws", "/download/x", "/no/such"):  # fmt: skip
        assert await status(served, path) == 403, path


DEEP = "[" * 900 + "]" * 900
JUNK = {
    "no path": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "no path, no host": b"CONNECT x HTTP/1.1\r\n\r\n",
    "a long line": b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nHost: HOST\r\nX: " + b"\x01" * 200_000 + b"\r\n\r\n",
    "no request": b"\x16\x03\x01" + bytes(range(256)) * 10 + b"\r\n\r\n",
    "a bad character behind the token": b"GET /?token=TOKEN\x01\xff HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "half a character": b"GET /?token=\xed\xa0\x80 HTTP/1.1\r\nHost: HOST\r\n\r\n",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_gets_an_error_and_the_server_writes_nothing(junk: bytes, served: Served) -> None:
    """Neither a traceback nor the token is on stderr, and nobody can fill it."""
    token = served.url.partition("token=")[2]
    host = f"127.0.0.1:{served.port}"
    junk = junk.replace(b"HOST", host.encode()).replace(b"TOKEN", token.encode())
    with socket.create_connection(("127.0.0.1", served.port), 60) as asked:
        with suppress(ConnectionError):  # it need not read all of it
            asked.sendall(junk)
        asked.settimeout(60)
        answer = b""
        with suppress(ConnectionError):
            while b"\r\n\r\n" not in answer and (data := asked.recv(1 << 16)):
                answer += data
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")), answer[:300]
    said = served.said()
    assert said.count("\n") <= 1 and "Traceback" not in said and token not in said


async def test_the_page_its_files_and_nothing_else(served: Served) -> None:
    async with a_client() as client:
        shown = await page(client, served)
        (cookie,) = client.cookie_jar
        assert cookie["httponly"] and cookie["samesite"] == "Strict"
        for path, wanted in {
            "/static/js/textual.js": 200, "/static/css/xterm.css": 200, "/static/page.js": 200,
            "/static": 404, "/static/": 404, "/static/js/": 404, "/static/images/background.png":
            404, "/static/../site.py": 404, "/static/%2e%2e/%2e%2e/server.py": 404, "/download/x":
            404,
        }.items():  # fmt: skip
            async with client.get(f"{served.base}{path}") as answer:
                assert answer.status == wanted, path
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert shown.screen.startswith("ws://127.0.0.1:")


async def test_a_screen_shows_the_log_and_takes_keys(served: Served) -> None:
    async with a_client() as client, (await page(client, served)).open() as screen:
        assert "300.0 µs" in await drawn(screen, "8×128×192×256")
        await screen.send_json(["stdin", "?"])
        await drawn(screen, "Keys: Watch")
        for odd in ("no json", "[]", "{}", '["resize", 7]', '["stdin", 7]', "[[], []]",
                    '["stdin", "\\ud800"]', "[" * 100_000, f'["ping", {DEEP}]',
                    f'["resize", {{"width": {DEEP}}}]'):  # fmt: skip
            await screen.send_str(odd)
        await screen.send_json(["resize", {"width": 10**9, "height": -1}])
        await screen.send_json(["resize", {"width": 100, "height": 30}])
        await screen.send_json(["stdin", "\x1b"])
        await drawn(screen, "8×128×192×256")
        await screen.send_json(["stdin", "q"])
        while (await screen.receive(timeout=180)).type != aiohttp.WSMsgType.CLOSED:
            pass


async def test_nothing_can_be_changed_unless_allowed(served: Served) -> None:
    """Nor can the browser turn that off, nor is it remembered how the screen was sorted there."""
    async with a_client() as client, (await page(client, served)).open() as screen:
        await drawn(screen, "8×128×192×256")
        await screen.send_json(["stdin", "s"])
        await drawn(screen, "sort: vs ATen")
        await screen.send_json(["stdin", "\x12"])
        await drawn(screen, "Read-only from the start")
        await screen.send_json(["stdin", "q"])
        while (await screen.receive(timeout=180)).type != aiohttp.WSMsgType.CLOSED:
            pass
    assert not list(Path(os.environ["XDG_STATE_HOME"]).iterdir())


async def test_a_page_of_another_origin_opens_no_screen(served: Served) -> None:
    """It has the cookie, which a browser would send, and even the ticket."""
    async with a_client() as client:
        shown = await page(client, served)
        for headers in (
            {"Origin": f"http://127.0.0.1:{served.port + 1}"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example", "Origin": "http://evil.example"},
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with shown.open(**headers):
                    pass
            assert refused.value.status == 403, headers


async def test_a_screen_needs_both_its_secrets(served: Served) -> None:
    async with a_client() as client, aiohttp.ClientSession() as stranger:
        shown = await page(client, served)
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with Page(stranger, served, f'websocket-url="{shown.screen}"').open():
                pass
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with Page(client, served, f'websocket-url="{shown.screen}x"').open():
                pass


async def test_nothing_can_be_posted(served: Served) -> None:
    path = served.url.removeprefix(served.base)
    for headers in ({}, {"Origin": served.base}, {"Origin": "http://127.0.0.1:1"}):
        assert await status(served, path, "POST", headers=headers, data="x") == 403


async def test_no_more_screens_than_allowed(served: Served) -> None:
    async with a_client() as client:
        shown = await page(client, served)
        async with shown.open() as first, shown.open() as second:
            await drawn(first, "bmm")
            await drawn(second, "bmm")
            async with shown.open() as third:
                assert "2 screens are open" in await drawn(third, "--screens N")
            assert len(served.children()) == 2
        async with shown.open() as again:  # both places are free
            await drawn(again, "bmm")


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
async def test_no_screen_outlives_the_server(tmp_path: Path, sign: int) -> None:
    (tmp_path / "train.log").write_text(BMM)
    with serving("--cache-dir", tmp_path, tmp_path / "train.log") as served:
        async with a_client() as client, (await page(client, served)).open() as screen:
            await drawn(screen, "bmm")
            (child,) = served.children()
            os.kill(served.process.pid, sign)
            await asyncio.to_thread(served.process.wait, 90)
        assert served.process.returncode == (0 if sign == signal.SIGTERM else -sign)
    assert await asyncio.to_thread(ended_process, child)


def ended(*words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "rocm_tui", "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    return done.returncode, done.stderr


def test_the_network_needs_a_word_of_its_own(served: Served) -> None:
    code, said = ended("--host", "0.0.0.0", "--port", "0")
    assert code == 2 and "--allow-network" in said and said.count("\n") == 1
    code, said = ended("--port", str(served.port))
    assert code == 1 and "--port 0" in said and said.count("\n") == 1
    assert ended("-")[0] == ended("--port", "x")[0] == ended("--screens", "0")[0] == 2


def test_what_is_missing_is_said_with_its_name(tmp_path: Path) -> None:
    """As in an environment without the extra: its modules cannot be found."""
    hide = "import sys, importlib.util as u; f = u.find_spec\n"
    hide += "u.find_spec = lambda name, *a: None if name == 'aiohttp' else f(name, *a)\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    code, said = ended("--port", "0", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert code == 1 and INSTALL in said and "rocm-tui[" not in said and said.count("\n") == 1
