"""`rocm_tui/pins.json`: the pins, those released a short while ago, and the history of both.

    {"version": 1, "pins": [...], "released": [...], "history": [...]}

It is the desired state; the cache file is made to agree with it. A record keeps the *text* of each
number that the pin replaces, so that unpinning gives the file back byte by byte. Fields that this
version does not know are kept.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.records import Pin, TuningKey
from backend.store import safe
from backend.store.autotune_cache import load_json, read_bytes
from backend.store.errors import CacheUnreadable

VERSION = 1
MAX_BYTES = 64 << 20
MAX_HISTORY = 5_000
MAX_RELEASED = 200
DRIFT_SECONDS = 60.0

Tokens = dict[str, dict[str, str]]
"""The text of each number, by precision and choice hash."""


@dataclass(frozen=True, slots=True)
class Record:
    """A pin as it is stored. `applied` is when the cache was last made to agree with it, and
    `made` when it was pinned first, Unix seconds; `config` tells Triton templates apart.

    `released` is when it was unpinned; `pending` while that is not finished.
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
    """One thing that happened to a pin: `pin`, `repin`, `unpin`, `drift` or `restore`."""

    when: float
    who: str
    what: str
    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    note: str = ""

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

    def save(self) -> None:
        """Write it if it changed. Raises NotWritable."""
        data = self._encode()
        if data != self._saved:
            safe.write_atomic(self.path, data)
            self._saved = data

    def _encode(self) -> bytes:
        document = {
            **self.unknown,
            "version": VERSION,
            "pins": [_encode_record(record) for record in self.pins],
            "released": [_encode_record(record) for record in self.released[-MAX_RELEASED:]],
            "history": [dataclasses.asdict(entry) for entry in self.history[-MAX_HISTORY:]],
        }
        return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()

    def put(self, record: Record) -> None:
        """Add `record`, in the place of a pin of the same (op, inputs)."""
        for at, old in enumerate(self.pins):
            if old.identity == record.identity:
                self.pins[at] = record
                return
        self.pins.append(record)

    def note(self, what: str, record: Record, who: str, when: float, note: str = "") -> None:
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


def read_pin_file(path: Path) -> PinFile:
    """What is stored; an empty one if there is no file. Raises CacheUnreadable."""
    if not path.exists():
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
            [HistoryEntry(**_known(HistoryEntry, item)) for item in document.get("history", [])],
            {k: v for k, v in document.items() if k not in _OURS},
        )
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise CacheUnreadable(
            f"{path} does not hold pins as it should; move the file away"
        ) from error
    file._saved = data
    return file


_OURS = {"version", "pins", "released", "history"}


def _encode_record(record: Record) -> dict[str, Any]:
    document = dataclasses.asdict(record)
    return {**document.pop("unknown"), **document}


def _decode_record(item: Mapping[str, Any]) -> Record:
    names = {f.name for f in dataclasses.fields(Record)}
    unknown = {name: value for name, value in item.items() if name not in names}
    record = Record(**_known(Record, item), unknown=unknown)
    for texts in record.tokens.values():
        for text in texts.values():
            float(text)
    for name in ("op", "inputs", "precision", "hash", "label", "system_hash", "who", "note"):
        if not isinstance(getattr(record, name), str):
            raise TypeError(name)
    if "/" in record.system_hash or record.system_hash.startswith("."):
        raise ValueError("a system hash is a file name")
    for name in ("when", "applied", "made", "released"):
        if not math.isfinite(getattr(record, name)):
            raise ValueError(name)
    return record


def _known(kind: type, item: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(kind)} - {"unknown"}
    return {name: value for name, value in item.items() if name in names}
