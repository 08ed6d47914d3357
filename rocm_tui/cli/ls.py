"""`rocm-tui ls [PATH...]`: the tunings of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from backend.model.session import Fault
from rocm_tui import say
from rocm_tui.actions.sources import load_named, unread
from rocm_tui.cli import common
from rocm_tui.cli.common import (
    ExitCode,
    filter_option,
    matching_rows,
    parse_filter,
)
from rocm_tui.ingest.follow.tree import path_kinds
from rocm_tui.json_output import Document
from rocm_tui.render.problems import trouble_lines, why_nothing
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import tunings_text
from rocm_tui.session import stats
from rocm_tui.session.query.fields import BY_NAME, FIELDS, FieldValues, Known
from rocm_tui.session.query.match import ordered


class TuningsJson(Document, tag="rocm-tui/ls/1"):
    """What `ls` found, and the problems of what it read."""

    tunings: list[TuningJson]
    problems: list[Fault]


@click.command()
@common.paths_argument
@common.flag("--tied", "List only tunings whose best choices are tied.")
@filter_option
@click.option(
    "--sort",
    type=click.Choice([field.name for field in FIELDS]),
    metavar="FIELD",
    help="Sort by this field of a filter; unknown values come last (default: age).",
)
@common.flag("--reverse", "Reverse the order.")
@common.output_options
def ls_command(
    paths: Sequence[str],
    tied: bool,
    filter: str | None,
    sort: str | None,
    reverse: bool,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """List the tunings in logs, caches and folders.

    PATH is a file or a folder (default: the cache directory). `-` is stdin. Exit code 1 if there is
    no tuning, or if a PATH cannot be read.

    Example: rocm-tui ls train.log --filter 'op:mm !pinned'
    """
    query = parse_filter(filter)
    common.report_settings()
    layout = common.layout_at(cache_dir)
    model, listed, read_paths = load_named(layout, paths)
    rows = [row for row in listed if not tied or stats.standing(row.tuning) == "tied"]
    rows = matching_rows(rows, query, model.sessions)
    if sort or reverse:
        rows = ordered(rows, BY_NAME[sort or "age"], FieldValues(Known(model.sessions)), reverse)
    lost = unread(model, paths)
    if json:
        tunings = [TuningJson.of(row) for row in rows]
        say.out_json(TuningsJson(tunings=tunings, problems=model.problems))
    elif rows:
        say.out(tunings_text(rows))
    say.err(*trouble_lines(lost if json else model.problems))
    if not rows:
        root = str(layout.root)
        say.err(*why_nothing(model, path_kinds(read_paths or [root], root), len(listed)))
    if not json:
        say.err(*_missed_lines(read_paths))
    return ExitCode.of(bool(rows) and not lost)


def _missed_lines(paths: Sequence[str]) -> list[str]:
    """Return the lookups that logs report as missing in tuned tables."""
    if not any(Path(path).is_file() for path in paths):
        return []
    from rocm_tui.actions.cover import missed_in  # loads all tuners' formats, for files alone

    return [missed.line for missed in missed_in(paths)]
