"""`rocm-tui ls [PATH...]`: the tunings of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rocm_tui import say
from rocm_tui.actions.sources import load_named, unread
from rocm_tui.cli import common
from rocm_tui.cli.common import (
    CommandArguments,
    ExitCode,
    filter_option,
    matching_rows,
    parse_filter,
)
from rocm_tui.config.reading import settings_now
from rocm_tui.ingest.follow.tree import path_kinds
from rocm_tui.render.problems import problem_json, trouble_lines, why_nothing
from rocm_tui.render.tunings import row_json, tunings_text
from rocm_tui.session import stats
from rocm_tui.session.query.fields import BY_NAME, FIELDS, FieldValues, Known
from rocm_tui.session.query.match import ordered


@click.command()
@common.paths_argument
@click.option("--tied", is_flag=True, help="Only tunings whose best choices are tied.")
@filter_option
@click.option(
    "--sort",
    type=click.Choice([field.name for field in FIELDS]),
    metavar="FIELD",
    help="Sort by this field of a filter; unknown values come last (default: age).",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@common.cache_dir_option
@common.json_option
def ls_command(**given: Any) -> int:
    """List the tunings in logs, caches and folders.

    PATH is a file, a folder, or - for stdin (default: the cache directory). Exit code 1 if there is
    no tuning, or if a PATH cannot be read.
    """
    args = CommandArguments(**given)
    query = parse_filter(args.filter)
    for mistake in settings_now().mistakes:
        say.err(str(mistake))
    layout = common.layout_of(args)
    model, found, paths = load_named(layout, args.paths)
    rows = [row for row in found if not args.tied or stats.tied(row.tuning)]
    rows = matching_rows(rows, query, model.sessions)
    if args.sort or args.reverse:
        facts = FieldValues(Known(model.sessions))
        rows = ordered(rows, BY_NAME[args.sort or "age"], facts, args.reverse)
    lost = unread(model, args.paths)
    if args.json:
        problems = [problem_json(problem) for problem in model.problems]
        say.out_json({"tunings": [row_json(row) for row in rows], "problems": problems})
        for line in trouble_lines(lost):
            say.err(line)
    else:
        if rows:
            say.out(tunings_text(rows))
        for line in trouble_lines(model.problems):
            say.err(line)
        if not rows:
            root = str(layout.root)
            for line in why_nothing(model, path_kinds(paths or [root], root), len(found)):
                say.err(line)
        for line in _missed_lines(paths):
            say.err(line)
    return ExitCode.of(bool(rows) and not lost)


def _missed_lines(paths: Sequence[str]) -> list[str]:
    """What logs among these say that tuned tables lacked."""
    if not any(Path(path).is_file() for path in paths):
        return []
    from rocm_tui.actions.cover import missed_in  # loads all tuners' formats, for files alone

    return [missed.line for missed in missed_in(paths)]
