"""`rocm-tui watch [PATH...] [-- CMD...]`: the screen, and a program with it.

`rocm-tui demo`: the screen on a real session that tunes on this machine's CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments
from rocm_tui.cli.group import ProgramCommand
from rocm_tui.config.places import config_given
from rocm_tui.errors import UsageError
from rocm_tui.tui.terminal import run_watch


@click.command(cls=ProgramCommand)
@common.paths_argument
@common.polling_option
@click.option(
    "--read-only/--no-read-only",
    default=None,
    help="Write nothing and start nothing: no pin, no job, no reapplied pin.",
)
@common.max_autotune_option
@common.python_option
@common.cache_dir_option
def watch_command(**given: Any) -> int:
    """Watch logs, caches and folders live, and pin choices.

    PATH is a file, a folder, or - for stdin (default: the cache directory). With `-- CMD...` that
    program is started as `rocm-tui run -- CMD` would: O shows its output, and q asks whether it
    continues. The program survives the loss of the terminal; the exit code is its own.

    Example: rocm-tui watch -- python train.py
    """
    args = CommandArguments(**given)
    layout = common.layout_of(args)
    paths = args.paths or [str(layout.root)]
    read_only = _starts_read_only() if args.read_only is None else args.read_only
    if args.program is None:
        if args.max_autotune:
            raise UsageError("--max-autotune is for a program: rocm-tui watch -- CMD")
        return run_watch(
            paths,
            cache_dir=layout.root,
            polling=args.polling,
            python=args.python,
            read_only=read_only,
        )
    if read_only:
        raise UsageError(
            "read-only starts no program: say --no-read-only, or leave out what follows --"
        )
    if not args.program:
        raise UsageError("-- needs a command: rocm-tui watch -- python train.py")
    from rocm_tui.launch.launched import Launched  # most screens start no program
    from rocm_tui.launch.program import ending

    options = ["--max-autotune"] if args.max_autotune else []
    launched = Launched(args.program, layout, options=options)
    paths = list(dict.fromkeys((*paths, str(layout.root))))
    left = run_watch(
        paths, cache_dir=layout.root, polling=args.polling, python=args.python, launched=launched
    )
    code = launched.code
    if left or code is None:
        return left
    say.err(f"{launched.title} ended: {ending(code)}; its output: {launched.log}")
    return code if code >= 0 else 128 - code


def _starts_read_only() -> bool:
    if not config_given():
        return False
    from rocm_tui.config.reading import config  # where there are settings

    return config().watch.read_only


LENGTHS = (128, 96, 64, 160, 192, 80, 112, 144, 176, 208)
"""Sequence lengths: each run takes one more, so that there is always something new to tune."""


@click.command()
@common.python_option
@click.option(
    "--cache-dir", type=common.FOLDER, metavar="DIR", help="Default: ~/.cache/rocm-tui/demo."
)
def demo_command(**given: Any) -> int:
    """Compile a small model (attention and an MLP) with max_autotune on the CPU, and watch it.

    The demo keeps its own cache directory: a pin made in it holds in the next demo.
    """
    args = CommandArguments(**given)
    from rocm_tui.environment import find_python  # most screens start no program
    from rocm_tui.launch.launched import Launched

    python = find_python(args.python)
    root = (args.cache_dir or _default_dir()).absolute()
    root.mkdir(parents=True, exist_ok=True)
    layout = Layout(root)
    command = [python, "-m", "backend.demo", *_lengths(layout)]
    launched = Launched(command, layout, options=["--capture"], title="the demo")
    return run_watch([str(root)], cache_dir=root, python=python, launched=launched)


def _default_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rocm-tui" / "demo"


def _lengths(layout: Layout) -> Iterable[str]:
    done = len(list(layout.sessions.glob("*.run.jsonl")))
    return dict.fromkeys(str(length) for length in (LENGTHS[0], LENGTHS[done % len(LENGTHS)]))
