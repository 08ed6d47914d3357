"""`rocm-tui ls [PATH...]`: every tuning that the sources tell of."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.commands import common


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "ls",
        help="list tunings",
        description="List every tuning found in logs, caches and folders; with no PATH, in the "
        "cache dir. Exit code 1 if there is none.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file, folder, or - for stdin")
    parser.add_argument("--tied", action="store_true", help="only those whose winner is a tie")
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from rocm_tui.collector import no_collector

    with no_collector():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from rocm_tui.session import stats

    model = common.load(common.layout_of(args), args.paths)
    rows = [row for row in model.rows() if not args.tied or stats.tied(row.tuning)]
    if args.json:
        from rocm_tui.render.problems import problem_json
        from rocm_tui.render.tunings import row_json

        say.out_json(
            {
                "tunings": [row_json(row) for row in rows],
                "problems": [problem_json(problem) for problem in model.problems],
            }
        )
    else:
        from rocm_tui.render.tunings import tunings_text

        if rows:
            say.out(tunings_text(rows))
        common.print_problems(model)
    return 0 if rows else 1
