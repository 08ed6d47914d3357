"""Whether another choice would compute the same bits as the one in use. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.model.choice import Choice, Output
from rocm_tui.session import stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row

Bits = Literal["same", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class Change:
    """What later compiles would compute with another choice: `after`, as far as that was measured,
    and the choice in use `now`."""

    bits: Bits
    now: Choice | None
    after: Output | None = None


def output_change(row: Row, choice: Choice) -> Change:
    """The same bits are proved only by choices that give theirs in every run."""
    now = in_use(row)
    ours, theirs = stats.measured(row.tuning, choice), stats.measured(row.tuning, now)
    after, before = ours.output if ours else None, theirs.output if theirs else None
    if now is not None and now.hash == choice.hash and choice.hash is not None:
        unsteady = after is not None and not after.steady
        return Change("other" if unsteady else "same", now, after)
    if before is None or after is None:
        return Change("unknown", now, after)
    same = before.group == after.group and before.steady and after.steady
    return Change("same" if same else "other", now, after)
