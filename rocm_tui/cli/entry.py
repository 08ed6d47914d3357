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

from backend.errors import Busy, StoreError
from rocm_tui import say
from rocm_tui.cli.common import COMPLETE_VARIABLE, PROGRAM, ExitCode
from rocm_tui.errors import RocmTuiError, TryAgain

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class LazyCommand(NamedTuple):
    """A command that is not loaded yet: its module in this folder and its line of help."""

    module: str
    help: str


GROUPS: dict[str, dict[str, LazyCommand]] = {
    "Watch": {
        "watch": LazyCommand("watch", "Watch tunings live, and run a program beside them"),
        "run": LazyCommand("run", "Run a program, record its tunings, honour its pins"),
        "ls": LazyCommand("ls", "List tunings"),
        "show": LazyCommand("show", "Show a tuning with all its choices"),
        "sessions": LazyCommand("show", "List the processes that tuned, and their state"),
        "report": LazyCommand("compare", "Summarise a job: ranks, backends, savings, repeats"),
    },
    "Decide": {
        "measure": LazyCommand("measure", "Find out which choice is really faster"),
        "tune": LazyCommand("tune", "Tune an op again"),
        "pin": LazyCommand("pin", "Pin a choice, list pins, or undo the last step"),
        "unpin": LazyCommand("pin", "Remove pins and restore what they changed"),
        "verify": LazyCommand("verify", "Prove that pins are used"),
    },
    "Model": {
        "graphs": LazyCommand("graphs", "List compiled graphs: calls, time, shares, trials"),
        "trial": LazyCommand("graphs", "Find out whether a choice makes the whole graph faster"),
        "improve": LazyCommand("graphs", "Search for choices that make a graph faster"),
        "prove": LazyCommand("graphs", "Measure in stock processes what a graph's pins gain"),
    },
    "Share": {
        "export": LazyCommand("share", "Write pins to a file for other machines"),
        "import": LazyCommand("share", "Import pins that `export` wrote"),
        "agree": LazyCommand("share", "Check that all ranks and hosts took the same choices"),
        "compare": LazyCommand("compare", "Show what became slower from one run to another"),
    },
    "Tables": {
        "lint": LazyCommand("tables", "Check tuned tables of TunableOp, AITER, vLLM and others"),
        "cover": LazyCommand("tables", "List what a program missed in tuned tables"),
    },
    "Setup": {
        "config": LazyCommand("config", "Print the settings, or write a settings file"),
        "doctor": LazyCommand("setup", "Check the installation, or a mega-cache file"),
        "prune": LazyCommand("setup", "List or remove old files in the cache directory"),
        "serve": LazyCommand("watch", "Show the screen in a browser"),
        "demo": LazyCommand("watch", "Tune a small model on this CPU, and watch it"),
        "mcp": LazyCommand("mcp", "Serve tools to an agent, by the Model Context Protocol"),
        "completion": LazyCommand("setup", "Print the completion script of a shell"),
        "schema": LazyCommand("schema", "Print the JSON Schema of a command's JSON"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
ALIASES = {"pins": LazyCommand("pin", "pin"), "undo": LazyCommand("pin", "pin --undo")}
"""Commands of earlier versions, which still work, each with the command that replaced it."""
_LOADABLE = COMMANDS | ALIASES


_HELP_HEAD = """\
Usage: rocm-tui [--version] [--help] [COMMAND [ARGS]...]

See every kernel that Inductor tries, pin the one you want, with proof.
Without a command, the screen opens. `rocm-tui COMMAND --help` has the details.

"""
_HELP_END = "\nExit codes: 0 yes, 1 no or not there, 2 bad usage, 3 try again.\n"


class LazyGroup(click.Group):
    """Lists commands from the table above, and loads only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LOADABLE:
            return None
        module = import_module(f"rocm_tui.cli.{_LOADABLE[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest commands for a mistyped one: click suggests only loaded ones."""
        if args[0] not in _LOADABLE and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line for each command, after the name of its group, to fit on one screen."""
        formatter.write(_HELP_HEAD)
        for title, commands in GROUPS.items():
            for name, command in commands.items():
                formatter.write(f"{title:<8}{name:<12}{command.help}\n")
                title = ""
        formatter.write(_HELP_END)

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
    """Open the screen, as `rocm-tui watch` does, where no command is given."""
    if ctx.invoked_subcommand is not None:
        return 0
    watch = rocm_tui.get_command(ctx, "watch")
    assert watch is not None
    with watch.make_context("watch", [], parent=ctx) as watch_context:
        code: int = watch.invoke(watch_context)
    return code


_OWN = "rocm_tui.spelled"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on stderr.

    With `--json` it is a document on stdout as well.
    """
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except (
        RocmTuiError,
        StoreError,
        click.ClickException,
        OSError,
        KeyboardInterrupt,
    ) as error:
        _report(error, as_json="--json" in words[: words.index("--") if "--" in words else None])
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
    """Replace closed streams, and let each stream take any text.

    Python sets a stream that our parent closed to None, and its locale may lack our letters.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, "w")  # noqa: PTH123, SIM115 - `ls -` must not read an end
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


def _report(error: BaseException, *, as_json: bool) -> None:
    """Print what went wrong; nothing for Ctrl-C or a reader (`| head`) that has gone."""
    if not isinstance(error, (KeyboardInterrupt, BrokenPipeError)):
        message, hint = _message(error), _hint(error)
        say.err(f"{message} Try '{hint}'." if isinstance(error, click.UsageError) else message)
        if as_json:
            from rocm_tui.json_output import ErrorJson  # --help and the screen start without

            with contextlib.suppress(OSError):  # stdout may be what is broken
                say.out_json(ErrorJson.of(error, message, hint), flush=True)
    if isinstance(error, OSError):
        _drop_stdout()


def _message(error: BaseException) -> str:
    if isinstance(error, OSError):
        where = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror or error}{where}"
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())
    return str(error)


def _hint(error: BaseException) -> str | None:
    """Return what to do next, where more can be said than the message says."""
    if isinstance(error, click.UsageError):
        return f"{error.ctx.command_path if error.ctx else PROGRAM} --help"
    if isinstance(error, RocmTuiError):
        return error.hint
    return TryAgain.hint if isinstance(error, Busy) else None


def _drop_stdout() -> None:
    """Keep Python from writing the rest at exit, which would fail again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
