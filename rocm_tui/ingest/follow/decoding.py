"""Files whose bytes are no UTF-8 as they lie: compressed with gzip, in UTF-16, or after a hole.

They are read in stretches like any other log: nothing is unpacked as a whole, and no more than
`MAX_UNPACKED` bytes of a file.
"""

from __future__ import annotations

import codecs
import errno
import os
import zlib
from collections.abc import Iterator
from typing import Protocol

from rocm_tui.ingest.formats.reader import NotReadable

MAX_UNPACKED = 1 << 30
"""Bytes. A few MB of gzip can be made of any number."""
_STRETCH = 1 << 20
_BITE = 4 << 10
"""Bytes unpacked at a time: of those that hold damage nothing is read."""
_GZIP = b"\x1f\x8b\x08"
_HOLE = b"\0\0"


class Decoder(Protocol):
    """From a file's bytes to the text's, as UTF-8. `what` names the encoding."""

    what: str

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes. Raises NotReadable if they make no sense, or are too many."""
        ...


def decoder_of(head: bytes) -> Decoder | None:
    """What reads a file that begins with `head`; None if that is text as it is, or unknown."""
    if head.startswith(_GZIP):
        return _Gzip()
    name = _utf_16(head)
    return _Utf16(name) if name else None


class _Gzip:
    """One member after another, as `cat a.gz b.gz` makes them."""

    what = "gzip"

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._size = 0
        self._ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _BITE):
            yield from self._unpack(data[at : at + _BITE])

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data and not self._ended:
            try:
                text = self._member.decompress(data, _STRETCH)
            except zlib.error as error:
                raise NotReadable("damaged gzip data: only what is before it was read") from error
            data = self._member.unconsumed_tail
            self._size += len(text)
            if self._size > MAX_UNPACKED:
                raise NotReadable(
                    f"more than {MAX_UNPACKED >> 20} MiB when unpacked, and no more is read; "
                    "to read all of it, unpack it first"
                )
            if self._member.eof:
                data = self._member.unused_data
                self._ended = bool(data) and not data.startswith(_GZIP[: len(data)])
                self._member = zlib.decompressobj(31)
            if text:
                yield text


class _Utf16:
    def __init__(self, name: str) -> None:
        self.what = name
        self._decode = codecs.getincrementaldecoder(name)("replace").decode

    def feed(self, data: bytes) -> Iterator[bytes]:
        text = self._decode(data)
        if text:
            yield text.encode("utf-8", "replace")


def _utf_16(head: bytes) -> str:
    """The name of its encoding if `head` is UTF-16: a mark says so, or every other byte is NUL."""
    if head.startswith(codecs.BOM_UTF16_LE) and not head.startswith(codecs.BOM_UTF32_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    pairs = len(head) // 2
    first, second = (head[start : 2 * pairs : 2].count(0) for start in (0, 1))
    if pairs < 8 or max(first, second) < 0.7 * pairs or min(first, second) > 0.02 * pairs:
        return ""
    return "utf-16-le" if second > first else "utf-16-be"


def text_start(fd: int, head: bytes, size: int) -> int:
    """Where a file begins, leaving out a hole: 0 for most.

    Who cuts a log while a program writes it (`: > train.log`) makes one: the program goes on at
    the place where it was, and all before that reads as NUL.
    """
    at = 0
    if head.startswith(_HOLE):
        try:
            at = os.lseek(fd, 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
        while data := os.pread(fd, _STRETCH, at):
            text = data.lstrip(b"\0")
            at += len(data) - len(text)
            if text:
                break
    return at
