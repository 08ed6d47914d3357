"""`rocm-tui fleet`: the runs of fleets, how one stands, and its end."""

from __future__ import annotations

import argparse
import time

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
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


def add_fleet(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "rocm-tui fleet [ls] [options]\nrocm-tui fleet show [RUN] [options]\n"
        "rocm-tui fleet cancel RUN [UNIT] [options]"
    )
    parser.description = (
        "List the runs of `tune --fleet`, show one with its devices and problems, or end one, or a "
        "problem of it: its driver looks for that each second. What is merged stays."
    )
    parser.add_argument("what", nargs="?", choices=_WORDS, default="ls", help="ls, show or cancel")
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="its first letters will do")
    parser.add_argument("unit", nargs="?", metavar="UNIT", help="one problem of it")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_fleet(args: argparse.Namespace) -> int:
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
