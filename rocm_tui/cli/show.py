"""`rocm-tui show` and `sessions`: one tuning with its choices, or the processes that tuned."""

from __future__ import annotations

from typing import Any

import click

from backend.disk.layout import Layout
from backend.model.choice import Choice
from rocm_tui import say
from rocm_tui.actions.sources import load_model, pick_tuning, problem_history, unread
from rocm_tui.actions.tables import row_of
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.detail import show_text
from rocm_tui.render.entries import columns_text
from rocm_tui.render.history import history_json, history_text
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.sessions import session_json, sessions_text
from rocm_tui.render.side_by_side import block, resources_json
from rocm_tui.render.tunings import choice_json, row_json
from rocm_tui.report.sessions import session_rows
from rocm_tui.session import stats
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.kernel_resources import KernelResources
from rocm_tui.session.model import Model, Row


@click.command()
@common.id_argument
@click.argument("choice", metavar="[CHOICE]", required=False)
@click.option("--source", is_flag=True, help="Print the source of CHOICE.")
@click.option("--stage", metavar="NAME", help="Print its amdgcn, ptx, llir, ttgir or ttir.")
@click.option(
    "--reproducer",
    type=common.FOLDER,
    metavar="DIR",
    help="Write a folder that builds, runs, checks and times CHOICE alone.",
)
@click.option(
    "--history",
    is_flag=True,
    help="List every tuning, measurement and pin of this problem.",
)
@common.from_option
@common.cache_dir_option
@common.json_option
def show_command(**given: Any) -> int:
    """Show the latest tuning ID: its choices, their times and configurations, and why some failed.

    CHOICE is a name, a hash, the first digits of a hash, or #2 for the second fastest. Its source
    can be printed where a cache holds it. A kernel of our templates can be written as a reproducer.
    """
    args = CommandArguments(**given)
    common.require_at_most_one(
        source=args.source,
        stage=args.stage,
        reproducer=args.reproducer,
        history=args.history,
    )
    kernel = args.source or args.stage or args.reproducer
    if kernel and args.choice is None:
        raise UsageError(
            "--source, --stage and --reproducer need a CHOICE: show ID CHOICE --source"
        )
    layout = common.layout_of(args)
    model, row = pick_tuning(layout, args.sources, args.id)
    choice = None
    if args.choice is not None:
        row, choice = find_device_choice(row, args.choice)
    if args.history:
        told = problem_history(model, row, layout)
        if args.json:
            say.out_json(history_json(told))
        else:
            say.out(history_text(told))
    elif choice is not None and kernel:
        _kernel(args, layout, model, row, choice)
    else:
        _show(layout, model, row, choice, args.json)
    return ExitCode.YES


def _kernel(args: CommandArguments, layout: Layout, model: Model, row: Row, choice: Choice) -> None:
    # Templates need sympy and jinja2, which take longer to load than all else of this command.
    from rocm_tui.session.kernel_source import kernel_of, source_of, text_of, write_reproducer

    session = model.sessions.get(row.tuning.session or "")
    if args.source:
        common.print_source(source_of(row.tuning, choice, session, layout))
    elif args.stage:
        found = kernel_of(row.tuning, choice, session, layout)
        common.print_source(text_of(found.stage(args.stage), found.source))
    else:
        target = write_reproducer(args.reproducer, row.tuning, choice, session)
        path = plain(str(args.reproducer))
        say.out(f"wrote {path}; `make -C {path}` builds it for {target}")


def _show(layout: Layout, model: Model, row: Row, choice: Choice | None, json: bool) -> None:
    shown = row.tuning.choices if choice is None else (choice,)
    entry = row_of(row.tuning) if choice is None else None
    session = model.sessions.get(row.tuning.session or "")
    resources = KernelResources(layout.root).of(shown, session.arch if session else None)
    if not json:
        say.out(show_text(row, choice))
        if entry is not None and (columns := columns_text(entry)):
            say.out(f"\n{columns}")
        if lines := block(shown, resources):
            say.out(f"\n{lines}")
        return
    if choice is None:
        value = row_json(row)
        if entry is not None:
            value["entry"]["columns"] = dict(entry.entry.extra)
        values = value["choices"]
    else:
        value = choice_json(choice, stats.measured(row.tuning, choice))
        values = [value]
    for choice_value in values:
        choice_value["resources"] = resources_json(resources.get(choice_value["hash"]))
    say.out_json(value)


@click.command()
@common.paths_argument
@common.cache_dir_option
@common.json_option
def sessions_command(**given: Any) -> int:
    """List the processes that ran under `rocm-tui run`, with their state or how they ended.

    PATH is a file, a folder, or - for stdin (default: the cache directory). The beginning of an id
    names the session in `ls`, `compare` and the filter `session:`. Exit code 1 if there is no
    session, or if a PATH cannot be read.
    """
    args = CommandArguments(**given)
    layout = common.layout_of(args)
    model = load_model(layout, args.paths)
    rows = session_rows(model)
    lost = unread(model, args.paths)
    if args.json:
        say.out_json({"sessions": [session_json(row) for row in rows]})
    elif rows:
        say.out(sessions_text(rows))
    for line in trouble_lines(lost if args.json else model.problems):
        say.err(line)
    if not rows and not args.json:
        where = ", ".join(args.paths) or str(layout.root)
        say.err(f"no session in {where}: `rocm-tui run -- CMD` records one")
    return ExitCode.of(bool(rows) and not lost)
