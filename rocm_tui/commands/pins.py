"""`rocm-tui pins`: every pin, its state, its history."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.commands import common


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "pins",
        help="list pins and their state",
        description="List the pins of the cache dir. Exit code 1 if one of them is not active.",
    )
    parser.add_argument(
        "--reconcile", action="store_true", help="first apply again what drifted away"
    )
    parser.add_argument("--history", action="store_true", help="also what was pinned and unpinned")
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.pins.store import PinStore
    from rocm_tui import format as fmt
    from rocm_tui.session.as_json import history_json, status_json
    from rocm_tui.session.as_text import table

    store = PinStore(common.layout_of(args))
    statuses = store.reconcile(thorough=True) if args.reconcile else store.status()
    history = store.history() if args.history else ()
    if args.json:
        value = {"pins": [status_json(status) for status in statuses]}
        if args.history:
            value["history"] = [history_json(entry) for entry in history]
        say.out_json(value)
    else:
        say.out(text_table(PIN_LIST, statuses) if statuses else "nothing is pinned")
        for entry in history:
            say.out(history_line(entry))
    return 0 if all(status.state == "active" for status in statuses) else 1
