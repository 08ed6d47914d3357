"""The entry point: prepare the streams, load and run one command, return its exit code.

A command `NAME` is the function `NAME_command` of its module in this folder. Its module is imported
when the command is called, so its imports may be as heavy as it needs.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem, shell_complete

from backend.errors import StoreError
from rocm_tui import say
from rocm_tui.cli.common import COMPLETE_VARIABLE, PROGRAM, ExitCode
from rocm_tui.errors import RocmTuiError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyCommand(NamedTuple):
    """A command that is not loaded yet."""

    module: str
    help: str


GROUPS: dict[str, dict[str, LazyCommand]] = {
    "Watch": {
        "watch": LazyCommand("watch", "Watch tunings live, and run a program beside them."),
        "run": LazyCommand("run", "Run a program, record its tunings, honour its pins."),
        "ls": LazyCommand("ls", "List tunings."),
        "show": LazyCommand("show", "Show a tuning with all its choices."),
        "sessions": LazyCommand("show", "List the processes that tuned, and their state."),
    },
    "Decide": {
        "measure": LazyCommand("measure", "Find out which choice is really faster."),
        "tune": LazyCommand("tune", "Tune an op again."),
        "pin": LazyCommand("pin", "Pin a choice."),
        "unpin": LazyCommand("pin", "Remove pins and restore what they changed."),
        "pins": LazyCommand("pin", "List pins and their state."),
        "undo": LazyCommand("pin", "Undo your last pin or unpin."),
        "verify": LazyCommand("verify", "Prove that pins are used."),
    },
    "Model": {
        "graphs": LazyCommand("graphs", "List compiled graphs: calls, time, shares, trials."),
        "trial": LazyCommand("graphs", "Find out whether a choice makes the whole graph faster."),
        "improve": LazyCommand("graphs", "Search choices that make a graph faster."),
        "prove": LazyCommand("graphs", "Measure in stock processes what a graph's pins gain."),
    },
    "Share": {
        "export": LazyCommand("share", "Write pins to a file for other machines."),
        "import": LazyCommand("share", "Import pins that `export` wrote."),
        "agree": LazyCommand("share", "Check that all ranks and hosts took the same choices."),
        "compare": LazyCommand("compare", "Compare two runs, or report on one."),
    },
    "Tables": {
        "lint": LazyCommand("tables", "Check tuned tables of other tuners."),
        "cover": LazyCommand("tables", "List what a program missed in tuned tables."),
    },
    "Setup": {
        "config": LazyCommand("config", "Print the settings, or write a settings file."),
        "doctor": LazyCommand("setup", "Check the installation, or mega-cache files."),
        "prune": LazyCommand("setup", "List or remove old files in the cache directory."),
        "serve": LazyCommand("watch", "Show the screen in a browser."),
        "demo": LazyCommand("watch", "Open the screen on a real session of this machine's CPU."),
        "completion": LazyCommand("setup", "Print the completion script of a shell."),
    },
}
GROUPS["Setup"] |= {}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


class LazyGroup(click.Group):
    """Lists commands from the table above, and loads only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rocm_tui.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest commands for a mistyped one: click suggests only those that it has loaded."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.help) for name, command in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=command.help)
            for name, command in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=CONTEXT)
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def rocm_tui(ctx: click.Context) -> int:
    """See every kernel that Inductor tries, pin the one you want, with proof.

    Without a command, rocm-tui opens the screen, as `rocm-tui watch` does.

    Exit codes: 0 yes, 1 no or not there, 2 bad usage.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    watch = rocm_tui.get_command(ctx, "watch")
    assert watch is not None
    with watch.make_context("watch", [], parent=ctx) as watch_context:
        code: int = watch.invoke(watch_context)
    return code


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
