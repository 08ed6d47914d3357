"""Where the program begins: streams, words, the one command, the exit code.

Only argparse is loaded here; a command loads its own needs.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from backend.errors import StoreError
from rocm_tui import say
from rocm_tui.cli.exits import ExitCode
from rocm_tui.cli.parser import COMMANDS, build_parser
from rocm_tui.errors import RocmTuiError


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
    parser = build_parser(asked)
    args = parser.parse_args(words)
    args.argv = getattr(args, "argv", program)
    if args.print_completion:
        import shtab  # for this alone, as are the modules of all commands

        say.out(shtab.complete(build_parser(), shell=args.print_completion))
        return ExitCode.YES
    if args.command is None:
        parser.print_help()
        return ExitCode.USAGE
    return int(args.run(args))


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
            stream.reconfigure(errors="replace")
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
