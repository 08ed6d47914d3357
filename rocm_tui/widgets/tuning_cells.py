"""One tuning as the cells of the Watch table. Pure functions."""

from __future__ import annotations

from backend.records import Choice, MeasuredChoice, Tuning
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.render.table import Column, Span
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.standing_text import lead_text, versus

COLUMNS = (
    Column("op", "OP", 8, 18, good=13),
    Column("shape", "SHAPE", 16, 34, good=20),
    Column("dtype", "TYPE", 4, 10, drop=5),
    Column("n", "N", 2, 4, drop=8, right=True),
    Column("winner", "WINNER", 14, 36, good=18),
    Column("time", "TIME", 8, 8, right=True),
    Column("error", "±%", 4, 4, drop=10, right=True),
    Column("tflops", "TFLOP/s", 7, 7, drop=7, right=True),
    Column("gain", "GAIN", 5, 6, drop=2, right=True),
    Column("lead", "LEAD", 7, 7, drop=1, right=True),
    Column("pin", "PIN", 4, 8, drop=3),
    Column("age", "AGE", 6, 6, drop=6, right=True),
    Column("rank", "RANK", 4, 4, drop=4, right=True),
)
ABOUT = {
    "op": "what Inductor tuned: mm, bmm, addmm, convolution, ...",
    "shape": "batch×M×N×K of a matrix product, else every operand",
    "dtype": "types of the operands",
    "n": "number of choices tried; 10+: no more are shown",
    "winner": "the choice with the smallest measured time",
    "time": "the winner's time for one call; with a ±, the median of many",
    "error": "95 % interval of that median, if it was measured again (m)",
    "tflops": "throughput of the winner, where the op's FLOPs are known",
    "gain": "ATen's time over the winner's; 1.00× if ATen wins",
    "lead": "over the next; tie, unclear, beaten by another; 3/14: running",
    "pin": "● active ○ unproven ↻ drifted ✕ orphaned ◌ shadowed; #2: place",
    "age": "since it was tuned or first seen here",
    "rank": "process of a distributed job, shown if any is known",
}
PIN_MARK = {"active": "●", "unproven": "○", "drifted": "↻", "orphaned": "✕", "shadowed": "◌"}
PIN_STYLE = {
    "active": "accent",
    "unproven": "warn",
    "drifted": "warn",
    "orphaned": "bad",
    "shadowed": "warn",
}


def cells(row: Row, now: float) -> dict[str, Span]:
    """The text and style of every column."""
    tuning = row.tuning
    best = stats.winner(tuning)
    again = stats.measured(tuning, best)
    counted = tuning.num_choices is not None
    ms = stats.time_ms(tuning, best)
    live = "dim" if tuning.state == "running" else ""
    rank = "" if tuning.rank is None else str(tuning.rank)
    return {
        "op": (plain(tuning.op), "strong"),
        "shape": (plain(fmt.shapes(tuning)) or fmt.NONE, ""),
        "dtype": (plain(stats.dtype_of(tuning)) or fmt.NONE, "dim"),
        "n": (f"{stats.tried(tuning)}{'' if counted else '+'}", "dim"),
        "winner": (_winner(tuning), live if best else "dim"),
        "time": (fmt.duration(ms), live),
        "error": (error(again) if again else "", "dim"),
        "tflops": (fmt.throughput(stats.tflops(tuning, ms)), "dim"),
        "gain": _gain(tuning),
        "lead": _lead(tuning),
        "pin": pin_cell(row),
        "age": (fmt.age(row.when, now), "dim"),
        "rank": (rank, "dim"),
    }


def _winner(tuning: Tuning) -> str:
    best, chosen = stats.winner(tuning), stats.chosen(tuning)
    if best is not None:
        return plain(best.label)
    return plain(chosen.description) if chosen else fmt.NONE


def wins_clearly(tuning: Tuning) -> bool:
    """Whether the winner may be shown as one: finished, and out of the tie band."""
    return tuning.state == "done" and stats.tied(tuning) is False


def pinned_choice(row: Row) -> tuple[int, Choice] | None:
    """The choice that the row's pin asks for and its place, counted from 1; None if it was not
    offered or is unknown."""
    if row.pin is None:
        return None
    for place, choice in enumerate(row.tuning.choices, start=1):
        if choice.hash == row.pin.pin.hash and choice.offered:
            return place, choice
    return None


def pin_cell(row: Row) -> Span:
    if row.pin is None:
        return "", ""
    found = pinned_choice(row)
    mark, style = PIN_MARK[row.pin.state], PIN_STYLE[row.pin.state]
    return (f"{mark} #{found[0]}" if found else mark), style


def _gain(tuning: Tuning) -> Span:
    gain = stats.gain(tuning)
    if gain is None or tuning.state == "running":
        return fmt.NONE, "dim"
    best, rival = stats.winner(tuning), stats.aten(tuning)
    if best is None or rival is None or best is rival:
        return fmt.factor(gain), "dim"
    clear = versus(tuning, best, rival) == "clear"
    return fmt.factor(gain), "good" if clear else "dim"


def _lead(tuning: Tuning) -> Span:
    if tuning.state == "running":
        total = stats.total(tuning) or "?"
        return f"{tuning.timed}/{total}", "accent"
    if tuning.state == "cut":
        return "cut", "dim"
    found = stats.standing(tuning)
    style = "" if found == "clear" else "warn" if found == "slower" else "dim"
    return lead_text(tuning), style


def error(told: MeasuredChoice) -> str:
    """Half the 95 % interval of a measured median, in percent of it."""
    half = (told.high - told.low) / 2 / told.ms * 100 if told.ms else 0.0
    return f"{half:.1f}" if half < 10 else f"{half:.0f}"
