"""A child's stderr, passed on as it comes and kept in a file.

Where our stderr is a terminal the child's is one too (a pty of the same size that changes no
byte), else a pipe. Its stdin, stdout, controlling terminal and process group stay what they were.

AUTOTUNE tables can be taken out of it, without holding up anything else. A table is the text that
torch/_inductor/select_algorithm.py writes to stderr: two lines of statistics, a header, strides,
dtypes, rows, a footer; each may have a launcher's or logger's prefix and colours. A progress bar
may stand before the header on its own line, and stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import termios
import tty
from collections.abc import Callable
from typing import BinaryIO

from rocm_tui.harmless import clean_bytes
from rocm_tui.ingest.formats import autotune_lines
from rocm_tui.ingest.formats.autotune_lines import (
    AUTOTUNE_MARK,
    ChoiceRow,
    Dtypes,
    Footer,
    Header,
    Strides,
    only_part,
)

CHUNK = 1 << 16


class StderrRelay:
    """`child_end` is for the child, `descriptor` to be read when ready, `pump` reads it.

    `table_filter` keeps what it recognises off our stderr; the log, opened at the first byte, gets
    all; `told` hears what is shown before it is. What our stderr or the log does not take any more
    (closed, disk full) is dropped: the child must not notice.
    """

    def __init__(
        self,
        open_log: Callable[[], BinaryIO | None],
        table_filter: TableFilter | None,
        told: Callable[[bytes], None] | None = None,
    ) -> None:
        self._told = told
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
        if data and self._told is not None:
            self._told(data)
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
        if self._target is not None:
            select.select([], [self._target], [])


_PREFIX = re.compile(
    rb"(?:\x1b\[[\d;]*m|\[[\w.:-]{1,40}\]:? ?|\d{4}-\d\d-\d\d[T ][\d:.,]+Z? ?|[ \t])*"
)
_TITLE, _STATS = autotune_lines.TITLE.encode(), autotune_lines.STATS.encode()
_OPERANDS = (autotune_lines.STRIDES.encode(), autotune_lines.DTYPES.encode())
_STARTS = (
    _TITLE,
    AUTOTUNE_MARK,
    *(process.encode() + AUTOTUNE_MARK for process in autotune_lines.PROCESSES),
)
"""Each begins a line of a table."""
_INLINE = re.compile(
    rf"{autotune_lines.TITLE}|{autotune_lines.AUTOTUNE}{autotune_lines.OP}\(".encode()
)
_ROW_BEGUN = re.compile(rb"(?:# ?)?(?:[A-Za-z_][^\s\r]*(?: (?:[\d.infa]*(?: m?s?(?: .*)?)?)?)?)?")


class TableFilter:
    """Feed it what was read; it gives back what is not part of a table.

    `held` tells whether the end of what was fed may still turn out to be a table's: feed more, or
    `release` it after a moment.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._mid_line = False
        self._open = 0

    @property
    def held(self) -> bool:
        return bool(self._pending)

    def feed(self, data: bytes) -> bytes:
        lines = (self._pending + data).split(b"\n")
        self._pending = b""
        out = [self._line(line + b"\n") for line in lines[:-1]]
        out.append(self._partial(lines[-1]))
        return b"".join(out)

    def release(self) -> bytes:
        """What is held, as it stands: nothing more came, so it is not a table's."""
        out, self._pending = self._pending, b""
        self._mid_line = self._mid_line or bool(out)
        return out

    def _line(self, line: bytes) -> bytes:
        begun, self._mid_line = self._mid_line, False
        if line == b"\n":
            return line
        if not begun and self._is_ours(line[_prefix_end(line) :]):
            return b""
        inline = _INLINE.search(line)
        if inline is not None and self._is_ours(line[inline.start() :]):
            return line[: inline.start()]  # the bar goes on, on this line
        return line

    def _is_ours(self, line: bytes) -> bool:
        if line.startswith((_TITLE, _STATS)):
            return True
        if not self._open and AUTOTUNE_MARK not in line:
            return False
        part = only_part(clean_bytes(line).rstrip())
        if isinstance(part, Header):
            self._open += 1
        elif isinstance(part, Footer):
            self._open = max(0, self._open - 1)
        else:
            return self._open > 0 and isinstance(part, (ChoiceRow, Strides, Dtypes))
        return True

    def _partial(self, part: bytes) -> bytes:
        """The end of what came, which has no line end yet: pass on what cannot be ours."""
        keep = self._inline_start(part) if self._mid_line else self._line_start(part)
        self._pending = part[keep:]
        self._mid_line = self._mid_line or keep > 0
        return part[:keep]

    def _line_start(self, part: bytes) -> int:
        text = part[_prefix_end(part) :]
        starts = (*_STARTS, _STATS, *(_OPERANDS if self._open else ()))
        if any(start.startswith(text) or text.startswith(start) for start in starts):
            return 0
        if self._open and _ROW_BEGUN.fullmatch(text):
            return 0
        return self._inline_start(part)

    def _inline_start(self, part: bytes) -> int:
        """Where, in the middle of a line, a table may begin."""
        inline = _INLINE.search(part)
        if inline is not None:
            return inline.start()
        for at in range(max(0, len(part) - len(_TITLE)), len(part)):
            if any(start.startswith(part[at:]) for start in (_TITLE, AUTOTUNE_MARK)):
                return at
        return len(part)


def _prefix_end(line: bytes) -> int:
    prefix = _PREFIX.match(line)
    return prefix.end() if prefix else 0
