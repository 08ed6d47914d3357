"""`rocm-tui serve [PATH...]`: the screen in a browser."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.tui.browser.guard import LOOPBACK, Guard, is_loopback
from rocm_tui.tui.browser.site import Site, listen, require_extra, run

PORT = 7681


@click.command()
@common.paths_argument
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Allow the browser all actions of the screen: pin, unpin, tune, measure.",
)
@click.option(
    "--port", type=int, default=PORT, metavar="N", help=f"0 picks a free port (default: {PORT})."
)
@click.option(
    "--host", default="127.0.0.1", metavar="NAME", help="Listen there (default: 127.0.0.1)."
)
@click.option(
    "--allow-network",
    is_flag=True,
    help="Allow a --host that other machines can reach; traffic and token are not encrypted.",
)
@click.option(
    "--screens", type=int, default=4, metavar="N", help="Most screens at once (default: 4)."
)
@common.polling_option
@common.python_option
@common.cache_dir_option
def serve_command(**given: Any) -> int:
    """Show the screen of `watch` in a browser, for everybody who has the URL that is printed.

    PATH is a file or a folder (default: the cache directory). Only this machine can reach the page
    (over SSH: ssh -L 7681:localhost:7681 HOST), and the page is read-only without --allow-actions.
    Needs pip install 'rocm-tui[serve]'.
    """
    args = CommandArguments(**given)
    guard = _guard(args)
    if not 0 <= args.port < 65536:
        raise UsageError(f"--port {args.port}: a port is a number from 0 to 65535")
    if not 1 <= args.screens <= 100:
        raise UsageError("--screens is how many at once, from 1 to 100")
    if "-" in args.paths:
        raise UsageError("serve cannot read stdin: each page has a screen of its own")
    folder = require_extra()
    bound = listen(args.host, args.port)
    asyncio.run(_run(args, guard, folder, bound))
    return ExitCode.YES


async def _run(args: CommandArguments, guard: Guard, folder: Path, bound: socket.socket) -> None:
    site = Site(guard, command_of(args), folder, args.screens)
    await run(site, bound, lambda: _say_where(args, guard, bound))


def _guard(args: CommandArguments) -> Guard:
    """Raises UsageError where others could reach it and nobody said so."""
    if is_loopback(args.host):
        return Guard(LOOPBACK | {args.host})
    if not args.allow_network:
        raise UsageError(
            f"--host {args.host} can be reached from other machines, and nothing is encrypted: say "
            "--allow-network too, or leave it and use ssh -L"
        )
    return Guard(LOOPBACK | {args.host.lower(), socket.gethostname().lower()}, addresses=True)


def command_of(args: CommandArguments) -> Sequence[str]:
    """What shows one screen."""
    command = [sys.executable, "-m", "rocm_tui", "watch"]
    command += ["--no-read-only" if args.allow_actions else "--read-only"]
    command += ["--polling"] if args.polling else []
    command += ["--python", args.python] if args.python else []
    command += ["--cache-dir", str(common.layout_of(args).root)]
    return [*command, *(f"./{path}" if path.startswith("-") else path for path in args.paths)]


def _say_where(args: CommandArguments, guard: Guard, bound: socket.socket) -> None:
    host, port = args.host, bound.getsockname()[1]
    if not is_loopback(host):
        say.err(
            "other machines can reach this, and nothing is encrypted: who sees the traffic has "
            "the screen"
        )
        host = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    name = f"[{host}]" if ":" in host else host
    say.out(f"http://{name}:{port}/?token={guard.token}", flush=True)
    may = "may pin, tune and all else" if args.allow_actions else "can change nothing"
    say.err(f"who has this URL sees the screen, and {may}; Ctrl-C ends it", flush=True)
