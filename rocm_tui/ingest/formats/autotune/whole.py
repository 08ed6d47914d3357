"""Tunings of whole tables, made many at a time, column by column: their choices stay columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import inf
from operator import attrgetter
from sys import intern
from typing import Any

from backend.model.tuning import Tuning
from rocm_tui.ingest.formats.autotune.grammar import Row
from rocm_tui.ingest.formats.autotune.tables import Block
from rocm_tui.ingest.packed import (
    CHOICES,
    TUNINGS,
    Column,
    PackedTuning,
    TuningColumns,
    told,
    values,
)

_MS = attrgetter("ms")


def tunings(blocks: Sequence[Block]) -> list[Tuning]:
    """What each block's `tuning` is, of blocks that are not open any more."""
    if not all(map(_is_plain, blocks)):
        return [block.tuning(open_=False) for block in blocks]
    rows = [sorted(block.rows, key=_MS) for block in blocks]
    spent = [block.footer[:3] for block in blocks if block.footer]
    packed_in = TuningColumns(
        _choices(list(chain.from_iterable(rows))),
        list(map(len, rows)),
        told(zip(*spent, strict=True)),
    )
    in_choices, in_seconds = packed_in.fields(len(blocks))
    columns: dict[str, Any] = {
        "op": [block.header.op for block in blocks],
        "shapes": [block.header.shapes for block in blocks],
        "strides": [block.known_strides for block in blocks],
        "dtypes": [block.dtypes or () for block in blocks],
        "choices": in_choices,
        "num_choices": [block.num_choices for block in blocks],
        "seconds": in_seconds,
        "rank": [block.origin.rank for block in blocks],
        "when": [block.header.when for block in blocks],
        "sources": [block.sources for block in blocks],
    }
    filled = TUNINGS.filled({name: (False, column) for name, column in columns.items()})
    return TUNINGS.things(len(blocks), values(filled), PackedTuning)


def _is_plain(block: Block) -> bool:
    """Whether each of its rows has a time, and it has an end."""
    if block.footer is None or block.header.quoted:
        return False
    return all(row.ms != inf for row in block.rows)


def _choices(rows: Sequence[Row]) -> list[Column]:
    columns: dict[str, Sequence[Any]] = {
        "name": [row.name or None for row in rows],
        "ms": [row.ms for row in rows],
        "description": [intern(row.description) for row in rows],
    }
    every = told(columns.values())
    return CHOICES.filled(dict(zip(columns, every, strict=True)))
