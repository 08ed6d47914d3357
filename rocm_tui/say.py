"""The only way out: everything that commands print goes through here, so that no text of a file is
a command to the terminal. A test forbids every other way to stdout and stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from rocm_tui.harmless import plain, visible

if TYPE_CHECKING:
    from rocm_tui.json_output import Document

_SPELLED = str.maketrans(
    "×≤≥µ°–−─━╴·…●○✓✗▶▸▾▼▲│┃▌▏├┤┼╭╮╰╯┌┐└┘←→↑↓",
    "x<>uo---=-..*ov!>>vv^||||+++++++++++<>^v",
)
"""The ASCII replacement of each letter that we print. `?` and `~` mark doubtful numbers, so no
other character may become one."""


def spelled(error: UnicodeError) -> tuple[str, int]:
    """`codecs.register_error`, for a stream that lacks our letters; others become `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_SPELLED)
    return "".join(char if char.isascii() else "?" for char in text), error.end


def width() -> int | None:
    """Return the cells of a line of stdout, if it is a terminal."""
    with contextlib.suppress(OSError, ValueError):  # no terminal, or closed
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


def out(text: str = "", *, flush: bool = False) -> None:
    """Print lines on stdout."""
    out_text(f"{text}\n")
    if flush:
        sys.stdout.flush()


def out_text(text: str) -> None:
    """Print a text on stdout as it is, such as a requested file, without a further line end."""
    sys.stdout.write(visible(text))


def err(*lines: str, flush: bool = False) -> None:
    """Print lines on stderr, each after our name."""
    for line in lines:
        sys.stderr.write(f"rocm-tui: {plain(line)}\n")
    if flush:
        sys.stderr.flush()


def begin_line(*, begun: bool = False) -> None:
    """Begin a line on stderr, behind what another program may have written there or on stdout.

    Where a terminal's cursor is cannot be seen, but a line of spaces wraps only if it does not
    begin at the left edge; zsh does the same before its prompt. Elsewhere a line is ended where one
    is `begun` on stderr, and where stdout is the same file and may have one.
    """
    with contextlib.suppress(OSError, ValueError):
        capable = os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb"
        columns = os.get_terminal_size(2).columns if capable else 0
        if columns:
            sys.stderr.write(f"{' ' * columns}\r\x1b[K")
        elif begun or os.path.samestat(os.fstat(1), os.fstat(2)):
            sys.stderr.write("\n")


def overwrite(text: str) -> None:
    """Overwrite the last line of a terminal on stderr."""
    sys.stderr.write(f"\r\x1b[K{plain(text)}")
    sys.stderr.flush()


def ask(question: str) -> None:
    """Ask on stderr; the answer is typed behind the question."""
    sys.stderr.write(plain(question))
    sys.stderr.flush()


def out_json(value: Document, *, flush: bool = False) -> None:
    """Print a document as JSON, on one line unless a person reads it on a terminal."""
    from rocm_tui.json_output import encode  # the screen starts without

    sys.stdout.write(encode(value, indent=2 if sys.stdout.isatty() else None))
    sys.stdout.write("\n")
    if flush:
        sys.stdout.flush()


def mistake(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback, as `sys.excepthook`: our own mistakes may quote a file too."""
    import traceback  # slow to load, and seldom needed

    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))
