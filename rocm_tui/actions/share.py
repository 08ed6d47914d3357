"""Pins for other machines: gathered with all that is known of where they come from; taken in after
they were checked against this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backend.cache.autotune import read_caches
from backend.cache.best_config import KernelFiles
from backend.cache.variants import DEVICES, ChoiceVariants
from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.safe import write_atomic
from backend.disk.trusted import user_name
from backend.errors import StoreError
from backend.model.choice import Choice
from backend.model.inductor_kernel import is_inductors
from backend.model.ops import is_flex
from backend.model.tuning import Tuning
from backend.pins.file import PinRecord, default_who, new_group, read_pin_file
from backend.pins.store import PinStore
from backend.sharing.kernel_options import FlexChoice, operands
from backend.sharing.plan import (
    ImportStep,
    MachineDifference,
    differences,
    steps_of,
    system_for,
    take_in,
)
from backend.sharing.share import (
    Machine,
    PinExport,
    SharedPin,
    completed,
    machine_here,
    machine_of,
    read_share,
    share_text,
)
from backend.tables.model import is_table_op
from backend.wire.jobs import Environment, EnvironmentJob
from rocm_tui.actions.sources import load_model
from rocm_tui.environment import find_python
from rocm_tui.errors import NoSuchTuning, RocmTuiError, UsageError
from rocm_tui.jobs.limits import JobFailed
from rocm_tui.jobs.worker import run_job
from rocm_tui.session import stats
from rocm_tui.session.find import find_pins, find_row
from rocm_tui.session.model import Model

# Export.


def pins_to_share(
    layout: Layout, ids: Sequence[str], sources: Sequence[str], python: str | None
) -> list[SharedPin]:
    """The pins of the cache dir, or those of `ids`, with all that is known of where they come
    from. Raises NoSuchTuning and StoreError."""
    records = read_pin_file(layout.pins).pins
    wanted = {pin.id for pin in find_pins([record.pin for record in records], ids)}
    records = [record for record in records if not ids or record.pin.id in wanted]
    if not records:
        return []
    origins = _Origins(layout, load_model(layout, also=sources), python)
    files, variants = KernelFiles(layout.root), ChoiceVariants(layout.root)
    return [
        SharedPin(
            op=record.op,
            inputs=record.inputs,
            precision=record.precision,
            hash=record.hash,
            label=record.label,
            machine=Machine(host=record.who.rpartition("@")[2] or None)
            if is_table_op(record.op)
            else origins.machine(record.pin.id, record.system_hash),
            config=record.config or origins.config(record.pin.id, record.hashes),
            timings=record.timings,
            device=record.device,
            who=record.who,
            when=record.when,
            note=record.note,
            lists=files.lists(record.op, record.inputs) if is_inductors(record.op) else (),
            variants=_variants(record, variants),
        )
        for record in records
    ]


def _variants(record: PinRecord, variants: ChoiceVariants) -> Mapping[str, str]:
    """The hashes of a pinned kernel by device index. A pin of an older version has none."""
    if record.variants or variants.device(record.hash) is None:
        return record.variants
    return {str(index): name for index, name in variants.all(record.hash, DEVICES).items()}


def flex_choices(
    layout: Layout, ids: Sequence[str], sources: Sequence[str], *, fastest: bool
) -> list[FlexChoice]:
    """The pinned choice of each tuning of flex attention, or of those of `ids`; with `fastest`
    the best one known, pinned or not. Raises NoSuchTuning and StoreError."""
    model = load_model(layout, also=sources)
    rows = [row for row in model.rows() if is_flex(row.tuning.op)]
    if fastest:
        meant = {find_row(rows, id).id for id in ids}
        latest = {row.id: row.tuning for row in reversed(rows)}
        best = [(t, stats.fastest(t)) for id, t in latest.items() if id in meant or not ids]
        return [_flex_choice(tuning, choice) for tuning, choice in best if choice]
    records = read_pin_file(layout.pins).pins
    wanted = {pin.id for pin in find_pins([record.pin for record in records], ids)}
    return [
        _flex_pin(record, [c for r in rows if r.id == record.pin.id for c in r.tuning.choices])
        for record in records
        if is_flex(record.op) and (not ids or record.pin.id in wanted)
    ]


def _flex_choice(tuning: Tuning, choice: Choice) -> FlexChoice:
    shapes, dtypes = operands(tuning.inputs_key or "")
    return FlexChoice(
        id=tuning.id,
        op=tuning.op,
        hash=choice.hash or "",
        label=choice.label,
        config=choice.config,
        rivals=tuple(each.config for each in tuning.choices if each is not choice),
        shapes=shapes or tuning.shapes[:3],
        dtypes=dtypes or tuning.dtypes[:3],
        ms=choice.ms,
    )


def _flex_pin(record: PinRecord, choices: Sequence[Choice]) -> FlexChoice:
    """A pin may know what no source does any more, and a source what the pin does not."""
    same = [each for each in choices if each.hash in record.hashes]
    recorded = next((each for each in same if each.config), None)
    shapes, dtypes = operands(record.inputs)
    return FlexChoice(
        id=record.pin.id,
        op=record.op,
        hash=record.hash,
        label=record.label or record.hash,
        config=record.config or (recorded.config if recorded else {}),
        rivals=tuple(each.config for each in choices if each.hash not in record.hashes),
        shapes=shapes,
        dtypes=dtypes,
        ms=recorded.ms if recorded else None,
    )


class _Origins:
    """Finds where pins come from in sessions and cache files, else by asking a worker."""

    def __init__(self, layout: Layout, model: Model, python: str | None) -> None:
        self._layout = layout
        self._model = model
        self._python = python
        self._systems = {file.system_hash: file.system for file in read_caches(layout)[0]}
        self._environment: Mapping[str, object] | None = None

    def machine(self, id: str, system_hash: str) -> Machine:
        sessions = [row.tuning.session for row in self._model.rows() if row.id == id]
        tuned_by = next((session for session in sessions if session), None)
        system = self._systems.get(system_hash, {})
        machine = machine_of(system_hash, system, self._model.sessions.values(), tuned_by)
        return machine if machine.arch else completed(machine, self._ask())

    def config(self, id: str, hashes: Collection[str]) -> dict[str, str]:
        """Return the configuration of a choice, if a session or a log has it.

        `hashes` are those of all devices.
        """
        for row in self._model.rows():
            for choice in row.tuning.choices if row.id == id else ():
                if choice.hash in hashes and choice.config:
                    return choice.config
        return {}

    def _ask(self) -> Mapping[str, object]:
        """Return what the user's torch reports of this machine; empty if there is none."""
        if self._environment is None:
            try:
                self._environment = asdict(_ask_worker(self._layout, self._python))
            except RocmTuiError:
                self._environment = {}
        return self._environment


def _ask_worker(layout: Layout, python: str | None) -> Environment:
    """Return what the user's torch reports of this machine. Raises NoTorchPython and JobError."""
    return run_job(EnvironmentJob(), python=find_python(python), cache_dir=layout.root)


def export_text(pins: Sequence[SharedPin]) -> str:
    """The file that `import` reads."""
    return share_text(PinExport(tuple(pins), default_who(), time.time()))


def unknown_origins(pins: Sequence[SharedPin]) -> dict[str, list[str]]:
    """Return what an import cannot check: the ids of the pins that lack it, by its name."""
    products = [pin for pin in pins if not is_table_op(pin.op)]
    lacking = {
        name: [pin.id for pin in products if getattr(pin.machine, name) is None]
        for name in ("arch", "torch")
    }
    return {name: ids for name, ids in lacking.items() if ids}


def write_shared(path: Path, text: str) -> None:
    """Raises UsageError for a path that is no file, and NotWritable."""
    write_atomic(file_to_write(path), text.encode())


def file_to_write(path: Path) -> Path:
    """The file that `path` means, behind links. Raises UsageError where it is none to write."""
    if path.is_symlink() and (owner := path.lstat().st_uid) not in (os.geteuid(), 0):
        raise UsageError(f"{path} is a link of {user_name(owner)}; name the file that it leads to")
    real = path.resolve()
    if real.exists() and not real.is_file():
        raise UsageError(f"{path} is not a regular file; -o takes the name of one")
    return real


# Import.


class ImportCutShort(RocmTuiError):
    """Some of the pins were taken in before one could not be written."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The plan of an import: a step for each pin, and how its machines differ from this one."""

    share: PinExport
    here: Machine
    steps: Sequence[ImportStep] = ()
    differences: Mapping[Machine, Sequence[MachineDifference]] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether every pin can be used here."""
        return all(step.action != "refused" for step in self.steps)

    @property
    def changes(self) -> list[ImportStep]:
        """The pins that would be made."""
        return [step for step in self.steps if step.changes]


def plan_import(
    path: Path,
    ids: Sequence[str],
    layout: Layout,
    python: str | None,
    tables: Sequence[Path] = (),
) -> ImportPlan:
    """Check the pins of a file, or those of `ids`; nothing is changed. Without pins of products
    torch is not asked. Pins of entries of tuned tables go into `tables`.

    Raises ShareInvalid, NoSuchTuning, NoTorchPython, JobError and CacheUnreadable.
    """
    share = read_share(path)
    pins = _pins_of(share, ids)
    if not pins:
        return ImportPlan(share, Machine())
    here, origins = Machine(), dict.fromkeys(p.machine for p in pins if not is_table_op(p.op))
    if origins:
        here = machine_here(asdict(_ask_worker(layout, python)))
        if here.system_hash is None:
            raise JobFailed("torch does not name this machine's cache file")
    real = [Path(os.path.realpath(table)) for table in tables]
    return ImportPlan(
        share=share,
        here=here,
        steps=steps_of(pins, here, PinStore(layout), real),
        differences={there: differences(there, here) for there in origins},
    )


def _pins_of(share: PinExport, ids: Sequence[str]) -> list[SharedPin]:
    """Raises NoSuchTuning for an id that the file does not have."""
    wanted: set[str] = set()
    for id in ids:
        matches = {pin.id for pin in share.pins if id and pin.id.startswith(id.lower())}
        if len(matches) != 1:
            what = "begins several ids of the file" if matches else "is no id of the file"
            present = ", ".join(sorted({pin.id for pin in share.pins})[:10])
            raise NoSuchTuning(f"{id!r} {what}; it has {present or 'no pins'}")
        wanted |= matches
    return [pin for pin in share.pins if not ids or pin.id in wanted]


def apply_import(plan: ImportPlan, layout: Layout) -> int:
    """Pin one after the other, to be undone as one; how many. Raises ImportCutShort if one cannot
    be written."""
    store, pins, group = PinStore(layout), plan.changes, new_group("import")
    for done, step in enumerate(pins):
        try:
            system = None if step.table else system_for(step.pin, plan.here)
            take_in(store, step.pin, system, group, step.table)
        except StoreError as error:
            raise ImportCutShort(
                f"imported {done} of {counted(len(pins), 'pin')}; the rest was not: {error}"
            ) from error
    return len(pins)
