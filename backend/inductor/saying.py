"""What the hooks tell the person who runs the program: single lines on its stderr."""

from __future__ import annotations

import sys

from backend.errors import brief

_said: set[str] = set()


def say(line: str) -> None:
    """One line on stderr, whatever state stderr is in."""
    try:
        sys.stderr.write(f"rocm-tui: {brief(line, 400)}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return  # closed, full, or replaced by something that is no stream


def say_once(line: str) -> None:
    """The same line is told once a process."""
    if line not in _said:
        _said.add(line)
        say(line)
