"""`rocm-tui ls [PATH...]`: every tuning that the sources tell of."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.actions.pick import load_model
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.ingest.collector import no_collector
from rocm_tui.ingest.follow.looked import look_at
from rocm_tui.render.nothing import why_nothing
from rocm_tui.render.problems import problem_json, troubles
from rocm_tui.render.tunings import row_json, tunings_text
from rocm_tui.session import stats


def add_ls(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List every tuning found in logs, caches and folders; with no PATH, in the cache dir. Exit "
        "code 1 if there is none."
    )
    common.add_arguments(parser, "paths")
    parser.add_argument("--tied", action="store_true", help="only those whose winner is a tie")
    common.add_arguments(parser, "--cache-dir", "--json")


@no_collector()
def do_ls(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    model = load_model(layout, args.paths)
    found = model.rows()
    rows = [row for row in found if not args.tied or stats.tied(row.tuning)]
    if args.json:
        problems = [problem_json(problem) for problem in model.problems]
        say.out_json({"tunings": [row_json(row) for row in rows], "problems": problems})
    else:
        if rows:
            say.out(tunings_text(rows))
        for trouble in troubles(model.problems):
            say.err(trouble.line())
        if not rows:
            root = str(layout.root)
            for line in why_nothing(model, look_at(args.paths or [root], root), len(found)):
                say.err(line)
    return ExitCode.of(bool(rows))
