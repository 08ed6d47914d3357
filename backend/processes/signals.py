"""Ending by the signal that ended another process, and the errors that a program's own signal
handlers raise into whatever runs just then, ours too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from types import CodeType
from typing import Any


def die_by(number: int) -> int:
    """End this process by a signal, without a core dump of ours; 128 + its number if that ends
    nobody."""
    without_cores()
    with contextlib.suppress(OSError, ValueError):  # some cannot be set
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def without_cores() -> None:
    """Crashes are expected; their cores are large."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


_MOST = 8
"""Errors of a chain that are looked at; it may be a circle."""


def from_a_handler(error: BaseException) -> BaseException | None:
    """The error that a signal's handler raised, as those of timeouts do: this one, or that of which
    it was made (`raise ... from`; what was handled before is another matter). None for no such."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    one: BaseException | None = error if codes else None
    for _ in range(_MOST):
        if one is None or _passed(one, codes):
            return one
        one = one.__cause__
    return None


def _passed(error: BaseException, codes: set[CodeType]) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Of what is called; None where that is no Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    code = getattr(handler, "__code__", getattr(type(handler).__call__, "__code__", None))
    return code if isinstance(code, CodeType) else None
