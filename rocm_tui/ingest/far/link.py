"""The near side: one connection to a host, from its first line to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from backend.errors import brief
from backend.model.session import Fault
from backend.wire.codec import WireError
from rocm_tui.harmless import clean_bytes
from rocm_tui.ingest.far.wire import BEAT, LONGEST, PROTOCOL, Hello, Settled, Told, is_told, told_in
from rocm_tui.ssh.address import Address
from rocm_tui.ssh.child import Child, TooLong
from rocm_tui.ssh.command import ssh_line
from rocm_tui.ssh.words import NOT_FOUND, SSH, why_ended

PATIENCE = 30.0
"""Seconds until the first line; a far Python on a slow disk takes its time."""
SILENCE = 4 * BEAT
"""Seconds without a sign of life after which the far side, or what lies between, is lost."""
_CHATTER = 1 << 16
"""Bytes that a login may print before rocm-tui speaks."""
_MOST_STRANGERS = 5
"""Kinds of lines that cannot be read, of which is told."""
_MOST = 1 << 31
"""Bytes of what is there at the start."""


class Lost(Exception):
    """The connection is over, and why, in one line."""


class Link:
    """One ssh with `rocm-tui tail` behind it."""

    def __init__(self, address: Address, words: Sequence[str]) -> None:
        """Raises Lost where ssh cannot be started."""
        self._address = address
        try:
            self._child = Child(ssh_line(address, ["tail", *words]), LONGEST)
        except OSError as error:
            raise Lost(f"ssh cannot be started: {error.strerror}") from None
        self._begun = self._spoke = time.monotonic()
        self._hello: Hello | None = None
        self._chatter = b""
        self._bytes, self._settled = 0, False
        self._strangers: set[str] = set()
        self.pid = self._child.pid

    def told(self, seconds: float) -> list[Told]:
        """What came, `Hello` first, in order; waits up to so many seconds. Raises Lost."""
        try:
            told = [one for line in self._child.lines(seconds) for one in self._read(line)]
        except TooLong:
            raise Lost(f"a line of more than {LONGEST >> 20} MiB came") from None
        except WireError as error:
            raise Lost(f"what came is not of rocm-tui: {brief(str(error), 100)}") from None
        self._say_that_we_listen()
        if not told:
            self._check()
        return told

    def kill(self) -> None:
        """From any thread: `told` raises Lost soon."""
        self._child.kill()

    def end(self) -> None:
        self._child.end()

    def _read(self, line: bytes) -> Iterable[Told]:
        if self._hello is not None:
            self._bytes += len(line)
            try:
                told = told_in(line)
            except WireError as error:
                return self._left_out(line, error)
            if isinstance(told, Settled):
                self._settled = True
            elif self._bytes > _MOST and not self._settled:
                raise Lost(f"tells more than {_MOST >> 30} GiB")
            return (told,)
        with suppress(WireError):
            told = told_in(line)
            if isinstance(told, Hello):
                self._greeted(told)
                return (told,)
        self._chatter += line + b"\n"  # of a shell's start-up files
        if len(self._chatter) > _CHATTER:
            raise Lost(self._strange())
        return ()

    def _left_out(self, line: bytes, error: WireError) -> Iterable[Told]:
        """A later version may tell of what is not known here: what, said once. Raises WireError
        for a line that is of no version."""
        if not is_told(line):
            raise error
        what = brief(str(error), 100)
        if what in self._strangers or len(self._strangers) >= _MOST_STRANGERS:
            return ()
        self._strangers.add(what)
        there = self._hello.version if self._hello is not None else ""
        told = f"rocm-tui {brief(there, 20)} there tells what this one cannot read ({what})"
        return (Fault("", f"{told}; such lines are left out"),)

    def _greeted(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            version = brief(hello.version, 20)
            raise Lost(
                f"rocm-tui {version} there speaks another protocol ({hello.protocol}, here "
                f"{PROTOCOL}): upgrade the older one"
            )
        self._hello = hello

    def _check(self) -> None:
        """Raises Lost where it is over, or silent for too long."""
        now, child = time.monotonic(), self._child
        if not child.open:
            raise Lost(self._why(child.end()))
        if self._hello is None and now - self._begun > PATIENCE:
            raise Lost(self._strange() if self._chatter else f"no answer in {PATIENCE:.0f} s")
        if self._hello is not None and now - child.heard > SILENCE:
            raise Lost(f"silent for {SILENCE:.0f} s")

    def _say_that_we_listen(self) -> None:
        """However much there is to hear: the far side ends where it hears nothing for long."""
        now = time.monotonic()
        if now - self._spoke >= BEAT:
            self._spoke = now
            self._child.say(b"\n")

    def _why(self, code: int) -> str:
        """In words, what ssh or the far shell ended with."""
        self._chatter += self._child.rest
        if self._hello is None and code not in (NOT_FOUND, SSH) and self._chatter:
            return self._strange()
        command = "tail" if self._hello is None else ""
        return why_ended(self._address, code, self._child.said, command)

    def _strange(self) -> str:
        text = brief(clean_bytes(self._chatter[:400]).strip(), 60)
        return f"what answers there is not rocm-tui: {text!r}"
