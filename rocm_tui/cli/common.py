"""Options, arguments and completions that several commands share, and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from backend.disk.layout import Layout, cache_dir
from backend.errors import Busy, StoreError
from rocm_tui import say
from rocm_tui.errors import RocmTuiError, TryAgain, UsageError
from rocm_tui.harmless import plain, visible

if TYPE_CHECKING:
    from backend.model.session import Session
    from rocm_tui.json_output import Document
    from rocm_tui.session.model import Row
    from rocm_tui.session.query.grammar import Query

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any] | click.Command)
PROGRAM = "rocm-tui"
COMPLETE_VARIABLE = "_ROCM_TUI_COMPLETE"
"""The environment variable through which a completion script calls the program."""


class ExitCode(IntEnum):
    YES = 0
    NO = 1
    USAGE = 2
    TRY_AGAIN = 3
    INTERRUPTED = 130
    """As a shell counts a program that Ctrl-C ended."""

    @classmethod
    def of(cls, yes: bool) -> ExitCode:
        return cls.YES if yes else cls.NO

    @classmethod
    def of_error(cls, error: BaseException) -> ExitCode:
        if isinstance(error, (UsageError, click.UsageError)):
            return cls.USAGE
        if isinstance(error, (TryAgain, Busy)):
            return cls.TRY_AGAIN
        return cls.INTERRUPTED if isinstance(error, KeyboardInterrupt) else cls.NO


class CommandArguments(SimpleNamespace):
    """The values of a command's options and arguments, by their names."""


def layout_at(root: Path | None) -> Layout:
    """The layout of the cache directory that was named, or of Inductor's own."""
    return Layout(root.absolute() if root else cache_dir())


def report_settings() -> None:
    """Print the mistakes in the settings file."""
    from rocm_tui.config.places import config_given

    if config_given():
        from rocm_tui.config.settings import settings_now

        say.err(*map(str, settings_now().mistakes))


def starts_read_only() -> bool:
    """Return whether the settings file says that the screen starts read-only, or is unreadable."""
    from rocm_tui.config.places import config_given  # for the screen and the server alone

    if not config_given():
        return False
    from rocm_tui.config.settings import config

    return config().watch.read_only


def option_of(parameter: str) -> str:
    """`--dry-run` of `dry_run`."""
    return f"--{parameter.replace('_', '-')}"


def options_given(names: str) -> list[str]:
    """Return the options among these parameters that are on the command line of this command."""
    context = click.get_current_context()
    return [
        max(param.opts, key=len)
        for param in context.command.params
        if param.name in names.split()
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]


def require_at_most_one(**given: object) -> None:
    """Raise UsageError where two options were given that exclude each other."""
    names = [option_of(name) for name, value in given.items() if value]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} exclude each other")


def print_list(document: Document, lines: Sequence[str], json: bool) -> ExitCode:
    """Print a list as JSON or as lines; exit code 1 if it is empty."""
    if json:
        say.out_json(document)
    else:
        for line in lines:
            say.out(plain(line))
    return ExitCode.of(bool(lines))


def print_result(
    value: T, json: bool, document: Callable[[T], Document], text: Callable[[T], str]
) -> None:
    """Print `value` as JSON or as text."""
    if json:
        say.out_json(document(value))
    else:
        say.out(text(value))


def print_paragraphs(text: str, sentences: Iterable[str]) -> None:
    """Print a table, and the sentences that explain it."""
    from rocm_tui.render.table import hanging  # --help starts without

    say.out(f"{text}\n")
    for sentence in sentences:
        say.out(hanging("", sentence))


def print_plan(steps: Sequence[str], json: bool) -> ExitCode:
    """Print what a command would do; exit code 1 if that is nothing."""
    from rocm_tui.json_output import PlanJson  # --help and the screen start without

    return print_list(PlanJson([*map(plain, steps)]), [f"would {step}" for step in steps], json)


def print_source(source: str) -> None:
    """Print source code with its control characters made visible."""
    say.out_text(source)
    changed = sum(map(str.__ne__, source, visible(source)))
    if changed:
        say.err(f"{changed} control or direction characters of this source are shown as pictures")


def _tunings(layout: Layout) -> Mapping[str, str]:
    from rocm_tui.actions.sources import load_model  # only at Tab
    from rocm_tui.session import stats

    return {
        row.id: f"{row.tuning.op} {stats.sizes_text(row.tuning)} {stats.dtype_of(row.tuning)}"
        for row in load_model(layout).listed()
    }


def _pins(layout: Layout) -> Mapping[str, str]:
    from backend.pins.store import PinStore  # only at Tab

    return {pin.id: f"{pin.op} {pin.label}" for pin in PinStore(layout).pins()}


def _graphs(layout: Layout) -> Mapping[str, str]:
    from rocm_tui.actions.sources import known_graphs  # only at Tab

    return {row.id: "graph" for row in known_graphs(layout, [])}


_IDS = {"tunings": _tunings, "pins": _pins, "graphs": _graphs}


class ProgramCommand(click.Command):
    """A command whose words after `--` are the command line of a program.

    They are passed on unchanged as `program`, which is None without `--`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        program = None
        if "--" in args:
            at = args.index("--")
            args, program = args[:at], args[at + 1 :]
        rest = super().parse_args(ctx, args)
        ctx.params["program"] = program
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- CMD...]"]


class IdType(click.ParamType[str]):
    """An id that a shell completes from the cache directory."""

    name = "id"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            ids = _IDS[self._kind](layout_at(ctx.params.get("cache_dir")))
        except (RocmTuiError, StoreError, OSError):
            return []  # a shell has no place for an error at Tab
        return [
            CompletionItem(plain(name), help=plain(about))
            for name, about in ids.items()
            if name.startswith(incomplete)
        ]


class SourceType(click.Path):
    """The path of a log, cache or folder; not an address of ssh, which was one once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).startswith("ssh://"):
            raise UsageError(
                "reading over ssh was removed: run `ssh HOST -t rocm-tui watch` there, or copy the "
                "folder"
            )
        return super().convert(value, param, ctx)


class Option(Protocol):
    """A decorator that gives a command an option."""

    def __call__(self, command: F, /) -> F: ...


TUNING, PINNED, GRAPH = IdType("tunings"), IdType("pins"), IdType("graphs")
SOURCE = SourceType()
FILE = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)


def flag(name: str, help: str) -> Option:
    """An option without a value."""
    return click.option(name, is_flag=True, help=help)


def seconds(name: str, help: str, default: str = "") -> Option:
    """An option with a time, which the command checks; a setting can replace its default."""
    help += f" (default: {default}, or as configured)." if default else ""
    return click.option(name, type=float, metavar="SECONDS", help=help)


def number(name: str, default: int | None, help: str) -> Option:
    """An option with a count."""
    return click.option(name, type=int, default=default, metavar="N", help=help)


def repeatable(
    *names: str, metavar: str, help: str, type: click.ParamType[Any] | None = None
) -> Option:
    """An option that may be given several times."""
    help += " (repeatable)."
    return click.option(*names, metavar=metavar, type=type, multiple=True, help=help)


def _together(*options: Option) -> Option:
    """Options that several commands have, in this order."""

    def add(command: F, /) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


id_argument = click.argument("id", metavar="ID", type=TUNING)
optional_id_argument = click.argument("id", metavar="[ID]", type=TUNING, required=False)
choices_argument = click.argument("choices", metavar="[CHOICE]...", nargs=-1)
pinned_ids_argument = click.argument("ids", metavar="[ID]...", type=PINNED, nargs=-1)
graph_argument = click.argument("graph", metavar="[GRAPH]", type=GRAPH, required=False)
paths_argument = click.argument("paths", metavar="[PATH]...", type=SOURCE, nargs=-1)
device_option = click.option("--device", metavar="N", help="Use the GPU with this index, or cpu.")
from_option = repeatable(
    "sources",
    "--from",
    metavar="PATH",
    help="Also read this log, cache file or folder",
    type=SOURCE,
)
python_option = click.option(
    "--python",
    metavar="EXE",
    type=click.Path(),
    help="Use this Python, which has torch (default: ours, $VIRTUAL_ENV's, or python3).",
)
cache_dir_option = click.option(
    "--cache-dir",
    metavar="DIR",
    type=FOLDER,
    help="Use this Inductor cache directory (default: where Inductor looks).",
)
json_option = flag("--json", "Print JSON.")
dry_run_option = flag("--dry-run", "Print what this would do, and do nothing.")
rounds_option = number("--rounds", 0, "Take at least this many rounds, budget permitting.")
filter_option = click.option(
    "--filter",
    metavar="FILTER",
    help="Take only tunings that match, as `/` in watch: 'op:mm gain>1.2 !pinned' or '@name'.",
)
output_options = _together(cache_dir_option, json_option)
worker_options = _together(python_option, output_options)
job_options = _together(device_option, from_option, worker_options)
yes_to_graph_option = flag("--yes", "Run the text of the graph without asking.")
polling_option = flag("--polling", "Poll the files, as on NFS.")
max_autotune_option = flag("--max-autotune", "Turn Inductor's max_autotune on for CMD.")


def parse_filter(text: str | None) -> Query:
    """Parse `--filter`, in which `@name` is a filter that was saved on the screen.

    Raises QueryError: call it before anything is read.
    """
    from rocm_tui.config.memory import Memory  # few commands take a filter
    from rocm_tui.config.places import state_path
    from rocm_tui.session.query.grammar import EVERYTHING, parse

    if not text:
        return EVERYTHING
    saved: dict[str, str] = Memory(state_path()).recall("filters", {})
    return parse(text, saved)


def matching_rows(rows: Sequence[Row], query: Query, sessions: Mapping[str, Session]) -> list[Row]:
    """Return the rows that match `query`, in their order."""
    from rocm_tui.session.query.fields import FieldValues, Known
    from rocm_tui.session.query.match import predicate

    return list(filter(predicate(query, FieldValues(Known(sessions))), rows))
