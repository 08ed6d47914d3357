"""`rocm-tui ls [PATH...]`: every tuning that the sources tell of."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rocm_tui import say
from rocm_tui.actions.named import load_named
from rocm_tui.actions.pick import unread
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.filtered import add_filter, passing, query_of
from rocm_tui.config.places import config_given
from rocm_tui.config.reading import settings_now
from rocm_tui.ingest.follow.tree import path_kinds
from rocm_tui.render.nothing import why_nothing
from rocm_tui.render.problems import problem_json, trouble_lines
from rocm_tui.render.tunings import row_json, tunings_text
from rocm_tui.session import stats
from rocm_tui.session.query.fields import BY_NAME, FIELDS, Facts, Known
from rocm_tui.session.query.order import ordered


def add_ls(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List every tuning found in logs, caches and folders; with no PATH, in the cache dir. Exit "
        "code 1 if there is none, or if a PATH cannot be read."
    )
    common.add_arguments(parser, "paths")
    parser.add_argument("--tied", action="store_true", help="only ties of the best choices")
    add_filter(parser)
    parser.add_argument(
        "--sort",
        choices=[field.name for field in FIELDS],
        metavar="FIELD",
        help="by this field of a filter; what is not known stands last (default: age)",
    )
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_ls(args: argparse.Namespace) -> int:
    query = query_of(args)
    if config_given():
        for mistake in settings_now().mistakes:
            say.err(str(mistake))
    layout = common.layout_of(args)
    model, found, paths = load_named(layout, args.paths)
    rows = [row for row in found if not args.tied or stats.tied(row.tuning)]
    rows = passing(rows, query, model.sessions)
    if args.sort or args.reverse:
        facts = Facts(Known(model.sessions))
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
    from rocm_tui.actions.missed import missed_in  # loads all tuners' formats, for files alone

    return [missed.line for missed in missed_in(paths)]
