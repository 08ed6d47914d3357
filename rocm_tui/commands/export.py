"""`rocm-tui export [ID...]`: pins as a file for another machine, or as Inductor's lookup table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backend.disk.layout import Layout
    from backend.sharing.lookup_table import Table
    from backend.sharing.machine import Machine
    from backend.sharing.share import SharedPin
    from rocm_tui.session.model import Model


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "export",
        help="write pins to a file for other machines",
        description="Write the pins of these tunings (default: all) as JSON that `import` reads "
        "on another machine. Exit code 1 if there is none to write.",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="a pinned tuning (default: all)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    parser.add_argument(
        "--lookup-table",
        action="store_true",
        help="write torch._inductor.config.lookup_table.table instead, for use without rocm-tui",
    )
    common.add_from(parser)
    common.add_python(parser)
    common.add_cache_dir(parser)
    parser.add_argument(
        "--json", action="store_true", help="with -o: print JSON that says what was written"
    )


def run(args: argparse.Namespace) -> int:
    from rocm_tui.errors import UsageError

    if args.json and args.output is None:
        raise UsageError("--json says what -o wrote; without -o stdout is the JSON file itself")
    layout = common.layout_of(args)
    pins = shared_pins(layout, args.ids, args.sources, args.python)
    if not pins:
        say.err("nothing is pinned, so there is nothing to export")
        return 1
    if args.lookup_table:
        return _export_table(args, pins)
    _say_unknown(pins)
    _write(args.output, _document(pins))
    _report(args, pins)
    return 0


def _document(pins: Sequence[SharedPin]) -> str:
    import time

    from backend.pins.held import default_who
    from backend.sharing.share import Share, share_text

    return share_text(Share(tuple(pins), default_who(), time.time()))


def shared_pins(
    layout: Layout, ids: Sequence[str], sources: Sequence[str], python: str | None
) -> list[SharedPin]:
    """The pins of the cache dir, or those of `ids`, with all that is known of where they come
    from. Raises NoSuchTuning and StoreError."""
    from backend.pins.file import read_pin_file
    from backend.sharing.share import SharedPin
    from rocm_tui.session.find import find_pins

    records = read_pin_file(layout.pins).pins
    wanted = {pin.id for pin in find_pins([record.pin for record in records], ids)}
    records = [record for record in records if not ids or record.pin.id in wanted]
    if not records:
        return []
    model = common.load(layout, [str(layout.root), *sources])
    facts = _Facts(layout, model, python)
    return [
        SharedPin(
            op=record.op,
            inputs=record.inputs,
            precision=record.precision,
            hash=record.hash,
            label=record.label,
            machine=facts.machine(record.pin.id, record.system_hash),
            config=record.config or facts.config(record.pin.id, record.hash),
            timings=record.timings,
            device=record.device,
            who=record.who,
            when=record.when,
            note=record.note,
        )
        for record in records
    ]


class _Facts:
    """What sessions, cache files and, where they are silent, a worker tell."""

    def __init__(self, layout: Layout, model: Model, python: str | None) -> None:
        from backend.cache.autotune import read_caches

        self._layout = layout
        self._model = model
        self._python = python
        self._systems = {file.system_hash: file.system for file in read_caches(layout)[0]}
        self._environment: Mapping[str, object] | None = None

    def machine(self, id_: str, system_hash: str) -> Machine:
        from backend.sharing.machine import completed, machine_of

        sessions = [row.tuning.session for row in self._model.rows() if row.id == id_]
        tuned_by = next((session for session in sessions if session), None)
        system = self._systems.get(system_hash, {})
        known = machine_of(system_hash, system, self._model.sessions.values(), tuned_by)
        return known if known.arch else completed(known, self._ask())

    def config(self, id_: str, hash_: str) -> dict[str, str]:
        """The configuration of a choice, where a session or a log tells it."""
        for row in self._model.rows():
            for choice in row.tuning.choices if row.id == id_ else ():
                if choice.hash == hash_ and choice.config:
                    return choice.config
        return {}

    def _ask(self) -> Mapping[str, object]:
        """What the user's torch says of this machine; nothing where there is none."""
        from dataclasses import asdict

        from backend.wire.jobs import EnvironmentJob
        from rocm_tui.environment import find_python
        from rocm_tui.errors import RocmTuiError
        from rocm_tui.jobs.worker import run_job

        if self._environment is None:
            try:
                python = find_python(self._python)
                here = run_job(EnvironmentJob(), python=python, cache_dir=self._layout.root)
                self._environment = asdict(here)
            except RocmTuiError:
                self._environment = {}
        return self._environment


def _export_table(args: argparse.Namespace, pins: Sequence[SharedPin]) -> int:
    from backend.sharing.lookup_table import as_json, lookup_table

    table = lookup_table(pins)
    if table.pins:
        _write(args.output, as_json(table.entries))
        _report(args, table.pins, table)
    for remark in (*table.left_out, *table.notes):
        how = "left out" if remark in table.left_out else "note"
        say.err(f"{remark.pin.id} {remark.pin.op} {remark.pin.label}: {how}: {remark.text}")
    if not table.pins:
        say.err("the lookup table can hold none of these pins; nothing was written")
    return 0 if table.pins else 1


def _write(path: Path | None, text: str) -> None:
    """To stdout without a path. Raises UsageError for a path that is no file, and NotWritable."""
    from backend.disk.safe import write_atomic
    from backend.disk.trusted import user_name
    from rocm_tui.errors import UsageError

    if path is None:
        say.out_text(text)
        return
    if path.is_symlink() and (owner := path.lstat().st_uid) not in (os.geteuid(), 0):
        raise UsageError(f"{path} is a link of {user_name(owner)}; name the file that it leads to")
    real = path.resolve()
    if real.exists() and not real.is_file():
        raise UsageError(f"{path} is not a regular file; -o takes the name of one")
    write_atomic(real, text.encode())


def _report(
    args: argparse.Namespace, pins: Sequence[SharedPin], table: Table | None = None
) -> None:
    if args.output is None:
        return
    if not args.json:
        from rocm_tui.harmless import plain

        kind = "pin" if len(pins) == 1 else "pins"
        say.out(f"wrote {len(pins)} {kind} to {plain(str(args.output))}")
        return
    left_out, notes = (table.left_out, table.notes) if table else ((), ())
    say.out_json(
        {
            "file": str(args.output),
            "pins": [pin.id for pin in pins],
            "left_out": [{"id": remark.pin.id, "reason": remark.text} for remark in left_out],
            "notes": [{"id": remark.pin.id, "note": remark.text} for remark in notes],
        }
    )


def _say_unknown(pins: Sequence[SharedPin]) -> None:
    """Name what an import will not be able to check."""
    for name in ("arch", "torch"):
        lacking = [pin.id for pin in pins if getattr(pin.machine, name) is None]
        if lacking:
            say.err(
                f"the {name} that {', '.join(lacking)} was tuned with is not known (no session of "
                f"`rocm-tui run` tells it), so an import cannot check it"
            )
