"""`rocm-tui serve [PATH...]`: the screen in a browser."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.tui.browser.guard import LOOPBACK, Guard, is_loopback
from rocm_tui.tui.browser.site import Site, listen, require_extra, run

PORT = 7681


def add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the screen of `watch` in a browser, for whoever has the URL that is printed. Only "
        "this machine can reach it (over SSH: ssh -L 7681:localhost:7681 HOST), and nothing can be "
        "changed from there unless --allow-actions says so. Needs pip install 'rocm-tui[serve]'."
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="file or folder (default: the cache dir)"
    )
    parser.add_argument(
        "--allow-actions",
        action="store_true",
        help="let the browser do all that the screen can: pin, unpin, tune, measure, ...",
    )
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"0 takes a free one (default: {PORT})"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="NAME", help="where to listen (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--allow-network",
        action="store_true",
        help="with a --host that other machines can reach: what goes over the line is not "
        "encrypted, the token neither",
    )
    parser.add_argument(
        "--screens", type=int, default=4, metavar="N", help="no more at once (default: 4)"
    )
    parser.add_argument(
        "--polling", action="store_true", help="poll the files (NFS; the default falls back to it)"
    )
    common.add_arguments(parser, "--python", "--cache-dir")


def do_serve(args: argparse.Namespace) -> int:
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


async def _run(args: argparse.Namespace, guard: Guard, folder: Path, bound: socket.socket) -> None:
    site = Site(guard, command_of(args), folder, args.screens)
    await run(site, bound, lambda: _say_where(args, guard, bound))


def _guard(args: argparse.Namespace) -> Guard:
    """Raises UsageError where others could reach it and nobody said so."""
    if is_loopback(args.host):
        return Guard(LOOPBACK | {args.host})
    if not args.allow_network:
        raise UsageError(
            f"--host {args.host} can be reached from other machines, and nothing is encrypted: say "
            "--allow-network too, or leave it and use ssh -L"
        )
    return Guard(LOOPBACK | {args.host.lower(), socket.gethostname().lower()}, addresses=True)


def command_of(args: argparse.Namespace) -> Sequence[str]:
    """What shows one screen."""
    command = [sys.executable, "-m", "rocm_tui", "watch"]
    command += ["--no-read-only" if args.allow_actions else "--read-only"]
    command += ["--polling"] if args.polling else []
    command += ["--python", args.python] if args.python else []
    command += ["--cache-dir", str(common.layout_of(args).root)]
    return [*command, *(f"./{path}" if path.startswith("-") else path for path in args.paths)]


def _say_where(args: argparse.Namespace, guard: Guard, bound: socket.socket) -> None:
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
