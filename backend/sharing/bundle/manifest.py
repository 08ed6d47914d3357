"""The first member of a bundle: what it was made with, and what follows. A stranger wrote it."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from backend.errors import BundleInvalid
from backend.sharing.bundle.parts import order, part_of
from backend.sharing.share import Machine, Moment, Name, Text
from backend.wire.codec import WireError, loads, read, to_json

FORMAT = "rocm-tui bundle"
VERSION = 1
NAME = "manifest.json"
MAX_BYTES = 64 << 20
MAX_MEMBERS = 200_000
MAX_SIZE = (8 << 30) - 1
"""Of one member: what the size in a tar header can say."""


def _is_format(text: str) -> str:
    return "" if text == FORMAT else f"is not {FORMAT!r}; `rocm-tui bundle` writes such files"


def _is_version(number: int) -> str:
    return "" if number == VERSION else f"is not {VERSION}; update rocm-tui"


def _is_digest(text: str) -> str:
    return "" if re.fullmatch(r"[0-9a-f]{64}", text) else "is no SHA-256"


def _is_member(text: str) -> str:
    return "" if part_of(text) else "is no name of a file that a bundle holds"


def _is_size(number: int) -> str:
    return "" if 0 <= number <= MAX_SIZE else f"is no number from 0 to {MAX_SIZE}"


@dataclass(frozen=True, slots=True)
class Member:
    """`name` is one of `parts.PARTS`; `size` in bytes; `sha256` in hexadecimal digits."""

    name: Annotated[str, _is_member]
    size: Annotated[int, _is_size]
    sha256: Annotated[str, _is_digest]


@dataclass(frozen=True, slots=True)
class Box:
    """What compiled code depends on. `torch_key` is PyTorch's own digest of its source, `python`
    the tag `cp311`, `cpu` the instruction set with its `flags`: C++ kernels are built for the very
    CPU that built them. `driver` is the GPU's."""

    machine: Machine = field(default_factory=Machine)
    torch_key: Name | None = None
    python: Name | None = None
    cpu: Name | None = None
    flags: tuple[Name, ...] = ()
    driver: Name | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """`when` is that of the newest file in it, Unix seconds, so that the same files give the same
    bundle; `pins` are the ids of those in it."""

    box: Box
    by: Text
    when: Moment
    pins: tuple[Name, ...]
    members: tuple[Member, ...]

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)


@dataclass(frozen=True, slots=True)
class _Document:
    format: Annotated[str, _is_format]
    version: Annotated[int, _is_version]
    box: Box
    by: Text
    when: Moment
    pins: tuple[Name, ...]
    members: tuple[Member, ...]


def manifest_text(manifest: Manifest) -> bytes:
    document = {"format": FORMAT, "version": VERSION, **to_json(manifest)}
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Raises BundleInvalid."""
    try:
        document = read(_Document, loads(data))
    except WireError as error:
        raise BundleInvalid(f"its manifest: {error}") from error
    if len(document.members) > MAX_MEMBERS:
        raise BundleInvalid(f"its manifest names more than {MAX_MEMBERS} members")
    _check_order([member.name for member in document.members])
    return Manifest(document.box, document.by, document.when, document.pins, document.members)


def _check_order(names: Sequence[str]) -> None:
    places = [order(name) for name in names]
    for before, after in itertools.pairwise(places):
        if before >= after:
            raise BundleInvalid(f"its manifest names {after[1]} twice or out of its order")


def cpu_here() -> tuple[str, tuple[str, ...]]:
    """The instruction set of this CPU, and what it can do beyond that, as Linux names it."""
    flags: tuple[str, ...] = ()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    if found := re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE):
        flags = tuple(sorted(set(found[1].split())))
    return os.uname().machine, flags


def driver_here() -> str | None:
    """Name and version of the GPU's kernel module; None where none tells it."""
    for name in ("amdgpu", "nvidia"):
        try:
            return f"{name} {Path(f'/sys/module/{name}/version').read_text().strip()}"
        except OSError:
            continue
    return None
