"""`rocm-tui run -- CMD...`: the user's own program, recorded, with pins honoured."""

from __future__ import annotations

import argparse
import os

from backend.disk.layout import Layout
from backend.errors import StoreError
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.errors import UsageError
from rocm_tui.launch.run import StatusLine, run


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run CMD unchanged with our hooks in its torch.compile. The exit code is CMD's own."
    )
    parser.add_argument("--quiet", action="store_true", help="keep AUTOTUNE tables off the screen")
    parser.add_argument(
        "--max-autotune", action="store_true", help="turn Inductor's max_autotune on for CMD"
    )
    parser.add_argument(
        "--templates", action="store_true", help="offer our ROCm templates to Inductor as well"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="let no choice win whose result differs from ATen's (ours are always checked)",
    )
    parser.add_argument(
        "--no-shares",
        action="store_true",
        help="do not record how often CMD calls its compiled graphs and how long that takes",
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="keep the text of each compiled graph, for `trial` and `improve`",
    )
    parser.add_argument(
        "--cache-triton",
        action="store_true",
        help="let @triton.autotune keep its times (TRITON_CACHE_AUTOTUNING=1), to watch and pin",
    )
    parser.add_argument("--id", metavar="NAME", help=argparse.SUPPRESS)  # `watch -- CMD` names it
    common.add_arguments(parser, "--cache-dir")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD ...")


def do_run(args: argparse.Namespace) -> int:
    command = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not command:
        raise UsageError("run needs a command: rocm-tui run -- python train.py")
    if args.capture and args.no_shares:
        raise UsageError("--capture records graphs, --no-shares does not: take one of them")
    _migrate(common.layout_of(args))
    return run(
        command,
        quiet=args.quiet,
        max_autotune=args.max_autotune,
        templates=args.templates,
        check=args.check,
        shares=not args.no_shares,
        capture=args.capture,
        cache_triton=args.cache_triton,
        cache_dir=args.cache_dir,
        id=args.id,
        make_line=_no_line if args.quiet else _line,
    )


def _no_line(layout: Layout, run: str) -> None:
    """For those who want to see nothing but the program's own."""


def _line(layout: Layout, run: str) -> StatusLine | None:
    """What the program is doing, where a person looks on."""
    if not os.isatty(2):
        return None
    from rocm_tui.cli.run_line import run_line  # reads logs; a program without a terminal needs not

    return run_line(layout, run)


def _migrate(layout: Layout) -> None:
    """A pin of an older version breaks programs that do not offer its choice: not this one."""
    if not layout.pins.exists():
        return
    # Every program that is run waits for this: the store is loaded only where something is pinned.
    from rocm_tui.actions.pin import migrate_pins

    try:
        migrate_pins(layout)
    except StoreError as error:
        say.err(f"pins of an older version are left as they are: {error}")
