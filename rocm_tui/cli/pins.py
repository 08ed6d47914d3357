"""`rocm-tui pins`: every pin, its state, its history; `rocm-tui unpin ID...`: take pins back, with
everything that they changed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from backend.model.pin import Pin
from backend.pins.file import HistoryEntry
from backend.pins.state import PinStatus
from rocm_tui import say
from rocm_tui.actions.pin import (
    list_pins,
    pin_history,
    pin_states,
    reapply_pins,
    take_all_back,
    take_back,
)
from rocm_tui.actions.table_pin import is_place, pins_at
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.pins import PIN_LIST, history_json, history_line, status_json
from rocm_tui.render.table import text_table
from rocm_tui.session.find import find_pins


def add_unpin(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Take the pins of these tunings back: measured times and compiled graphs return as they "
        "were."
    )
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="a pinned tuning's id, or FILE:LINE of a table"
    )
    parser.add_argument("--all", action="store_true", help="every pin of this cache dir")
    common.add_arguments(parser, "--cache-dir", "--json")


def do_unpin(args: argparse.Namespace) -> int:
    if bool(args.ids) == args.all:
        raise UsageError("unpin takes either ids or --all; `rocm-tui pins` prints the ids")
    layout = common.layout_of(args)
    if args.all:
        pins = take_all_back(layout)
    else:
        pins = _meant(list_pins(layout), args.ids)
        take_back(pins, layout)
    if args.json:
        say.out_json({"unpinned": [pin.id for pin in pins]})
    elif pins:
        for pin in pins:
            say.out(f"unpinned {plain(pin.label)} of {pin.id}")
    else:
        say.out("nothing is pinned")
    return ExitCode.YES


def _meant(pins: Sequence[Pin], words: Sequence[str]) -> list[Pin]:
    """Each once, in the order of the words."""
    meant: list[Pin] = []
    for word in words:
        found = pins_at(pins, word) if is_place(word) else find_pins(pins, [word])
        meant += [pin for pin in found if pin not in meant]
    return meant


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
