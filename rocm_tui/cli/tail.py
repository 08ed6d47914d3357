"""`rocm-tui tail [PATH...]`: what is read here, for a screen on another host."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.ingest.far.tell import tell_on, tell_once


def add_tail(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print what logs, caches and folders tell, as a JSON object a line, and go on with what "
        "changes until stdin ends. `rocm-tui watch ssh://HOST/PATH` runs this on HOST; with no "
        "PATH it is the cache dir. Nothing is written."
    )
    common.add_arguments(parser, "paths")
    parser.add_argument("--once", action="store_true", help="end when all of it is told")
    parser.add_argument("--polling", action="store_true", help="poll the files")
    common.add_arguments(parser, "--cache-dir")


def do_tail(args: argparse.Namespace) -> int:
    root = common.layout_of(args).root
    paths = [str(Path(path).expanduser().absolute()) for path in args.paths] or [str(root)]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if args.once:
        tell_once(paths, root, 1)
        return ExitCode.YES
    try:
        tell_on(paths, root, 1, 0, polling=args.polling)
    finally:
        os._exit(ExitCode.YES)  # whoever reads may be in the middle of a read, or of a write
