"""The other end of `process`: benchmarks the requests that it receives until the pipe closes.

Messages are pickled. Both ends are processes of one program, and no other process has the pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from backend.processes.supervisor import supervised

KEPT_SECONDS = 10.0
"""Seconds after a choice for which the inputs of its tuning are kept for the next one."""
IDLE_SECONDS = 300.0
"""Seconds; on a GPU an idle process keeps memory that the program may need."""

FORGET = "forget"
"""The message at the end of a tuning; it gets no answer."""


def main(handle: int) -> None:
    """Serve under a supervisor, which ends leftovers of choices and exits like this process."""
    sys.exit(supervised(lambda: _serve(handle)))


def _serve(handle: int) -> int:
    pipe = Connection(handle)
    os.dup2(2, 1)  # keep a kernel's output out of the program's

    # torch, before the first clock; and not before the supervisor has forked.
    from backend.inductor.benchmark.request import answer, forget_tuning

    pipe.send("ready")
    while _comes(pipe, forget_tuning):
        try:
            request = pipe.recv()
        except EOFError:
            return 0
        if request == FORGET:
            forget_tuning()
            continue
        said = answer(request)
        pipe.send(said.value)
        if said.last:
            return 0
    return 0


def _comes(pipe: Connection, forget: Callable[[], None]) -> bool:
    """Return whether there is something to read, before the process has been idle too long."""
    if pipe.poll(KEPT_SECONDS):
        return True
    forget()
    return pipe.poll(IDLE_SECONDS)
