"""`rocm-tui fleet`: the runs of fleets, how one stands, and its end."""

from __future__ import annotations

import time
from typing import Any

import click

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.fleet.places import record_path
from rocm_tui.fleet.record import (
    NoRun,
    Reader,
    ask_to_cancel,
    driver_lives,
    no_runs,
    pick_run,
    runs,
)
from rocm_tui.fleet.standing import Standing
from rocm_tui.harmless import plain
from rocm_tui.render.fleets import agents_json, run_json, run_text, state_of_run, units_json

_WORDS = ("ls", "show", "cancel")


@click.command()
@click.argument("what", type=click.Choice(_WORDS), default="ls")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.argument("unit", metavar="[UNIT]", required=False)
@common.cache_dir_option
@common.json_option
def fleet_command(**given: Any) -> int:
    """List the runs of `tune --fleet`, show one, or cancel one or a problem of it."""
    args = CommandArguments(**given)
    layout, now = common.layout_of(args), time.time()
    if args.unit is not None and args.what != "cancel":
        raise UsageError(f"fleet {args.what} takes one RUN")
    if args.what == "cancel":
        if args.run_name is None:
            raise UsageError("say which run to cancel: rocm-tui fleet cancel RUN [UNIT]")
        run = pick_run(layout, args.run_name)
        if args.unit is not None and args.unit not in _standing(layout, run).units:
            raise UsageError(f"the run {run} has no problem {args.unit}; `fleet show` lists them")
        ask_to_cancel(layout, run, args.unit)
        return ExitCode.YES
    if args.what == "show":
        run = pick_run(layout, args.run_name)
        standing, lives = _seen(layout, run)
        if args.json:
            document = run_json(standing, lives, now)
            document |= {"agents": agents_json(standing.agents)}
            document |= {"problems": units_json(list(standing.units.values()))}
            say.out_json(document)
        else:
            say.out(run_text(standing, lives, now))
        return ExitCode.YES
    there = {run: _seen(layout, run) for run in runs(layout)}
    if args.json:
        say.out_json({"runs": [run_json(*pair, now) for pair in there.values()]})
        return ExitCode.of(bool(there))
    if not there:
        raise NoRun(no_runs(layout))
    for run, (standing, lives) in there.items():
        say.out(plain(f"{run}  {state_of_run(standing, lives, now)}"))
    return ExitCode.YES


def _seen(layout: Layout, run: str) -> tuple[Standing, bool]:
    """How it stands, and whether a driver is at it."""
    lives, standing = driver_lives(layout, run), _standing(layout, run)
    if not lives:
        standing.left_alone()
    return standing, lives


def _standing(layout: Layout, run: str) -> Standing:
    standing = Standing()
    standing.apply(Reader(record_path(layout, run)).news())
    return standing
