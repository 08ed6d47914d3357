"""`rocm-tui prune`: remove what is old below `rocm_tui/` of the cache dir."""

from __future__ import annotations

import argparse
import math
import time

from backend.pins.leftovers import DAYS
from rocm_tui import say
from rocm_tui.actions.prune import Pruned, prune
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.leftovers import leftover_json, leftovers_text, total


def add_prune(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List what lies below rocm_tui/ in the cache dir and was not used for so many days: "
        "sessions, captured graphs, caches of trials, compiled kernels; with --yes, remove it. "
        "What the undo of a pin needs stays, and so does everything of Inductor's own."
    )
    parser.add_argument(
        "--older-than",
        type=float,
        default=DAYS,
        metavar="DAYS",
        help=f"not used for so long (default {DAYS:g})",
    )
    parser.add_argument("--yes", action="store_true", help="remove it")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_prune(args: argparse.Namespace) -> int:
    if not (math.isfinite(args.older_than) and args.older_than >= 0):
        raise UsageError(f"--older-than is a number of days, from 0 on: {args.older_than}")
    now = time.time()
    pruned = prune(common.layout_of(args), now, args.older_than, args.yes)
    if args.json:
        things = [leftover_json(one, one in pruned.gone) for one in pruned.old]
        say.out_json({"leftovers": things, "kept": list(pruned.kept)})
    else:
        _print(pruned, args.yes, now)
    for line in pruned.kept:
        say.err(plain(line))
    return ExitCode.YES


def _print(pruned: Pruned, yes: bool, now: float) -> None:
    if not pruned.old:
        say.out("Nothing is old: nothing to remove.")
    elif yes:
        say.out(f"Removed {total(pruned.gone)}.")
    else:
        say.out(leftovers_text(pruned.old, now))
        say.out(f"\n{total(pruned.old)} in all; --yes removes it.")
