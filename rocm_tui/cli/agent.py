"""`rocm-tui agent`: tune on one device for a fleet's driver, which starts it."""

from __future__ import annotations

import argparse
import os

from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.environment import device_env, find_python
from rocm_tui.fleet.facts import host_name
from rocm_tui.fleet.local import visible_local_devices
from rocm_tui.fleet.places import new_run
from rocm_tui.fleet.serving import serve


def add_agent(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tune on one device for `rocm-tui tune --fleet`, which starts it. Messages are JSON, a "
        "line each: what to tune on stdin, what came of it on stdout. It ends, with all that it "
        "started, when stdin ends."
    )
    common.add_arguments(parser, "--device")
    parser.add_argument("--name", help="what the driver calls it (default: host and device)")
    parser.add_argument("--run", dest="of", metavar="RUN", help="the run that it belongs to")
    parser.add_argument(
        "--silence",
        type=float,
        metavar="S",
        help="end, too, when the driver has said nothing for so many seconds",
    )
    parser.add_argument(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="of the memory that workers may take an Nth part, for N agents of this machine",
    )
    parser.add_argument("--list", action="store_true", help="name the devices here, and end")
    common.add_arguments(parser, "--python", "--cache-dir")


def do_agent(args: argparse.Namespace) -> int:
    if args.list:
        for device in visible_local_devices():
            say.out(f"device {device}")
        return ExitCode.YES
    python = find_python(args.python, device_env(os.environ, args.device))
    name = args.name or f"{host_name()}:{args.device or 0}"
    layout, run = common.layout_of(args), args.of or new_run()
    return serve(name, args.device, python, layout, run, args.silence, max(1, args.share))
