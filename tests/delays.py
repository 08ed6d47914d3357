"""A plugin that delays the process at random: `make test-delays`, or `pytest -p tests.delays`.

A busy machine or a slow disk may stop a process between any two steps. Here it is stopped on
purpose where the order of events then changes: before a widget is mounted, gets a message or ends,
before and after the work of a thread, around locks and changes of the file system. A test that
fails only so has found a race, of the product or its own. `DELAYS_SEED` repeats the draws, not the
whole course of events.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread
from typing import Any

import pytest
from textual.message_pump import MessagePump
from textual.widget import Widget

SEED = int(os.environ.setdefault("DELAYS_SEED", str(random.SystemRandom().randrange(2**32))))
_draw = random.Random(f"{SEED} {os.environ.get('PYTEST_XDIST_WORKER', '')}")
_LOOP = (0.0, 0.002, 0.02, 0.1)
_THREAD = (0.002, 0.02, 0.15)
_FILE = (0.001, 0.01, 0.1)
"""Seconds, one of which is drawn for each delay."""
_ON_FILES: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("fsync", "link", "open", "rename", "replace", "unlink")),
    (fcntl, "flock"),
    (fcntl, "lockf"),
)


def _seconds(share: float, lengths: tuple[float, ...]) -> float:
    """Return the length of a delay that a `share` of all calls has; 0 for the others."""
    return _draw.choice(lengths) if _draw.random() < share else 0.0


def _delayed(
    function: Callable[..., Any], share: float, lengths: tuple[float, ...]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def delayed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(_seconds(share, lengths))
        try:
            return function(*args, **kwargs)
        finally:
            time.sleep(_seconds(share / 3, lengths))

    return delayed


def _delayed_task(function: Callable[..., Any], share: float) -> Callable[..., Any]:
    @functools.wraps(function)
    async def delayed(*args: Any) -> Any:
        if (seconds := _seconds(share, _LOOP)) > 0:
            await asyncio.sleep(seconds)
        return await function(*args)

    return delayed


def pytest_configure(config: pytest.Config) -> None:
    for name, share in (("_pre_process", 0.1), ("_dispatch_message", 0.02)):
        setattr(MessagePump, name, _delayed_task(getattr(MessagePump, name), share))
    Widget._message_loop_exit = _delayed_task(Widget._message_loop_exit, 0.3)  # type: ignore[method-assign]
    for owner in (thread._WorkItem, threading.Thread):
        owner.run = _delayed(owner.run, 0.3, _THREAD)  # type: ignore[method-assign]
    for module, name in _ON_FILES:
        setattr(module, name, _delayed(getattr(module, name), 0.01, _FILE))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"delays: repeat with DELAYS_SEED={SEED}")
