"""Untuned lists as questions: a tuned table without its answers."""

from __future__ import annotations

from backend.tables.model import Table
from rocm_tui.ingest.asked import aiter, tunableop
from rocm_tui.ingest.asked.ask import Answer, Ask, Asked, Said

_ENOUGH = 1000
"""Entries without a solution that tell a list from a table."""


def is_list(table: Table) -> bool:
    """Whether none of its first entries has a solution."""
    if table.tuner not in (aiter.TUNER, tunableop.TUNER) or not len(table.entries):
        return False
    return not any(entry.solution for entry in table.entries[:_ENOUGH])


def asked_by(table: Table, asked: Asked) -> None:
    """Add its entries. PyTorch writes what it missed; AITER's list only says what to tune."""
    missed = table.tuner == tunableop.TUNER
    answer = Answer.MISSED if missed else Answer.UNTOLD
    way = "Default" if missed else ""
    for entry in table.entries:
        ask = Ask(table.tuner, entry.op, entry.key, entry.device)
        asked.add(Said(ask, answer, way, device=entry.device))
