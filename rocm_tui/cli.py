"""The command line. Only argparse is loaded here; a command loads its own needs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType

from rocm_tui.errors import RocmTuiError, UsageError

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


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command, also the source of completion and of the manual."""
    parser = argparse.ArgumentParser(
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
    from backend.store.errors import StoreError

    parser = build_parser()
    args = parser.parse_args(argv)
    if args.print_completion:
        import shtab

        print(shtab.complete(parser, shell=args.print_completion))
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    command = _module(args.command)
    try:
        return int(command.run(args))
    except UsageError as error:
        return _fail(error, 2)
    except (RocmTuiError, StoreError) as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # The reader (`| head`) is gone: nothing is left to say, and Python must not say it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _fail(error: Exception, code: int) -> int:
    print(f"rocm-tui: {error}", file=sys.stderr)
    return code
