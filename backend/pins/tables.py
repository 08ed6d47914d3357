"""Pins of entries of tuned tables: held in the table's own file, one row each.

What stood in the row is kept with the pin, and unpinning puts it back. A tuner that writes its file
anew (TunableOp does when a program ends) may write over it: then the pin drifted, and is applied
again like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from backend.cache.autotune import Numbers
from backend.disk import exchange, safe
from backend.disk.exchange import check_unwritten
from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import PinRefused, brief
from backend.model.problem import TuningKey
from backend.pins.file import Counts, HeldText, PinFile, PinRecord, PinRequest, applied_again
from backend.pins.state import Judged, PinStatus
from backend.tables import registry
from backend.tables.model import Editing, Entry, NotEditable, Table, entry_key, table_system
from backend.tables.registry import read_table, table_in

UNSEEN = "the table says so; whether its program takes the row is not seen from here"


def entry_of(table: Table, key: TuningKey) -> Entry | None:
    """The entry that the tuner takes for a key; None for none. Raises PinRefused where it is not
    known which one that is."""
    return _Look(table).taken(key)


class _Look:
    """A table as it was read, and what was looked for in it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._found: dict[TuningKey, list[Entry]] = {}

    def entries(self, keys: Iterable[TuningKey]) -> dict[TuningKey, list[Entry]]:
        """The entries of each key, in their order."""
        wanted = frozenset(keys)
        new: dict[TuningKey, list[Entry]] = {key: [] for key in wanted - self._found.keys()}
        if new:
            told = "\n".join(key.inputs for key in new)
            for entry in self.table.entries:
                if entry.key and entry.key[-1][1] not in told:
                    continue  # most are passed over before their key is made
                if (key := entry_key(self.table.tuner, entry)) in new:
                    new[key].append(entry)
            self._found |= new
        return {key: self._found[key] for key in wanted}

    def first(self, keys: Iterable[TuningKey]) -> dict[TuningKey, Entry]:
        """The first entry of each key that has one."""
        return {key: found[0] for key, found in self.entries(keys).items() if found}

    def taken(self, key: TuningKey) -> Entry | None:
        """See `entry_of`."""
        found = self.entries((key,))[key]
        if len(found) > 1 and not editing_of(self.table).first:
            lines = ", ".join(str(entry.line) for entry in found[:5])
            path = self.table.path
            raise PinRefused(f"{path} has this row more than once (lines {lines}); mend that")
        return found[0] if found else None


def editing_of(table: Table) -> Editing:
    """Raises PinRefused."""
    editing = registry.tuner_named(table.tuner).editing
    if editing is None:
        raise PinRefused(f"entries of {table.tuner} tables cannot be pinned")
    return editing


def rewritten(table: Table, text: bytes, values: Mapping[str, str]) -> bytes:
    """The text of an entry with other values. Raises PinRefused."""
    try:
        return editing_of(table).edit(table.columns, text, values)
    except NotEditable as error:
        raise PinRefused(str(error)) from error


class TableRows:
    """The `PinHolder` of entries of tuned tables. A table is parsed again only when its bytes are
    others."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._looks: dict[Path, _Look] = {}
        self._read: dict[Path, tuple[object, frozenset[TuningKey], dict[TuningKey, bytes]]] = {}

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        """The table of the request, or where a pin that holds or was released has found it."""
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
        """The tables that were looked at."""
        return list(self._read)

    def check_writable(self, path: Path) -> None:
        safe.check_table(path)

    def check_new(self, record: PinRecord) -> None:
        """Raise PinRefused where the row is not there or cannot have these values."""
        self.changes(record)

    def numbers(self, record: PinRecord) -> None:
        return None

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        return record

    def waits(self, record: PinRecord, stored: Numbers) -> bool:
        return False

    def remember(self, table: Table) -> None:
        """What a person has seen of a table."""
        self._looks[Path(table.path)] = _Look(table)

    def changes(self, record: PinRecord) -> int:
        """How many rows a new pin would change. Raises CacheUnreadable, PinRefused."""
        path = Path(record.folder)
        look = self._look(path, read_bytes(path))
        entry = look.taken(record.pin.key)
        if entry is None:
            raise PinRefused(f"{brief(record.inputs, 80)} is not in {path}")
        text = look.table.text(entry)
        return int(rewritten(look.table, text, record.config) != text)

    def _look(self, path: Path, data: bytes) -> _Look:
        """The table that these bytes of `path` are. Raises CacheUnreadable."""
        known = self._looks.get(path)
        if known is None or known.table.data != data:
            known = self._looks[path] = _Look(table_in(data, path))
        return known

    def came_back(self, record: PinRecord) -> bool:
        """Whether a row that was put back is there as it was pinned: a program that had read it so
        wrote its table anew. Raises CacheUnreadable."""
        row = record.row
        if row is None or row.original == row.written:
            return False
        return self._text(record) == row.written.encode()

    def differs(self, record: PinRecord) -> bool:
        """Whether the row is there and is another one than was written. Raises CacheUnreadable."""
        text = self._text(record)
        return text is not None and (record.row is None or text != record.row.written.encode())

    def status(self, record: PinRecord, judged: Judged) -> PinStatus:
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
            table, found = look.table, look.first(keys)
            for record in pinned:
                if (there := found.get(record.pin.key)) is not None:
                    new = _hold(file, record, table, table.text(there), count_drifts)
                    if new != table.text(there):
                        texts[there], counts[record.identity] = new, 1
            for record in released:
                there, row = found.get(record.pin.key), record.row
                if there is None or row is None or table.text(there) != row.written.encode():
                    continue  # whatever was written there since is left alone
                if row.original != row.written:
                    texts[there], counts[record.identity] = row.original.encode(), 1
            if texts:
                check_unwritten(path)
            file.save()
            written = table.rewritten(texts)
            return written

        safe.check_table(path)
        try:
            with safe.locked(self._layout.root, self._layout.autotune / system):
                changed = exchange.update(path, edit, exchange.newer)
                signature = exchange.signature_of(path)
                if read_bytes(path) == written:
                    look = self._looks[path]
                    found = look.first(keys).items()
                    rows = {key: texts.get(entry, look.table.text(entry)) for key, entry in found}
                    self._read[path] = signature, keys, rows
                return counts if changed else {}
        finally:
            self._looks.pop(path, None)

    def _text(self, record: PinRecord) -> bytes | None:
        """The row of a pin as it stands; None where there is none. Raises CacheUnreadable."""
        path, key = Path(record.folder), record.pin.key
        signature = exchange.signature_of(path)
        if signature is None:
            self._read.pop(path, None)
            return None
        known = self._read.get(path)
        if known is None or known[0] != signature or key not in known[1]:
            keys = known[1] | {key} if known else frozenset((key,))
            look = _Look(read_table(path))
            texts = {found: look.table.text(entry) for found, entry in look.first(keys).items()}
            known = self._read[path] = signature, keys, texts
        return known[2].get(key)


def _hold(file: PinFile, record: PinRecord, table: Table, text: bytes, count_drifts: bool) -> bytes:
    """What the row of a pin shall be."""
    row = record.row
    ours = row is not None and text == row.written.encode()
    original = row.original.encode() if row is not None and ours else text
    written = rewritten(table, original, record.config)
    if row is not None and not ours and text != written and count_drifts:
        record = applied_again(file, record)
    try:
        row = HeldText(original.decode(), written.decode())
    except UnicodeDecodeError as error:
        raise PinRefused(f"the row of {table.path} is not UTF-8; it is not changed") from error
    file.put(replace(record, row=row))
    return written
