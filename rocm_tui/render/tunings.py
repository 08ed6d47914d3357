"""Tunings as `ls` lists them, as Watch shows them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from backend.model.choice import Choice, MeasuredChoice
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render import table
from rocm_tui.render.measured import measured_json, measurement_json
from rocm_tui.render.pins import PIN_SIGNS, pinned_choice
from rocm_tui.render.shares import SHARES, share_json
from rocm_tui.render.table import Column, Field, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.model import Row

_WORDS = {"tied": "tie", "unclear": "unclear", "slower": "beaten"}


def lead_text(tuning: Tuning, mark: str = fmt.ONCE) -> str:
    """How far the second lies behind: `1.8 %`, `tie`, `unclear`, `beaten` (it is faster), `–`.

    `~1.8 %` is of times that were taken once.
    """
    standing = stats.standing(tuning)
    if standing is None:
        return fmt.NONE
    rivals = stats.winner(tuning), stats.nearest(tuning)
    text = fmt.percent(stats.lead(tuning))
    return _WORDS.get(standing) or (fmt.once(text, mark) if stats.once(tuning, *rivals) else text)


def time_text(tuning: Tuning, choice: Choice | None, mark: str = fmt.ONCE) -> str:
    """The time of a choice: `569.6 µs` if measured, `~569.6 µs` if it was taken once."""
    text = fmt.duration(stats.time_ms(tuning, choice))
    return fmt.once(text, mark) if stats.once(tuning, choice) else text


def _name(row: Row) -> str:
    return row.id if row.occurrence == 1 else f"{row.id} ({row.occurrence})"


def _sizes(row: Row) -> str:
    return plain(stats.sizes_text(row.tuning))


def _dtype(row: Row) -> str:
    return plain(stats.dtype_of(row.tuning))


def _count(row: Row) -> str:
    return f"{stats.tried(row.tuning)}{'' if row.tuning.num_choices is not None else '+'}"


def _winner(row: Row) -> str:
    """The fastest; of a source that tells no time, what it took."""
    best, chosen = stats.winner(row.tuning), stats.chosen(row.tuning)
    if best is not None:
        return plain(best.label)
    return plain(chosen.description) if chosen else ""


def _ms(row: Row) -> float | None:
    return stats.time_ms(row.tuning, stats.winner(row.tuning))


def _live(row: Row) -> str:
    return "dim" if row.tuning.state == "running" else ""


def _error(row: Row) -> str:
    measured = stats.measured(row.tuning, stats.winner(row.tuning))
    return error(measured) if measured else ""


def error(measured: MeasuredChoice) -> str:
    """Half the 95 % interval of a measured median, in percent of it."""
    half = (measured.high - measured.low) / 2 / measured.ms * 100 if measured.ms else 0.0
    return f"{half:.1f}" if half < 10 else f"{half:.0f}"


def _mark(row: Row) -> str:
    """What stands before what is made of a time that was taken once."""
    return fmt.SUSPECT if row.suspect else fmt.ONCE


def _time(row: Row) -> str:
    return time_text(row.tuning, stats.winner(row.tuning), _mark(row))


def _time_style(row: Row) -> str:
    suspicious = row.suspect and stats.once(row.tuning, stats.winner(row.tuning))
    return "warn" if suspicious else _live(row)


def _rate(row: Row) -> str:
    text = fmt.throughput(stats.tflops(row.tuning, _ms(row)))
    return fmt.once(text, _mark(row)) if stats.once(row.tuning, stats.winner(row.tuning)) else text


def _versus_aten(row: Row) -> str:
    """A gain inside the tie band says `tie`, not a number; `~1.25×` is of times taken once."""
    tuning = row.tuning
    best, rival, gain = stats.winner(tuning), stats.aten(tuning), stats.gain(tuning)
    if tuning.state == "running":
        return fmt.NONE
    if best is not None and provider(best) == "aten":
        return "is ATen"
    if best is None or rival is None or gain is None:
        return fmt.NONE
    words = {"tied": "tie", "unclear": "unclear"}
    text = fmt.factor(gain)
    text = fmt.once(text, _mark(row)) if stats.once(tuning, best, rival) else text
    return words.get(stats.versus(tuning, best, rival) or "", text)


def _gain_style(row: Row) -> str:
    best, rival = stats.winner(row.tuning), stats.aten(row.tuning)
    if row.tuning.state == "running" or best is None or rival is None or best is rival:
        return "dim"
    return "good" if stats.versus(row.tuning, best, rival) == "clear" else "dim"


def _lead(row: Row) -> str:
    """Of one that runs how far it is; of one whose end was never read nothing is known."""
    tuning = row.tuning
    if tuning.state == "running":
        return f"{tuning.timed}/{stats.total(tuning) or '?'}"
    return "cut" if tuning.state == "cut" else lead_text(tuning, _mark(row))


def _lead_style(row: Row) -> str:
    if row.tuning.state == "running":
        return "accent"
    standing = None if row.tuning.state == "cut" else stats.standing(row.tuning)
    return "" if standing == "clear" else "warn" if standing == "slower" else "dim"


def _pin(row: Row) -> str:
    """The mark of its state, and the pinned choice's place."""
    if row.pin is None:
        return ""
    mark, place = PIN_SIGNS[row.pin.state].mark, pinned_choice(row)
    return f"{mark} #{place[0]}" if place else mark


ID: Field[Row] = Field(
    "id",
    "ID",
    text=_name,
    about="of op, inputs and precision; (2): tuned twice",
)
OP: Field[Row] = Field(
    "op", "OP", 8, 18, good=13, text=lambda row: plain(row.tuning.op), style="strong",
    about="what Inductor tuned: mm, bmm, addmm, convolution, ...",
)  # fmt: skip
SHAPE: Field[Row] = Field(
    "shape", "SHAPE", 16, 34, good=20,
    text=lambda row: fmt.shorten(_sizes(row), 40), short=lambda row: _sizes(row) or fmt.NONE,
    about="batch×M×N×K of a matrix product, else every operand",
)  # fmt: skip
TYPE: Field[Row] = Field(
    "dtype", "TYPE", 4, 10, drop=5, name="dtype", style="dim",
    text=_dtype, short=lambda row: _dtype(row) or fmt.NONE,
    about="types of the operands",
)  # fmt: skip
_PIN_MARKS = " ".join(f"{sign.mark} {state}" for state, sign in PIN_SIGNS.items())
TUNINGS: tuple[Field[Row], ...] = (
    OP,
    SHAPE,
    TYPE,
    Field(
        "n", "N", 2, 4, drop=8, right=True, name="choices", style="dim",
        text=lambda row: stats.tried_text(row.tuning), short=_count,
        about="number of choices tried; 10+: no more are shown",
    ),
    Field(
        "winner", "FASTEST", 14, 36, good=18,
        text=lambda row: fmt.shorten(_winner(row), 36) or row.tuning.state,
        short=lambda row: _winner(row) or fmt.NONE,
        style=lambda row: _live(row) if stats.winner(row.tuning) else "dim",
        about="the choice with the smallest time, which Inductor takes",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, text=_time, style=_time_style,
        about="of one call; ~ taken once; ? suspect (M); else measured",
    ),
    Field(
        "error", "±%", 4, 4, drop=10, right=True, text=_error, style="dim",
        about="95 % interval of that median, if it was measured (m)",
    ),
    Field(
        "tflops", "TFLOP/s", 7, 7, drop=7, right=True, text=_rate, style="dim",
        about="its throughput, where the op's FLOPs are known",
    ),
    Field(
        "gain", "VS ATEN", 7, 7, drop=2, right=True, name="vs ATen",
        text=_versus_aten, style=_gain_style,
        about="ATen's time over the fastest's, or a tie; ~ of single times",
    ),
    Field(
        "lead", "LEAD", 7, 7, drop=1, right=True, text=_lead, style=_lead_style,
        about="over the next; tie, unclear, beaten; 3/14: running; ~ once",
    ),
    Field(
        "pin", "PIN", 4, 8, drop=3, text=lambda row: row.pin_state or "", short=_pin,
        style=lambda row: PIN_SIGNS[row.pin.state].style if row.pin else "",
        about=f"{_PIN_MARKS}; #2: place",
    ),
)  # fmt: skip
_LISTED = ("id", "op", "shape", "dtype", "n", "winner", "time", "gain", "lead", "pin")
LIST: tuple[Field[Row], ...] = tuple(f for key in _LISTED for f in (ID, *TUNINGS) if f.key == key)
"""What `ls` prints."""
_AGE = Column("age", "AGE", 6, 6, drop=6, right=True, about="since it was tuned or first seen here")
_RANK: Field[Row] = Field(
    "rank", "RANK", 4, 4, drop=4, right=True, style="dim",
    text=lambda row: "" if row.tuning.rank is None else str(row.tuning.rank),
    about="process of a distributed job, shown if any is known",
)  # fmt: skip
_SHARES: tuple[Field[Row], ...] = table.fields_of(SHARES, lambda row: row.share)
COLUMNS: tuple[Column, ...] = (*TUNINGS, *_SHARES, _AGE, _RANK)
"""What Watch shows."""
PROBLEM: tuple[Field[Row], ...] = (
    replace(ID, text=lambda row: row.id),
    replace(OP, least=6, most=16, good=0),
    replace(SHAPE, least=12, text=_sizes),
    TYPE,
)
"""What stands first wherever a table has a line a problem; the screen leaves the id out."""


def cells(row: Row, now: float) -> dict[str, Span]:
    """The text and style of every column of Watch."""
    age = fmt.age(row.when, now), "dim"
    return {**table.cells((*TUNINGS, *_SHARES, _RANK), row), _AGE.key: age}


def tunings_text(rows: Iterable[Row]) -> str:
    """What `ls` prints of tunings; shares where any is known."""
    rows = list(rows)
    shares = _SHARES if any(row.share for row in rows) else ()
    return table.text_table((*LIST, *shares), rows)


# As JSON.


def row_problem_json(row: Row) -> dict[str, Any]:
    """What a tuning is of, in short."""
    return {
        "id": row.id,
        "op": row.tuning.op,
        "shapes": [list(shape) for shape in row.tuning.shapes],
        "dtypes": list(row.tuning.dtypes),
    }


def row_json(row: Row) -> dict[str, Any]:
    """One tuning; times in milliseconds and seconds, unknown values are null.

    Written out, as that of its choices: there may be millions of them.
    """
    tuning = row.tuning
    return {
        "id": row.id,
        "occurrence": row.occurrence,
        "op": tuning.op,
        "shapes": [list(shape) for shape in tuning.shapes],
        "strides": [list(strides) for strides in tuning.strides],
        "dtypes": list(tuning.dtypes),
        "device": tuning.device,
        "precision": tuning.precision,
        "inputs_key": tuning.inputs_key,
        "state": tuning.state,
        "num_choices": None if tuning.num_choices is None else stats.tried(tuning),
        "choices": [
            choice_json(choice, stats.measured(tuning, choice)) for choice in tuning.choices
        ],
        "measurement": measurement_json(tuning.measured) if tuning.measured else None,
        "suspect": row.suspect,
        "seconds": {
            "benchmark": tuning.seconds.benchmark,
            "precompile": tuning.seconds.precompile,
        },
        "selected": tuning.selected,
        "selected_by": tuning.selected_by,
        "rank": tuning.rank,
        "session": tuning.session,
        "when": tuning.when,
        "pinned": row.pin.pin.hash if row.pin else None,
        "pin_state": row.pin_state,
        **share_json(row.share),
        "sources": list(tuning.sources),
    }


def choice_json(choice: Choice, measured: MeasuredChoice | None = None) -> dict[str, Any]:
    """One choice; `measured` is what repeated measurement says of it."""
    return {
        "name": choice.name,
        "hash": choice.hash,
        "ms": choice.ms,
        "config": choice.config,
        "failed": choice.failed,
        "offered": choice.offered,
        "reason": choice.reason,
        "measured": None if measured is None else measured_json(measured),
    }
