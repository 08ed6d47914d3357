"""`rocm-tui watch [PATH...]`: the screen."""

from __future__ import annotations

import argparse

from rocm_tui.commands import common


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "watch",
        help="watch tunings live",
        description="Watch logs, caches and folders live, and pin choices; with no PATH, the "
        "sessions and the cache of the cache dir.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file, folder, or - for stdin")
    parser.add_argument(
        "--polling", action="store_true", help="poll the files (NFS; the default falls back to it)"
    )
    common.add_python(parser)
    common.add_cache_dir(parser)


def run(args: argparse.Namespace) -> int:
    from rocm_tui.tui.terminal import run_watch

    layout = common.layout_of(args)
    paths = args.paths or [str(layout.root)]
    return run_watch(paths, cache_dir=layout.root, polling=args.polling, python=args.python)
