"""What a format is to those who bring the bytes, and what its readers share.

A format is a file beside this one, with a `FORMAT` in the table of `registry`.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from backend.model.choice import Choice, is_subgraph
from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.records import Record

LOGS = frozenset({".log", ".txt", ".err", ".out", ".stderr", ".stdout", ".jsonl", ".ndjson"})
DOCUMENTS = frozenset({".json", ".jsonl"})
TABLES = frozenset({".csv"})


class NotReadable(Exception):
    """The content is no whole document of its format: half written, or damaged."""


class DocumentRecords(list[Record]):
    """The records of a document, and its `share` of what many documents may have together, which
    is kept as long as they are."""

    def __init__(self, records: Iterable[Record], share: object) -> None:
        super().__init__(records)
        self.share = share


SILENCE = 600.0
"""Seconds: no choice takes as long to compile and to time."""


def is_silent(path: str) -> bool:
    """Whether a file was not written for so long that the program behind it must have ended."""
    try:
        return time.time() - os.stat(path).st_mtime > SILENCE  # noqa: PTH116
    except OSError:
        return False


class StreamReader(Protocol):
    """Reads a format that grows at its end. Pieces may be cut anywhere."""

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes."""
        ...

    def close(self) -> list[Record]:
        """Take the end of the text, perhaps in the middle of a line."""
        ...

    def settle(self) -> list[Record]:
        """Nothing came for a while: what is open counts as cut off, if that is clear."""
        ...

    @property
    def waits(self) -> bool:
        """Whether `settle` may return more later, though nothing comes."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """How a kind of file is recognised and read.

    It is known by its first bytes behind blanks, which `begins` matches, or by the `place` where it
    lies, whatever it holds. In a folder files with one of the `suffixes` are looked at.

    One that grows at its end has a `stream` reader, for a source. One that is written anew each
    time is a `document`, for bytes and source, which may raise NotReadable. Of any other nothing is
    read, and `refused` says why. `of_file` is the stream reader, where it is another one, of a file
    whose bytes are fed as they are, from the first on.
    """

    name: str
    begins: re.Pattern[bytes] | None = None
    place: re.Pattern[str] | None = None
    suffixes: frozenset[str] = frozenset()
    stream: Callable[[str], StreamReader] | None = None
    document: Callable[[bytes, str], list[Record]] | None = None
    refused: str = ""
    of_file: Callable[[str], StreamReader] | None = None


@dataclass(slots=True)
class Complaints:
    """What of a source could not be used: each kind so often and no more."""

    source: str
    most: int
    _counts: dict[str, int] = field(default_factory=dict)

    def about(self, what: str, line: int | None = None, kind: str = "") -> list[Fault]:
        """One problem, or none any more; that there are more is said once."""
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > self.most + 1:
            return []
        if count > self.most:
            what = "more problems are not listed"
            if kind:
                what = f"more problems of this kind follow and are not listed: {kind}"
        return [Fault(self.source, what if len(what) <= 300 else what[:299] + "…", line)]

    def once(self, what: str, line: int | None, kind: str) -> list[Fault]:
        """One problem, the first time only."""
        return [] if kind in self._counts else self.about(what, line, kind)


class WholeLines:
    """Bytes as they come, line by line. A line that has no end within `most` bytes is dropped: it
    comes as an empty one when it ends, and is counted as soon as it is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._dropping = False
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`, without their ends."""
        return self.block(data).split(b"\n")[:-1]

    def block(self, data: bytes) -> bytes:
        """The lines that end in `data`, with their ends, in one."""
        if self._dropping:
            data = data[data.find(b"\n") :] if b"\n" in data else b""
            self._dropping = not data
        end = data.rfind(b"\n") + 1
        block = b""
        if end:
            block = bytes(self._rest) + data[:end]
            self._rest.clear()
        self._rest += data[end:]
        if len(self._rest) > self._most:
            self._rest.clear()
            self._dropping = True
            self.dropped += 1
        return block

    @property
    def open(self) -> bytes:
        """The last line as far as it came; it is still to end."""
        return bytes(self._rest)

    def rest(self) -> bytes:
        """The last line, which has no end: there is no more."""
        rest = self.open
        self._rest.clear()
        return rest


def json_object(text: Any) -> dict[str, Any] | None:
    """The object that text or bytes hold as JSON, if they do."""
    try:
        document = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def clean_hash(text: str) -> str:
    """The hash of a choice without control characters. That of a subgraph keeps its line breaks:
    they are a part of the name under which Inductor caches its time."""
    return text if text.isprintable() or is_subgraph(text) else clean(text)


def timed_choice(
    ms: float, name: str | None = None, hash: str | None = None, description: str = ""
) -> Choice:
    """A choice and its time, which is infinite or no number if it failed."""
    if math.isfinite(ms):
        return Choice(name, hash, ms, description)
    return Choice(name, hash, None, description, failed=True)
