"""Pins of entries of tuned tables: held in the table's own file, one row each.

The row's old text is stored with the pin, and unpinning restores it. A tuner that rewrites its file
(TunableOp does when a program ends) may overwrite it: then the pin drifted, and is applied again
like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from backend.cache.autotune import Numbers
from backend.disk import exchange, safe
from backend.disk.exchange import check_unwritten
from backend.disk.safe import read_bytes
from backend.errors import PinRefused, brief
from backend.model.problem import TuningKey
from backend.pins.file import (
    Counts,
    HeldText,
    PinFile,
    PinRecord,
    PinRequest,
    applied_again,
    hold_text,
)
from backend.pins.state import GraphVerdicts, PinStatus
from backend.tables import registry
from backend.tables.model import Editing, Entry, NotEditable, Table, entry_key, table_system
from backend.tables.registry import read_table, table_in

UNSEEN = "the table says so; whether its program takes the row is not seen from here"


def entry_of(table: Table, key: TuningKey) -> Entry | None:
    """Return the entry that the tuner uses for a key, or None. Raises PinRefused if ambiguous."""
    return _TableLookup(table).taken(key)


class _TableLookup:
    """A parsed table, and the entries looked up in it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._by_key: dict[TuningKey, list[Entry]] = {}

    def entries(self, keys: Iterable[TuningKey]) -> dict[TuningKey, list[Entry]]:
        """Return the entries of each key, in their order."""
        wanted = frozenset(keys)
        new: dict[TuningKey, list[Entry]] = {key: [] for key in wanted - self._by_key.keys()}
        if new:
            new_inputs = "\n".join(key.inputs for key in new)
            for entry in self.table.entries:
                if entry.key and entry.key[-1][1] not in new_inputs:
                    continue  # skips most entries before their key is built
                if (key := entry_key(self.table.tuner, entry)) in new:
                    new[key].append(entry)
            self._by_key |= new
        return {key: self._by_key[key] for key in wanted}

    def first(self, keys: Iterable[TuningKey]) -> dict[TuningKey, Entry]:
        """Return the first entry of each key that has one."""
        return {key: entries[0] for key, entries in self.entries(keys).items() if entries}

    def taken(self, key: TuningKey) -> Entry | None:
        """See `entry_of`."""
        entries = self.entries((key,))[key]
        if len(entries) > 1 and not editing_of(self.table).first:
            lines = ", ".join(str(entry.line) for entry in entries[:5])
            path = self.table.path
            raise PinRefused(
                f"{path} has this row more than once (lines {lines}); remove all but one"
            )
        return entries[0] if entries else None


def editing_of(table: Table) -> Editing:
    """Return how the table is edited. Raises PinRefused."""
    editing = registry.tuner_named(table.tuner).editing
    if editing is None:
        raise PinRefused(f"entries of {table.tuner} tables cannot be pinned")
    return editing


def rewritten(table: Table, text: bytes, values: Mapping[str, str]) -> bytes:
    """Return the text of an entry with other values. Raises PinRefused."""
    try:
        return editing_of(table).edit(table.columns, text, values)
    except NotEditable as error:
        raise PinRefused(str(error)) from error


class TableRows:
    """The `PinHolder` of entries of tuned tables, parsed again only if their bytes changed."""

    def __init__(self) -> None:
        self._looks: dict[Path, _TableLookup] = {}
        self._read: dict[Path, tuple[object, frozenset[TuningKey], dict[TuningKey, bytes]]] = {}

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """Return the table of the request, or where an existing or released pin found it."""
        table = request.table
        if table is None:
            records = (*file.pins, *file.released)
            folders = (r.folder for r in records if r.system_hash == request.system_hash)
            table = next((Path(folder) for folder in folders if folder), None)
        if table is None or not table.is_file():
            raise PinRefused(f"the table {table or ''} is not there; nothing was changed")
        return table

    def system_of(self, path: Path) -> str:
        return table_system(path)

    def folder_of(self, path: Path) -> str:
        return str(path)

    def path(self, record: PinRecord) -> Path:
        return Path(record.folder)

    def files(self) -> list[Path]:
        """Return the tables that were read."""
        return list(self._read)

    def check_writable(self, path: Path) -> None:
        safe.check_table(path)

    def check_new(self, record: PinRecord) -> None:
        """Raise PinRefused if the row is missing or cannot have these values."""
        self.changes(record)

    def numbers(self, record: PinRecord) -> None:
        return None

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        return record

    def waits(self, record: PinRecord, stored: Numbers) -> bool:
        return False

    def remember(self, table: Table) -> None:
        """Keep a table that a person was shown."""
        self._looks[Path(table.path)] = _TableLookup(table)

    def changes(self, record: PinRecord) -> int:
        """Return how many rows a new pin would change. Raises CacheUnreadable, PinRefused."""
        path = Path(record.folder)
        look = self._look(path, read_bytes(path))
        entry = look.taken(record.pin.key)
        if entry is None:
            raise PinRefused(f"{brief(record.inputs, 80)} is not in {path}")
        text = look.table.text(entry)
        return int(rewritten(look.table, text, record.config) != text)

    def _look(self, path: Path, data: bytes) -> _TableLookup:
        """Return the table in these bytes of `path`. Raises CacheUnreadable."""
        cached = self._looks.get(path)
        if cached is None or cached.table.data != data:
            cached = self._looks[path] = _TableLookup(table_in(data, path))
        return cached

    def came_back(self, record: PinRecord) -> bool:
        """Return whether a restored row is again as it was pinned: a program that had read it
        rewrote its table. Raises CacheUnreadable."""
        row = record.row
        text = self._text(record)
        if row is None or text is None or text == row.original.encode():
            return False
        return _is_ours(row, text)

    def differs(self, record: PinRecord) -> bool:
        """Return whether the row differs from what was written. Raises CacheUnreadable."""
        text = self._text(record)
        return text is not None and (record.row is None or text != record.row.written.encode())

    def status(self, record: PinRecord, judged: GraphVerdicts) -> PinStatus:
        text = self._text(record)
        if text is None:
            where = "the row is no longer in" if Path(record.folder).exists() else "there is no"
            return PinStatus(record.pin, "orphaned", f"{where} {record.folder}")
        if record.row is None or text != record.row.written.encode():
            what = f"the row of {record.folder} was written over"
            return PinStatus(record.pin, "drifted", what)
        return PinStatus(record.pin, "unproven", UNSEEN)

    def agree(self, file: PinFile, system: str, count_drifts: bool) -> Counts:
        released = [record for record in file.watched() if record.system_hash == system]
        pinned = [record for record in file.pins if record.system_hash == system]
        path = next((Path(record.folder) for record in (*pinned, *released)), None)
        if path is None or not path.exists():
            return {}
        counts: Counts = {}
        keys = frozenset(record.pin.key for record in (*pinned, *released))
        texts: dict[Entry, bytes] = {}
        written = b""

        def edit(data: bytes) -> bytes:
            nonlocal written
            counts.clear()
            texts.clear()
            look = self._look(path, data)
            table, entries = look.table, look.first(keys)
            for record in pinned:
                if (there := entries.get(record.pin.key)) is not None:
                    new = _hold(file, record, table, table.text(there), count_drifts)
                    if new != table.text(there):
                        texts[there], counts[record.identity] = new, 1
            for record in released:
                there, row = entries.get(record.pin.key), record.row
                if there is None or row is None or not _is_ours(row, table.text(there)):
                    continue  # rewritten since, so it stays
                if row.original.encode() != table.text(there):
                    texts[there], counts[record.identity] = row.original.encode(), 1
            if texts:
                check_unwritten(path)
            file.save()
            written = table.rewritten(texts)
            return written

        safe.check_table(path)
        try:
            with safe.locked_table(path):
                changed = exchange.update(path, edit, exchange.newer)
                signature = exchange.signature_of(path)
                if read_bytes(path) == written:
                    look = self._looks[path]
                    entries = look.first(keys).items()
                    rows = {key: texts.get(entry, look.table.text(entry)) for key, entry in entries}
                    self._read[path] = signature, keys, rows
                return counts if changed else {}
        finally:
            self._looks.pop(path, None)

    def _text(self, record: PinRecord) -> bytes | None:
        """Return the current row of a pin; None if there is none. Raises CacheUnreadable."""
        path, key = Path(record.folder), record.pin.key
        signature = exchange.signature_of(path)
        if signature is None:
            self._read.pop(path, None)
            return None
        cached = self._read.get(path)
        if cached is None or cached[0] != signature or key not in cached[1]:
            keys = cached[1] | {key} if cached else frozenset((key,))
            look = _TableLookup(read_table(path))
            texts = {
                entry_key: look.table.text(entry) for entry_key, entry in look.first(keys).items()
            }
            cached = self._read[path] = signature, keys, texts
        return cached[2].get(key)


def _hold(file: PinFile, record: PinRecord, table: Table, text: bytes, count_drifts: bool) -> bytes:
    """Return the pinned row of a pin."""
    row = record.row
    try:
        new = hold_text(
            row,
            text.decode(),
            lambda original: rewritten(table, original.encode(), record.config).decode(),
        )
    except UnicodeDecodeError as error:
        raise PinRefused(f"the row of {table.path} is not UTF-8; it is not changed") from error
    written = new.written.encode()
    if row is not None and not _is_ours(row, text) and text != written and count_drifts:
        record = applied_again(file, record)
    file.put(replace(record, row=new))
    return written


def _is_ours(row: HeldText, text: bytes) -> bool:
    return row.is_ours(text.decode("utf-8", "replace"))
