"""`rocm-tui tail [PATH...]`: what is read here, for a screen on another host."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import click

from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.ingest.far.tell import tell_on, tell_once


@click.command()
@common.paths_argument
@click.option("--once", is_flag=True, help="Stop when everything is read.")
@common.polling_option
@common.cache_dir_option
def tail_command(**given: Any) -> int:
    """Print what logs, caches and folders hold as JSON lines, and what changes until stdin ends."""
    args = CommandArguments(**given)
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
