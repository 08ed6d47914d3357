"""Tunings as `ls` lists them, as Watch shows them, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite

from backend.counted import counted
from backend.model.choice import Choice, MeasuredChoice
from backend.model.inductor_kernel import is_inductors
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render import table
from rocm_tui.render.pins import PIN_SIGNS, proved, state_on, state_text
from rocm_tui.render.shares import SHARES, SIGNS
from rocm_tui.render.table import Column, Field, Line, Span, short_choice, short_op, short_sizes
from rocm_tui.session import grouping, stats
from rocm_tui.session import in_use as used
from rocm_tui.session import numbers as fmt
from rocm_tui.session.grouping import Folded, GroupTotals, Heading, sums
from rocm_tui.session.in_use import device_name, in_use, pinned_choice, used_by_all
from rocm_tui.session.model import Row

_DEVICE: Field[Row] = Field(
    "device", "DEVICE", 6, 22, drop=4, good=8, style="dim", text=lambda row: plain(row.device),
    about="where it was tuned; shown if several are known",
)  # fmt: skip
_DEVICES: Field[Row] = Field(
    "devices", "DEVICES", 6, 12, drop=3, style="dim", text=lambda row: plain(device_name(row)),
    about="of this box that tuned it; the numbers are the first one's",
)  # fmt: skip
_LAYOUT: Field[Row] = Field(
    "layout", "LAYOUT", 6, 6, drop=3, style="dim",
    text=lambda row: row.layout,
    about="N by rows, T by columns, of both factors; + with gaps",
)  # fmt: skip
_RANK: Field[Row] = Field(
    "rank", "RANK", 4, 4, drop=4, right=True, style="dim", text=grouping.rank_of,
    about="process of a distributed job; shown if several are known",
)  # fmt: skip
_SOURCE: Field[Row] = Field(
    "source", "SOURCE", 8, 28, drop=5, style="dim", text=lambda row: source_text(row, {}),
    about="session (host and pid) or file; shown if there are several",
)  # fmt: skip
_TUNER: Field[Row] = Field(
    "tuner", "TUNER", 8, 12, drop=2, style="accent",
    text=lambda row: plain(grouping.tuner_of(row)) or "inductor",
    about="whose table has it; shown if not all are Inductor's",
)  # fmt: skip
FACETS: tuple[Field[Row], ...] = (_TUNER, _DEVICE, _DEVICES, _LAYOUT, _RANK, _SOURCE)
FACET_KEYS = frozenset(field.key for field in FACETS)


def source_text(row: Row, names: Mapping[str, str]) -> str:
    """Return the source by its short name in `names`, else in full."""
    source = grouping.source_of(row)
    return plain(names.get(source, source))


def facet_fields(
    rows: Sequence[Row],
    differing: Callable[[Sequence[Row]], tuple[str, ...]] = grouping.differing,
    named: Callable[[Sequence[Row]], Mapping[str, str]] | None = None,
) -> tuple[dict[str, Field[Row]], Mapping[str, str]]:
    """The columns that differ among these rows, by key; and short names of their sources.
    `differing` and `named` may remember what they said of rows."""
    keys = differing(rows)
    names = (named or grouping.SourceNames().of)(rows) if "source" in keys else {}
    return {field.key: field for field in FACETS if field.key in keys}, names


UNDECIDED: Mapping[str, str] = {"tied": "tie", "unclear": "unclear"}


def lead_text(tuning: Tuning, choice: Choice | None = None, mark: str = fmt.ONCE) -> str:
    """How far the next lies behind the fastest, or another choice: `1.8 %`, `tie`, `unclear`,
    `#2 wins` (a measurement found that choice to be faster), `–`.

    `~1.8 %` is of times that were taken once, and `~behind` says that another is ahead by these.
    """
    own = choice or stats.winner(tuning)
    standing = stats.standing(tuning, own)
    if standing is None:
        return fmt.NONE
    if standing == "slower":
        better = stats.faster(tuning, own)
        return f"#{better[0]} wins" if better else "beaten"
    if standing in UNDECIDED:
        return UNDECIDED[standing]
    nearest = stats.nearest(tuning, own)
    error = stats.rounding(tuning, own, nearest)
    text = fmt.percent(stats.lead_over(tuning, own, nearest), error)
    text = "behind" if standing == "behind" else text
    return fmt.once(text, mark) if stats.once(tuning, own, nearest) else text


def time_text(tuning: Tuning, choice: Choice | None, mark: str = fmt.ONCE) -> str:
    """The time of a choice: `569.6 µs` if measured, `~569.6 µs` if it was taken once."""
    text = fmt.duration(stats.time_ms(tuning, choice))
    return fmt.once(text, mark) if stats.once(tuning, choice) else text


def benchmark_text(tuning: Tuning, choice: Choice | None) -> str:
    """Return what Inductor's benchmark gave one of its own kernels, which `stats.single_ms` does
    not count; empty for other choices."""
    if choice is None or choice.ms is None or not is_inductors(tuning.op):
        return ""
    took = f"{fmt.duration(choice.ms)} in Inductor's benchmark"
    return f"{took}, mostly the cost of a launch: not a time of the kernel"


def _sizes(row: Row) -> str:
    return plain(stats.sizes_text(row.tuning))


def _dtype(row: Row) -> str:
    return plain(stats.dtype_of(row.tuning))


def _winner(row: Row) -> str:
    """Return the pinned choice, else the fastest; from a source without times, the choice that it
    names. Where the devices of a box use several, the cell says so."""
    if row.awaits_pin:
        return fmt.AWAITED
    if row.devices:
        return plain(used_by_all(row))
    own = in_use(row)
    if own is not None:
        return plain(used.label(row, own))
    chosen = stats.chosen(row.tuning)
    return plain(chosen.description if chosen.hash is None else chosen.label) if chosen else ""


def _live(row: Row) -> str:
    return "dim" if row.tuning.state == "running" else ""


def _error(row: Row) -> str:
    measured = stats.measured(row.tuning, in_use(row))
    return error(measured) if measured else ""


def error(measured: MeasuredChoice) -> str:
    """Return half the 95 % interval of a measured median, in percent of the median."""
    half = (measured.high - measured.low) / 2 / measured.ms * 100 if measured.ms else inf
    if half >= 1000 or not isfinite(half):
        return fmt.NONE if not isfinite(half) else ">999"
    return f"{half:.1f}" if half < 10 else f"{half:.0f}"


def _mark(row: Row, *choices: Choice | None) -> str:
    """Return the sign before values that single times of `choices` give. The time of a choice that
    is the same on all devices of a box may be another device's."""
    doubtful = row.suspect or any(choice is not None and choice.shared for choice in choices)
    return fmt.SUSPECT if doubtful else fmt.ONCE


def _time_style(row: Row) -> str:
    suspicious = row.suspect and stats.once(row.tuning, in_use(row))
    return "warn" if suspicious else _live(row)


def _rate(row: Row) -> str:
    own = in_use(row)
    rate = stats.tflops(row.tuning, used.time_ms(row))
    text = fmt.flops(rate, stats.rounding(row.tuning, own))
    return fmt.once(text, _mark(row, own)) if stats.once(row.tuning, own) else text


def _versus_aten(row: Row) -> str:
    """Return the speedup over ATen, `tie` or `unclear`; `~1.25×` is of times taken once."""
    tuning = row.tuning
    best = in_use(row) if tuning.state != "running" else None
    if best is None:
        return fmt.NONE
    if provider(best) == "aten":
        return "is ATen"
    rival = stats.aten(tuning)
    gain = None if rival is None else stats.ratio(tuning, rival, best)
    if rival is None or gain is None:
        return fmt.NONE
    text = fmt.factor(gain, stats.rounding(tuning, best, rival))
    text = fmt.once(text, _mark(row, best, rival)) if stats.once(tuning, best, rival) else text
    return UNDECIDED.get(stats.versus(tuning, best, rival) or "", text)


def _gain_style(row: Row) -> str:
    best, rival = in_use(row), stats.aten(row.tuning)
    if row.tuning.state == "running" or best is None or rival is None or best is rival:
        return "dim"
    return "good" if stats.versus(row.tuning, best, rival) == "clear" else "dim"


def _lead(row: Row) -> str:
    """Return the lead; of a running tuning its progress, `cut` where its end was never read."""
    tuning = row.tuning
    if tuning.state == "running":
        return f"{tuning.timed}/{stats.total(tuning) or '?'}"
    if row.awaits_pin:
        return fmt.NONE
    own = in_use(row)
    mark = _mark(row, own, stats.nearest(tuning, own))
    return "cut" if tuning.state == "cut" else lead_text(tuning, own, mark)


def _lead_style(row: Row) -> str:
    if row.tuning.state == "running":
        return "accent"
    standing = None if row.tuning.state == "cut" else stats.standing(row.tuning, in_use(row))
    return "" if standing == "clear" else "warn" if standing == "slower" else "dim"


def _pin(row: Row) -> str:
    """The mark of its state, the pinned choice's place, and whether that was seen in code."""
    if row.pin is None:
        return fmt.AWAITED if row.awaits_pin else ""
    mark, place = PIN_SIGNS[row.pin.state].mark, pinned_choice(row)
    seen, _, age = proved(row.pin).partition(" ")
    parts = (mark, f"#{place[0]}" if place else "", seen, age.replace(" ", "\xa0"))
    return " ".join(part for part in parts if part)


def _pin_state(row: Row) -> str:
    if row.pin is None:
        return ""
    here = row.is_device
    state = state_on(row.pin, row.tuning.device_index) if here else state_text(row.pin)
    return " ".join(filter(None, (state, proved(row.pin))))


ID: Field[Row] = Field(
    "id", "ID", text=lambda row: row.id if row.occurrence == 1 else f"{row.id} ({row.occurrence})",
    about="of op, inputs and precision; (2): tuned twice",
)  # fmt: skip
OP: Field[Row] = Field(
    "op", "OP", 8, 28, whole=True, style="strong",
    text=lambda row: plain(row.tuning.op), short=lambda row: short_op(row.tuning.op),
    about="what was tuned: mm, bmm, addmm, convolution, ...",
)  # fmt: skip
SHAPE: Field[Row] = Field(
    "shape", "SHAPE", 15, 34, good=20,
    text=lambda row: fmt.shorten(_sizes(row), 40),
    short=lambda row: short_sizes(_sizes(row)) or fmt.NONE,
    about="batch×M×N×K of a product, else each operand; a kernel's sizes",
)  # fmt: skip
TYPE: Field[Row] = Field(
    "dtype", "TYPE", 4, 10, drop=5, name="dtype", style="dim",
    text=_dtype, short=lambda row: _dtype(row) or fmt.NONE,
    about="types of the operands",
)  # fmt: skip
TUNINGS: tuple[Field[Row], ...] = (
    OP,
    SHAPE,
    TYPE,
    Field(
        "n", "N", 2, 4, drop=8, right=True, name="choices", style="dim",
        text=lambda row: stats.tried_text(row.tuning),
        short=lambda row: f"{stats.tried(row.tuning)}{'+' * (row.tuning.num_choices is None)}",
        about="number of choices tried; 10+: no more are shown",
    ),
    Field(
        "winner", "IN USE", 12, 48, good=18, name="in use",
        text=lambda row: fmt.shorten(_winner(row) or fmt.NONE, 36),
        short=lambda row: short_choice(_winner(row)) or fmt.NONE,
        style=lambda row: _live(row) if in_use(row) else "dim",
        about="taken by programs: pinned, else fastest; differs (2) by device",
    ),
    Field(
        "time", "TIME", 9, 9, right=True, style=_time_style,
        text=lambda row: time_text(row.tuning, in_use(row), _mark(row, in_use(row))),
        about="of one call; ~ taken once; ? suspect; else measured",
    ),
    Field(
        "error", "±%", 4, 4, drop=10, right=True, text=_error, style="dim",
        about="95 % interval of that median, if it was measured (m)",
    ),
    Field(
        "tflops", "FLOP/s", 7, 7, drop=7, right=True, text=_rate, style="dim",
        about="its throughput where FLOPs are known: 812 G, 1.23 T",
    ),
    Field(
        "gain", "VS ATEN", 7, 7, drop=1, right=True, name="vs ATen",
        text=_versus_aten, style=_gain_style,
        about="ATen's time over that of what is in use; ~ of single times",
    ),
    Field(
        "lead", "LEAD", 8, 9, drop=2, right=True, text=_lead, style=_lead_style,
        about="over the next; tie, unclear; #2 wins; 3/14: runs; ▶ a job", facts=True,
    ),
    Field(
        "pin", "PIN", 4, 13, drop=1, good=6, text=_pin_state, short=_pin,
        style=lambda row: PIN_SIGNS[row.pin.state].style if row.pin else "",
        about="state of the pin, place of its choice, ✓ when it was verified", facts=True,
    ),
)  # fmt: skip
_LISTED = ("id", "op", "shape", "dtype", "n", "winner", "time", "gain", "lead", "pin")
_STATE = 8
"""Cells of the longest state of a pin, which the screen shows as a sign."""
LIST: tuple[Field[Row], ...] = tuple(
    replace(f, least=_STATE) if key == "pin" else f
    for key in _LISTED
    for f in (ID, *TUNINGS)
    if f.key == key
)
"""What `ls` prints."""
DEVICE_LINES: tuple[Field[Row], ...] = (
    Field("index", "DEVICE", text=device_name),
    *(f for key in ("n", "winner", "time", "gain", "lead", "pin") for f in LIST if f.key == key),
)
"""What `show` prints of each device that tuned a problem."""
_NO_NAMES: Mapping[str, str] = {}
_BLANK = f" {fmt.NONE}"
"""What the cell of a column says where it has no value."""
_AGE = Column("age", "AGE", 6, 6, drop=6, right=True, about="since it was tuned or first seen here")
_SHARES: tuple[Field[Row], ...] = table.fields_of(SHARES, lambda row: row.share)
_BEFORE = TUNINGS.index(TYPE) + 1
_ALL = (*TUNINGS[:_BEFORE], *FACETS, *TUNINGS[_BEFORE:], *_SHARES)
COLUMNS: tuple[Column, ...] = (*_ALL, _AGE)
"""What Watch shows."""
PROBLEM: tuple[Field[Row], ...] = (
    replace(ID, text=lambda row: row.id),
    replace(OP, least=6, most=16, whole=False),
    replace(SHAPE, least=12, text=_sizes),
    TYPE,
)
"""The first columns of each table with a line a problem; the screen leaves the id out."""


_BY_KEY: Mapping[str, Field[Row]] = {field.key: field for field in _ALL}
_KEYS = tuple(column.key for column in COLUMNS)


def cells(
    row: Row, now: float, names: Mapping[str, str] = _NO_NAMES, keys: Iterable[str] = _KEYS
) -> dict[str, Span]:
    """The text and style of columns of Watch, all or those of `keys`; `names` are of sources."""
    shown = {key: field.cell(row) for key in keys if (field := _BY_KEY.get(key))}
    if row.is_device:  # below the row of its problem
        texts = dict.fromkeys(("shape", "dtype", "layout", "devices"), "")
        texts["op"] = device_label(row)
        shown |= {key: (text, "dim") for key, text in texts.items() if key in shown}
    if "source" in shown:
        shown["source"] = source_text(row, names), "dim"
    if _AGE.key in keys:
        shown[_AGE.key] = fmt.age(row.when, now), "dim"
    return shown


class ColumnsWithValues:
    """The columns in which some row has a value: a column of dashes is not worth its cells. Only
    rows that came or went are looked at, unless a column may have lost its last value."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._keys: frozenset[str] = frozenset()

    def of(self, rows: Sequence[Row]) -> frozenset[str]:
        """Return their keys; `rows` are not changed afterwards."""
        gone, came = grouping.difference(self._rows, rows)
        self._rows = rows
        doubtful = {key for key in self._keys if any(_has_value(row, key) for row in gone)}
        kept = self._keys - doubtful
        kept |= {key for key in _KEYS if key not in kept and any(_has_value(r, key) for r in came)}
        kept |= {key for key in doubtful - kept if any(_has_value(row, key) for row in rows)}
        self._keys = frozenset(kept)
        return self._keys


def _has_value(row: Row, key: str) -> bool:
    if key == _AGE.key:
        return row.when is not None
    return bool(_BY_KEY[key].cell(row)[0].strip(_BLANK))


def device_label(row: Row) -> str:
    """Return the text of a device's row below its tuning: `└ cuda:0`."""
    return f"└ {device_name(row)}"


def tunings_text(rows: Iterable[Row]) -> str:
    """What `ls` prints of tunings; shares where any is known, and what differs among them."""
    rows = list(rows)
    differing, names = facet_fields(rows)
    if "source" in differing:
        differing["source"] = replace(_SOURCE, text=lambda row: source_text(row, names))
    at = LIST.index(TYPE) + 1
    shares = _SHARES if any(row.share for row in rows) else ()
    fields = (*LIST[:at], *differing.values(), *LIST[at:], *shares)
    return table.text_table(fields, rows)


_UNKNOWN = {"device": "device not known", "session": "session not known", "op": "op not known"}


def heading_line(heading: Heading, by: str, names: Mapping[str, str]) -> Line:
    """`▾ mm  12 tunings · 3 pinned · 2 of 4 measured faster than ATen · tuning took 14 s`; `names`
    are those of sources."""
    name = plain(names.get(heading.group, heading.group)) or _UNKNOWN[by]
    spans: list[Span] = [("▾ " if heading.open else "▸ ", "accent"), (name, "strong")]
    facts = _facts(sums(heading.rows), heading)
    return (*spans, (f"  {facts[0]}", "dim"), *((f" · {fact}", "dim") for fact in facts[1:]))


def _facts(known: GroupTotals, heading: Heading) -> list[str]:
    facts = [counted(known.tunings, "tuning")] if known.tunings or not known.entries else []
    facts += [counted(known.entries, "entry of a table", "entries of tables")] * bool(known.entries)
    facts += [f"{known.running:,} running"] if known.running else []
    facts += [f"{known.pinned:,} pinned"] if known.pinned else []
    if known.measured:
        facts.append(f"{known.faster:,} of {known.measured:,} measured faster than ATen")
    facts += [f"tuning took {fmt.seconds(known.seconds)}"] if known.seconds else []
    share = f"{SIGNS[known.basis]}{fmt.percent(known.share)} of the graphs' time"
    return [*facts, share] if known.share else facts


def folded_line(folded: Folded) -> Line:
    """`32 with a single choice · f shows them`."""
    return ((f"▸ {len(folded.rows)} with a single choice · f shows them", "dim"),)
