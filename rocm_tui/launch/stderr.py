"""A child's stderr, passed on as it comes and kept in a file, by a process of its own.

Where our stderr is a terminal the child's is one too (a pty of the same size that changes no
byte), else a pipe. Its stdin, stdout, controlling terminal and process group stay what they were.

AUTOTUNE tables can be filtered out without delaying anything else. A table is the text that
torch/_inductor/select_algorithm.py writes to stderr: two lines of statistics, a header, strides,
dtypes, rows, a footer; each may have a launcher's or logger's prefix and colours. A progress bar
may precede the header on the same line; it is kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import select
import signal
import termios
import time
import tty
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

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
from rocm_tui.launch.copier import MOST, shortened

CHUNK = 1 << 16


HOLD_SECONDS = 0.1
"""How long the begun line of what may be a table is held."""
DRAIN_SECONDS = 0.2
"""How long we wait for stderr of what the child left running in the background."""
MOST_DRAIN_SECONDS = 2.0
"""As long at most, where that goes on writing."""
LOOK_SECONDS = 0.5
"""Between two looks of the status line."""
_IGNORED = ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2", "ALRM", "WINCH", "TSTP", "TTIN", "TTOU")


class StatusLine(Protocol):
    """A line on our terminal, beside the program's stderr."""

    def look(self) -> None:
        """Called at least each half second."""

    def wrote(self, data: bytes) -> None:
        """Called before the program's bytes are passed on."""

    def clear(self) -> None:
        """The program has ended."""


class StderrRelay:
    """A process that passes on what the program writes to `child_end`: so the program goes on as
    without us when we are killed or stopped. It lasts as long as somebody can write there, or
    until `end`.

    `table_filter` keeps what it recognises off our stderr; the log, opened at the first byte, has
    the beginning and the end of all; `line` is drawn beside it. What our stderr or the log does not
    take any more (closed, disk full) is dropped: the program must not notice. A line, filter or
    log that raises is left out from then on.
    """

    def __init__(
        self,
        open_log: Callable[[], BoundedLog | None],
        table_filter: TableFilter | None = None,
        line: StatusLine | None = None,
    ) -> None:
        self._line = line
        self._open_log: Callable[[], BoundedLog | None] | None = open_log
        self._log: BoundedLog | None = None
        self._filter = table_filter
        self._target: int | None = 2
        self._pid = 0
        self.mid_line = False
        """Whether the last line that was passed on has not ended; known after `end`."""
        self.terminal = os.isatty(2)
        self._descriptor, self.child_end = os.openpty() if self.terminal else os.pipe()
        if self.terminal:
            # What the child writes must arrive as it is: our own terminal turns \n into \r\n.
            tty.setraw(self.child_end)
            self.follow_size()

    def follow_size(self) -> None:
        """Give the child's terminal the size of ours."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def start(self) -> None:
        """Start the process. Raises OSError."""
        control, self._control = os.pipe()
        ours = os.getpgrp()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._detach(control)
                self._pass_on(control, ours)
            finally:
                os._exit(self.mid_line)
        os.close(control)
        if not self.terminal:
            os.close(self._descriptor)

    def end(self) -> None:
        """The program has ended, or could not be started: wait for what it wrote."""
        if self._pid:
            with contextlib.suppress(OSError):
                os.write(self._control, b"e")
            os.close(self._control)
            _, status = os.waitpid(self._pid, 0)
            self.mid_line = os.waitstatus_to_exitcode(status) == 1
            if self.terminal:
                os.close(self._descriptor)

    # In the other process.

    def _detach(self, control: int) -> None:
        """Get no signal that is for the program or for us, and hold nothing open but stderr."""
        signal.set_wakeup_fd(-1)
        for name in _IGNORED:
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        inherited = [self._control, self.child_end]
        with contextlib.suppress(OSError):  # without /proc, what the run inherited stays open
            inherited += [int(entry.name) for entry in Path("/dev/fd").iterdir()]
        for descriptor in inherited:
            if descriptor > 2 and descriptor not in (control, self._descriptor):
                with contextlib.suppress(OSError):  # the one that listed them is closed
                    os.close(descriptor)

    def _pass_on(self, control: int, group: int) -> None:
        """Until the end of the stream and of the program, whose run has the process `group`. A run
        that was killed says no end."""
        sources, until = [self._descriptor, control], math.inf
        while sources and time.monotonic() < until:
            ready, _, _ = select.select(sources, [], [], self._patience(until))
            if self._descriptor in ready and not self._pump():
                sources.remove(self._descriptor)
            if control in ready:
                sources.remove(control)
                self._clear_line()
                if os.read(control, 1):
                    until = time.monotonic() + MOST_DRAIN_SECONDS
            if not ready:
                self._release()
                if until < math.inf:
                    break
            if self._line is not None and _is_in_front(group):
                self._draw(self._line.look)
        self._release()

    def _patience(self, until: float) -> float | None:
        if until < math.inf:
            return DRAIN_SECONDS
        if self._filter is not None and self._filter.held:
            return HOLD_SECONDS
        return None if self._line is None else LOOK_SECONDS

    def _clear_line(self) -> None:
        if self._line is not None:
            self._draw(self._line.clear)
        self._line = None

    def _draw(self, draw: Callable[[], None]) -> None:
        """Draw the status line; where that fails go on without it: the program writes here."""
        try:
            draw()
        except Exception:
            self._line = None

    def _release(self) -> None:
        if self._filter is not None:
            self._show(self._filter.release())

    def _pump(self) -> bool:
        """Pass on the bytes that have arrived; False at the end of the stream."""
        try:
            data = os.read(self._descriptor, CHUNK)
        except OSError as error:
            if error.errno != errno.EIO:  # a pty whose other end is closed
                raise
            data = b""
        if data:
            self._keep(data)
            self._show(self._filtered(data))
        return bool(data)

    def _filtered(self, data: bytes) -> bytes:
        if self._filter is None:
            return data
        try:
            return self._filter.feed(data)
        except Exception:  # it keeps what it held
            held, self._filter = self._filter.release(), None
            return held + data

    def _keep(self, data: bytes) -> None:
        open_log, self._open_log = self._open_log, None
        try:
            if open_log is not None:
                self._log = open_log()
            if self._log is not None:
                self._log.write(data)
        except Exception:
            self._log = None

    def _show(self, data: bytes) -> None:
        if data:
            self.mid_line = not data.endswith(b"\n")
            if self._line is not None:
                self._draw(partial(self._line.wrote, data))
        view = memoryview(data)
        while view and self._target is not None:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:  # somebody made our stderr non-blocking: wait as if it were not
                select.select([], [self._target], [])
            except OSError:
                self._target = None


class BoundedLog:
    """A file of at most `most` bytes with the beginning and the end of what is written to it.

    Where it would become longer a file with its first and its last quarter takes its place; a line
    between them says how many bytes are not kept.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file, self._path, self._most = os.open(path, flags, 0o666), str(path), most
        self._size = self._cut = self._head = self._mark = 0

    def write(self, data: bytes) -> None:
        """Write all of `data`. Raises OSError, also where the file cannot be replaced."""
        for at in range(0, len(data), self._most // 4):
            piece = memoryview(data)[at : at + self._most // 4]
            if self._size + len(piece) > self._most:
                self._shorten()
            while piece:
                written = os.write(self._file, piece)
                piece, self._size = piece[written:], self._size + written

    def _shorten(self) -> None:
        """Cut the middle out, from the end of a line to the end of another where that is near."""
        if not self._cut:
            self._head = self._line_end(self._most // 4)
        start = self._line_end(self._size - self._most // 4)
        self._cut += start - self._head - self._mark
        line = b"[rocm-tui: %d bytes are not kept here]\n" % self._cut
        if os.pread(self._file, 1, self._head - 1) != b"\n":
            line = b"\n" + line
        self._file, self._size = shortened(self._file, self._path, self._head, line, start)
        self._mark = len(line)

    def _line_end(self, at: int) -> int:
        """Return where the line that holds a byte ends; that place itself in a very long line."""
        return at + os.pread(self._file, min(CHUNK, self._most // 8), at).find(b"\n") + 1


def _is_in_front(group: int) -> bool:
    """Whether the terminal is that process group's: not while it is stopped, or in the background.
    Where that cannot be seen it is."""
    try:
        return os.tcgetpgrp(2) == group
    except OSError:
        return True


_PREFIX = re.compile(
    rb"(?:\x1b\[[\d;]*m|\[[\w.:-]{1,40}\]:? ?|\d{4}-\d\d-\d\d[T ][\d:.,]+Z? ?|[ \t]+){0,64}"
)  # without a bound a line of tabs takes 100 bytes of memory for each
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

    While something is `held`, it may still turn out to be the beginning of a table: feed more, or
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
        out = [self._line(line + b"\n") for line in lines[:-1]]
        out.append(self._partial(lines[-1]))
        return b"".join(out)

    def release(self) -> bytes:
        """Return what is held: nothing more came, so it is not a table's."""
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
