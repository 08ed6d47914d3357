"""`rocm-tui verify [ID...]`: does a compile really call the pinned choice?"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from rocm_tui.commands import common

if TYPE_CHECKING:
    from backend.records import Pin
    from backend.store.paths import Layout
    from rocm_tui.session.model import Model


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "verify",
        help="prove that pins are used",
        description="Compile the op of each pin in a worker, with warm caches and no special "
        "environment. Exit code 0 only if the generated code calls the pinned choice.",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="a pinned tuning (default: all)")
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.store.pins import PinStore
    from rocm_tui.python_env import find_python
    from rocm_tui.session.find import find_pins

    layout = common.layout_of(args)
    pins = PinStore(layout).pins()
    chosen = find_pins(pins, args.ids) if args.ids else list(pins)
    if not chosen:
        if args.json:
            common.print_json({"pins": []})
        print("rocm-tui: nothing is pinned, so there is nothing to verify", file=sys.stderr)
        return 1
    python = find_python(args.python)
    model = common.load(layout, [])
    results = [(pin, _verify(pin, python, layout, _threads(model, pin))) for pin in chosen]
    if args.json:
        common.print_json({"pins": [{"id": pin.id, **result} for pin, result in results]})
    else:
        for pin, result in results:
            print(_sentence(pin, result))
    return 0 if all(result["ok"] for _, result in results) else 1


def _threads(model: Model, pin: Pin) -> int | None:
    """As many as the process had that tuned what is pinned, where a session tells."""
    for row in model.rows():
        tuning = row.tuning
        if tuning.key == pin.key and any(choice.hash == pin.hash for choice in tuning.choices):
            return tuning.threads
    return None


def _verify(pin: Pin, python: str, layout: Layout, threads: int | None) -> dict[str, Any]:
    """The worker's result, in the mode that the cache was tuned in, else in the first one; a worker
    that fails is a pin that is not verified."""
    from rocm_tui.errors import RocmTuiError
    from rocm_tui.jobs import run_job

    job = {
        "job": "verify",
        "cache_dir": str(layout.root),
        "op": pin.op,
        "inputs": pin.inputs,
        "precision": pin.precision,
        "hash": pin.hash,
        "threads": threads,
    }
    try:
        first = run_job(job, python=python, cache_dir=layout.root)
        if first["conclusive"]:
            return first
        for mode in range(1, first["modes"]):
            again = run_job({**job, "mode": mode}, python=python, cache_dir=layout.root)
            if again["conclusive"]:
                return again
        return first
    except RocmTuiError as error:
        return {"ok": False, "reason": str(error)}


def _sentence(pin: Pin, result: dict[str, Any]) -> str:
    from rocm_tui import format as fmt

    if result["ok"]:
        line = f"{pin.id}: the generated code calls {pin.label} ({result.get('kernel', pin.hash)})"
    else:
        line = f"{pin.id}: not verified: {result['reason']}"
    return fmt.plain(line)
