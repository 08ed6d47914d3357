"""The entry point: prepare the streams, run one command, return its exit code."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from backend.errors import StoreError
from rocm_tui import say
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.group import COMPLETE_VARIABLE, PROGRAM, rocm_tui
from rocm_tui.errors import RocmTuiError

_OWN = "rocm_tui.spelled"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on stderr."""
    _prepare_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except (
        RocmTuiError,
        StoreError,
        click.ClickException,
        OSError,
        KeyboardInterrupt,
    ) as error:
        _say_error(error)
        return ExitCode.of_error(error)


def _run(words: list[str]) -> int:
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(rocm_tui, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
    try:
        # Not `rocm_tui.main`, which prints an empty line for Ctrl-C.
        with rocm_tui.make_context(PROGRAM, words) as context:
            return int(rocm_tui.invoke(context))
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code


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
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        message = " ".join(error.format_message().split())
        say.err(f"{message} Try '{error.ctx.command_path} --help'.")
    elif not isinstance(error, KeyboardInterrupt):
        say.err(str(error))


def _drop_stdout() -> None:
    """Python must not write the rest at exit, and complain then."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
