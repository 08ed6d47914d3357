"""`rocm-tui pin ID CHOICE`: let a choice win, from now on, for every torch.compile."""

from __future__ import annotations

import argparse

from backend.counted import counted
from backend.pins.state import PinPlan
from rocm_tui import say
from rocm_tui.actions.pick import pick_tuning
from rocm_tui.actions.pin import Pinnable, Pinned, pin_choice, pinnable, plan_pin
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import NotPinnable
from rocm_tui.harmless import plain
from rocm_tui.render.outputs import output_warning, why_not_bitwise
from rocm_tui.render.pins import pin_report_json, pin_warning, plan_json


def add_pin(parser: argparse.ArgumentParser) -> None:
    parser.description = "Pin CHOICE of tuning ID: every later torch.compile uses it until `unpin`."
    common.add_arguments(parser, "id")
    parser.add_argument(
        "choice", metavar="CHOICE", help="a name, a hash, a hash prefix, or #2 for the second best"
    )
    parser.add_argument("--note", default="", help="why, for those who come after")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change none")
    parser.add_argument(
        "--bitwise",
        action="store_true",
        help="refuse unless measured to give the same bits as the choice that is in use",
    )
    common.add_arguments(parser, "--from", "--cache-dir", "--json")


def do_pin(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    model, row = pick_tuning(layout, args.sources, args.id)
    wanted = pinnable(row, args.choice, model.sessions)
    if args.bitwise and (why := why_not_bitwise(row, wanted.choice)):
        raise NotPinnable(why)
    if args.dry_run:
        plan = plan_pin(wanted, layout)
        if args.json:
            say.out_json(plan_json(plan))
        else:
            say.out(_plan_text(wanted, plan))
        return ExitCode.YES
    pinned = pin_choice(wanted, layout, note=args.note)
    for warning in (
        pin_warning(wanted.row.tuning, wanted.choice),
        output_warning(row, wanted.choice),
    ):
        if warning:
            say.err(warning)
    if args.json:
        say.out_json(pin_report_json(pinned.report))
    else:
        say.out(_pinned_text(wanted, pinned))
    return ExitCode.of(pinned.done)


def _plan_text(wanted: Pinnable, plan: PinPlan) -> str:
    return (
        f"would pin {plain(wanted.choice.label)} for {wanted.row.id}: "
        f"{counted(plan.numbers, 'number is', 'numbers are')} raised out of reach in "
        f"{plain(str(plan.path))}, "
        f"{counted(len(plan.graphs), 'compiled graph is', 'compiled graphs are')} moved aside"
    )


def _pinned_text(wanted: Pinnable, pinned: Pinned) -> str:
    report = pinned.report
    return (
        f"pinned {plain(pinned.choice.label)} for {wanted.row.id}, {pinned.state}: "
        f"{counted(report.numbers, 'number')} raised out of reach, "
        f"{counted(report.moved, 'compiled graph')} moved aside"
    )
