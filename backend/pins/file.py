"""`rocm_tui/pins.json`: the pins, those released a short while ago, and the history of both.

    {"version": 1, "pins": [...], "released": [...], "history": [...]}

It is the desired state; the cache file is made to agree with it. A record keeps the *text* of each
number that the pin replaces, so that unpinning gives the file back byte by byte. Fields that this
version does not know are kept.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.cache.autotune import load_json, read_bytes
from backend.disk import safe
from backend.errors import CacheUnreadable, NotWritable
from backend.records import LATEST, Pin, TuningKey

VERSION = 1
MAX_BYTES = 64 << 20
MAX_PIN_BYTES = 48 << 20
"""A pin is refused that makes the file bigger; whatever is done later, it can be read again."""
MAX_HISTORY = 5_000
MAX_RELEASED = 200
DRIFT_SECONDS = 60.0
MAX_DEPTH = 50
"""How deep fields may be nested that this version does not know."""
MAX_NAME = 200
"""Characters of a system hash: a file is named after it, and another with 20 more."""

Tokens = dict[str, dict[str, str]]
"""The text of each number, by precision and choice hash."""


@dataclass(frozen=True, slots=True)
class Record:
    """A pin as it is stored. `applied` is when the cache was last made to agree with it, and
    `made` when its key was pinned first, Unix seconds; `config` tells Triton templates apart.

    `released` is when it was unpinned; `pending` while that is not finished. `raised` tells that
    its rivals are held by raised numbers; an older version wrote `Infinity`, which broke programs
    that do not offer the pinned choice.
    """

    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    system_hash: str
    tokens: Tokens
    config: dict[str, str] = field(default_factory=dict)
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""
    drifts: int = 0
    applied: float = 0.0
    made: float = 0.0
    released: float = 0.0
    pending: bool = False
    raised: bool = False
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str, str]:
        """A pin holds in every precision of an (op, inputs) of one cache file."""
        return self.system_hash, self.op, self.inputs

    @property
    def pin(self) -> Pin:
        """What the rest of the program sees."""
        return Pin(
            op=self.op,
            inputs=self.inputs,
            precision=self.precision,
            hash=self.hash,
            label=self.label,
            system_hash=self.system_hash,
            timings=self.timings,
            device=self.device,
            who=self.who,
            when=self.when,
            note=self.note,
            drifts=self.drifts,
        )

    @property
    def timings(self) -> dict[str, dict[str, float]]:
        """The measured milliseconds, by precision and choice hash; failed ones are `inf`."""
        return {
            precision: {name: float(text) for name, text in texts.items()}
            for precision, texts in self.tokens.items()
        }


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened to a pin: `pin`, `repin`, `unpin`, `drift`, `restore`, or
    `migrate`: the `Infinity` of an older version gave way to raised numbers."""

    when: float
    who: str
    what: str
    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    note: str = ""
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


@dataclass(slots=True)
class PinFile:
    """The content of `pins.json`; `save` writes it. The caller holds its lock."""

    path: Path
    pins: list[Record] = field(default_factory=list)
    released: list[Record] = field(default_factory=list)
    history: list[HistoryEntry] = field(default_factory=list)
    unknown: dict[str, Any] = field(default_factory=dict)
    _saved: bytes = b""

    def save(self, most: int = MAX_BYTES) -> None:
        """Write it if it changed. Raises NotWritable, also for more than `most` bytes.

        The oldest history goes before that: what is too big to be read could not be unpinned.
        """
        data = self._encode()
        while len(data) > most and self.history:
            self.history = self.history[len(self.history) // 2 + 1 :]
            data = self._encode()
        if len(data) > most:
            raise NotWritable(
                f"{self.path} would have {len(data) >> 20} MiB, more than {most >> 20}: unpin some"
            )
        if data != self._saved:
            safe.write_atomic(self.path, data)
            self._saved = data

    def _encode(self) -> bytes:
        parts = {name: _dump(value) for name, value in self.unknown.items()} | {
            "version": _dump(VERSION),
            "pins": _lines(self.pins),
            "released": _lines(self.released[-MAX_RELEASED:]),
            "history": _lines(self.history[-MAX_HISTORY:]),
        }
        members = (f" {_dump(name)}: {text}" for name, text in parts.items())
        return ("{\n" + ",\n".join(members) + "\n}\n").encode()

    def put(self, record: Record) -> None:
        """Add `record`, in the place of a pin of the same (op, inputs)."""
        if any(old.identity == record.identity for old in self.pins):
            put_back(self.pins, record)
        else:
            self.pins.append(record)

    def note(
        self, what: str, record: Record, who: str, when: float, note: str = ""
    ) -> HistoryEntry:
        """Add to the history. Drifts of one pin in one minute are one entry, the latest."""
        entry = HistoryEntry(
            when=when,
            who=who,
            what=what,
            op=record.op,
            inputs=record.inputs,
            precision=record.precision,
            hash=record.hash,
            label=record.label,
            note=note,
        )
        last = self.history[-1] if self.history else None
        if (
            last is not None
            and what == last.what == "drift"
            and (last.key, last.hash) == (entry.key, entry.hash)
            and when - last.when < DRIFT_SECONDS
        ):
            del self.history[-1]
        self.history.append(entry)
        return entry

    def take_back(self, entry: HistoryEntry) -> None:
        """What `note` added did not happen; others may have been added since."""
        self.history = [other for other in self.history if other is not entry]


def find(records: list[Record], system_hash: str, key: TuningKey) -> Record | None:
    """The record of an (op, inputs) of one cache file."""
    identity = (system_hash, key.op, key.inputs)
    return next((record for record in records if record.identity == identity), None)


def forget(records: list[Record], record: Record) -> None:
    """Take out the record of the same (op, inputs)."""
    records[:] = [other for other in records if other.identity != record.identity]


def put_back(records: list[Record], record: Record) -> None:
    """Put `record` in the place of that of the same (op, inputs)."""
    for at, other in enumerate(records):
        if other.identity == record.identity:
            records[at] = record


def exists(path: Path) -> bool:
    """Whether there is such a file. Raises CacheUnreadable where we may not look."""
    try:
        return path.exists()
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error


def read_pin_file(path: Path) -> PinFile:
    """What is stored; an empty one if there is no file. Raises CacheUnreadable."""
    if not exists(path):
        return PinFile(path)
    data = read_bytes(path, MAX_BYTES)
    document = load_json(path, data)
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise CacheUnreadable(f"{path} was written by another version of rocm-tui; update this one")
    try:
        file = PinFile(
            path,
            [_decode_record(item) for item in document.get("pins", [])],
            [_decode_record(item) for item in document.get("released", [])],
            [_decode_entry(item) for item in document.get("history", [])],
            {k: v for k, v in document.items() if k not in _OURS},
        )
        parts: list[PinFile | Record | HistoryEntry] = [file, *file.pins, *file.released]
        if unknown := [part.unknown for part in (*parts, *file.history) if part.unknown]:
            _check(all(_is_shallow(fields, MAX_DEPTH) for fields in unknown), "nesting")
            file._encode()  # what cannot be written back must not be found out at the next pin
    except (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CacheUnreadable(
            f"{path} does not hold pins as it should; move the file away"
        ) from error
    file._saved = data
    return file


_OURS = {"version", "pins", "released", "history"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
"""The text of a number as a cache file may hold it: unpinning writes it back there."""


_dump = json.JSONEncoder(allow_nan=False).encode
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in dataclasses.fields(kind) if f.name != "unknown")
    for kind in (Record, HistoryEntry)
}


def _lines(parts: Sequence[Record] | Sequence[HistoryEntry]) -> str:
    """One line each: indenting is done in Python, twenty times as slowly."""
    lines = [
        _dump({**part.unknown, **{name: getattr(part, name) for name in _FIELDS[type(part)]}})
        for part in parts
    ]
    return "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"


def _decode_record(item: Mapping[str, Any]) -> Record:
    record = Record(**_split(Record, item))
    for texts in record.tokens.values():
        _check(all(_NUMBER.fullmatch(text) for text in texts.values()), "tokens")
    _check_texts(record, ("op", "inputs", "precision", "hash", "label", "system_hash"))
    _check_texts(record, ("who", "note"))
    _check_numbers(record, ("when", "applied", "made", "released"))
    _check(all(isinstance(text, str) for text in record.config.values()), "config")
    _check(record.device is None or isinstance(record.device, str), "device")
    _check(type(record.drifts) is int and record.drifts >= 0, "drifts")
    _check(type(record.pending) is bool and type(record.raised) is bool, "pending or raised")
    names = (record.op, record.inputs, record.precision, record.hash, record.system_hash)
    _check(all(name.isprintable() for name in names), "a name")
    _check(is_file_name(record.system_hash), "system_hash")
    return record


def _decode_entry(item: Mapping[str, Any]) -> HistoryEntry:
    entry = HistoryEntry(**_split(HistoryEntry, item))
    _check_texts(entry, ("who", "what", "op", "inputs", "precision", "hash", "label", "note"))
    _check_numbers(entry, ("when",))
    return entry


def is_file_name(system_hash: str) -> bool:
    """Whether a cache file may be called so: not hidden, in no other folder, not too long."""
    return 0 < len(system_hash) <= MAX_NAME and "/" not in system_hash and system_hash[0] != "."


def _check_texts(part: Record | HistoryEntry, names: tuple[str, ...]) -> None:
    for name in names:
        _check(isinstance(getattr(part, name), str), name)


def _check_numbers(part: Record | HistoryEntry, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(part, name)
        _check(type(value) in (int, float) and abs(value) <= LATEST, name)


def _is_shallow(value: object, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in inner)


def _check(fits: bool, name: str) -> None:
    if not fits:
        raise ValueError(name)


def _split(kind: type, item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `kind`, and those that it does not have as `unknown`."""
    names = _FIELDS[kind]
    known = {name: value for name, value in item.items() if name in names}
    return {**known, "unknown": {k: v for k, v in item.items() if k not in names}}
