"""`rocm-tui pin ID CHOICE`: let a choice win, from now on, for every torch.compile.

`rocm-tui pins`: every pin, its state, its history; `rocm-tui unpin ID...`: take pins back, with
everything that they changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from backend.pins.file import HistoryEntry
from backend.pins.state import PinPlan, PinStatus
from rocm_tui import say
from rocm_tui.actions.pin import (
    Pinnable,
    Pinned,
    list_pins,
    pin_choice,
    pin_history,
    pin_states,
    pinnable,
    plan_pin,
    reapply_pins,
    take_all_back,
    take_back,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.pins import (
    PIN_LIST,
    history_json,
    history_line,
    pin_report_json,
    pin_warning,
    plan_json,
    status_json,
)
from rocm_tui.render.table import text_table
from rocm_tui.session.find import find_pins, pick_tuning


def add_pin(parser: argparse.ArgumentParser) -> None:
    parser.description = "Pin CHOICE of tuning ID: every later torch.compile uses it until `unpin`."
    common.add_arguments(parser, "id")
    parser.add_argument(
        "choice", metavar="CHOICE", help="a name, a hash, a hash prefix, or #2 for the second best"
    )
    parser.add_argument("--note", default="", help="why, for those who come after")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change none")
    common.add_arguments(parser, "--from", "--cache-dir", "--json")


def do_pin(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    model, row = pick_tuning(layout, args.sources, args.id)
    wanted = pinnable(row, args.choice, model.sessions)
    if args.dry_run:
        plan = plan_pin(wanted, layout)
        if args.json:
            say.out_json(plan_json(plan))
        else:
            say.out(_plan_text(wanted, plan))
        return ExitCode.YES
    pinned = pin_choice(wanted, layout, note=args.note)
    warning = pin_warning(wanted.row.tuning, wanted.choice)
    if warning:
        say.err(warning)
    if args.json:
        say.out_json(pin_report_json(pinned.report))
    else:
        say.out(_pinned_text(wanted, pinned))
    return ExitCode.of(pinned.active)


def _plan_text(wanted: Pinnable, plan: PinPlan) -> str:
    return (
        f"would pin {plain(wanted.choice.label)} for {wanted.row.id}: {plan.numbers} number(s) "
        f"are raised out of reach in {plain(str(plan.path))}, {len(plan.graphs)} compiled "
        f"graph(s) are moved aside"
    )


def _pinned_text(wanted: Pinnable, pinned: Pinned) -> str:
    report = pinned.report
    return (
        f"pinned {plain(pinned.choice.label)} for {wanted.row.id}, {pinned.state}: "
        f"{report.numbers} number(s) raised out of reach, {report.moved} compiled graph(s) moved "
        f"aside"
    )


def add_unpin(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Take the pins of these tunings back: measured times and compiled graphs return as they "
        "were."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="a pinned tuning's id")
    parser.add_argument("--all", action="store_true", help="every pin of this cache dir")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_unpin(args: argparse.Namespace) -> int:
    if bool(args.ids) == args.all:
        raise UsageError("unpin takes either ids or --all; `rocm-tui pins` prints the ids")
    layout = common.layout_of(args)
    if args.all:
        pins = take_all_back(layout)
    else:
        pins = find_pins(list_pins(layout), args.ids)
        take_back(pins, layout)
    if args.json:
        say.out_json({"unpinned": [pin.id for pin in pins]})
    elif pins:
        for pin in pins:
            say.out(f"unpinned {plain(pin.label)} of {pin.id}")
    else:
        say.out("nothing is pinned")
    return ExitCode.YES


def add_pins(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the pins of the cache dir. Exit code 1 if one of them is not active."
    parser.add_argument(
        "--reconcile", action="store_true", help="first apply again what drifted away"
    )
    parser.add_argument("--history", action="store_true", help="also what was pinned and unpinned")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_pins(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    statuses = reapply_pins(layout, thorough=True) if args.reconcile else pin_states(layout)
    history = pin_history(layout) if args.history else ()
    if args.json:
        value = {"pins": [status_json(status) for status in statuses]}
        if args.history:
            value["history"] = [history_json(entry) for entry in history]
        say.out_json(value)
    else:
        _print_pins(statuses, history)
    return ExitCode.of(all(status.state == "active" for status in statuses))


def _print_pins(statuses: Sequence[PinStatus], history: Sequence[HistoryEntry]) -> None:
    say.out(text_table(PIN_LIST, statuses) if statuses else "nothing is pinned")
    for entry in history:
        say.out(history_line(entry))
