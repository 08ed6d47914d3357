"""`rocm-tui run -- CMD...`: the user's own program, recorded, with pins honoured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.ranks import job
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments
from rocm_tui.config.reading import config
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.launch.run import StatusLine, run

SECONDS = 2.0
"""For which a kernel is measured, unless it is clear before."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--quiet", is_flag=True, help="Hide AUTOTUNE tables.")
@common.max_autotune_option
@click.option("--templates", is_flag=True, help="Offer our ROCm templates to Inductor.")
@click.option(
    "--check",
    is_flag=True,
    help="Reject choices whose results are further off than rounding explains.",
)
@click.option("--no-shares", is_flag=True, help="Do not record calls and times of compiled graphs.")
@click.option(
    "--capture",
    is_flag=True,
    help="Keep the text of each compiled graph, for `trial` and `improve`.",
)
@click.option(
    "--cache-triton",
    is_flag=True,
    help="Keep the times of @triton.autotune (TRITON_CACHE_AUTOTUNING=1), to watch and pin.",
)
@click.option(
    "--agree/--no-agree",
    default=None,
    help="In a job of several ranks: one tunes a problem, the others take its choice.",
)
@click.option(
    "--agree-timeout",
    type=float,
    metavar="SECONDS",
    help=f"A rank waits this long for another, then tunes alone (default: {job.SECONDS:g}).",
)
@click.option(
    "--agree-dir",
    type=common.FOLDER,
    metavar="DIR",
    help="A folder that all hosts of this job share; one host needs none.",
)
@click.option(
    "--all-devices",
    is_flag=True,
    help="Tune once for all GPUs of a kind; implies --agree.",
)
@click.option(
    "--measure-kernels",
    is_flag=False,
    flag_value=SECONDS,
    type=float,
    default=0.0,
    metavar="[SECONDS]",
    help=f"Measure the configs of each Triton kernel that CMD tunes (default: {SECONDS:g} s each).",
)
@click.option("--id", metavar="NAME", hidden=True)  # `watch -- CMD` names it
@common.cache_dir_option
@click.argument("argv", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def run_command(**given: Any) -> int:
    """Run CMD unchanged with our hooks in its torch.compile. The exit code is its own."""
    args = CommandArguments(**given)
    if not args.argv:
        raise UsageError("run needs a command: rocm-tui run -- python train.py")
    if args.capture and args.no_shares:
        raise UsageError("--capture records graphs, --no-shares does not: take one of them")
    if not 0 <= args.measure_kernels <= 3600:
        raise UsageError("--measure-kernels takes seconds for one kernel, 3600 at most")
    _migrate(common.layout_of(args))
    return run(
        args.argv,
        quiet=args.quiet,
        max_autotune=args.max_autotune,
        templates=args.templates,
        check=args.check,
        shares=not args.no_shares,
        capture=args.capture,
        cache_triton=args.cache_triton,
        agree=_agree(args),
        agree_dir=args.agree_dir,
        all_devices=args.all_devices,
        measure_kernels=args.measure_kernels,
        cache_dir=args.cache_dir,
        id=args.id,
        make_line=_no_line if args.quiet else _line,
        tell_ranks=_differences,
    )


def _differences(layout: Layout, run: str, logs: Sequence[Path]) -> str:
    """That ranks which should agree do not, also those of their job under other runs."""
    from rocm_tui.actions.agree import agreement_in  # few runs have ranks
    from rocm_tui.render.agree import differing_line

    try:
        return differing_line(agreement_in(layout, logs, run), run)
    except (RocmTuiError, StoreError, OSError) as error:  # the program's exit code matters more
        return f"its ranks were not compared: {error}"


def _agree(args: CommandArguments) -> float | None:
    """The seconds that a rank waits, 0 where ranks shall not agree; None where nobody says."""
    told = args.agree_timeout
    if told is not None and not 0 < told <= job.MOST_SECONDS:
        raise UsageError(f"--agree-timeout: more than 0 and at most {job.MOST_SECONDS:g} seconds")
    wanted, seconds = args.agree, told
    if wanted is None and (told is not None or args.agree_dir is not None or args.all_devices):
        wanted = True
    if wanted is None or (wanted and seconds is None):
        settings = config().run
        wanted = settings.agree or None if wanted is None else wanted
        seconds = settings.agree_timeout if seconds is None else seconds
    if not wanted:
        return None if wanted is None else 0.0
    return seconds or job.SECONDS


def _no_line(layout: Layout, run: str) -> None:
    """For those who want to see nothing but the program's own."""


def _line(layout: Layout, run: str) -> StatusLine | None:
    """What the program is doing, where a person looks on."""
    if not os.isatty(2):
        return None
    from rocm_tui.cli.run_line import run_line  # reads logs; a program without a terminal needs not

    return run_line(layout, run)


def _migrate(layout: Layout) -> None:
    """A pin of an older version breaks programs that do not offer its choice: not this one."""
    if not layout.pins.exists():
        return
    # Every program that is run waits for this: the store is loaded only where something is pinned.
    from rocm_tui.actions.pin import migrate_pins

    try:
        migrate_pins(layout)
    except StoreError as error:
        say.err(f"pins of an older version are left as they are: {error}")
