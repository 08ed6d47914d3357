"""What several commands share: arguments, the cache dir they mean, exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout, cache_dir
from rocm_tui import say
from rocm_tui.errors import UsageError
from rocm_tui.harmless import visible


class ExitCode(IntEnum):
    YES = 0
    NO = 1
    USAGE = 2
    INTERRUPTED = 130
    """As a shell counts a program that Ctrl-C ended."""

    @classmethod
    def of(cls, yes: bool) -> ExitCode:
        return cls.YES if yes else cls.NO

    @classmethod
    def of_error(cls, error: BaseException) -> ExitCode:
        if isinstance(error, UsageError):
            return cls.USAGE
        return cls.INTERRUPTED if isinstance(error, KeyboardInterrupt) else cls.NO


_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "id": {"metavar": "ID", "help": "a tuning's id, or its first digits"},
    "pinned_ids": {"nargs": "*", "metavar": "ID", "help": "a pinned tuning (default: all)"},
    "paths": {"nargs": "*", "metavar": "PATH", "help": "file, folder, or - for stdin"},
    "--device": {"metavar": "N", "help": "a GPU's index, or cpu"},
    "--from": {
        "dest": "sources",
        "action": "append",
        "default": [],
        "metavar": "PATH",
        "help": "also read this log, cache file or folder to find the ID (may be repeated)",
    },
    "--python": {
        "metavar": "EXE",
        "help": "the Python that has torch (default: ours, else $VIRTUAL_ENV's, else python3)",
    },
    "--cache-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": "Inductor's cache dir (default: where Inductor itself would look)",
    },
    "--json": {"action": "store_true", "help": "print JSON on stdout"},
}
"""What means the same in every command that has it."""


def add_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """Some of those that several commands have, in the order in which help lists them."""
    for name in names:
        parser.add_argument(name, **_ARGUMENTS[name])


def layout_of(args: argparse.Namespace) -> Layout:
    return Layout(args.cache_dir.absolute() if args.cache_dir else cache_dir())


def print_source(source: str) -> None:
    """As it is, but for what would be a command to the terminal."""
    say.out_text(source)
    changed = sum(map(str.__ne__, source, visible(source)))
    if changed:
        say.err(f"{changed} control or direction characters of this source are shown as pictures")
