"""`rocm-tui watch [PATH...]`: the screen."""

from __future__ import annotations

import argparse

from rocm_tui.cli import common
from rocm_tui.tui.terminal import run_watch


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Watch logs, caches and folders live, and pin choices; with no PATH, the sessions and the "
        "cache of the cache dir."
    )
    common.add_arguments(parser, "paths")
    parser.add_argument(
        "--polling", action="store_true", help="poll the files (NFS; the default falls back to it)"
    )
    common.add_arguments(parser, "--python", "--cache-dir")


def do_watch(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    paths = args.paths or [str(layout.root)]
    return run_watch(paths, cache_dir=layout.root, polling=args.polling, python=args.python)
