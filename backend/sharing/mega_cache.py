"""A mega-cache file, the output of `torch.compiler.save_cache_artifacts()`: its content, and the
effect of loading it on the pins and the cache dir.

The format (torch 2.8 to 2.15): a big-endian crc32 of the rest, a version, then sections of a type,
a count and that many pairs of key and content. Numbers are 8 bytes, big-endian; texts are base64.
Graphs are pickles, which are never loaded here; PyTorch does load them, so a file from a stranger
is a program from a stranger. Nothing is trusted: each length is checked against the remaining
bytes.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from backend.disk.layout import Layout
from backend.disk.safe import open_regular
from backend.errors import MegaCacheInvalid, brief
from backend.model.tuning import Pin
from backend.pins.file import read_pin_file
from backend.pins.graphs.match import Verdict, judge, may_hold
from backend.pins.graphs.text import read_graph_text
from backend.pins.state import GraphSweeper

MAX_BYTES = 8 << 30
MAX_ARTIFACTS = 200_000
MAX_SECTIONS = 1000
MAX_CONTENT = 256 << 20
"""A bigger graph is not examined: it is constants, not code."""

_MAX_CONFIG = 1 << 20

_VERSION = 1
_GZIP = b"\x1f\x8b"
_MAX_TYPE, _MAX_KEY = 200, 8000
_STRETCH = 1 << 20
_GRAPH_KEY = re.compile(r"[A-Za-z0-9_-]{4,255}")
_CONFIG_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}/[A-Za-z0-9_-]{1,200}\.best_config")


@dataclass(frozen=True, slots=True)
class Artifact:
    """An entry; its content is `size` bytes from `offset`. `loaded` is False if PyTorch ignores it,
    because a later section has the same type."""

    type: str
    key: str
    offset: int
    size: int
    loaded: bool = True

    @property
    def is_graph(self) -> bool:
        """Whether the content may have generated code in it."""
        return self.type in ("inductor", "aot_autograd")

    @property
    def is_config(self) -> bool:
        """Whether it is the best configuration of a pointwise or reduction kernel."""
        return self.type == "autotune"

    @property
    def leads_out(self) -> bool:
        """Whether the key, which PyTorch uses as a path, does not have PyTorch's form."""
        if self.is_graph:
            return not _GRAPH_KEY.fullmatch(self.key)
        return self.is_config and not _CONFIG_KEY.fullmatch(self.key)


@dataclass(frozen=True, slots=True)
class MegaCache:
    path: Path
    size: int
    artifacts: tuple[Artifact, ...]

    def contents(self, chosen: Sequence[Artifact]) -> Iterator[tuple[Artifact, bytes]]:
        """Yield those of `chosen` that are small enough to examine. Raises MegaCacheInvalid."""
        with _opened(self.path) as file:
            for artifact in chosen:
                if artifact.size <= MAX_CONTENT:
                    yield artifact, file.take(artifact.offset, artifact.size)


def read_mega_cache(path: Path) -> MegaCache:
    """Return the list of entries, without their contents. Raises MegaCacheInvalid."""
    with _opened(path) as file:
        artifacts = _parse(file)
        if not file.checksum_is_right():
            raise file.invalid("its checksum does not match: it was changed or cut")
        return MegaCache(path, file.size, tuple(artifacts))


def _parse(file: _File) -> list[Artifact]:
    file.at = 4
    version = file.number()
    if file.take(0, 2) == _GZIP:
        raise file.invalid(
            "it is a gzip file; if `rocm-tui bundle` wrote it: bundles were removed, use "
            "torch.compiler.save_cache_artifacts() and `rocm-tui export`"
        )
    if version != _VERSION:
        raise file.invalid("it does not begin as what save_cache_artifacts()[0] gives")
    sections: list[list[Artifact]] = []
    last: dict[str, int] = {}
    entries = 0
    while file.at < file.size:
        kind = file.text(_MAX_TYPE)
        count = file.number()
        entries += count
        if entries > MAX_ARTIFACTS or len(sections) >= MAX_SECTIONS:
            raise file.invalid("it claims more entries than a real one has")
        last[kind] = len(sections)
        sections.append([_entry(file, kind) for _ in range(count)])
    # PyTorch builds a dictionary of sections: the last one of a type counts.
    return [
        replace(artifact, loaded=last[artifact.type] == number)
        for number, section in enumerate(sections)
        for artifact in section
    ]


def _entry(file: _File, kind: str) -> Artifact:
    key = file.text(_MAX_KEY)
    size = file.length()
    artifact = Artifact(kind, key, file.at, size)
    file.at += size
    return artifact


class _File:
    """A reader by offset, never past the size that the file had when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.at = 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.invalid(error.strerror or str(error)) from error
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        why = ""
        if not stat.S_ISREG(status.st_mode):
            why = "it is not a regular file"
        elif not 12 <= self.size <= MAX_BYTES:
            why = (
                "it is too short" if self.size < 12 else f"it is bigger than {MAX_BYTES >> 30} GiB"
            )
        if why:
            os.close(self._descriptor)
            raise self.invalid(why)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def invalid(self, why: str) -> MegaCacheInvalid:
        return MegaCacheInvalid(f"{brief(str(self._path), 300)} is not a mega-cache to read: {why}")

    def take(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes."""
        parts = []
        while size:
            try:
                part = os.pread(self._descriptor, min(size, _STRETCH), offset)
            except OSError as error:
                raise self.invalid(error.strerror or str(error)) from error
            if not part:
                raise self.invalid("it became shorter while it was read")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def number(self) -> int:
        if self.size - self.at < 8:
            raise self.invalid("it ends in the middle of an entry")
        data = self.take(self.at, 8)
        self.at += 8
        return int.from_bytes(data, "big")

    def length(self) -> int:
        """Return the number of bytes that follow."""
        length = self.number()
        if length > self.size - self.at:
            raise self.invalid("it ends in the middle of an entry")
        return length

    def text(self, most: int) -> str:
        length = self.length()
        if length > most:
            raise self.invalid("a name in it is too long")
        data = self.take(self.at, length)
        self.at += length
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise self.invalid("a name in it is not text") from error

    def checksum_is_right(self) -> bool:
        crc, at = 0, 4
        while at < self.size:
            part = self.take(at, min(_STRETCH, self.size - at))
            crc = zlib.crc32(part, crc)
            at += len(part)
        return self.take(0, 4) == crc.to_bytes(4, "big")


_opened = _File


@dataclass(frozen=True, slots=True)
class HiddenPin:
    """A graph that hides a pin once it is loaded: its code calls another choice (`other`), or its
    text is ambiguous (`unknown`, `unclear`)."""

    pin: Pin
    artifact: Artifact
    verdict: Verdict


def hidden_pins(mega: MegaCache, layout: Layout) -> list[HiddenPin]:
    """Return the graphs that would hide pins. Raises MegaCacheInvalid, and StoreErrors of pins."""
    sweeper = GraphSweeper(layout)
    pairs = [(record.pin, sweeper.wanted(record)) for record in read_pin_file(layout.pins).pins]
    pins = [(pin, wanted) for pin, wanted in pairs if wanted is not None]
    graphs = [a for a in mega.artifacts if a.is_graph and a.loaded] if pins else []
    hidden: list[HiddenPin] = []
    for artifact, data in mega.contents(graphs):
        concerned = [(pin, wanted) for pin, wanted in pins if may_hold(data, wanted)]
        if not concerned:
            continue
        text = read_graph_text(data)
        for pin, wanted in concerned:
            verdict = judge(text, wanted)
            if verdict not in ("absent", "same"):
                hidden.append(HiddenPin(pin, artifact, verdict))
    return hidden


Overwriting = Literal["new", "same", "other"]
"""The state in the cache dir of a configuration: missing, identical, or with other content."""


def configurations(mega: MegaCache, layout: Layout) -> Iterator[tuple[Artifact, Overwriting]]:
    """Yield the effect on each `.best_config` of the mega-cache. Raises MegaCacheInvalid."""
    chosen = [a for a in mega.artifacts if a.is_config and a.loaded and not a.leads_out]
    for artifact, data in mega.contents([a for a in chosen if a.size <= _MAX_CONFIG]):
        there = _content(layout.root / artifact.key)
        yield artifact, "new" if there is None else "same" if there == data else "other"


def _content(path: Path) -> bytes | None:
    with contextlib.suppress(OSError), open_regular(path) as stream:
        return stream.read(_MAX_CONFIG + 1)
    return None
