"""`rocm-tui sessions [PATH...]`: the processes that tuned, or do so now."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.actions.pick import load_model, unread
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.sessions import session_json, sessions_text
from rocm_tui.report.sessions import session_rows


def add_sessions(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the processes that ran under `rocm-tui run`, and what each does or how it ended; "
        "with no PATH, those of the cache dir. The beginning of an id names the session in `ls`, "
        "`compare` and the filter `session:`. Exit code 1 if there is none, or if a PATH "
        "cannot be read."
    )
    common.add_arguments(parser, "paths", "--cache-dir", "--json")


def do_sessions(args: argparse.Namespace) -> int:
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
