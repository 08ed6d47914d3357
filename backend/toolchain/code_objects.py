"""Find AMD GPU code objects in a file, and the notes in each.

A code object is an ELF file; a library holds several in bundles (Clang's offload bundle format:
magic, count, then offset, size and triple of each).
Read here and not by a library: files may be damaged, and a note needs little of ELF.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_ELF = b"\x7fELF"
_EM_AMDGPU = 224
_MOST_ENTRIES = 4096
"""Entries of all bundles of a file that are looked at."""
_MOST_HEADERS = 256
_HEADER = 56
"""Bytes of a program header in a 64-bit ELF file."""
_PT_NOTE = 4


def code_objects(content: bytes) -> Iterator[bytes]:
    """The code objects in a file: itself, or those in its bundles. Damaged bundles give none.

    No more bytes than the file has: bundles that overlap are damaged.
    """
    if content[:4] == _ELF and content[18:20] == _EM_AMDGPU.to_bytes(2, "little"):
        yield content
        return
    left, entries = len(content), _MOST_ENTRIES
    at = content.find(_BUNDLE)
    while at >= 0 and entries > 0:
        for code_object in _bundled(content, at, entries):
            entries -= 1
            left -= len(code_object)
            if left < 0:
                return
            if code_object:
                yield code_object
        at = content.find(_BUNDLE, at + len(_BUNDLE))


def _bundled(content: bytes, start: int, most: int) -> Iterator[bytes]:
    """Each entry of a bundle; empty for one that is no code object of an AMD GPU."""
    at = start + len(_BUNDLE)
    try:
        (count,) = struct.unpack_from("<Q", content, at)
        at += 8
        for _ in range(min(count, most)):
            offset, size, length = struct.unpack_from("<QQQ", content, at)
            triple = content[at + 24 : at + 24 + length]
            at += 24 + length
            begin = start + offset
            fits = triple.startswith(b"hip") and content[begin : begin + 4] == _ELF
            yield content[begin : begin + size] if fits else b""
    except (struct.error, OverflowError):
        return


def notes(elf: bytes, owner: bytes) -> Iterator[bytes]:
    """What the notes of `owner` say, from the program headers of a 64-bit little-endian ELF file.

    Raises ValueError where the file ends too early, or its headers are none that a linker writes.
    """
    try:
        (headers,) = struct.unpack_from("<Q", elf, 32)
        size, count = struct.unpack_from("<HH", elf, 54)
        if count and (size != _HEADER or count > _MOST_HEADERS):
            raise ValueError("its program headers are none of a code object")
        left = len(elf)
        for i in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, headers + i * size)
            if kind != _PT_NOTE:
                continue
            segment = elf[offset : offset + length]
            left -= len(segment)
            if left < 0:
                raise ValueError("its segments overlap")
            yield from _notes_in(segment, owner)
    except (struct.error, OverflowError) as error:
        raise ValueError("the file ends too early") from error


def _notes_in(segment: bytes, owner: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(segment):
        name_size, size, _ = struct.unpack_from("<III", segment, at)
        name_at = at + 12
        content_at = name_at + _aligned(name_size)
        if segment[name_at : name_at + name_size].rstrip(b"\0") == owner:
            yield segment[content_at : content_at + size]
        at = content_at + _aligned(size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3
