"""The choices of one tuning: the lines of `show`, and those of the screen's pane with its bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from backend.model.choice import Choice, MeasuredChoice
from backend.model.inductor_kernel import is_inductors
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render import plot as drawing
from rocm_tui.render.measured import ABOUT, output_style, output_text
from rocm_tui.render.table import Column, Field, Line, Slot, Span, fit, text_table
from rocm_tui.render.tunings import error
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.model import Row

APART = "apart: under the same key, but no program is known that offers it beside the others"

RESOURCES: tuple[Column, ...] = (
    Column("VGPR", "VGPR", 4, 9, drop=5, right=True, about="vector registers a thread"),
    Column("AGPR", "AGPR", right=True, about="those of them that accumulate"),
    Column("SGPR", "SGPR", right=True, about="scalar registers a wave"),
    Column("LDS", "LDS", 6, 9, drop=6, right=True, about="local memory a block"),
    Column("SCRATCH", "SCRATCH", right=True, about="memory a thread for what has no register"),
    Column("SPILLS", "SPILLS", 6, 9, drop=8, right=True, about="spilled registers"),
    Column("WAVES", "WAVES", 5, 9, drop=7, right=True, about="waves a SIMD of as many as it holds"),
    Column("LIMIT", "LIMIT", right=True, about="what keeps it from holding more"),
)
"""What a kernel takes of its GPU."""
_BY_KEY = {column.key: column for column in RESOURCES}
_TAKEN = tuple(_BY_KEY[key] for key in ("VGPR", "LDS", "WAVES", "SPILLS"))
"""What the pane has room for."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a kernel takes: a text for each of RESOURCES, none if unknown, and a sentence of all."""

    cells: Mapping[str, str]
    sentence: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice of a row and its place, counted from 1."""

    row: Row
    place: int

    @property
    def choice(self) -> Choice:
        return self.row.tuning.choices[self.place - 1]

    @property
    def pinned(self) -> bool:
        return _pinned(self.row, self.choice)


def _versus_best(line: _Choice) -> str:
    """Of the numbers of when it was tuned, whatever was measured since."""
    choice, best = line.choice, stats.winner(line.row.tuning)
    if not choice.offered:
        return "apart"
    if choice.failed:
        return "not timed" if choice.skipped else "failed"
    if not best or not best.ms or choice.ms is None:
        return ""
    over = fmt.signed(choice.ms / best.ms - 1, fmt.rounding(choice.ms, best.ms))
    return fmt.once("best" if choice is best else over, _sign(choice, best))


def _sign(*choices: Choice) -> str:
    """Return the mark of times that were taken once, and of numbers made of them."""
    return fmt.SUSPECT if any(choice.shared for choice in choices) else fmt.ONCE


def _quantiles(line: _Choice) -> str:
    quantiles = line.choice.quantiles
    return "" if quantiles is None else " – ".join(map(fmt.duration, quantiles))


def _step(line: _Choice) -> str:
    """`#9, XBLOCK 64 to 32`: the place of the other one, and the change."""
    choice = line.choice
    places = enumerate(line.row.tuning.choices, start=1)
    place = next((f"#{n}, " for n, c in places if c.hash and c.hash == choice.origin), "")
    return plain(f"{place}{choice.moved}") if choice.moved else ""


def _maker(line: _Choice) -> str:
    entry = line.row.tuning.entry
    return plain(entry.tuner) if entry else provider(line.choice) or "?"


def _configuration(line: _Choice) -> str:
    """Or why it failed."""
    choice = line.choice
    config = ", ".join(f"{key}={value}" for key, value in choice.config.items())
    moved = f"; by descent, {choice.moved}" if choice.moved else ""
    return plain(choice.reason or config + moved or choice.description)


SHOWN: tuple[Field[_Choice], ...] = (
    Field(
        "place", "#", right=True, about="its place, the fastest first; `#2` names the second",
        text=lambda line: (
            f"#{line.place}" if line.choice.ms is not None and line.choice.offered else ""
        ),
    ),
    Field(
        "name", "CHOICE", least=16, good=36, about="its name; * if it is pinned",
        text=lambda line: plain(f"{'* ' if line.pinned else ''}{line.choice.label}"),
    ),
    Field(
        "time", "TIME", right=True,
        text=lambda line: fmt.once(
            fmt.duration(stats.single_ms(line.row.tuning, line.choice)), _sign(line.choice)
        ),
        about="of one call when it was tuned; ~ taken once, ? perhaps on another device",
    ),
    Field(
        "extra", "VS BEST", right=True, text=_versus_best,
        about="how much longer than the best a call took when it was tuned",
    ),
    Field("from", "FROM", text=_maker, about="the backend of Inductor that made it"),
    Field(
        "hash", "HASH", least=12, drop=6, text=lambda line: plain(line.choice.typed),
        about="under which Inductor caches its time",
    ),
    Field(
        "config", "CONFIGURATION", least=20, drop=5, text=_configuration,
        about="of the kernel, or why it failed",
    ),
)  # fmt: skip


QUANTILES: Field[_Choice] = Field(
    "quantiles", "P20 – P80", right=True, text=_quantiles,
    about="between which lay six of ten times that Triton took",
)  # fmt: skip
STEP: Field[_Choice] = Field(
    "step", "MADE FROM", least=12, drop=7, text=_step,
    about="of which config coordinate descent made it, and what it changed",
)  # fmt: skip
_SPREAD = 3
"""Its place, behind the time."""
_STEP = 4
"""That of the step."""


def choices_text(row: Row, only: Choice | None = None) -> str:
    """What `show` prints of every choice, or `only` of that one."""
    lines = [
        _Choice(row, place)
        for place, choice in enumerate(row.tuning.choices, start=1)
        if only is None or choice is only
    ]
    spread = (QUANTILES,) if any(line.choice.quantiles for line in lines) else ()
    steps = (STEP,) if any(line.choice.moved for line in lines) else ()
    fields = (*SHOWN[:_SPREAD], *spread, *SHOWN[_SPREAD:_STEP], *steps, *SHOWN[_STEP:])
    return text_table(fields, lines)


PANE: tuple[Column, ...] = (
    Column("place", "#", 3, 4, right=True, about="its place; ● is pinned, ✓ is marked"),
    Column("bar", "", 6, 24, drop=2, good=18, about="how much slower than the best, to scale"),
    Column("ms", "", 6, 9, right=True),
    Column("error", "±%", 4, 4, drop=3, right=True, about="95 % interval of its median"),
    Column(
        "extra", "VS BEST", 8, 8, drop=1, right=True,
        about="how much longer than the best a call takes; ~ by single times",
    ),
    Column(
        "verdict", "VERDICT", 7, 8,
        about="fastest, tied, slower, or unclear: more rounds may decide",
    ),
    Column("output", "OUTPUT", 6, 12, drop=4, good=9, about=ABOUT),
    Column("name", "CHOICE", 14, 44, good=20, about="its name, the best first"),
    Column("from", "FROM", 6, 8, drop=9, about="the backend of Inductor that made it"),
)  # fmt: skip
"""What the screen's pane has; after these what kernels take, and the configuration that differs."""
_WIDE = 100
NOTHING: Mapping[str, Footprint] = {}
NONE_MARKED: AbstractSet[str] = frozenset()


def choice_slots(
    row: Row, width: int, taken: Mapping[str, Footprint] = NOTHING
) -> tuple[Slot, ...]:
    """Columns of the list of choices: the keys of the configuration that differ come last.

    `taken` says by hash what a kernel takes; it has columns where that is known of one. Where
    choices were measured, there are their intervals and verdicts.
    """
    choices = row.tuning.choices
    keys = stats.differing_keys(choices)
    wants = {column.key: column.least for column in PANE}
    if row.tuning.measured is None:
        for key in ("error", "verdict", *(("ms",) if is_inductors(row.tuning.op) else ())):
            del wants[key]
    outputs = _outputs(row.tuning)
    wants["output"] = max((len(text) for text in outputs), default=0)
    if not any(outputs):
        del wants["output"]
    wants["bar"] = 24 if width >= _WIDE else 10
    wants["name"] = max((len(choice.label) for choice in choices), default=0)
    if any(footprint.cells for footprint in taken.values()):
        for column in _TAKEN:
            texts = [footprint.cells.get(column.key, "?") for footprint in taken.values()]
            wants[column.key] = max(len(text) for text in texts)
    config = []
    for at, key in enumerate(keys):
        longest = max((len(c.config.get(key, "")) for c in choices), default=1)
        size = max(len(key), longest)
        config.append(Column(f"config {key}", key, min(size, 24), 24, drop=10 + at, right=True))
        wants[f"config {key}"] = size
    return fit((*PANE, *_TAKEN, *config), wants, width)


def _outputs(tuning: Tuning) -> list[str]:
    measured = tuning.measured.choices if tuning.measured else ()
    return [output_text(choice.output) for choice in measured]


def choice_heading(row: Row, slots: Sequence[Slot]) -> Line:
    unit, _ = fmt.time_unit(_best_ms(row.tuning))
    line: list[Span] = [(" ", "head")]
    for slot in slots:
        text = unit if slot.column.key == "ms" else plain(slot.column.title)
        if slot.column.key == "bar":
            text = _scale(row.tuning, slot.width).title
        line += [(slot.cell(text), "head"), ("  ", "head")]
    return tuple(line)


def choice_line(
    row: Row,
    index: int,
    slots: Sequence[Slot],
    taken: Mapping[str, Footprint] = NOTHING,
    marked: AbstractSet[str] = NONE_MARKED,
) -> Line:
    """Return one choice: place, bar, time, verdict, name, configuration or reason."""
    tuning, choice = row.tuning, row.tuning.choices[index]
    size = next((slot.width for slot in slots if slot.column.key == "bar"), 0)
    measured = stats.measured(tuning, choice)
    if measured is None:
        texts = _single_number(tuning, choice, size)
    else:
        texts = _measured(tuning, measured, size)
    texts["place"] = _place(row, index, choice, marked)
    texts["from"] = (provider(choice) or "", "dim")
    name = "strong" if _pinned(row, choice) else texts["ms"][1]
    texts["name"] = (plain(choice.label), "dim" if choice.failed else name)
    kernel = taken.get(choice.hash or "")
    for column in _TAKEN:
        texts[column.key] = (kernel.cells.get(column.key, "?") if kernel else "", "dim")
    line: list[Span] = []
    for slot in slots:
        key = slot.column.key
        if key in texts:
            text, style = texts[key]
            line += [(slot.cell(text), style), ("  ", "")]
        elif not choice.failed:
            text = plain(choice.config.get(slot.column.title, ""))
            line += [(slot.cell(text), "dim"), ("  ", "")]
    if choice.failed:
        line.append((plain(choice.reason or "no reason known"), "dim"))
    return tuple(line)


def name_of(choice: Choice) -> str:
    """What a choice is marked by: its hash, else its name."""
    return choice.hash or choice.label


def _pinned(row: Row, choice: Choice) -> bool:
    return row.pin is not None and choice.hash in row.pin.pin.hashes


def _place(row: Row, index: int, choice: Choice, marked: AbstractSet[str]) -> Span:
    pinned, chosen = _pinned(row, choice), name_of(choice) in marked
    place = index + 1 if choice.offered else fmt.NONE
    text = f"{'●' if pinned else ''}{'✓' if chosen else ''}{place}"
    return text, "accent" if pinned or chosen else "dim"


def _single_number(tuning: Tuning, choice: Choice, size: int) -> dict[str, Span]:
    """What one number can say: a thin bar of how much longer it takes, and no winner."""
    ratio, sign, measured = _ratio(tuning, choice), _sign(choice), tuning.measured is not None
    rounding = fmt.rounding(choice.ms, _base_ms(tuning))
    if ratio is None:
        bar, extra = _state(tuning, choice), ""
    else:
        bar = drawing.single(_scale(tuning, max(size, 6)), ratio), "dim"
        best = ratio == 1.0 and not measured
        extra = "" if best else fmt.once(fmt.signed(ratio - 1.0, rounding), sign)
    near = not measured and ratio is not None and ratio <= 1 + stats.TIE_BAND
    return {
        **dict.fromkeys(("error", "verdict", "output"), ("", "dim")),
        "bar": bar,
        "ms": (
            fmt.once(_time(tuning, stats.single_ms(tuning, choice)), sign),
            "" if near else "dim",
        ),
        "extra": (extra, "dim"),
    }


def _base_ms(tuning: Tuning) -> float | None:
    """Return the single number that others are compared with: the measured best's, if any was."""
    if tuning.measured is None:
        best = stats.winner(tuning)
        return best.ms if best else None
    hash = tuning.measured.choices[0].hash if tuning.measured.choices else None
    return next((c.ms for c in stats.ranked(tuning) if c.hash == hash), None)


def _ratio(tuning: Tuning, choice: Choice) -> float | None:
    """Return the single number of a choice over the base; None where it does not count."""
    base = _base_ms(tuning) if choice.offered and not choice.failed else None
    return choice.ms / base if base and choice.ms is not None else None


def _measured(tuning: Tuning, measured: MeasuredChoice, size: int) -> dict[str, Span]:
    """Time, interval and verdict against the measured best."""
    style = verdict_style(tuning, measured)
    return {
        "bar": (drawing.interval(_scale(tuning, max(size, 6)), measured), style or "dim"),
        "ms": (_time(tuning, measured.ms), style),
        "error": (error(measured), "dim"),
        "extra": ("" if measured.ratio == 1.0 else fmt.signed(measured.ratio - 1.0), "dim"),
        "verdict": (verdict_word(measured), style),
        "output": (output_text(measured.output), output_style(measured.output)),
    }


def _scale(tuning: Tuning, width: int) -> drawing.Scale:
    if tuning.measured is None:
        timed = stats.ranked(tuning)
        middle = _ratio(tuning, timed[len(timed) // 2]) if timed else None
        return drawing.scale_of_single(middle or 1.0, width)
    one_number = [c for c in tuning.choices if tuning.measured.of(c.hash) is None]
    ratios = [ratio for c in one_number if (ratio := _ratio(tuning, c)) is not None]
    return drawing.scale_of(tuning.measured.choices, width, min(ratios, default=1.0))


def verdict_word(measured: MeasuredChoice) -> str:
    """`fastest` for the measured best where it is, else the verdict's own word."""
    return "fastest" if measured.verdict == "faster" else measured.verdict


def verdict_style(tuning: Tuning, measured: MeasuredChoice) -> str:
    """Only a choice that is known to be faster than all is shown as a winner."""
    best = stats.winner(tuning)
    in_use = best is not None and measured.hash == best.hash
    if measured.verdict == "faster":
        return "good" if not in_use or stats.wins_clearly(tuning) else ""
    if measured.verdict == "slower":
        return "warn" if in_use else "dim"
    return ""


def _best_ms(tuning: Tuning) -> float | None:
    """The time that decides the unit of all."""
    return stats.time_ms(tuning, stats.winner(tuning))


def _time(tuning: Tuning, ms: float | None) -> str:
    _, scale = fmt.time_unit(_best_ms(tuning))
    return fmt.in_unit(ms, scale) if ms is not None else ""


def _state(tuning: Tuning, choice: Choice) -> Span:
    """Return the word in place of a bar."""
    if choice.failed:
        return ("not timed", "warn") if choice.skipped else ("failed", "bad")
    if not choice.offered:
        return "apart", "dim"
    return ("waiting" if tuning.state == "running" else "not timed"), "dim"
