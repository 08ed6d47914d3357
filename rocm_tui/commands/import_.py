"""`rocm-tui import FILE`: take pins in that `export` wrote, after checking where they come from."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend.disk.layout import Layout
    from backend.pins.store import PinStore
    from backend.sharing.machine import Machine
    from backend.sharing.plan import Difference, Step
    from backend.sharing.share import Share, SharedPin

    Differences = dict[Machine, list[Difference]]


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "import",
        help="take in pins that `export` wrote",
        description="Check the pins of FILE against this machine and say what would happen; with "
        "--yes, do it. Exit code 1 if one of them cannot be used here: then nothing is changed.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what `rocm-tui export` wrote")
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these tunings of FILE")
    parser.add_argument("--yes", action="store_true", help="do it; without this nothing is changed")
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.pins.store import PinStore
    from backend.sharing.plan import differences, steps_of
    from backend.sharing.share import read_share

    layout = common.layout_of(args)
    share = read_share(args.file)
    pins = _chosen(share, args.ids)
    if not pins:
        if args.json:
            say.out_json(_as_json(share, {}, [], False))
        say.err(f"{args.file} holds no pins")
        return 1
    here = _this_machine(args.python, layout)
    found = {there: differences(there, here) for there in dict.fromkeys(p.machine for p in pins)}
    store = PinStore(layout)
    steps = steps_of(pins, here, store)
    fits = all(step.action != "refused" for step in steps)
    _say_differences(found)
    if not args.json:
        _print(steps)
    if args.yes and fits:
        _pin_all(store, [step.pin for step in steps if step.changes], here)
    elif not fits:
        say.err("nothing was changed; name the IDs that fit to import only those")
    elif any(step.changes for step in steps):
        say.err("nothing was changed; --yes does it")
    if args.json:
        say.out_json(_as_json(share, found, steps, args.yes and fits))
    return 0 if fits else 1


def _chosen(share: Share, ids: Sequence[str]) -> list[SharedPin]:
    """Raises NoSuchTuning for an id that the file does not have."""
    from rocm_tui.errors import NoSuchTuning

    wanted: set[str] = set()
    for id_ in ids:
        found = {pin.id for pin in share.pins if id_ and pin.id.startswith(id_.lower())}
        if len(found) != 1:
            what = "begins several ids of the file" if found else "is no id of the file"
            known = ", ".join(sorted({pin.id for pin in share.pins})[:10])
            raise NoSuchTuning(f"{id_!r} {what}; it has {known or 'no pins'}")
        wanted |= found
    return [pin for pin in share.pins if not ids or pin.id in wanted]


def _this_machine(python: str | None, layout: Layout) -> Machine:
    """What the user's torch says of it. Raises NoTorchPython and JobError."""
    from backend.sharing.machine import machine_here
    from rocm_tui.jobs import JobFailed, run_job
    from rocm_tui.python_env import find_python

    from backend.store.share_facts import machine_here
    from backend.wire.jobs import EnvironmentJob
    from rocm_tui.environment import find_python
    from rocm_tui.jobs.errors import JobFailed
    from rocm_tui.jobs.worker import run_job

    found = run_job(EnvironmentJob(), python=find_python(python), cache_dir=layout.root)
    here = machine_here(asdict(found))
    if here.system_hash is None:
        raise JobFailed("torch does not tell the name of this machine's cache file")
    return here


def _pin_all(store: PinStore, pins: Sequence[SharedPin], here: Machine) -> None:
    """Pin one after the other. If one cannot be written, says how many were; raises StoreError."""
    from backend.errors import StoreError

    for done, pin in enumerate(pins):
        try:
            store.pin(
                here.system_hash,
                pin.key,
                pin.hash,
                label=pin.label,
                note=_note(pin),
                config=pin.config,
                wait=True,
            )
        except StoreError:
            say.err(f"{done} of {len(pins)} pins were imported; the rest was not")
            raise
    say.err(f"{len(pins)} imported" if pins else "every pin is here already")


def _note(pin: SharedPin) -> str:
    """Where it comes from, and what it said there."""
    day = time.strftime("%Y-%m-%d", time.localtime(pin.when))
    origin = f"imported from {pin.machine.host or 'another host'}, pinned {day} by {pin.who or '?'}"
    return f"{pin.note} ({origin})" if pin.note else origin


def _say_differences(found: Differences) -> None:
    for there, differences in found.items():
        where = f"{there.host}: " if there.host else ""
        for difference in differences:
            if difference.known:
                kind = "refused" if difference.refuses else "warning"
                say.err(f"{kind}: {where}{difference.sentence}")
        unknown = [difference.field for difference in differences if not difference.known]
        if unknown:
            say.err(
                f"warning: {where}not known on both sides, so not checked: {', '.join(unknown)}"
            )


def _print(steps: Sequence[Step]) -> None:
    from rocm_tui.harmless import plain
    from rocm_tui.render.table import table
    from rocm_tui.session import numbers as fmt

    rows = [
        (
            step.pin.id,
            plain(step.pin.op),
            fmt.shorten(plain(step.pin.label or step.pin.hash), 40),
            step.action,
            plain(step.detail),
        )
        for step in steps
    ]
    say.out(table(("id", "op", "choice", "what", ""), rows))


def _as_json(
    share: Share, found: Differences, steps: Sequence[Step], applied: bool
) -> dict[str, Any]:
    return {
        "applied": applied,
        "by": share.by,
        "when": share.when,
        "differences": [
            {
                "host": there.host,
                "field": difference.field,
                "there": difference.there,
                "here": difference.here,
                "refuses": difference.refuses,
                "why": difference.why,
            }
            for there, differences in found.items()
            for difference in differences
        ],
        "pins": [
            {
                "id": step.pin.id,
                "op": step.pin.op,
                "hash": step.pin.hash,
                "label": step.pin.label,
                "action": step.action,
                "detail": step.detail,
                "numbers": step.numbers,
                "graphs": step.graphs,
            }
            for step in steps
        ],
    }
