"""A log searched for the questions in it: by markers, however long it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from backend.disk.safe import open_regular
from rocm_tui.ingest.asked import aiter, hipblaslt, moe, tunableop
from rocm_tui.ingest.asked.ask import Asked, Marker, Said

MARKERS: tuple[Marker, ...] = (
    *aiter.MARKERS,
    *moe.MARKERS,
    *tunableop.MARKERS,
    *hipblaslt.MARKERS,
)
"""A new tuner is one file in this folder and one line here."""
_STRETCH = 8 << 20
"""Bytes read at a time."""
BEGINNING = 64 << 20
"""Bytes: a server misses most while it warms up."""
_LONGEST = 4 << 10
"""Bytes of a line that are looked at, from its marker on and back to where that begins."""
_KNOWN = 1 << 13
"""Texts of a marker whose meaning is remembered: a server says the same a million times."""


def asked_in(path: Path, asked: Asked, limit: int | None = None) -> None:
    """Add what the file says, of its first `limit` bytes or a little less. Raises OSError."""
    known: Known = [{} for _ in MARKERS]
    with open_regular(path, follow=True) as stream:
        data, start = b"", 0
        while piece := stream.read(_STRETCH):
            if limit is not None and stream.tell() > limit:
                break
            data += piece
            stop = data.rfind(b"\n") + 1
            if stop <= start and len(data) > _STRETCH:  # a line of megabytes
                stop = len(data) - _LONGEST
            if stop > start:
                _search(data, start, stop, asked, known)
                # A line without end is read on with what may belong to its next words.
                whole = data[stop - 1 : stop] == b"\n"
                low = stop if whole else max(0, stop - _LONGEST)
                data, start = data[low:], stop - low
        _search(data, start, len(data), asked, known)


Known = list[dict[bytes, Said | None]]
"""By marker: what a text was found to mean."""


def _search(data: bytes, start: int, stop: int, asked: Asked, known: Known) -> None:
    """What begins from `start` to `stop`; the bytes around that tell what belongs to it."""
    for marker, meanings in zip(MARKERS, known, strict=True):
        for at in _places(data, start, stop, marker.word):
            text = _text(data, at, marker)
            said = None if text is None else _meaning(marker, text, meanings)
            if said is not None:
                asked.add(said)
    for at in _places(data, start, stop, tunableop.NAMELESS):
        if not data.startswith(b" for ", at + len(tunableop.NAMELESS)):
            asked.nameless[tunableop.TUNER] += 1
    for word in hipblaslt.NAMELESS:
        for _ in _places(data, start, stop, word):
            asked.nameless[hipblaslt.TUNER] += 1


def _places(data: bytes, start: int, stop: int, word: bytes) -> Iterator[int]:
    """The last one first: CPython searches backwards for several bytes several times as fast."""
    at = data.rfind(word, start, stop + len(word) - 1)
    while at >= 0:
        yield at
        at = data.rfind(word, start, at)


def _text(data: bytes, at: int, marker: Marker) -> bytes | None:
    """The line from where it begins for this marker; None where it does not."""
    start = at
    if marker.begins:
        low = max(0, at - _LONGEST)
        start = data.rfind(marker.begins, max(low, data.rfind(b"\n", low, at)), at)
        if start < 0:
            return None
    end = data.find(b"\n", at, at + _LONGEST)
    return data[start : end if end >= 0 else at + _LONGEST]


def _meaning(marker: Marker, text: bytes, meanings: dict[bytes, Said | None]) -> Said | None:
    if text in meanings:
        return meanings[text]
    if len(meanings) >= _KNOWN:
        meanings.clear()
    said = meanings[text] = marker.read(text.decode("utf-8", "replace").strip())
    return said
