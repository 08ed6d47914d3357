"""`rocm-tui serve` in a real browser: rows, keys, and pages of others."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.browser_lab import Served, chromium, serving, words
from tests.support.log_lab import BMM

pytest.importorskip("aiohttp", reason="pip install '.[serve]'")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "train.log").write_text(BMM)
    with serving("--cache-dir", folder, folder / "train.log") as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as context:
        yield context


class Seen:
    """What a page's terminal was sent."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.bytes = b""
        page.on("websocket", lambda socket: socket.on("framereceived", self._take))

    def _take(self, frame: bytes | str) -> None:
        self.bytes += frame if isinstance(frame, bytes) else b""

    def wait_for(self, wanted: str, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while wanted not in words(self.bytes):
            assert time.monotonic() < until, f"{wanted!r} was never drawn"
            self.page.wait_for_timeout(50)


def painted(page: Any, before: bytes) -> bytes:
    """The page, once it is another than `before` and stands still."""
    seen, end = b"", time.monotonic() + 120
    while seen != (seen := page.screenshot()) or seen == before:
        assert time.monotonic() < end, "nothing changes, or all the time"
        page.wait_for_timeout(300)
    return bytes(seen)


def test_a_log_is_drawn_and_a_key_works(browser: Any, served: Served) -> None:
    page = browser.new_page()
    faults: list[object] = []
    page.on("pageerror", lambda error: faults.append(error))
    page.on("requestfailed", lambda request: faults.append(request.url))
    seen = Seen(page)
    page.goto(served.url)
    seen.wait_for("8×128×192×256")
    page.wait_for_selector(".textual-terminal.-connected")
    before = painted(page, b"")
    page.keyboard.press("?")
    seen.wait_for("Keys: Watch")
    painted(page, before)  # it is, and not only sent
    page.reload()
    seen.bytes = b""
    seen.wait_for("8×128×192×256")
    page.wait_for_selector(".textual-terminal.-connected")
    painted(page, b"")
    page.keyboard.press("q")
    page.wait_for_selector("#ended", state="visible", timeout=120_000)
    assert faults == []
    page.close()


def test_without_the_token_there_is_no_page(browser: Any, served: Served) -> None:
    """Though the browser has the cookie from the test before."""
    page = browser.new_page()
    for url in (f"{served.base}/", f"{served.base}/?token=wrong"):
        answer = page.goto(url)
        assert answer.status == 403 and "Refused" in page.content()
    page.close()


@contextmanager
def another_site() -> Iterator[str]:
    """A site of somebody else on another port of this host."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>another site</title>")

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


OPENS = """url => new Promise(done => {
  const socket = new WebSocket(url);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""
POSTS = """url => {
  const form = document.createElement("form");
  form.method = "POST";
  form.action = url;
  document.body.append(form);
  form.submit();
}"""
READS = "url => fetch(url, {credentials: 'include'}).then(() => 'read', () => 'failed')"
FRAMES = """url => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.onload = () => {
    try { done(frame.contentWindow.location.href) } catch { done("hidden") }
  };
  frame.src = url;
  document.body.append(frame);
})"""


def test_another_site_cannot_drive_it(browser: Any, served: Served) -> None:
    """Worst case: the browser holds the cookie, and that page knows the token and the ticket."""
    ours = browser.new_page()
    seen = Seen(ours)
    ours.goto(served.url)
    seen.wait_for("8×128×192×256")
    screen = ours.get_attribute(".textual-terminal", "data-session-websocket-url")
    _until(lambda: len(served.children()) == 1)  # that of the test before ends
    with another_site() as site:
        page = browser.new_page()
        page.goto(site)
        assert page.evaluate(OPENS, f"{screen}?width=80&height=24") == "refused"
        assert page.evaluate(READS, served.url) == "failed"
        page.evaluate(FRAMES, served.url)
        assert not any(frame.query_selector("canvas") for frame in page.frames)
        with page.expect_navigation() as answered:
            page.evaluate(POSTS, served.url)
        assert answered.value.status == 403 and "another site" in page.content()
        page.close()
    assert len(served.children()) == 1
    ours.close()
    _until(lambda: not served.children())


def _until(over: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < end
        time.sleep(0.1)
