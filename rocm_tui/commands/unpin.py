"""`rocm-tui unpin ID...`: take a pin back, with everything that it changed."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.commands import common


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "unpin",
        help="take pins back",
        description="Take the pins of these tunings back: measured times and compiled graphs "
        "return as they were.",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="a pinned tuning's id")
    parser.add_argument("--all", action="store_true", help="every pin of this cache dir")
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.pins.store import PinStore
    from rocm_tui import format as fmt
    from rocm_tui.errors import UsageError
    from rocm_tui.harmless import plain
    from rocm_tui.session.find import find_pins

    if bool(args.ids) == args.all:
        raise UsageError("unpin takes either ids or --all; `rocm-tui pins` prints the ids")
    store = PinStore(common.layout_of(args))
    pins = store.pins()
    if args.all:
        chosen = [report.pin for report in store.unpin_all()] if pins else []
    else:
        chosen = find_pins(pins, args.ids)
        for pin in chosen:
            store.unpin(pin.key, pin.system_hash)
    if args.json:
        say.out_json({"unpinned": [pin.id for pin in chosen]})
    elif chosen:
        for pin in chosen:
            say.out(f"unpinned {plain(pin.label)} of {pin.id}")
    else:
        say.out("nothing is pinned")
    return 0
