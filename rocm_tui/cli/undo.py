"""`rocm-tui undo`: undo what you pinned or unpinned last; each call goes one step further, and what
one command did to several pins is one step."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.actions.pin import next_step_back, step_back
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.render.pins import undo_json, undo_lines, undone_pins


def add_undo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Undo your last pin or unpin of this cache dir, also one of another day. Each call goes "
        "one step further back; what one command pinned or unpinned is one step. Exit code 1 if "
        "nothing is left to undo."
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be undone")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_undo(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    step = next_step_back(layout)
    if step is not None and not args.dry_run:
        step_back(layout, step)
    if args.json:
        say.out_json({**undo_json(step), "dry_run": args.dry_run})
    elif step is not None:
        say.out(("would undo: " if args.dry_run else "undone: ") + " ".join(undo_lines(step)))
        for line in undone_pins(step):
            say.out(f"  {line}")
    else:
        say.err("nothing is left to undo: no pin or unpin of yours is in force")
    return ExitCode.of(step is not None)
