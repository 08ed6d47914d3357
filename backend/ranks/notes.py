"""What stands on the notes of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from backend.wire.codec import WireError, dumps, loads, read, to_json


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of the job: `process` is its identity (backend/processes/identity.py), `device`
    what its choices depend on: only ranks that agree in it take choices from each other."""

    rank: int
    host: str
    process: str
    device: str


@dataclass(frozen=True, slots=True)
class Claim:
    """This rank is about to choose."""

    by: Rank


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice of a problem: its hash and name, and the milliseconds of each choice that the
    rank knew when it chose, by hash. The hashes are those on device 0, whichever device a rank has:
    so they name the same kernels on all devices of a kind."""

    by: Rank
    op: str
    hash: str
    name: str
    when: float
    timings: Mapping[str, float] = field(default_factory=dict)


T = TypeVar("T", Rank, Claim, Decision)


def to_note(value: Rank | Claim | Decision) -> bytes:
    return dumps(to_json(value)).encode()


def of_note(kind: type[T], note: bytes | None) -> T | None:
    """None where there is none, or it is not what it should be."""
    if note is None:
        return None
    try:
        return read(kind, loads(note))
    except WireError:
        return None
