"""The way out: all that commands print goes through here, so that no text of a file is a command
to the terminal. A test forbids every other way to stdout and stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType

from rocm_tui.harmless import plain, visible

_SPELLED = str.maketrans(
    "×≤≥µ°–−─━╴·…●○✓✗▶▸▾▼▲│┃▌▏├┤┼╭╮╰╯┌┐└┘←→↑↓",
    "x<>uo---=-..*ov!>>vv^||||+++++++++++<>^v",
)
"""Letters of ours as one of ASCII each. `?` and `~` stand beside numbers that are doubtful, so no
other sign may become one."""


def spelled(error: UnicodeError) -> tuple[str, int]:
    """`codecs.register_error`, for a stream that lacks our letters; others are `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_SPELLED)
    return "".join(char if char.isascii() else "?" for char in text), error.end


def width() -> int | None:
    """Cells of a line of stdout, where that is a terminal."""
    with contextlib.suppress(OSError, ValueError):  # no terminal, or closed
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


def out(text: str = "", *, flush: bool = False) -> None:
    """Lines on stdout."""
    out_text(f"{text}\n")
    if flush:
        sys.stdout.flush()


def out_text(text: str) -> None:
    """A text on stdout that ends as it ends: a file that somebody asked to see."""
    sys.stdout.write(visible(text))


def err(text: str, *, flush: bool = False) -> None:
    """One line on stderr, which says who speaks."""
    sys.stderr.write(f"rocm-tui: {plain(text)}\n")
    if flush:
        sys.stderr.flush()


def overwrite(text: str) -> None:
    """The last line of a terminal on stderr, in place of what stood there."""
    sys.stderr.write(f"\r\x1b[K{plain(text)}")
    sys.stderr.flush()


def ask(question: str) -> None:
    """On stderr, where the answer is typed behind it."""
    sys.stderr.write(plain(question))
    sys.stderr.flush()


def out_json(value: object) -> None:
    """Print a `JsonObject` as JSON, on one line unless a person reads it on a terminal."""
    from rocm_tui.json_output import encode  # the screen starts without

    sys.stdout.write(encode(value, indent=2 if sys.stdout.isatty() else None) + "\n")


def mistake(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook`: a mistake of ours may quote a file too."""
    import traceback  # slow to load, and seldom needed

    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))
