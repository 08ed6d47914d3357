"""The other end of `process`: benchmarks what it is sent until the pipe closes.

What goes over the pipe is pickled. Both ends are one program's own processes, and nobody else
holds the pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from backend.processes.supervisor import apart

KEPT_SECONDS = 10.0
"""So long after a choice the inputs of its tuning are kept for the next one."""
IDLE_SECONDS = 300.0
"""On a GPU an idle process keeps memory that the program may need."""

FORGET = "forget"
"""What is sent at the end of a tuning; there is no answer to it."""


def main(handle: int) -> None:
    """A supervisor ends whatever a choice leaves behind, and ends as this process does."""
    sys.exit(apart(lambda: _serve(handle)))


def _serve(handle: int) -> int:
    pipe = Connection(handle)
    os.dup2(2, 1)  # what a kernel prints is no output of the program

    # torch, before the first clock; and not before the supervisor has forked.
    from backend.inductor.benchmark.request import answer, forget

    pipe.send("ready")
    while _comes(pipe, forget):
        try:
            request = pipe.recv()
        except EOFError:
            return 0
        if request == FORGET:
            forget()
            continue
        said = answer(request)
        pipe.send(said.value)
        if said.last:
            return 0
    return 0


def _comes(pipe: Connection, forget: Callable[[], None]) -> bool:
    """Whether there is something to read, before it was idle for too long."""
    if pipe.poll(KEPT_SECONDS):
        return True
    forget()
    return pipe.poll(IDLE_SECONDS)
