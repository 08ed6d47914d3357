"""What can go wrong in the program, each with one line for the person who reads it."""

from __future__ import annotations

import re
from typing import ClassVar


class RocmTuiError(Exception):
    """The root: what happened, where, what to do, in one line.

    `hint` is the next step if it is the same for all errors of a class.
    """

    hint: ClassVar[str | None] = None


class UsageError(RocmTuiError):
    """The command's words are off; exit code 2."""


class QueryError(UsageError):
    """A filter cannot be read: where, and what to write instead."""


class NoSuchSource(RocmTuiError):
    """No such file or session exists, or it contains no tuning."""


class NoSuchTuning(RocmTuiError):
    """No tuning has that id."""

    hint = "`rocm-tui ls` lists the ids of tunings"


class NoSuchChoice(RocmTuiError):
    """The tuning has no such choice, or more than one."""

    hint = "`rocm-tui show ID` lists the choices of a tuning"


class NoSuchGraph(RocmTuiError):
    """No compiled graph has that id."""

    hint = "`rocm-tui graphs` lists the ids of graphs"


class NotPinnable(RocmTuiError):
    """The tuning is in no persistent cache, so it cannot be pinned."""


class TryAgain(RocmTuiError):
    """Another process is in the way; the same command can succeed later; exit code 3."""

    hint = "run the same command again later"


def error_code(kind: type[BaseException]) -> str:
    """Return the code of a class of errors in JSON: `no-such-tuning` for NoSuchTuning."""
    return re.sub("(?<!^)(?=[A-Z])", "-", kind.__name__.strip("_")).lower()
