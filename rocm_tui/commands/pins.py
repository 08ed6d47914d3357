"""`rocm-tui pins`: every pin, its state, its history."""

from __future__ import annotations

import argparse
import time

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
        header = ("id", "op", "choice", "state", "drifts", "who", "age", "note", "")
        rows = [
            [
                status.pin.id,
                fmt.plain(status.pin.op),
                fmt.shorten(fmt.plain(status.pin.label), 40),
                status.state,
                str(status.pin.drifts),
                fmt.plain(status.pin.who),
                fmt.age(status.pin.when, time.time()),
                fmt.plain(status.pin.note),
                "" if status.state == "active" else fmt.plain(status.detail),
            ]
            for status in statuses
        ]
        say.out(table(header, rows, "llllr") if rows else "nothing is pinned")
        for entry in history:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.when))
            parts = [when, entry.what, entry.label, entry.who, entry.note]
            say.out("  ".join(fmt.plain(part) for part in parts if part))
    return 0 if all(status.state == "active" for status in statuses) else 1
