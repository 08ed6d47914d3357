"""What can go wrong in the program, each with one line for the person who reads it.

RocmTuiError
├── UsageError        the command's words are off (exit 2)
│   └── QueryError    a filter cannot be read
├── NoSuchSource      what is named is no file and no session, or tells of no tuning
├── NoSuchTuning      no tuning has that id
├── NoSuchChoice      the tuning has no such choice, or several
├── NoSuchGraph       no compiled graph has that id
└── NotPinnable       the tuning is not in a persistent cache
"""

from __future__ import annotations


class RocmTuiError(Exception):
    """The root: what happened, where, what to do, in one line."""


class UsageError(RocmTuiError):
    """The command's words are off."""


class QueryError(UsageError):
    """A filter cannot be read: where, and what to write instead."""


class NoSuchSource(RocmTuiError):
    """What is named is no file and no session, or tells of no tuning."""


class NoSuchTuning(RocmTuiError):
    """No tuning has that id."""


class NoSuchChoice(RocmTuiError):
    """The tuning has no such choice, or more than one."""


class NoSuchGraph(RocmTuiError):
    """No compiled graph has that id."""


class NotPinnable(RocmTuiError):
    """The tuning cannot be pinned where it stands."""
