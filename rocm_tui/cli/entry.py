"""Where the program begins: streams, words, the one command, the exit code.

A command is a line of the table: its name, what it is for, and the module of this folder that has
`add_NAME(parser)`, which says its words, and `do_NAME(args)`, which does it and returns the exit
code. Only argparse is loaded here; a command's module is loaded when it is asked for, so its
imports may be as heavy as it needs. Completion and a manual come from the same parser.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module

from backend.disk.layout import Layout, cache_dir
from backend.errors import StoreError
from rocm_tui import __version__, say
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.parser import Parser
from rocm_tui.errors import RocmTuiError

_OWN = "rocm_tui.spelled"


@dataclass(frozen=True, slots=True)
class Command:
    """`takes_program`: what follows `--` are the words of a person's program. `hidden`: started by
    other commands, so the first page of help leaves it out."""

    module: str
    help: str
    takes_program: bool = False
    hidden: bool = False


COMMANDS = {
    "watch": Command("watch", "watch tunings live, of a program too", takes_program=True),
    "run": Command("run", "run a program, record its tunings, honour its pins"),
    "demo": Command("watch", "the screen on a real session of this machine's CPU"),
    "serve": Command("serve", "the screen in a browser"),
    "ls": Command("ls", "list tunings"),
    "sessions": Command("sessions", "list the processes that tuned, and what they do"),
    "show": Command("show", "show one tuning with all its choices"),
    "pin": Command("pin", "pin a choice"),
    "unpin": Command("pins", "take pins back"),
    "undo": Command("undo", "undo the last pin or unpin, step by step"),
    "pins": Command("pins", "list pins and their state"),
    "verify": Command("verify", "prove that pins are used", takes_program=True),
    "tune": Command("tune", "tune an op again"),
    "fleet": Command("fleet", "list the runs of `tune --fleet`, show or end one"),
    "measure": Command("measure", "find out which choice is really faster"),
    "trial": Command(
        "trial", "find out whether the whole graph is faster with a choice", takes_program=True
    ),
    "improve": Command("improve", "find choices that make a graph faster, propose pins"),
    "prove": Command("prove", "prove in stock processes what the pins of a graph gain"),
    "compare": Command(
        "compare", "what became slower from A to B; with one or none, the report of a job"
    ),
    "cover": Command("cover", "what a program asked tuned tables for and missed"),
    "agree": Command("agree", "did all ranks and hosts take the same choices? pin one for all"),
    "lint": Command("lint", "check other tuners' tables: dead rows, duplicates, impossible times"),
    "graphs": Command("graphs", "list compiled graphs: calls, time, shares, trials"),
    "export": Command("share", "write pins to a file for other machines"),
    "import": Command("share", "take in pins that `export` wrote"),
    "prune": Command("prune", "list what is old in the cache dir and of no use, or remove it"),
    "config": Command("config", "print the settings in force, or write the file of them"),
    "tail": Command("tail", "print what sources tell, for a screen elsewhere", hidden=True),
    "agent": Command("agent", "tune on one device for a fleet's driver", hidden=True),
    "doctor": Command("doctor", "check the installation, or mega-cache files"),
}


def build_parser(
    loaded: Collection[str] = COMMANDS, known: Collection[str] = COMMANDS
) -> argparse.ArgumentParser:
    """The parser of the `known` commands; of one that is not to be `loaded` it knows no more than
    the table."""
    parser = Parser(
        prog="rocm-tui",
        description="See every kernel that Inductor tries, pin the one you want, with proof.",
        epilog="exit codes: 0 yes, 1 no (or not there), 2 bad usage",
    )
    parser.add_argument("--version", action="version", version=f"rocm-tui {__version__}")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "fish", "tcsh"),
        metavar="SHELL",
        help="print the completion script for bash, zsh, fish or tcsh",
    )
    parser.add_argument("--print-man", action="store_true", help="print the manual page")
    parser.add_argument(
        "--print-ids", choices=("tunings", "pins", "graphs"), help=argparse.SUPPRESS
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in known:
        command = COMMANDS[name]
        add = subparsers.add_parser  # one without help is not listed
        subparser = add(name) if command.hidden else add(name, help=command.help)
        if name in loaded:
            module = import_module(f"rocm_tui.cli.{command.module}")
            getattr(module, f"add_{name}")(subparser)
            subparser.set_defaults(run=getattr(module, f"do_{name}"))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on stderr."""
    _prepare_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except (RocmTuiError, StoreError, OSError, KeyboardInterrupt) as error:
        _say_error(error)
        return ExitCode.of_error(error)


def _run(words: list[str]) -> int:
    program = _cut_program(words)
    asked = [word for word in words if word in COMMANDS][:1]
    # What begins with a command is about no other, and each parser delays the screen.
    begins = words[:1] == asked != []
    parser = build_parser(asked, asked if begins else COMMANDS)
    args = parser.parse_args(words)
    args.argv = getattr(args, "argv", program)
    if args.print_completion or args.print_man or args.print_ids:
        return _print(args)
    if args.command is None:
        parser.print_help()
        return ExitCode.USAGE
    return int(args.run(args))


def _print(args: argparse.Namespace) -> int:
    """What is made of the parser of all commands, or asked for by a shell at Tab."""
    if args.print_man:
        from rocm_tui.cli import manual

        say.out_text(manual.page(build_parser()))
        return ExitCode.YES
    from rocm_tui.cli import completion  # needs shtab, and what ids are read from

    if args.print_completion:
        say.out(completion.script(build_parser(), args.print_completion))
        return ExitCode.YES
    for line in completion.ids(Layout(cache_dir()), args.print_ids):
        say.out(line)
    return ExitCode.YES


def _cut_program(words: list[str]) -> list[str] | None:
    """Cut a program's words off: what follows `--`. argparse would take them for our own."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None or not command.takes_program or "--" not in words:
        return None
    at = words.index("--")
    words[at:], program = [], words[at + 1 :]
    return program


def _prepare_streams() -> None:
    """Let each take any text: Python has none for what our parent closed (and prints to stdout
    what was meant for a stderr that is none), and may have a locale without our letters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):
            # Not only for "strict": in the locale C Python lets half characters through as bytes,
            # and raises for all others.
            codecs.register_error(_OWN, say.spelled)
            stream.reconfigure(errors=_OWN)
    sys.excepthook = say.mistake


def _say_error(error: BaseException) -> None:
    """One line; nothing of Ctrl-C, nor to a reader (`| head`) that is gone."""
    if isinstance(error, OSError):
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            where = "" if error.filename is None else f": {error.filename}"
            say.err(f"{error.strerror or error}{where}")
    elif not isinstance(error, KeyboardInterrupt):
        say.err(str(error))


def _drop_stdout() -> None:
    """Python must not write the rest at exit, and complain then."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
