"""`rocm-tui agent`: tune on one device for a fleet's driver, which starts it."""

from __future__ import annotations

import os
from typing import Any

import click

from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments
from rocm_tui.environment import device_env, find_python
from rocm_tui.fleet.facts import host_name
from rocm_tui.fleet.places import new_run
from rocm_tui.fleet.serving import serve


@click.command()
@common.device_option
@click.option("--name", help="Its name for the driver (default: host and device).")
@click.option("of", "--run", metavar="RUN", help="The run that it belongs to.")
@click.option("--share", type=int, default=1, metavar="N", help="Use 1/N of the workers' memory.")
@common.python_option
@common.cache_dir_option
def agent_command(**given: Any) -> int:
    """Tune on one device for `rocm-tui tune --fleet`, which starts this."""
    args = CommandArguments(**given)
    python = find_python(args.python, device_env(os.environ, args.device))
    name = args.name or f"{host_name()}:{args.device or 0}"
    layout, run = common.layout_of(args), args.of or new_run()
    return serve(name, args.device, python, layout, run, max(1, args.share))
