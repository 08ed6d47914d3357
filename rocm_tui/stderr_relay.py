"""A child's stderr, passed on as it comes and kept in a file.

Where our stderr is a terminal the child's is one too (a pty of the same size that changes no
byte), else a pipe. Its stdin, stdout, controlling terminal and process group stay what they were.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import termios
import tty
from collections.abc import Callable
from typing import BinaryIO

from rocm_tui.table_filter import TableFilter

CHUNK = 1 << 16


class StderrRelay:
    """`child_end` is for the child, `descriptor` to be read when ready, `pump` reads it.

    `table_filter` keeps what it recognises off our stderr; the log, opened at the first byte, gets
    all. What our stderr or the log does not take any more (closed, disk full) is dropped: the child
    must not notice.
    """

    def __init__(
        self, open_log: Callable[[], BinaryIO | None], table_filter: TableFilter | None
    ) -> None:
        self._open_log: Callable[[], BinaryIO | None] | None = open_log
        self._log: BinaryIO | None = None
        self._filter = table_filter
        self._target: int | None = 2
        self.terminal = os.isatty(2)
        self.descriptor, self.child_end = self._pty() if self.terminal else os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_inheritable(self.descriptor, False)

    def _pty(self) -> tuple[int, int]:
        ours, theirs = os.openpty()
        # What the child writes must arrive as it is: our own terminal turns \n into \r\n.
        tty.setraw(theirs)
        self.descriptor = ours
        self.follow_size()
        return ours, theirs

    def follow_size(self) -> None:
        """Give the child's terminal the size of ours."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)

    def child_started(self) -> None:
        os.close(self.child_end)

    @property
    def holds(self) -> bool:
        """Whether some bytes wait for more; `release` passes them on."""
        return self._filter is not None and self._filter.held

    def release(self) -> None:
        if self._filter is not None:
            self._show(self._filter.release())

    def pump(self) -> bool:
        """Pass on what is there; False at the end of the stream."""
        try:
            data = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno != errno.EIO:  # a pty whose other end is closed
                raise
            data = b""
        if not data:
            return False
        self._keep(data)
        self._show(data if self._filter is None else self._filter.feed(data))
        return True

    def close(self) -> None:
        self.release()
        os.close(self.descriptor)
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()

    def _keep(self, data: bytes) -> None:
        if self._open_log is not None:
            self._log, self._open_log = self._open_log(), None
        if self._log is None:
            return
        try:
            self._log.write(data)
        except OSError:
            self._log = None

    def _show(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._target is not None:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:
                self._wait_for_room()
            except OSError:
                self._target = None

    def _wait_for_room(self) -> None:
        """Somebody made our stderr non-blocking; wait as a blocking write would."""
        import select

        if self._target is not None:
            select.select([], [self._target], [])
