"""`rocm-tui verify [ID...] [-- CMD...]`: does a compile really call the pinned choice?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from backend.model.pin import Pin
    from backend.store.paths import Layout
    from backend.wire.jobs import VerifyResult
    from rocm_tui.actions.verify import Asked

TAKES_COMMAND = True
"""What follows `--` are the words of a program."""

USAGE = (
    "rocm-tui verify [-h] [--timeout SECONDS] [--python EXE] [--cache-dir DIR] [--json] "
    "[ID ...] [-- CMD ...]"
)


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "verify",
        usage=USAGE,
        help="prove that pins are used",
        description="Compile the op of each pin in one worker, with warm caches and no special "
        "environment. Exit code 0 only if the generated code calls the pinned choice. "
        "With `-- CMD ...` nothing is rebuilt: CMD, your own program, runs as it would by itself, "
        "and afterwards you are told for each pin whether the code that it compiled, or found "
        "compiled, calls it. Exit code 0 only if all are called and CMD ended well.",
        epilog="example: rocm-tui verify -- python train.py",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="a pinned tuning (default: all)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="a pin that takes longer is not verified, the others go on (default: 300)",
    )
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.pins.store import PinStore
    from rocm_tui.errors import UsageError
    from rocm_tui.session.find import find_pins

    if args.argv == []:
        raise UsageError("-- needs a command: rocm-tui verify -- python train.py")
    if not 0 < args.timeout < 1e9:
        raise UsageError("--timeout is a number of seconds above 0")
    layout = common.layout_of(args)
    pins = PinStore(layout).pins()
    chosen = find_pins(pins, args.ids) if args.ids else list(pins)
    if not chosen:
        if args.json:
            say.out_json({"pins": []})
        say.err("nothing is pinned, so there is nothing to verify")
        return 1
    if args.argv:
        from rocm_tui.commands.verify_program import run_program

        return run_program(args, layout, chosen)
    return _rebuild(args, layout, chosen)


def _rebuild(args: argparse.Namespace, layout: Layout, chosen: list[Pin]) -> int:
    """Verify in a worker; each sentence is said as soon as it is known."""
    from backend.wire.codec import to_json
    from rocm_tui.actions.verify import Verifying
    from rocm_tui.commands.live_line import LiveLine
    from rocm_tui.commands.work import ended_by_signals
    from rocm_tui.environment import find_python
    from rocm_tui.render.jobs import pin_title

    line = LiveLine()

    def tell(place: int, pin: Pin, what: str) -> None:
        line.title = f"verifying {place} of {len(chosen)}"
        line.show(f"{pin_title(pin)}, {what}")

    python = find_python(args.python)
    asked = _asked(layout, chosen)
    found: dict[int, VerifyResult] = {}
    with (
        ended_by_signals(),
        Verifying(python, layout, seconds=args.timeout, tell=tell) as verifying,
    ):
        try:
            for pin, result in verifying.results(asked):
                found[id(pin)] = result
                line.show("")
                if not args.json:
                    say.out(_sentence(pin, result), flush=True)
        finally:
            line.show("")
    if args.json:
        say.out_json({"pins": [{"id": pin.id, **to_json(found[id(pin)])} for pin in chosen]})
    return 0 if all(result.ok for result in found.values()) else 1


def _asked(layout: Layout, pins: list[Pin]) -> list[Asked]:
    """With as many threads as the process had that tuned what is pinned, where a session tells."""
    from rocm_tui.actions.verify import Asked

    threads = {
        (row.tuning.key, choice.hash): row.tuning.threads
        for row in common.load(layout, []).rows()
        for choice in row.tuning.choices
    }
    return [Asked(pin, threads.get((pin.key, pin.hash))) for pin in pins]


def _sentence(pin: Pin, result: VerifyResult) -> str:
    from rocm_tui import format as fmt

    if result.ok:
        line = f"{pin.id}: the generated code calls {pin.label} ({result.kernel or pin.hash})"
    else:
        line = f"{pin.id}: not verified: {result.reason}"
        if not result.rebuilt:
            line += f"; use: rocm-tui verify {pin.id} -- python your_program.py"
    return plain(line)
