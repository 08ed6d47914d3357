"""`rocm_tui/pins.json`: the pins, those released a short while ago, and the history of both.

    {"version": 1, "pins": [...], "released": [...], "history": [...]}

It is the desired state; the cache file is made to agree with it. A record keeps the *text* of each
number that the pin replaces, so that unpinning gives the file back byte by byte. Fields that this
version does not know are kept.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from backend.disk import safe
from backend.disk.layout import is_file_name
from backend.disk.safe import exists, load_json, read_bytes
from backend.errors import CacheUnreadable, NotWritable
from backend.model.choice import is_hash
from backend.model.problem import TuningKey
from backend.model.tuning import Moment, Pin, Proof
from backend.wire.codec import WireError, read, to_json

VERSION = 1
MAX_BYTES = 64 << 20
MAX_PIN_BYTES = 48 << 20
"""A pin is refused that makes the file bigger; whatever is done later, it can be read again."""
MAX_HISTORY = 5_000
MAX_RELEASED = 200
DRIFT_SECONDS = 60.0
RELEASED_SECONDS = 86_400.0
"""How long a released pin is watched for: a process that read the cache file while the pin held
and benchmarks for long writes our raised numbers back."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
"""The text of a number as a cache file may hold it: unpinning writes it back there."""


def _are_numbers(texts: Mapping[str, str]) -> str:
    return "" if all(map(_NUMBER.fullmatch, texts.values())) else "are no numbers"


def _is_printable(text: str) -> str:
    return "" if text.isprintable() else "is no name"


_Name = Annotated[str, _is_printable]
_Hash = Annotated[str, lambda text: "" if is_hash(text) else "is no hash"]
_File = Annotated[str, lambda name: "" if is_file_name(name) else "is no file name"]
_Count = Annotated[int, lambda number: "" if number >= 0 else "is no count"]

Counts = dict[tuple[str, str, str], int]
"""How much was changed for each pin, by its identity."""

Tokens = dict[str, Annotated[dict[str, str], _are_numbers]]
"""The text of each number, by precision and choice hash."""


_BEST_CONFIG = re.compile(r"[a-z2-7]{2}/[0-9a-zA-Z_-]{1,200}\.best_config")


def _are_best_configs(files: Mapping[str, object]) -> str:
    return "" if all(map(_BEST_CONFIG.fullmatch, files)) else "are no best configs"


def _are_indices(variants: Mapping[str, object]) -> str:
    indices = all(name.isascii() and name.isdecimal() and len(name) < 5 for name in variants)
    return "" if indices else "are no device indices"


@dataclass(frozen=True, slots=True)
class HeldText:
    """A file, or a row of one, that a pin holds: its text as it was before, and as it is held."""

    original: str
    written: str


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A pin as it is stored. `applied` is when the cache was last made to agree with it, and
    `made` when its key was pinned first, Unix seconds; `config` tells Triton templates apart.

    `released` is when it was unpinned; `pending` while that is not finished. `raised` tells that
    its rivals are held by raised numbers; an older version wrote `Infinity`, which broke programs
    that do not offer the pinned choice. `proof` is the latest one of this choice. `folder` is the
    cache of Triton that a Triton kernel was tuned in. `files` are those of a kernel that Inductor
    launches, by their paths below the cache dir. Of an entry of a tuned table `folder` is the
    table, `row` the entry's text. `variants` are the hashes of the pinned kernel by device index;
    empty where `hash` is that of every device, or where the others are unknown.
    """

    op: _Name
    inputs: _Name
    precision: _Name
    hash: _Hash
    label: str
    system_hash: _File
    tokens: Tokens
    config: dict[str, str] = field(default_factory=dict)
    device: str | None = None
    who: str = ""
    when: Moment = 0.0
    note: str = ""
    drifts: _Count = 0
    applied: Moment = 0.0
    made: Moment = 0.0
    released: Moment = 0.0
    pending: bool = False
    raised: bool = False
    proof: Proof | None = None
    folder: str = ""
    files: Annotated[dict[str, HeldText], _are_best_configs] = field(default_factory=dict)
    row: HeldText | None = None
    variants: Annotated[dict[str, _Hash], _are_indices] = field(default_factory=dict)
    unknown: dict[str, Any] = field(default_factory=dict, metadata={"kept": True})

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of the pinned kernel on all devices."""
        return frozenset((self.hash, *self.variants.values()))

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
            config=self.config,
            variants=self.variants,
        )

    @property
    def timings(self) -> dict[str, dict[str, float]]:
        """The measured milliseconds, by precision and choice hash; failed ones are `inf`."""
        return {
            precision: {name: float(text) for name, text in texts.items()}
            for precision, texts in self.tokens.items()
        }


@dataclass(frozen=True, slots=True)
class PinRequest:
    """What to pin.

    Without `system_hash` the cache file is the one written last of those that have the choice. With
    it, and `wait`, the choice need not be there yet: the pin counts once it was tuned. `table` is
    the file of an entry of a tuned table, whose values `config` has. `variants` are the hashes of
    the same kernel by device index, as another host has them.
    """

    system_hash: str | None
    key: TuningKey
    hash: str
    label: str = ""
    note: str = ""
    config: dict[str, str] = field(default_factory=dict)
    wait: bool = False
    table: Path | None = None
    variants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PinGroup:
    """One command that pins, or releases, several at once; `when` it began, Unix seconds."""

    id: _Name
    command: _Name
    when: Moment = 0.0


def new_group(command: str) -> PinGroup:
    """Of a command that begins now."""
    return PinGroup(os.urandom(8).hex(), command, time.time())


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened to a pin: `pin`, `repin`, `unpin`, `note` (it got another one),
    `drift`, `restore`; `verify` or `refute`: generated code calls the choice, or another; or
    `migrate`: the `Infinity` of an older version gave way to raised numbers.

    `system_hash` and `config` are those of the record; `undoes` is when that was done which this
    undid, else 0. `group` is the command that did it among others, of one that does several."""

    when: Moment
    who: str
    what: str
    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    note: str = ""
    system_hash: str = ""
    config: dict[str, str] = field(default_factory=dict)
    undoes: Moment = 0.0
    group: PinGroup | None = None
    unknown: dict[str, Any] = field(default_factory=dict, metadata={"kept": True})

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


@dataclass(frozen=True, slots=True)
class _Document:
    """What is read of the file; see `PinFile` for what is written."""

    version: int
    pins: list[PinRecord] = field(default_factory=list)
    released: list[PinRecord] = field(default_factory=list)
    history: list[HistoryEntry] = field(default_factory=list)
    unknown: dict[str, Any] = field(default_factory=dict, metadata={"kept": True})


@dataclass(slots=True)
class PinFile:
    """The content of `pins.json`; `save` writes it. The caller holds its lock."""

    path: Path
    pins: list[PinRecord] = field(default_factory=list)
    released: list[PinRecord] = field(default_factory=list)
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

    def watched(self) -> list[PinRecord]:
        """Released pins that are not finished, or may still be written back."""
        pinned = {record.identity for record in self.pins}
        since = time.time() - RELEASED_SECONDS
        return [
            record
            for record in self.released
            if record.identity not in pinned and (record.pending or record.released > since)
        ]

    def put(self, record: PinRecord) -> None:
        """Add `record`, in the place of a pin of the same (op, inputs)."""
        if not put_back(self.pins, record):
            self.pins.append(record)

    def note(
        self,
        what: str,
        record: PinRecord,
        who: str,
        when: float,
        note: str = "",
        undoes: float = 0.0,
        group: PinGroup | None = None,
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
            system_hash=record.system_hash,
            config=record.config,
            undoes=undoes,
            group=group,
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


def find(records: list[PinRecord], system_hash: str, key: TuningKey) -> PinRecord | None:
    """The record of an (op, inputs) of one cache file."""
    identity = (system_hash, key.op, key.inputs)
    return next((record for record in records if record.identity == identity), None)


def forget(records: list[PinRecord], record: PinRecord) -> None:
    """Take out the record of the same (op, inputs)."""
    records[:] = [other for other in records if other.identity != record.identity]


def put_back(records: list[PinRecord], record: PinRecord) -> bool:
    """Put `record` in the place of that of the same (op, inputs); False if there is none."""
    places = [at for at, other in enumerate(records) if other.identity == record.identity]
    for at in places:
        records[at] = record
    return bool(places)


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
        content = read(_Document, document)
    except (WireError, RecursionError) as error:
        raise CacheUnreadable(
            f"{path} does not hold pins as it should; move the file away"
        ) from error
    return PinFile(path, content.pins, content.released, content.history, content.unknown, data)


_dump = json.JSONEncoder(allow_nan=False).encode


def _lines(parts: Sequence[PinRecord] | Sequence[HistoryEntry]) -> str:
    """One line each: indenting is done in Python, twenty times as slowly."""
    lines = [_dump(to_json(part)) for part in parts]
    return "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"


def default_who() -> str:
    """`user@host`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def drifted(file: PinFile, record: PinRecord) -> PinRecord:
    """Count a drift, in the history too."""
    record = replace(record, drifts=record.drifts + 1)
    file.note("drift", record, default_who(), time.time())
    file.put(record)
    return record


def applied_again(file: PinFile, record: PinRecord) -> PinRecord:
    """The same of a pin that is applied again now."""
    return drifted(file, replace(record, applied=time.time()))
