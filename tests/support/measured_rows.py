"""Rows of a tuning that was measured, with each verdict."""

from __future__ import annotations

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.tuning import Tuning
from rocm_tui.session.model import Row


def told(
    hash_: str, ratio: float, verdict: Verdict, error: float = 0.004, base: float = 2.0
) -> MeasuredChoice:
    ms, wide = base * ratio, 0.0 if ratio == 1.0 else error
    low, high = ratio * (1 - wide), ratio * (1 + wide)
    return MeasuredChoice(
        hash_, ms, ms * (1 - error), ms * (1 + error), 0.02, 40, ratio, low, high, verdict
    )


def row(*measured: MeasuredChoice, trouble: tuple[str, ...] = ()) -> Row:
    names = ("mm-aten", "triton_mm-aa", "triton_mm-bb")
    choices = tuple(Choice(hash=name, ms=2.0 + at / 20) for at, name in enumerate(names))
    again = Measurement(
        "mm", "key", "highest", 1.8e9, measured, rounds=40, seconds=12.0, trouble=trouble
    )
    tuning = Tuning("mm", ((8, 8), (8, 8)), choices=choices, measured=again)
    return Row("k", "abc", 1, tuning)


WON = row(told("mm-aten", 1.0, "faster"), told("triton_mm-aa", 1.03, "slower"))
TIED = row(told("mm-aten", 1.0, "tied"), told("triton_mm-aa", 1.003, "tied"))
UNCLEAR = row(told("mm-aten", 1.0, "unclear"), told("triton_mm-aa", 1.01, "unclear", 0.05))
BEATEN = row(
    told("triton_mm-bb", 1.0, "faster"),
    told("mm-aten", 1.031, "slower"),
    trouble=("the clock fell by 9 % meanwhile",),
)
