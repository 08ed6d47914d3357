"""The command line. Only argparse is loaded here; a command loads its own needs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import NoReturn

from rocm_tui import say
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain

COMMANDS = (
    "watch",
    "run",
    "demo",
    "ls",
    "show",
    "pin",
    "unpin",
    "pins",
    "verify",
    "tune",
    "measure",
    "compare",
    "export",
    "import",
    "doctor",
)


class _Parser(argparse.ArgumentParser):
    """Its errors quote what was typed, which may come from a file name."""

    def error(self, message: str) -> NoReturn:
        super().error(plain(message))


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command, also the source of completion and of the manual."""
    parser = _Parser(
        prog="rocm-tui",
        description="See every kernel that Inductor tries, pin the one you want, with proof.",
        epilog="exit codes: 0 yes, 1 no, 2 bad usage",
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh"),
        metavar="SHELL",
        help="print the completion script for bash, zsh or tcsh",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        _module(name).add(commands)
    return parser


def _module(name: str) -> ModuleType:
    """The module of a command; `import` is no name that Python takes."""
    return import_module(f"rocm_tui.commands.{name}{'_' if iskeyword(name) else ''}")


def _version() -> str:
    from rocm_tui import __version__

    return f"rocm-tui {__version__}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on stderr."""
    from backend.errors import StoreError

    _prepare_streams()
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _fail(error, 2)
    except (RocmTuiError, StoreError) as error:
        return _fail(error, 1)
    except BrokenPipeError:
        _drop_stdout()  # the reader (`| head`) is gone: nothing is left to say
        return 1
    except OSError as error:
        _drop_stdout()
        where = "" if error.filename is None else f": {error.filename}"
        return _fail(f"{error.strerror or error}{where}", 1)
    except KeyboardInterrupt:
        return 130


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    command = _cut_command(words)
    args = parser.parse_args(words)
    args.argv = getattr(args, "argv", command)
    if args.print_completion:
        import shtab

        say.out(shtab.complete(parser, shell=args.print_completion))
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    return int(_module(args.command).run(args))


def _cut_command(words: list[str]) -> list[str] | None:
    """Cut a program's words off: what follows `--`. argparse would take them for our own."""
    takes = words[:1] and words[0] in COMMANDS and hasattr(_module(words[0]), "TAKES_COMMAND")
    if not takes or "--" not in words:
        return None
    at = words.index("--")
    words[at:], command = [], words[at + 1 :]
    return command


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
            stream.reconfigure(errors="replace")
    sys.excepthook = say.mistake


def _drop_stdout() -> None:
    """Python must not write the rest at exit, and complain then."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: Exception | str, code: int) -> int:
    say.err(str(error))
    return code
