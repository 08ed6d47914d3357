"""`rocm-tui show` and `sessions`: one tuning with its choices, or the processes that tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import UNSET

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.session import Session
from rocm_tui import say
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.sources import load_model, pick_tuning, problem_history, unread
from rocm_tui.actions.tables import row_of
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document
from rocm_tui.render.detail import show_text
from rocm_tui.render.entries import columns_text
from rocm_tui.render.history import HistoryJson, history_text
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.sessions import SessionJson, modes_text, sessions_text
from rocm_tui.render.side_by_side import block
from rocm_tui.render.tuning_json import ChoiceJson, TuningJson
from rocm_tui.report.sessions import session_rows
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.kernel_resources import KernelResources
from rocm_tui.session.model import Model, Row


class ShownTuningJson(TuningJson, Document, tag="rocm-tui/show/1"):
    """A tuning with the resources of its kernels."""


class ShownChoiceJson(ChoiceJson, Document, tag="rocm-tui/show-choice/1"):
    """A choice with the resources of its kernel."""


@click.command()
@common.id_argument
@click.argument("choice", metavar="[CHOICE]", required=False)
@common.flag("--source", "Print the source of CHOICE.")
@click.option("--stage", metavar="NAME", help="Print CHOICE as amdgcn, ptx, llir, ttgir or ttir.")
@click.option(
    "--reproducer",
    type=common.FOLDER,
    metavar="DIR",
    help="Write a folder that builds, runs, checks and times CHOICE alone.",
)
@common.flag("--history", "List every tuning, measurement and pin of this problem.")
@common.from_option
@common.output_options
def show_command(
    id: str,
    choice: str | None,
    source: bool,
    stage: str | None,
    reproducer: Path | None,
    history: bool,
    sources: Sequence[str],
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Show the latest tuning ID: choices, times, configurations, and why some failed.

    CHOICE is a name, a hash, the first digits of a hash, or #2 for the second fastest. --source
    needs a cache that holds the source; --reproducer is for kernels of our templates.

    Example: rocm-tui show 3fa91c2 '#1' --source
    """
    common.require_at_most_one(source=source, stage=stage, reproducer=reproducer, history=history)
    kernel = source or stage or reproducer
    if kernel and json:
        raise UsageError("--source, --stage and --reproducer print no JSON")
    if kernel and choice is None:
        raise UsageError(
            "--source, --stage and --reproducer need a CHOICE: show ID CHOICE --source"
        )
    layout = common.layout_at(cache_dir)
    model, row = pick_tuning(layout, sources, id)
    picked = None
    if choice is not None:
        row, picked = find_device_choice(row, choice)
    if history:
        events = problem_history(model, row, layout)
        common.print_result(events, json, HistoryJson.of, history_text)
    elif picked is not None and kernel:
        session = model.sessions.get(row.tuning.session or "")
        _kernel(layout, session, row, picked, stage=stage, reproducer=reproducer)
    else:
        _show(layout, model, row, picked, json)
    return ExitCode.YES


def _kernel(
    layout: Layout,
    session: Session | None,
    row: Row,
    choice: Choice,
    *,
    stage: str | None,
    reproducer: Path | None,
) -> None:
    """Print the source of a kernel or its text at a stage, or write its reproducer."""
    # Templates need sympy and jinja2, which take longer to load than all else of this command.
    from rocm_tui.session.kernel_source import kernel_of, source_of, text_of, write_reproducer

    if stage:
        kernel = kernel_of(row.tuning, choice, session, layout)
        common.print_source(text_of(kernel.stage(stage), kernel.source))
    elif reproducer:
        target = write_reproducer(reproducer, row.tuning, choice, session)
        path = plain(str(reproducer))
        say.out(f"wrote {path}; `make -C {path}` builds it for {target}")
    else:
        common.print_source(source_of(row.tuning, choice, session, layout))


def _show(layout: Layout, model: Model, row: Row, choice: Choice | None, json: bool) -> None:
    shown = row.tuning.choices if choice is None else (choice,)
    entry = row_of(row.tuning) if choice is None else None
    session = model.sessions.get(row.tuning.session or "")
    resources = KernelResources(layout.root).of(shown, session.arch if session else None)
    if json and choice is not None:
        say.out_json(ShownChoiceJson.of(row.tuning, choice, resources))
    elif json:
        columns = UNSET if entry is None else dict(entry.entry.extra)
        say.out_json(ShownTuningJson.of(row, resources, columns))
    else:
        say.out(show_text(row, choice, modes_text(session), ShellCommands(layout).line))
        if entry is not None and (text := columns_text(entry)):
            say.out(f"\n{text}")
        if lines := block(shown, resources):
            say.out(f"\n{lines}")


class SessionsJson(Document, tag="rocm-tui/sessions/1"):
    sessions: list[SessionJson]


@click.command()
@common.paths_argument
@common.output_options
def sessions_command(paths: Sequence[str], cache_dir: Path | None, json: bool) -> int:
    """List the processes that ran under `rocm-tui run`, with their state or how they ended.

    PATH is a file or a folder (default: the cache directory). `-` is stdin. The beginning of an id
    names the session in `ls`, `compare` and the filter `session:`. Exit code 1 if there is no
    session, or if a PATH cannot be read.

    Example: rocm-tui sessions
    """
    layout = common.layout_at(cache_dir)
    model = load_model(layout, paths)
    rows = session_rows(model)
    lost = unread(model, paths)
    if json:
        say.out_json(SessionsJson(sessions=[SessionJson.of(row) for row in rows]))
    elif rows:
        say.out(sessions_text(rows))
    say.err(*trouble_lines(lost if json else model.problems))
    if not rows and not json:
        where = ", ".join(paths) or str(layout.root)
        say.err(f"no session in {where}: `rocm-tui run -- CMD` records one")
    return ExitCode.of(bool(rows) and not lost)
