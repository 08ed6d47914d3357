"""Processes that end at a drawn change of the disk, as a SIGKILL there would end them.

A child is forked, and each call that changes the disk, or takes a lock, is counted; at the n-th the
child kills itself: before the call, or in the middle of a write, of which a part is on the disk.
"""

from __future__ import annotations

import fcntl
import grp  # noqa: F401 - what children would else import, each anew
import io
import os
import pwd  # noqa: F401
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import filelock  # noqa: F401

from backend.disk import exchange

_CALLS = (
    "open", "write", "pwrite", "replace", "rename", "unlink", "remove", "link", "mkdir", "rmdir",
    "ftruncate", "fchmod", "utime", "close",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Death:
    """At which call, counted from 1, and which share of what was to be written still gets there."""

    step: int
    share: float = 0.0


def forked(action: Callable[[Callable[[str], None]], None], death: Death | None) -> Ended:
    """Run `action(acknowledge)` in a child that dies `death`; what it said until then."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            say = os.write
            counter = _Counter(death)
            counter.install()

            def acknowledge(text: str) -> None:
                say(writing, f"{text}\n".encode())

            action(acknowledge)
            say(writing, f"= {counter.count}\n".encode())
            code = 0
        except BaseException as error:
            say(writing, f"! {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        lines = stream.read().splitlines()
    _, status = os.waitpid(pid, 0)
    last = lines[-1] if lines else ""
    return Ended(
        acknowledged=[line for line in lines if line[:2] not in ("= ", "! ")],
        killed=os.WIFSIGNALED(status),
        steps=int(last[2:]) if last.startswith("= ") else None,
        error=next((line[2:] for line in lines if line.startswith("! ")), None),
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """`steps` is how many calls a child made that came to its end."""

    acknowledged: list[str]
    killed: bool
    steps: int | None
    error: str | None


class _Counter:
    def __init__(self, death: Death | None) -> None:
        self.count = 0
        self._death = death

    def install(self) -> None:
        """Count from now on, in this process, for good."""
        real_write = os.write
        for name in _CALLS:
            if name != "write":
                setattr(os, name, self._counted(getattr(os, name)))
        os.fsync = self._counted(lambda _: None)  # a kill leaves what the kernel has been given
        for name in ("flock", "lockf"):
            setattr(fcntl, name, self._counted(getattr(fcntl, name)))
        exchange.exchange = self._counted(exchange.exchange)

        def write(descriptor: int, data: bytes) -> int:
            if self._is_last():
                part = bytes(data)[: int(len(data) * self._share)]
                if part:
                    real_write(descriptor, part)
                _die()
            return real_write(descriptor, data)

        os.write = write  # type: ignore[assignment]
        real_open = os.fdopen

        def fdopen(descriptor: int, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "b" in mode and "w" in mode:
                return io.BufferedWriter(_Raw(descriptor))
            return real_open(descriptor, mode, *args, **kwargs)

        os.fdopen = fdopen  # type: ignore[assignment]

    @property
    def _share(self) -> float:
        return self._death.share if self._death else 0.0

    def _is_last(self) -> bool:
        self.count += 1
        return self._death is not None and self.count == self._death.step

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_last():
                _die()
            return function(*args, **kwargs)

        return call


class _Raw(io.RawIOBase):
    """A file whose writes are seen: `os.write`, looked up when it is called."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, bytes(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
