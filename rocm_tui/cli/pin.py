"""`rocm-tui pin ID CHOICE`: let a choice win, from now on, for every torch.compile."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from backend.counted import counted, device_ranges
from backend.disk.layout import Layout
from backend.model.inductor_kernel import is_inductors
from backend.pins.plan import PinPlan
from rocm_tui import say
from rocm_tui.actions.pick import pick_tuning
from rocm_tui.actions.pin import Pinnable, Pinned, pin_choice, pinnable, plan_pin
from rocm_tui.actions.table_pin import is_place, pin_row, plan_row, row_at, solution_of
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import NotPinnable
from rocm_tui.harmless import plain
from rocm_tui.render.outputs import change_json, output_warning, why_not_bitwise
from rocm_tui.render.pins import pin_report_json, pin_warning, plan_json, state_text
from rocm_tui.session.possible import why_wrong


def add_pin(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Pin CHOICE of tuning ID: every later torch.compile uses it until `unpin`. ID may be "
        "FILE:LINE of another tuner's table (TunableOp, AITER, a ladder of MoE configs); CHOICE is "
        "then another solution's name, NAME=VALUE,..., or a table that has it for the same entry."
    )
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
    parser.add_argument(
        "--wrong", action="store_true", help="pin it though measuring found its result wrong"
    )
    common.add_arguments(parser, "--from", "--cache-dir", "--json")


def do_pin(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    if is_place(args.id):
        return _pin_row(args, layout)
    model, row = pick_tuning(layout, args.sources, args.id)
    wanted = pinnable(row, args.choice, model.sessions, wrong=args.wrong)
    row = wanted.row
    if args.bitwise and (why := why_not_bitwise(row, wanted.choice)):
        raise NotPinnable(why)
    changes = {"change_of_bits": change_json(row, wanted.choice)}
    if args.dry_run:
        plan = plan_pin(wanted, layout)
        if args.json:
            say.out_json(plan_json(plan) | changes)
        else:
            say.out(_plan_text(wanted, plan))
        return ExitCode.YES
    pinned = pin_choice(wanted, layout, note=args.note)
    for warning in (
        why_wrong(row, wanted.choice),
        pin_warning(wanted.row.tuning, wanted.choice),
        output_warning(row, wanted.choice),
    ):
        if warning:
            say.err(warning)
    if args.json:
        say.out_json(pin_report_json(pinned.report) | changes)
    else:
        say.out(_pinned_text(wanted, pinned))
    return ExitCode.of(pinned.done)


def _pin_row(args: argparse.Namespace, layout: Layout) -> int:
    """Of a tuned table."""
    row = row_at(args.id)
    solution = solution_of(row, args.choice)
    if args.dry_run:
        plan = plan_row(row, solution, layout)
        if args.json:
            say.out_json(plan_json(plan))
        else:
            does = "would write" if plan.numbers else "would leave as it is"
            say.out(f"{does} {plain(row.path_line)}: {plain(solution.text)}")
        return ExitCode.YES
    report = pin_row(row, solution, layout, note=args.note)
    if args.json:
        say.out_json(pin_report_json(report))
    else:
        say.out(
            f"pinned {plain(solution.label)} in {plain(row.place)} as {report.pin.id}, in the "
            f"place of {plain(row.entry.solution)}; a program takes it when it reads the table"
        )
    return ExitCode.YES


def _plan_text(wanted: Pinnable, plan: PinPlan) -> str:
    return (
        f"would pin {plain(wanted.choice.label)} for {wanted.row.id}: "
        f"{_changes(wanted, plan.numbers, ' is', ' are')} in "
        f"{plain(str(plan.path))}, "
        f"{counted(len(plan.graphs), 'compiled graph is', 'compiled graphs are')} moved aside"
        f"{_devices(plan.devices)}"
    )


def _devices(indices: Sequence[int]) -> str:
    """Whose numbers and graphs a pin changes, on a box with several devices."""
    return f"; for devices {device_ranges(indices)}" if len(indices) > 1 else ""


def _changes(wanted: Pinnable, count: int, one: str = "", more: str = "") -> str:
    """Of a kernel that Inductor launches files are written, of others numbers are raised."""
    if is_inductors(wanted.key.op):
        return f"{counted(count, f'best config{one}', f'best configs{more}')} written"
    return f"{counted(count, f'number{one}', f'numbers{more}')} raised out of reach"


def _pinned_text(wanted: Pinnable, pinned: Pinned) -> str:
    report = pinned.report
    state = state_text(report.status) if report.status else pinned.state
    return (
        f"pinned {plain(pinned.choice.label)} for {wanted.row.id}, {state}: "
        f"{_changes(wanted, report.numbers)}, "
        f"{counted(report.moved, 'compiled graph')} moved aside"
    )
