"""Many files read once, by two processes where there are cores: what is read is all that counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain

from rocm_tui.halves import Aside
from rocm_tui.ingest.follow.gathered import Gathered
from rocm_tui.ingest.follow.packing import packed, unpacked
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.records import Record, is_entry

LEAST = 8 << 20
"""Bytes of files that are shared: a tenth of a second of reading."""
_OWN = 0.55
"""The share of the process that asks: the other one has to tell what it found."""

Followers = Sequence[Tailer | Gathered]


def read_all(followers: Followers) -> list[Record]:
    """What files tell to their ends, in their order. Never raises."""
    at = _half(followers)
    aside = Aside.begin(partial(_packed, followers[at:])) if at < len(followers) else None
    if aside is None:
        return read_each(followers)
    try:
        records = read_each(followers[:at])
    finally:
        told = aside.told()
    if told is None:
        return records + read_each(followers[at:])
    rest = unpacked(told)[0]
    if any(map(is_entry, records)) and any(map(is_entry, rest)):
        from rocm_tui.ingest.formats.table_entries import within_room  # few sources are tables

        return within_room(chain(records, rest))
    return records + rest


def read_each(followers: Followers) -> list[Record]:
    """The same, by this process alone."""
    return [record for each in followers for record in (*each.poll(), *each.close())]


def _packed(followers: Followers) -> bytes:
    return packed((read_each(followers), None))


def _half(followers: Followers) -> int:
    """How many of them this process reads: all, where it is not worth while to share them."""
    sums = list(accumulate(map(_size, followers)))
    if not sums or sums[-1] < LEAST:
        return len(followers)
    return next(at for at, read in enumerate(sums, start=1) if read >= _OWN * sums[-1])


def _size(follower: Tailer | Gathered) -> int:
    """Bytes of its file; of a folder, which tells nothing of what is in it, few."""
    try:
        return os.path.getsize(follower.path)  # noqa: PTH202
    except OSError:
        return 0
