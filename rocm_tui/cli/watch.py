"""`rocm-tui watch`, `demo` and `serve`: the screen, with a program, with a demo, in a browser."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode, ProgramCommand
from rocm_tui.environment import COMMAND
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.tui.terminal import require_terminal, run_watch

if TYPE_CHECKING:
    from rocm_tui.tui.browser.guard import Guard


@click.command(cls=ProgramCommand)
@common.paths_argument
@common.polling_option
@click.option(
    "--read-only/--no-read-only",
    default=None,
    help="Write nothing and start nothing: no pin, no job, no reapplied pin.",
)
@common.max_autotune_option
@common.flag("--json", "Print a line of JSON for each tuning and each change instead.")
@common.python_option
@common.cache_dir_option
def watch_command(
    paths: Sequence[str],
    polling: bool,
    read_only: bool | None,
    max_autotune: bool,
    json: bool,
    python: str | None,
    cache_dir: Path | None,
    program: Sequence[str] | None,
) -> int:
    """Watch logs, caches and folders live, and pin choices.

    PATH is a file, a folder, or - for stdin (default: the cache directory). With `-- CMD...` that
    program is started as `rocm-tui run -- CMD` would: 0 shows its output, and q asks whether it
    continues. The program survives the loss of the terminal; the exit code is its own.

    Example: rocm-tui watch -- python train.py
    """
    layout = common.layout_at(cache_dir)
    paths = paths or [str(layout.root)]
    if json:
        if program is not None:
            raise UsageError("--json starts no program: use rocm-tui run -- CMD beside it")
        from rocm_tui.cli.watch_json import stream  # the screen starts without

        stream(paths, layout, polling=polling)
        return ExitCode.YES
    read_only = common.starts_read_only() if read_only is None else read_only
    if program is None:
        if max_autotune:
            raise UsageError("--max-autotune is for a program: rocm-tui watch -- CMD")
        return run_watch(
            paths, cache_dir=layout.root, polling=polling, python=python, read_only=read_only
        )
    if read_only:
        raise UsageError(
            "read-only starts no program: say --no-read-only, or leave out what follows --"
        )
    if not program:
        raise UsageError("-- needs a command: rocm-tui watch -- python train.py")
    from rocm_tui.launch.program import (
        Launched,  # most screens start no program
        ending,
    )

    launched = Launched(program, layout, options=["--max-autotune"] if max_autotune else [])
    paths = list(dict.fromkeys((*paths, str(layout.root))))
    left = run_watch(
        paths, cache_dir=layout.root, polling=polling, python=python, launched=launched
    )
    code = launched.code
    if left or code is None:
        return left
    say.err(f"{launched.title} ended: {ending(code)}; its output: {launched.log}")
    return code if code >= 0 else 128 - code


LENGTHS = (128, 96, 64, 160, 192, 80, 112, 144, 176, 208)
"""Sequence lengths: each run takes one more, so that there is always something new to tune."""


@click.command()
@common.python_option
@click.option(
    "--cache-dir",
    type=common.FOLDER,
    metavar="DIR",
    help="Use this cache directory (default: ~/.cache/rocm-tui/demo).",
)
def demo_command(python: str | None, cache_dir: Path | None) -> int:
    """Compile a small model (attention and an MLP) with max_autotune on the CPU, and watch it.

    The demo keeps its own cache directory: a pin made in it holds in the next demo. When the screen
    closes, the demo says what to try next.

    Example: rocm-tui demo
    """
    from rocm_tui.environment import find_python  # most screens start no program
    from rocm_tui.launch.program import Launched

    python = find_python(python)
    require_terminal()
    root = (cache_dir or _default_dir()).absolute()
    root.mkdir(parents=True, exist_ok=True)
    layout = Layout(root)
    command = [python, "-m", "backend.demo", *_lengths(layout)]
    launched = Launched(command, layout, options=["--capture"], title="the demo")
    say.out(STARTING, flush=True)
    code = run_watch([str(root)], cache_dir=root, python=python, launched=launched)
    if code == ExitCode.YES:
        for line in _to_try(layout):
            say.out(line)
    return code


STARTING = """\
The demo compiles a small model on this CPU with torch.compile and max_autotune.
Starting torch takes some 5 seconds; the first tunings appear within a minute."""


def _to_try(layout: Layout) -> Iterable[str]:
    """Yield what to try after the demo, with an id and the cache directory filled in."""
    from rocm_tui.actions.commands import ShellCommands  # with the model of a screen
    from rocm_tui.actions.sources import load_model

    line = ShellCommands(layout).line
    ids = [row.id for row in load_model(layout).listed()]
    yield f"Tunings and pins of the demo are kept in {plain(str(layout.root))}."
    yield "What to try:"
    yield f"  {line('ls')}"
    if ids:
        yield f"  {line('measure', ids[0])}"
    yield "  rocm-tui run -- python train.py    # record your own program"


def _default_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rocm-tui" / "demo"


def _lengths(layout: Layout) -> Iterable[str]:
    done = len(list(layout.sessions.glob("*.run.jsonl")))
    return dict.fromkeys(str(length) for length in (LENGTHS[0], LENGTHS[done % len(LENGTHS)]))


PORT = 7681


@click.command()
@common.paths_argument
@common.flag(
    "--allow-actions", "Allow the browser all actions of the screen: pin, unpin, tune, measure."
)
@common.number("--port", PORT, f"Listen on this port; 0 picks a free one (default: {PORT}).")
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="NAME",
    help="Listen on this address (default: 127.0.0.1).",
)
@common.flag(
    "--allow-network", "Allow a --host that other machines can reach; nothing is encrypted."
)
@common.number("--screens", 4, "Show at most this many screens at once (default: 4).")
@common.polling_option
@common.python_option
@common.cache_dir_option
def serve_command(
    paths: Sequence[str],
    allow_actions: bool,
    port: int,
    host: str,
    allow_network: bool,
    screens: int,
    polling: bool,
    python: str | None,
    cache_dir: Path | None,
) -> int:
    """Show the screen of `watch` in a browser, to everybody who has the printed URL.

    PATH is a file or a folder (default: the cache directory). Only this machine can reach the page
    (over SSH: ssh -L 7681:localhost:7681 HOST), and the page is read-only without --allow-actions.
    Needs the packages textual-serve and aiohttp.

    Example: rocm-tui serve --port 0
    """
    import asyncio  # with the server, which few screens need

    from rocm_tui.tui.browser.site import Site, listen, require_extra, run

    guard = _guard(host, allow_network)
    if not 0 <= port < 65536:
        raise UsageError(f"--port {port}: a port is a number from 0 to 65535")
    if not 1 <= screens <= 100:
        raise UsageError("--screens is how many at once, from 1 to 100")
    if "-" in paths:
        raise UsageError("serve cannot read stdin: each page has a screen of its own")
    folder = require_extra()
    command = screen_command(
        paths, allow_actions=allow_actions, polling=polling, python=python, cache_dir=cache_dir
    )
    bound = listen(host, port)
    url = f"http://{_host_in_url(host)}:{bound.getsockname()[1]}/?token={guard.token}"

    async def serve() -> None:
        site = Site(guard, command, folder, screens)
        await run(site, bound, lambda: _print_url(url, host, allow_actions))

    asyncio.run(serve())
    return ExitCode.YES


def _guard(host: str, allow_network: bool) -> Guard:
    """Raise UsageError for a host that other machines can reach without --allow-network."""
    from rocm_tui.tui.browser.guard import LOOPBACK, Guard, is_loopback

    if is_loopback(host):
        return Guard(LOOPBACK | {host})
    if not allow_network:
        raise UsageError(
            f"--host {host} can be reached from other machines, and nothing is encrypted: say "
            "--allow-network too, or leave it and use ssh -L"
        )
    return Guard(LOOPBACK | {host.lower(), socket.gethostname().lower()}, addresses=True)


def screen_command(
    paths: Sequence[str],
    *,
    allow_actions: bool,
    polling: bool,
    python: str | None,
    cache_dir: Path | None,
) -> Sequence[str]:
    """Return the command line of one screen."""
    command = [*COMMAND, "watch"]
    command += ["--no-read-only" if allow_actions else "--read-only"]
    command += ["--polling"] if polling else []
    command += ["--python", python] if python else []
    command += ["--cache-dir", str(common.layout_at(cache_dir).root)]
    return [*command, *(f"./{path}" if path.startswith("-") else path for path in paths)]


def _host_in_url(host: str) -> str:
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return f"[{name}]" if ":" in name else name


def _print_url(url: str, host: str, allow_actions: bool) -> None:
    from rocm_tui.tui.browser.guard import is_loopback

    if not is_loopback(host):
        say.err(
            "other machines can reach this, and nothing is encrypted: who sees the traffic has "
            "the screen"
        )
    say.out(url, flush=True)
    may = "may pin, tune and all else" if allow_actions else "can change nothing"
    say.err(f"who has this URL sees the screen, and {may}; Ctrl-C ends it", flush=True)
