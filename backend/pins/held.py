"""The autotune cache files, made to agree with the pins."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backend.cache import configs
from backend.cache.autotune import (
    CacheText,
    Numbers,
    cache_paths,
    merge_missing,
)
from backend.cache.variants import DEVICES, ChoiceVariants, device_folders
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, PinRefused, brief
from backend.model.choice import is_hash
from backend.model.inductor_kernel import SYSTEM, TRITON, is_inductors, is_of, kernel_of
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.pins import best_configs, tables
from backend.pins.best_configs import HeldConfigs, is_virtual
from backend.pins.file import (
    PinFile,
    Record,
    applied_again,
    default_who,
    drifted,
    is_file_name,
    read_pin_file,
)
from backend.pins.numbers import (
    Changes,
    came_back,
    edited,
    holding,
    learn,
    releasing,
    unowned,
)
from backend.pins.tables import HeldTables
from backend.tables import model
from backend.tables.model import is_table_op, is_table_system


def text_of(path: Path, data: bytes) -> CacheText:
    """The content of a cache file of Inductor's or of Triton's. Raises CacheUnreadable."""
    return (configs.ConfigText if configs.is_file(path) else CacheText)(path, data)


def table_system(path: Path, op: str) -> str:
    """What a record calls the file: its name, of Triton's files that of the folder, and one name
    for all best configs of Inductor's; of a tuned table a digest of where it is."""
    if is_table_op(op):
        return model.table_system(path)
    if is_virtual(path):
        return SYSTEM
    return path.parent.name if configs.is_file(path) else path.name


def root_of(path: Path, layout: Layout) -> Path:
    """The cache that the file lies in."""
    if configs.is_file(path):
        return path.parent.parent
    return layout.root if path.is_relative_to(layout.root) else path.parent


def check(path: Path, layout: Layout) -> None:
    """Raise StoreErrors if writing to this file, or to a table that lies anywhere, is unsafe."""
    root = root_of(path, layout)
    if root == path.parent:
        safe.check_table(path)
    else:
        safe.check_file(root, path)


def path_of(record: Record) -> Path:
    """Of a Triton kernel. Raises CacheUnreadable for one that no file can have."""
    return configs.path_in(Path(record.folder), record.system_hash, kernel_of(record.inputs))


def locate(layout: Layout, records: Iterable[Record], digest: str | None, key: TuningKey) -> Path:
    """The file with the times of a kernel: in Triton's caches of this environment, or where one of
    `records`, pins that hold or were released, found it. Raises PinRefused, CacheUnreadable."""
    if digest is None or not is_of(key.inputs, digest):
        raise PinRefused(
            f"{brief(key.inputs, 80)} is in no cache of Triton; run its program once by "
            "`rocm-tui run --cache-triton -- CMD`"
        )
    known = [Path(r.folder) for r in records if r.op == TRITON and r.system_hash == digest]
    folders = dict.fromkeys([*known, *configs.folders_of(layout.root)])
    paths = [configs.path_in(folder, digest, kernel_of(key.inputs)) for folder in folders]
    there = [path for path in paths if path.is_file()]
    if not there:
        raise PinRefused(
            f"{brief(key.inputs, 80)} is in no cache of Triton that is known here; set "
            "TRITON_CACHE_DIR to that of its program"
        )
    return max(there, key=lambda path: (exchange.signature_of(path) or (0, 0, 0))[1])


RELEASED_SECONDS = 86_400.0
"""How long a released pin is watched for: a process that read the cache file while the pin held
and benchmarks for long writes our raised numbers back."""


def pinned_choices(cache_path: Path) -> dict[tuple[str, str], frozenset[str]]:
    """The hashes of the choice that each pin of a cache file lets win, one for each device; none
    for a choice of our templates, which is not held there. Raises CacheUnreadable."""
    pins = read_pin_file(Layout(cache_path.parent.parent).pins).pins
    return {
        (pin.op, pin.inputs): frozenset() if is_own(pin.hash) else pin.hashes
        for pin in pins
        if pin.system_hash == cache_path.name
    }


class HeldCache:
    """Reads and changes the cache files; a file is read again only when it changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[Path, tuple[object, CacheText]] = {}
        self._tritons: set[Path] = set()
        self.variants = ChoiceVariants(layout.root)
        self.configs = HeldConfigs(layout)
        self.tables = HeldTables(layout)

    def signatures(self) -> list[tuple[Path, object]]:
        """Of each file that a pin may depend on."""
        paths = [*cache_paths(self._layout), *sorted(self._tritons)]
        paths += (*self.configs.known(), *self.tables.known())
        return [(path, exchange.signature_of(path)) for path in paths]

    def check(self, path: Path) -> None:
        """Raise StoreErrors if writing to this file is unsafe."""
        if best_configs.is_virtual(path):
            return  # each is looked at before it is written
        check(path, self._layout)

    def locate(
        self,
        system_hash: str | None,
        key: TuningKey,
        hash: str,
        wait: bool = False,
        table: Path | None = None,
    ) -> Path:
        """The cache file that has the choice, the last written of several; with `wait` the one
        that shall get it; of an entry of a tuned table, that `table`. Raises PinRefused,
        CacheUnreadable."""
        names = (key.op, key.inputs, key.precision)
        if not (all(map(str.isprintable, names)) and is_hash(hash)):
            raise PinRefused(f"{brief(hash, 80)} of {brief(key.op, 40)} is no name; pin another")
        if is_inductors(key.op):
            return best_configs.virtual_path(self._layout)
        if key.op == TRITON or is_table_op(key.op):
            pins = read_pin_file(self._layout.pins)
            records = (*pins.pins, *pins.released)
            if is_table_op(key.op):
                return tables.locate(records, system_hash, table)
            path = locate(self._layout, records, system_hash, key)
            if hash in self.text(path).find(key.op, key.inputs).get("", {}):
                return path
            raise PinRefused(f"{brief(hash, 80)} is no config of this kernel; see its choices")
        if system_hash is None:
            paths = cache_paths(self._layout)
        else:
            path = self._layout.autotune / system_hash
            named = is_file_name(system_hash) and system_hash.isprintable()
            if not named or not (wait or path.exists()):
                raise PinRefused(f"there is no cache file {brief(str(path), 200)}")
            if wait:
                return path
            paths = [path]
        unreadable: CacheUnreadable | None = None
        known: list[Path] = []
        fitting: list[Path] = []
        for path in paths:
            try:
                numbers = self.text(path).find(key.op, key.inputs).get(key.precision)
            except CacheUnreadable as error:
                unreadable = error
                continue
            if numbers is not None:
                known.append(path)
                if hash in numbers:
                    fitting.append(path)
        if fitting:
            return max(fitting, key=lambda path: (exchange.signature_of(path) or (0, 0, 0))[1])
        if unreadable is not None:
            raise unreadable
        if known:
            raise PinRefused(f"{brief(hash, 80)} is no choice of this tuning; see its choices")
        raise PinRefused(
            f"{brief(key.op, 40)} {brief(key.inputs, 80)} with precision "
            f"{brief(key.precision, 40)} is not in {self._layout.autotune}: the program ended "
            "before PyTorch wrote the times, or wrote none; run the model again, or "
            "`rocm-tui tune ID`"
        )

    def agree(
        self, file: PinFile, system: str, count_drifts: bool
    ) -> dict[tuple[str, str, str], int]:
        """Make one cache file agree with its pins; how many numbers were changed for each.

        What unpinning restores is on disk before the cache file changes.
        """
        if system == SYSTEM or is_table_system(system):
            drift = functools.partial(applied_again, file) if count_drifts else None
            if is_table_system(system):
                return self.tables.agree(file, system, self.watched(file), drift)
            return self.configs.agree(file, self.watched(file), drift)
        path = self._path_of(file, system)
        if not path.exists():
            return {}
        counts: dict[tuple[str, str, str], int] = {}

        def edit(data: bytes) -> bytes:
            text = text_of(path, data)
            parts: list[Changes] = []
            for record in [r for r in file.pins if r.system_hash == system]:
                stored = text.find(record.op, record.inputs)
                learned = self.learned(record, stored)
                changes = holding(learned, stored)
                if changes and count_drifts and record.identity not in counts:
                    learned = self._again(file, learned)
                if changes:
                    counts[record.identity] = len(changes)
                    parts.append(changes)
                if learned is not record or not record.raised:
                    file.put(replace(learned, raised=True))
            for record in [r for r in self.watched(file) if r.system_hash == system]:
                stored = text.find(record.op, record.inputs)
                if record.pending or came_back(record, stored):
                    changes = releasing(record, stored)
                    if not record.pending and record.identity not in counts:
                        file.note("restore", record, default_who(), time.time())
                    counts[record.identity] = len(changes)
                    parts.append(changes)
            strays = self._strays(text, file, system)
            parts += [unowned(text.find(op, inputs)) for op, inputs in strays]
            file.save()
            return edited(text, parts) if any(parts) else data

        self.check(path)
        tritons = configs.is_file(path)  # the time of those is when the kernel was tuned
        merge = configs.keep_newer if tritons else merge_missing
        with safe.locked(self._layout.root, self._layout.autotune / system):
            changed = exchange.update(path, edit, merge, keep_time=tritons)
            return counts if changed else {}

    def _path_of(self, file: PinFile, system: str) -> Path:
        """The file that the pins of `system` are about."""
        records = (*file.pins, *self.watched(file))
        paths = (self.path(r) for r in records if r.system_hash == system and r.op == TRITON)
        return next(paths, self._layout.autotune / system)

    def _again(self, file: PinFile, record: Record) -> Record:
        """A pin that has to be applied again: it drifted, or an older version held it otherwise."""
        record = replace(record, applied=time.time())
        if record.raised:
            return drifted(file, record)
        file.note("migrate", record, default_who(), record.applied)
        return record

    def astray(self, file: PinFile) -> set[str]:
        """The cache files with numbers that were raised for a pin of which nothing is known: the
        pins file was lost, or an old copy of the cache came back after a long time."""
        systems: set[str] = set()
        for path in cache_paths(self._layout):
            with contextlib.suppress(CacheUnreadable):
                if self._strays(self.text(path), file, path.name):
                    systems.add(path.name)
        return systems

    def unfinished(self) -> set[str]:
        """The cache files beside which a killed process left what it was preparing."""
        return {path.name for path in cache_paths(self._layout) if exchange.is_unfinished(path)}

    def _strays(self, text: CacheText, file: PinFile, system: str) -> list[tuple[str, str]]:
        owned = {
            (record.op, record.inputs)
            for record in (*file.pins, *self.watched(file))
            if record.system_hash == system
        }
        return [entry for entry in text.raised() if entry not in owned]

    def stored(self, record: Record) -> Numbers | None:
        """The numbers of a pin's tuning; None if the file is gone, or has none. Raises
        CacheUnreadable."""
        path = self.path(record)
        if is_table_op(record.op) or not path.exists():
            return None
        return self.text(path).find(record.op, record.inputs)

    def learned(self, record: Record, stored: Numbers) -> Record:
        """`record` with the numbers of `stored`, and with the pinned kernel's hashes on all devices
        whose choices are among them. See `numbers.learn`."""
        return learn(self._with_variants(record, stored), stored)

    def _with_variants(self, record: Record, stored: Numbers) -> Record:
        """A pin of an older version has no variants, and a device may have been added."""
        if is_inductors(record.op) or record.op == TRITON or is_table_op(record.op):
            return record
        names = (record.hash, *record.variants.values())
        base = next((name for name in names if self.variants.device(name) is not None), None)
        if base is None:
            return record
        # More than most boxes have only where they compiled something or tuned the problem
        devices = {*DEVICES, *device_folders(self._layout.root), *self.devices_of(stored)}
        missing = [index for index in sorted(devices) if str(index) not in record.variants]
        if not missing:
            return record
        added = {str(i): name for i, name in self.variants.all(base, missing).items()}
        return replace(record, variants={**record.variants, **added})

    def devices_of(self, stored: Numbers) -> list[int]:
        """The devices whose choices are among the numbers of a tuning."""
        names = {name for numbers in stored.values() for name in numbers}
        return sorted(index for index in self.variants.by_device(names) if index is not None)

    def text(self, path: Path) -> CacheText:
        signature = exchange.signature_of(path)
        known = self._texts.get(path)
        if known is None or known[0] != signature:
            known = self._texts[path] = signature, text_of(path, read_bytes(path))
        return known[1]

    def path(self, record: Record) -> Path:
        """The file that the pin is about. Raises CacheUnreadable for one that is none."""
        if is_inductors(record.op):
            return best_configs.virtual_path(self._layout)
        if is_table_op(record.op):
            return Path(record.folder)
        if record.op != TRITON:
            return self._layout.autotune / record.system_hash
        path = path_of(record)
        self._tritons.add(path)
        return path

    def watched(self, file: PinFile) -> list[Record]:
        """Released pins that are not finished, or may still be written back."""
        pinned = {record.identity for record in file.pins}
        since = time.time() - RELEASED_SECONDS
        return [
            record
            for record in file.released
            if record.identity not in pinned and (record.pending or record.released > since)
        ]
