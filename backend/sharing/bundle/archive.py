"""The file itself, written and read as a stream, and never believed.

Each header that is read must be, byte by byte, the one that we write for that member of the
manifest. So there is no link, device, owner, second name or other size to think about.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from backend.disk.safe import open_regular
from backend.errors import BundleInvalid, brief
from backend.sharing.bundle import manifest as manifests
from backend.sharing.bundle.manifest import Manifest, Member, manifest_text, parse_manifest

BLOCK = 512
STRETCH = 1 << 20
LEVEL = 6
RATIO = 300
"""No real cache becomes so much smaller; zeros become a thousand times."""
_MOST_NAME = 100
_SIZE = slice(124, 135)
_END = bytes(2 * BLOCK)


def header(name: str, size: int) -> bytes:
    """What stands before a member. Python's own module writes other bytes in other versions."""
    data = name.encode("ascii")
    if len(data) <= _MOST_NAME:
        return _block(data, size, b"0")
    long = data + b"\0"
    before = _block(b"././@LongLink", len(long), b"L") + long + padding(len(long))
    return before + _block(data[:_MOST_NAME], size, b"0")


def _block(name: bytes, size: int, kind: bytes) -> bytes:
    """A header as GNU tar writes it: name, mode, owner, group, size, time, checksum, type."""
    ids = b"0000000\0" * 2
    head = name.ljust(100, b"\0") + b"0000644\0" + ids + b"%011o\0" % size + b"%011o\0" % 0
    rest = kind + bytes(100) + b"ustar  \0" + bytes(247)
    checksum = sum(head) + sum(rest) + 8 * ord(" ")
    return head + b"%06o\0 " % checksum + rest


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def write(
    stream: io.RawIOBase, manifest: Manifest, content: Callable[[Member], Iterator[bytes]]
) -> None:
    """Write a bundle: the same bytes for the same manifest and content."""
    with gzip.GzipFile("", "wb", LEVEL, cast("BinaryIO", stream), mtime=0) as packed:
        text = manifest_text(manifest)
        packed.write(header(manifests.NAME, len(text)) + text + padding(len(text)))
        for member in manifest.members:
            packed.write(header(member.name, member.size))
            for part in content(member):
                packed.write(part)
            packed.write(padding(member.size))
        packed.write(_END)


class Arrived:
    """A bundle that is read from its beginning to its end, once. Methods raise BundleInvalid."""

    def __init__(self, path: Path) -> None:
        self._name = brief(str(path), 300)
        try:
            self._file = open_regular(path, follow=True)
        except OSError as error:
            raise self.invalid(error.strerror or str(error)) from error
        self.size = os.fstat(self._file.fileno()).st_size
        self._raw = _Hashed(self._file)
        self._packed = gzip.GzipFile(fileobj=io.BufferedReader(self._raw, STRETCH))
        try:
            self.manifest = self._manifest()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Arrived:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def invalid(self, why: str) -> BundleInvalid:
        return BundleInvalid(f"{self._name} is no bundle to take in: {why}")

    def members(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        """Each member with its content, which was read and right once both are at their end.
        What is not taken of it is read, too."""
        for member in self.manifest.members:
            self._expect(member.name, member.size)
            parts = self._content(member)
            yield member, parts
            for _ in parts:
                pass
        if self._take(len(_END)) != _END or self._read(1):
            raise self.invalid("more follows than its manifest names")

    def sha256(self) -> str:
        """Of the whole file, all of which was read."""
        while self._raw.read(STRETCH):
            pass
        return self._raw.digest.hexdigest()

    def _manifest(self) -> Manifest:
        first = self._take(BLOCK)
        try:
            size = int(first[_SIZE], 8)
        except ValueError as error:
            raise self.invalid("it does not begin as one") from error
        if not 0 <= size <= manifests.MAX_BYTES or first != header(manifests.NAME, size):
            raise self.invalid("it does not begin as one")
        data = self._take(size + len(padding(size)))
        try:
            found = parse_manifest(data[:size])
        except BundleInvalid as error:
            raise self.invalid(str(error)) from error
        if found.size > max(self.size, 1 << 16) * RATIO:
            raise self.invalid(f"it claims to hold {found.size >> 20} MiB, which is far too much")
        return found

    def _expect(self, name: str, size: int) -> None:
        wanted = header(name, size)
        if self._take(len(wanted)) != wanted:
            raise self.invalid(f"what stands in the place of {name} is not it")

    def _content(self, member: Member) -> Iterator[bytes]:
        digest, left = hashlib.sha256(), member.size
        while left:
            part = self._take(min(left, STRETCH))
            digest.update(part)
            left -= len(part)
            yield part
        pad = padding(member.size)
        if self._take(len(pad)) != pad or digest.hexdigest() != member.sha256:
            raise self.invalid(f"{member.name} is not what its manifest says: it was changed")

    def _take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        parts = []
        while size:
            part = self._read(min(size, STRETCH))
            if not part:
                raise self.invalid("it ends too early")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return self._packed.read(size)
        except EOFError as error:
            raise self.invalid("it ends too early") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self.invalid("it is not compressed as one, or it was changed") from error
        except OSError as error:
            raise self.invalid(error.strerror or str(error)) from error


class _Hashed(io.RawIOBase):
    """Hashes what is read of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self.digest.update(data)
        buffer[: len(data)] = data
        return len(data)
