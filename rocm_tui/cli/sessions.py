"""`rocm-tui sessions [PATH...]`: the processes that tuned, or tune now."""

from __future__ import annotations

from typing import Any

import click

from rocm_tui import say
from rocm_tui.actions.sources import load_model, unread
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.sessions import session_json, sessions_text
from rocm_tui.report.sessions import session_rows


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
