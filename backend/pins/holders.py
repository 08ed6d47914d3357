"""Holders of pins: entries of cache files, Inductor's config files, and rows of tuned tables.

Each kind of op has one `PinHolder`, which locates, changes and reads its files. A file is read
again only when it changed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol

from backend.cache import configs
from backend.cache.autotune import (
    CacheText,
    Numbers,
    cache_paths,
    is_raised,
    merge_missing,
    recorded_pins,
)
from backend.cache.fold import fold
from backend.cache.journal import Journal
from backend.cache.variants import DEVICES, ChoiceVariants, device_folders
from backend.disk import exchange, safe
from backend.disk.layout import Layout, is_file_name
from backend.disk.safe import read_bytes
from backend.errors import Busy, CacheUnreadable, NotWritable, PinRefused, brief
from backend.model.choice import is_hash
from backend.model.inductor_kernel import TRITON, is_inductors, kernel_name, may_belong_to
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.pins.best_configs import BestConfigFiles
from backend.pins.file import (
    Counts,
    PinFile,
    PinRecord,
    PinRequest,
    applied_again,
    default_who,
    read_pin_file,
)
from backend.pins.numbers import (
    Changes,
    came_back,
    changes_of_strays,
    changes_to_hold,
    changes_to_release,
    edited,
    is_timed,
    learn,
)
from backend.pins.state import GraphVerdicts, PinStatus, state_of
from backend.pins.tables import TableRows
from backend.tables.model import is_table_op


class PinHolder(Protocol):
    """Holds the pins of one kind of op.

    The `system` of a pin identifies its file: the file's name, its folder's, or a digest of its
    path. Methods raise CacheUnreadable if a file cannot be read.
    """

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """Return the file for a new pin. Raises PinRefused."""

    def system_of(self, path: Path) -> str:
        """Return the `system` by which pins identify the file."""

    def folder_of(self, path: Path) -> str:
        """Return the folder that a pin stores for a file outside of the cache dir; else empty."""

    def path(self, record: PinRecord) -> Path:
        """Return the file of a pin, or a pattern if it has several."""

    def files(self) -> Iterable[Path]:
        """Return the files that pins may depend on."""

    def check_writable(self, path: Path) -> None:
        """Raise StoreErrors if writing to this file is unsafe."""

    def check_new(self, record: PinRecord) -> None:
        """Raise PinRefused for a new pin that cannot be held."""

    def numbers(self, record: PinRecord) -> Numbers | None:
        """Return the numbers of a pin's tuning; None without a file or numbers."""

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        """Return the pin updated from `stored`, its choices' numbers; see `numbers.learn`."""

    def changes(self, record: PinRecord) -> int:
        """Return how many numbers, files or rows a new pin would change."""

    def waits(self, record: PinRecord, stored: Numbers) -> bool:
        """Return whether the pin has no effect before its choice is tuned."""

    def differs(self, record: PinRecord) -> bool:
        """Return whether the files do not hold the pin, or the pin can be updated from them."""

    def came_back(self, record: PinRecord) -> bool:
        """Return whether the text of a released pin is in the file again."""

    def status(self, record: PinRecord, judged: GraphVerdicts) -> PinStatus:
        """Return the state of a pin, given the verdicts of compiled graphs."""

    def agree(self, file: PinFile, system: str, count_drifts: bool) -> Counts:
        """Make a file agree with its pins; return the number of changes for each.

        The data for unpinning is on disk before the file changes. With `count_drifts` a pin that
        was overwritten is counted as drifted. Raises StoreErrors.
        """


class CacheEntries:
    """Holds pins by the numbers of Inductor's persistent autotune cache."""

    text_type: ClassVar[type[CacheText]] = CacheText
    keep_time: ClassVar[bool] = False
    """Whether a changed file keeps its modification time."""

    def __init__(self, layout: Layout, variants: ChoiceVariants) -> None:
        self.layout = layout
        self._variants = variants
        self._texts: dict[Path, tuple[object, CacheText]] = {}

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """Return the cache file that has the choice, the most recently written of several; for a
        waiting request the file that will get it."""
        key, hash = request.key, request.hash
        if request.system_hash is None:
            paths = cache_paths(self.layout)
        else:
            path = self.layout.autotune / request.system_hash
            if not is_file_name(request.system_hash) or not (request.wait or path.exists()):
                raise PinRefused(f"there is no cache file {brief(str(path), 200)}")
            if request.wait:
                return path
            paths = [path]
        fitting, tuned, unreadable = self._search(paths, key, hash)
        if not fitting and self._fold(paths):
            fitting, tuned, unreadable = self._search(paths, key, hash)
        if fitting:
            path = max(fitting, key=_last_written)
            self._check_times(path, key)
            return path
        if unreadable is not None:
            raise unreadable
        if tuned:
            raise PinRefused(f"{brief(hash, 80)} is not a choice of this tuning; see its choices")
        raise PinRefused(
            f"{brief(key.op, 40)} {brief(key.inputs, 80)} with precision "
            f"{brief(key.precision, 40)} is not in {self.layout.autotune}: the program ended "
            "before PyTorch wrote the times, or wrote none; run the model again, or "
            "`rocm-tui tune ID`"
        )

    def _search(
        self, paths: Iterable[Path], key: TuningKey, hash: str
    ) -> tuple[list[Path], bool, CacheUnreadable | None]:
        """Return the files that have the choice, whether any has the tuning, and the error of one
        that cannot be read."""
        unreadable: CacheUnreadable | None = None
        tuned = False
        fitting: list[Path] = []
        for path in paths:
            try:
                numbers = self.text(path).find(key.op, key.inputs).get(key.precision)
            except CacheUnreadable as error:
                unreadable = error
                continue
            if numbers is not None:
                tuned = True
                if hash in numbers:
                    fitting.append(path)
        return fitting, tuned, unreadable

    def _fold(self, paths: Iterable[Path]) -> bool:
        """Fold the times that our processes have not written into these files yet, as the next of
        them would. Return whether there were any; not where they cannot be written now."""
        root = self.layout.root
        unfolded = [path for path in paths if path.exists() and Journal(root, path).read().lines]
        with contextlib.suppress(Busy, NotWritable):
            for path in unfolded:
                fold(root, path, {}, pinned_choices)
            return bool(unfolded)
        return False

    def _check_times(self, path: Path, key: TuningKey) -> None:
        """Raise PinRefused for numbers beyond kernels that no pin raised: the record of a pin would
        make them measured times."""
        stored = self.text(path).find(key.op, key.inputs)
        raised = [
            (name, token.text)
            for numbers in stored.values()
            for name, token in numbers.items()
            if is_raised(token.value)
        ]
        if raised and (key.op, key.inputs) not in recorded_pins(path):
            name, number = raised[0]
            raise PinRefused(
                f"{brief(number, 30)} of {brief(name, 80)} is not the milliseconds of a kernel; "
                "tune again, or `rocm-tui pin --reconcile` if pins.json was lost"
            )

    def system_of(self, path: Path) -> str:
        return path.name

    def folder_of(self, path: Path) -> str:
        return ""

    def path(self, record: PinRecord) -> Path:
        return self.layout.autotune / record.system_hash

    def files(self) -> Iterable[Path]:
        return _listed(self.layout)

    def check_writable(self, path: Path) -> None:
        safe.check_file(self.layout.root, path)

    def check_new(self, record: PinRecord) -> None:
        """Do nothing: `locate` has found the choice, or the pin waits for it."""

    def merged(self, path: Path, newer: bytes, older: bytes) -> bytes:
        """Merge the contents of a file that two processes wrote at once."""
        return merge_missing(path, newer, older)

    def text(self, path: Path) -> CacheText:
        signature = exchange.signature_of(path)
        cached = self._texts.get(path)
        if cached is None or cached[0] != signature:
            cached = self._texts[path] = signature, self.text_type(path, read_bytes(path))
        return cached[1]

    def numbers(self, record: PinRecord) -> Numbers | None:
        path = self.path(record)
        return self.text(path).find(record.op, record.inputs) if path.exists() else None

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        """Return the updated pin, with its hashes on all devices whose choices are in `stored`."""
        return learn(self._with_variants(record, stored), stored)

    def _with_variants(self, record: PinRecord, stored: Numbers) -> PinRecord:
        """Add variants: a pin of an older version has none, and a device may have been added."""
        names = (record.hash, *record.variants.values())
        base = next((name for name in names if self._variants.device(name) is not None), None)
        if base is None:
            return record
        # Further devices only if they compiled or tuned something
        tuned_on = devices_of(self._variants, stored)
        devices = {*DEVICES, *device_folders(self.layout.root), *tuned_on}
        missing = [index for index in sorted(devices) if str(index) not in record.variants]
        if not missing:
            return record
        added = {str(i): name for i, name in self._variants.all(base, missing).items()}
        return replace(record, variants={**record.variants, **added})

    def changes(self, record: PinRecord) -> int:
        texts = changes_to_hold(record, self.numbers(record) or {}).values()
        return sum(is_raised(float(text)) for text in texts)

    def waits(self, record: PinRecord, stored: Numbers) -> bool:
        return not any(record.hashes & numbers.keys() for numbers in stored.values())

    def differs(self, record: PinRecord) -> bool:
        stored = self.numbers(record) or {}
        learned = self.learned(record, stored)
        return learned is not record or bool(changes_to_hold(learned, stored))

    def came_back(self, record: PinRecord) -> bool:
        return came_back(record, self.numbers(record) or {})

    def status(self, record: PinRecord, judged: GraphVerdicts) -> PinStatus:
        stored = self.numbers(record)
        if stored:
            record = self.learned(record, stored)
        return state_of(record, stored, judged, devices_of(self._variants, stored or {}))

    def agree(self, file: PinFile, system: str, count_drifts: bool) -> Counts:
        pinned = [record for record in file.pins if record.system_hash == system]
        released = [record for record in file.watched() if record.system_hash == system]
        path = self._file_of(system, (*pinned, *released))
        if not path.exists():
            return {}
        counts: Counts = {}

        def edit(data: bytes) -> bytes:
            text = self.text_type(path, data)
            parts: list[Changes] = []
            for record in [r for r in file.pins if r.system_hash == system]:
                stored = text.find(record.op, record.inputs)
                learned = self.learned(record, stored)
                changes = changes_to_hold(learned, stored)
                if changes and count_drifts and record.identity not in counts:
                    learned = _applied_again(file, learned, waited=not is_timed(record))
                if changes:
                    counts[record.identity] = len(changes)
                    parts.append(changes)
                if learned is not record or not record.raised:
                    file.put(replace(learned, raised=True))
            for record in released:
                stored = text.find(record.op, record.inputs)
                if record.pending or came_back(record, stored):
                    changes = changes_to_release(record, stored)
                    if not record.pending and record.identity not in counts:
                        file.note("restore", record, default_who(), time.time())
                    counts[record.identity] = len(changes)
                    parts.append(changes)
            strays = _strays(text, file, system)
            parts += [changes_of_strays(text.find(op, inputs)) for op, inputs in strays]
            file.save()
            return edited(text, parts) if any(parts) else data

        self.check_writable(path)
        with safe.locked(self.layout.root, self.layout.autotune / system):
            changed = exchange.update(path, edit, self.merged, keep_time=self.keep_time)
            return counts if changed else {}

    def _file_of(self, system: str, records: Iterable[PinRecord]) -> Path:
        """Return the file of the pins `records` of `system`, which may be empty."""
        return self.layout.autotune / system

    def astray(self, file: PinFile) -> set[str]:
        """Return the cache files with numbers raised for a former pin: an old copy of the cache
        came back after a long time, or the records were lost."""
        systems: set[str] = set()
        for path in _listed(self.layout):
            with contextlib.suppress(CacheUnreadable):
                if _strays(self.text(path), file, path.name):
                    systems.add(path.name)
        return systems


class TritonConfigs(CacheEntries):
    """Holds pins of kernels of `@triton.autotune` by the numbers of Triton's own files."""

    text_type = configs.ConfigText
    keep_time = True  # the file's time is that of tuning

    def __init__(self, layout: Layout, variants: ChoiceVariants) -> None:
        super().__init__(layout, variants)
        self._paths: set[Path] = set()

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """Return the file with the times of a kernel: in Triton's caches of this environment, or
        where an existing or released pin found it."""
        key, digest = request.key, request.system_hash
        if digest is None or not may_belong_to(key.inputs, digest):
            raise PinRefused(
                f"{brief(key.inputs, 80)} is in no cache of Triton; run its program once by "
                "`rocm-tui run --cache-triton -- CMD`"
            )
        pinned_in = [
            Path(record.folder)
            for record in (*file.pins, *file.released)
            if record.op == TRITON and record.system_hash == digest
        ]
        folders = dict.fromkeys([*pinned_in, *configs.folders_of(self.layout.root)])
        paths = [configs.path_in(folder, digest, kernel_name(key.inputs)) for folder in folders]
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise PinRefused(
                f"{brief(key.inputs, 80)} is in no known Triton cache; set "
                "TRITON_CACHE_DIR to that of its program"
            )
        path = max(paths, key=_last_written)
        if request.hash not in self.text(path).find(key.op, key.inputs).get("", {}):
            raise PinRefused(
                f"{brief(request.hash, 80)} is not a config of this kernel; see its choices"
            )
        return path

    def system_of(self, path: Path) -> str:
        return path.parent.name

    def folder_of(self, path: Path) -> str:
        return str(path.parent.parent)

    def path(self, record: PinRecord) -> Path:
        path = kernel_file_of(record)
        self._paths.add(path)
        return path

    def files(self) -> Iterable[Path]:
        return sorted(self._paths)

    def check_writable(self, path: Path) -> None:
        safe.check_file(path.parent.parent, path)

    def merged(self, path: Path, newer: bytes, older: bytes) -> bytes:
        return configs.keep_newer(path, newer, older)

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        return learn(record, stored)

    def _file_of(self, system: str, records: Iterable[PinRecord]) -> Path:
        return self.path(next(iter(records)))


def kernel_file_of(record: PinRecord) -> Path:
    """Return Triton's file of a pinned kernel. Raises CacheUnreadable for an invalid name."""
    return configs.path_in(Path(record.folder), record.system_hash, kernel_name(record.inputs))


class PinHolders:
    """The holders of one cache dir."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.variants = ChoiceVariants(layout.root)
        self.tables = TableRows()
        self._entries = CacheEntries(layout, self.variants)
        self._kernels = TritonConfigs(layout, self.variants)
        self._best_configs = BestConfigFiles(layout)

    def of(self, op: str) -> PinHolder:
        """Return the holder of an op's pins."""
        if is_inductors(op):
            return self._best_configs
        if is_table_op(op):
            return self.tables
        return self._kernels if op == TRITON else self._entries

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """Return the file for a new pin. Raises PinRefused, CacheUnreadable."""
        key, hash = request.key, request.hash
        names = (key.op, key.inputs, key.precision)
        if not (all(map(str.isprintable, names)) and is_hash(hash)):
            raise PinRefused(f"{brief(hash, 80)} of {brief(key.op, 40)} is not a name; pin another")
        return self.of(key.op).locate(file, request)

    def agree(self, file: PinFile, system: str, count_drifts: bool) -> Counts:
        """See `PinHolder.agree`. Without a pin of the system, the file is Inductor's cache."""
        ops = (r.op for r in (*file.pins, *file.watched()) if r.system_hash == system)
        return self.of(next(ops, "")).agree(file, system, count_drifts)

    def signatures(self) -> list[tuple[Path, object]]:
        """Return the signature of each file that a pin may depend on."""
        holders: tuple[PinHolder, ...] = (
            self._entries,
            self._kernels,
            self._best_configs,
            self.tables,
        )
        paths = (path for holder in holders for path in holder.files())
        return [(path, exchange.signature_of(path)) for path in paths]

    def astray(self, file: PinFile) -> set[str]:
        """See `CacheEntries.astray`."""
        return self._entries.astray(file)

    def unfinished(self) -> set[str]:
        """Return the cache files beside which a killed process left a temporary file."""
        return {path.name for path in _listed(self.layout) if exchange.is_unfinished(path)}


def _listed(layout: Layout) -> list[Path]:
    """Return the cache files; none if they cannot be listed. Each pin names its file, so pins are
    applied again without the list."""
    try:
        return cache_paths(layout)
    except CacheUnreadable:
        return []


def devices_of(variants: ChoiceVariants, stored: Numbers) -> list[int]:
    """Return the devices whose choices are among the numbers of a tuning."""
    names = {name for numbers in stored.values() for name in numbers}
    return sorted(index for index in variants.by_device(names) if index is not None)


def pinned_choices(cache_path: Path) -> dict[tuple[str, str], frozenset[str]]:
    """Return the winning choice's hashes for each pin of a cache file, one per device; none for a
    choice of our templates, which cache files do not hold. Raises CacheUnreadable."""
    pins = read_pin_file(Layout(cache_path.parent.parent).pins).pins
    return {
        (pin.op, pin.inputs): frozenset() if is_own(pin.hash) else pin.hashes
        for pin in pins
        if pin.system_hash == cache_path.name
    }


def _applied_again(file: PinFile, record: PinRecord, waited: bool) -> PinRecord:
    """Return the record of a pin to apply again: it drifted, or an older version wrote it, or it
    `waited` for its choice to be tuned."""
    if record.raised and not waited:
        return applied_again(file, record)
    record = replace(record, applied=time.time())
    if not waited:
        file.note("migrate", record, default_who(), record.applied)
    return record


def _strays(text: CacheText, file: PinFile, system: str) -> list[tuple[str, str]]:
    """Return the raised entries of a cache file whose pin is no longer held. Without a record a
    number may be garbage, and lowering it would make that the fastest choice."""
    owned = {
        (record.op, record.inputs)
        for record in (*file.pins, *file.watched())
        if record.system_hash == system
    }
    strays = [entry for entry in text.raised() if entry not in owned]
    if not strays or file.lost:
        return strays
    recorded = recorded_pins(text.path)
    return [entry for entry in strays if entry in recorded]


def _last_written(path: Path) -> int:
    return (exchange.signature_of(path) or (0, 0, 0))[1]
