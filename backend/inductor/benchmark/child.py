"""The other end of `process`: benchmarks what it is sent until the pipe closes.

What goes over the pipe is pickled. Both ends are one program's own processes, and nobody else
holds the pipe.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

from backend.processes.supervisor import apart

IDLE_SECONDS = 300.0
"""On a GPU an idle process keeps memory that the program may need."""


def main(handle: int) -> None:
    """A supervisor ends whatever a choice leaves behind, and ends as this process does."""
    sys.exit(apart(lambda: _serve(handle)))


def _serve(handle: int) -> int:
    pipe = Connection(handle)
    os.dup2(2, 1)  # what a kernel prints is no output of the program

    from backend.inductor.benchmark import request as _  # noqa: F401 - torch, before the first clock

    pipe.send("ready")
    while pipe.poll(IDLE_SECONDS):
        try:
            request = pipe.recv()
        except EOFError:
            return 0
        pipe.send(_answer(request))
    return 0


def _answer(request: object) -> object:
    # torch is not loaded before the supervisor has forked.
    from backend.inductor.benchmark.tensors import ChoiceError, Computed
    from backend.inductor.torch.tuning import describe

    try:
        answer = request.benchmark()  # type: ignore[attr-defined]
        return answer if isinstance(answer, Computed) else float(answer)
    except ChoiceError as error:
        return error
    except Exception as error:  # the outermost boundary of a choice
        return ChoiceError(describe(error))
