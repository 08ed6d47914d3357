"""The parser of every command, also the source of completion and of a manual.

A command is a line of the table: its name, what it is for, and the module of this folder that has
`add_NAME(parser)`, which says its words, and `do_NAME(args)`, which does it and returns the exit
code. A module is loaded when its command is asked for, so its imports may be as heavy as it needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from rocm_tui import __version__
from rocm_tui.harmless import plain


@dataclass(frozen=True, slots=True)
class Command:
    """`takes_program`: what follows `--` are the words of a person's program."""

    module: str
    help: str
    takes_program: bool = False


COMMANDS = {
    "watch": Command("watch", "watch tunings live"),
    "run": Command("run", "run a program, record its tunings, honour its pins"),
    "demo": Command("demo", "the screen on a real session of this machine's CPU"),
    "ls": Command("ls", "list tunings"),
    "show": Command("show", "show one tuning with all its choices"),
    "pin": Command("pin", "pin a choice"),
    "unpin": Command("pins", "take pins back"),
    "pins": Command("pins", "list pins and their state"),
    "verify": Command("verify", "prove that pins are used", takes_program=True),
    "tune": Command("tune", "tune an op again"),
    "measure": Command("measure", "find out which choice is really faster"),
    "compare": Command(
        "compare", "what became slower from A to B; with one or none, the report of a job"
    ),
    "export": Command("share", "write pins to a file for other machines"),
    "import": Command("share", "take in pins that `export` wrote"),
    "doctor": Command("doctor", "check the installation, or mega-cache files"),
}


class _Parser(argparse.ArgumentParser):
    """Its errors quote what was typed, which may come from a file name."""

    def error(self, message: str) -> NoReturn:
        super().error(plain(message))


def build_parser(loaded: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser; of a command that is not to be `loaded` it knows no more than the table."""
    parser = _Parser(
        prog="rocm-tui",
        description="See every kernel that Inductor tries, pin the one you want, with proof.",
        epilog="exit codes: 0 yes, 1 no, 2 bad usage",
    )
    parser.add_argument("--version", action="version", version=f"rocm-tui {__version__}")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh"),
        metavar="SHELL",
        help="print the completion script for bash, zsh or tcsh",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help)
        if name in loaded:
            module = import_module(f"rocm_tui.cli.{command.module}")
            getattr(module, f"add_{name}")(subparser)
            subparser.set_defaults(run=getattr(module, f"do_{name}"))
    return parser
