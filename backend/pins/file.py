"""`rocm_tui/pins.json`: the pins, recently released ones, and the history of both.

    {"version": 1, "pins": [...], "released": [...], "history": [...]}

The file is the desired state; the cache file is made to agree with it. A record has the *text* of
each number that the pin replaces, so that unpinning restores the file byte by byte. Fields of later
versions are kept.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
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
"""A pin that makes the file larger is refused, so that later changes still leave it readable."""
MAX_HISTORY = 5_000
MAX_RELEASED = 200
DRIFT_SECONDS = 60.0
RELEASED_SECONDS = 86_400.0
"""How long a released pin is watched: a process that read the cache file while the pin held, and
then benchmarks for long, writes our raised numbers back."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
"""The text of a number in a cache file: unpinning writes it back there."""


def _are_numbers(texts: Mapping[str, str]) -> str:
    return "" if all(map(_NUMBER.fullmatch, texts.values())) else "are not numbers"


def _is_printable(text: str) -> str:
    return "" if text.isprintable() else "is not a name"


_Name = Annotated[str, _is_printable]
_Hash = Annotated[str, lambda text: "" if is_hash(text) else "is not a hash"]
_File = Annotated[str, lambda name: "" if is_file_name(name) else "is not a file name"]
_Count = Annotated[int, lambda number: "" if number >= 0 else "is not a count"]

Counts = dict[tuple[str, str, str], int]
"""The number of changes for each pin, by its identity."""

Tokens = dict[str, Annotated[dict[str, str], _are_numbers]]
"""The text of each number, by precision and choice hash."""


_BEST_CONFIG = re.compile(r"[a-z2-7]{2}/[0-9a-zA-Z_-]{1,200}\.best_config")


def _are_best_configs(files: Mapping[str, object]) -> str:
    return "" if all(map(_BEST_CONFIG.fullmatch, files)) else "are not best configs"


def _are_indices(variants: Mapping[str, object]) -> str:
    indices = all(name.isascii() and name.isdecimal() and len(name) < 5 for name in variants)
    return "" if indices else "are not device indices"


@dataclass(frozen=True, slots=True)
class HeldText:
    """A file, or a row in one, that a pin holds: its text before the pin, and with it. `earlier` is
    what it had from another pin: still, if a process that repinned it was killed."""

    original: str
    written: str
    earlier: str | None = None

    def is_ours(self, text: str) -> bool:
        """Return whether a pin wrote this text."""
        return text in (self.written, self.earlier)


def hold_text(held: HeldText | None, text: str, write: Callable[[str], str]) -> HeldText:
    """Return what to store before `write(original)` replaces `text`. A text that a pin wrote is
    never taken for the original."""
    if held is None or not held.is_ours(text):
        return HeldText(text, write(text))
    written = write(held.original)
    return HeldText(held.original, written, held.earlier if text == written else text)


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A pin as it is stored. `applied` is when the cache was last made to agree with it, and `made`
    when its key was first pinned, Unix seconds; `config` distinguishes Triton templates.

    `released` is when it was unpinned; it is `pending` until that is finished. `raised` is True if
    its rivals are held by raised numbers; an older version wrote `Infinity`, which broke programs
    that do not offer the pinned choice. `proof` is the latest one of this choice. `folder` is the
    Triton cache in which a Triton kernel was tuned. `files` are those of a kernel that Inductor
    launches, by path in the cache dir. For an entry of a tuned table `folder` is the table, `row`
    the entry's text. `variants` are the hashes of the pinned kernel by device index; empty if
    `hash` is that of every device, or the others are unknown.
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
        """The identity of a pin, for every precision of an (op, inputs) of one cache file."""
        return self.system_hash, self.op, self.inputs

    @property
    def pin(self) -> Pin:
        """The pin as the rest of the program sees it."""
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
    """A choice to pin.

    Without `system_hash` the cache file is the most recently written one that has the choice. With
    `system_hash` and `wait` the choice may be missing: the pin applies once it is tuned. `table` is
    the file of an entry of a tuned table, whose values are in `config`. `variants` are the hashes
    of the same kernel by device index, from another host.
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
    """A command that pins or releases several choices at once; `when` it began, Unix seconds."""

    id: _Name
    command: _Name
    when: Moment = 0.0


def new_group(command: str) -> PinGroup:
    """Return the group of a command that begins now."""
    return PinGroup(os.urandom(8).hex(), command, time.time())


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An event in a pin's history: `pin`, `repin`, `unpin`, `note` (a new note), `drift`,
    `restore`; `verify` or `refute`: generated code calls the choice, or another; `migrate`: raised
    numbers replaced an older version's `Infinity`.

    `system_hash` and `config` are the record's; `undoes` is the time of the action that this one
    undid, else 0. `group` is the command, if it changed several pins.
    """

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
    """The parsed file; see `PinFile` for what is written."""

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
    lost: bool = False
    """Whether the user says that records were lost: then numbers without a record are lowered."""
    _saved: bytes = b""

    def save(self, most: int = MAX_BYTES) -> None:
        """Write the file if it changed. Raises NotWritable, also for more than `most` bytes.

        The oldest history is dropped to avoid that: a file too big to be read could not be
        unpinned.
        """
        data = self._encode()
        while len(data) > most and self.history:
            del self.history[: len(self.history) // 2 + 1]
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
        """Return released pins that are not finished, or may still be written back."""
        pinned = {record.identity for record in self.pins}
        since = time.time() - RELEASED_SECONDS
        return [
            record
            for record in self.released
            if record.identity not in pinned and (record.pending or record.released > since)
        ]

    def put(self, record: PinRecord) -> None:
        """Add `record`, replacing a pin of the same (op, inputs)."""
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
        """Add to the history. Drifts of one pin in one minute are merged into the latest entry."""
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

    def remove_entry(self, entry: HistoryEntry) -> None:
        """Remove an entry added by `note`; entries added later stay."""
        self.history = [other for other in self.history if other is not entry]


def find_record(records: list[PinRecord], system_hash: str, key: TuningKey) -> PinRecord | None:
    """Return the record of an (op, inputs) of one cache file."""
    identity = (system_hash, key.op, key.inputs)
    return next((record for record in records if record.identity == identity), None)


def remove_record(records: list[PinRecord], record: PinRecord) -> None:
    """Remove the record of the same (op, inputs)."""
    records[:] = [other for other in records if other.identity != record.identity]


def put_back(records: list[PinRecord], record: PinRecord) -> bool:
    """Replace the record of the same (op, inputs) by `record`; False if there is none."""
    places = [at for at, other in enumerate(records) if other.identity == record.identity]
    for at in places:
        records[at] = record
    return bool(places)


def read_pin_file(path: Path) -> PinFile:
    """Read the file; an empty one if it does not exist. Raises CacheUnreadable."""
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
    return PinFile(
        path, content.pins, content.released, content.history, content.unknown, _saved=data
    )


_dump = json.JSONEncoder(allow_nan=False).encode


def _lines(parts: Sequence[PinRecord] | Sequence[HistoryEntry]) -> str:
    """Write one line each: json's indenting runs in Python, twenty times as slowly."""
    lines = [_dump(to_json(part)) for part in parts]
    return "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"


def default_who() -> str:
    """Return `user@host`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def drifted(file: PinFile, record: PinRecord) -> PinRecord:
    """Count a drift, also in the history."""
    record = replace(record, drifts=record.drifts + 1)
    file.note("drift", record, default_who(), time.time())
    file.put(record)
    return record


def applied_again(file: PinFile, record: PinRecord) -> PinRecord:
    """Return the record of a pin that is applied again now."""
    return drifted(file, replace(record, applied=time.time()))
