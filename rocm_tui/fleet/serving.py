"""An agent as a program: messages on stdin and stdout, a line each, until stdin ends.

Its stdout is its own, as a worker's is: what a library prints there goes to stderr.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from backend.disk import safe
from backend.disk.layout import Layout
from backend.wire.codec import WireError
from rocm_tui.fleet.agent import Agent
from rocm_tui.fleet.messages import Stop, ToAgent, ToDriver, line_of, message_of
from rocm_tui.fleet.places import scratch_folder
from rocm_tui.jobs.limits import Limits

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def serve(
    name: str,
    device: str | None,
    python: str,
    layout: Layout,
    run: str,
    share: int = 1,
) -> int:
    """Be the agent `name` of the run `run`; its cache dir lies below that of `layout`, and goes
    with it. So many agents `share` the memory of this machine. Raises UsageError, StoreErrors and
    OSError."""
    heard, channel = private_streams()
    with _scratch(layout, run, name) as scratch:
        limits = Limits.of_this_machine(share)
        tell = functools.partial(_tell, channel)
        agent = Agent(name, device, python, scratch, tell, limits, layout.root)
        for number in _ENDS:
            signal.signal(number, _end)
        try:
            agent.start()
            threading.Thread(target=_listen, args=(agent, heard), daemon=True).start()
            agent.wait()
        finally:
            for number in _ENDS:
                signal.signal(number, signal.SIG_IGN)
            agent.end()
    return 0


def _listen(agent: Agent, descriptor: int) -> None:
    """Pass on what the driver says, and end the agent when it says nothing any more."""
    try:
        with os.fdopen(descriptor, "rb") as lines:
            for line in lines:
                message = _heard(line)
                if isinstance(message, Stop):
                    break
                if message is not None:
                    agent.take(message)
    finally:
        agent.end()


def _heard(line: bytes) -> ToAgent | None:
    """None for what is no message to an agent: a later version may say more."""
    try:
        message = message_of(line)
    except WireError:
        return None
    return message if isinstance(message, ToAgent) else None


def _tell(channel: int, message: ToDriver) -> None:
    """Where nobody listens any more stdin has ended too, which ends the agent."""
    line = memoryview(line_of(message))
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(channel, line) :]


@contextlib.contextmanager
def _scratch(layout: Layout, run: str, name: str) -> Iterator[Path]:
    """A new folder that goes with the block; one that a kill left is found by `prune`."""
    folder = scratch_folder(layout, run, f"{name}-{os.getpid()}")
    safe.make_folder(layout.root, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # when the last agent of the run has gone


def private_streams() -> tuple[int, int]:
    """Our stdin and stdout for ourselves."""
    sys.stdout.flush()
    private = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return private


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
