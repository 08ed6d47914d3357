"""`rocm-tui serve` as a person starts it, a client without a browser, and a Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.processes.tree import children
from tests.support.tools import require_tool

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()


@dataclass(frozen=True)
class Served:
    """A server that runs: its URL with the token, and where it stands."""

    process: subprocess.Popen[str]
    url: str

    @property
    def base(self) -> str:
        return self.url.partition("/?")[0]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def said(self) -> str:
        """What it has written to stderr since the last call."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        try:
            return os.read(self.process.stderr.fileno(), 1 << 20).decode()
        except BlockingIOError:
            return ""

    def children(self) -> set[int]:
        """The processes of its screens."""
        return children(self.process.pid)


@contextmanager
def serving(*words: str | Path) -> Iterator[Served]:
    """`rocm-tui serve --port 0 WORDS...`, ended as Ctrl-C ends it."""
    command = [sys.executable, "-m", "rocm_tui", "serve", "--port", "0", *map(str, words)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), process.stderr.read()
        yield Served(process, url)
    finally:
        process.terminate()
        process.wait(90)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with an empty profile: a context of playwright's."""
    executable = CHROMIUM or require_tool("chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with tempfile.TemporaryDirectory() as profile, playwright.sync_playwright() as running:
        context = running.chromium.launch_persistent_context(
            profile,
            executable_path=executable,
            headless=True,
            args=FLAGS,
            viewport={"width": 1280, "height": 720},
        )
        try:
            yield context
        finally:
            context.close()


def words(drawn: bytes) -> str:
    """What of a terminal's bytes is text, its cells one after another."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.decode("utf-8", "replace"))
