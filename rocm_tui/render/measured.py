"""Measurements, and what choices compute: as `measure` and `show` print them, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from backend.counted import counted, noun
from backend.model.choice import Choice, MeasuredChoice, Measurement, Output
from backend.model.inductor_kernel import is_kernel
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.json_output import JsonObject, fill
from rocm_tui.render.table import Field, text_table
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.in_use import output_change
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import why_wrong

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


ABOUT = (
    "choices of one letter gave the same bits; ✗ elements that are further off than rounding "
    "explains; ~ not the same in each run; no bound: nothing says how far off is too far"
)

NO_BOUND = "no bound"


def output_text(output: Output | None) -> str:
    """`A`, `B ✗ 768`, `C ~`, `A no bound`; empty where nobody looked."""
    if output is None:
        return ""
    far = f" ✗ {output.beyond:,}" if output.beyond else "" if output.compared else f" {NO_BOUND}"
    return f"{output.group}{far}{'' if output.steady else ' ~'}"


def output_style(output: Output | None) -> str:
    if output is None or not (output.beyond or not output.steady):
        return "dim"
    return "bad" if output.beyond else "warn"


def output_sentences(name: str, output: Output | None) -> list[str]:
    """What a person should know of the result of `name`, if anything."""
    if output is None:
        return []
    sentences_ = []
    if output.beyond:
        sentences_.append(
            f"{name}: {output.beyond:,} of {counted(output.compared, 'element')} "
            f"{noun(output.beyond, 'is', 'are')} further from the float64 result than rounding "
            "explains, the worst by "
            f"{_excess_text(output.excess)} what is allowed"
        )
    if not output.steady:
        sentences_.append(
            f"{name} is not deterministic: {output.runs - output.same} of "
            f"{counted(output.runs, 'run')} on the same inputs gave other bits than the first"
        )
    return sentences_


def _excess_text(excess: float) -> str:
    if not excess < 1e6:
        return "far more than"
    return f"{excess:,.0f}×" if excess >= 10 else f"{excess:.1f}×"


def output_warning(row: Row, choice: Choice) -> str | None:
    """What a pin of `choice` changes in the results of a model; None where it is not known to."""
    change = output_change(row, choice)
    said = output_sentences(choice.label, change.after)
    if change.bits == "other" and change.now is not None and change.now.hash != choice.hash:
        said.insert(0, f"{choice.label} gives other bits than {change.now.label}, which is in use")
    return plain(f"{'; '.join(said)}.") if said else None


def why_not_bitwise(row: Row, choice: Choice) -> str | None:
    """Why it is not proved that a pin of `choice` leaves every bit as it is; None if it is."""
    change = output_change(row, choice)
    if change.bits == "same":
        return None
    if change.bits == "other":
        return output_warning(row, choice) or f"{plain(choice.label)} gives other bits."
    names = [each.label for each in (change.now, choice) if each is not None]
    return plain(
        f"it is not known whether {' and '.join(names)} give the same bits: rocm-tui measure "
        f"{row.id} {' '.join(names)}"
    )


class OutputJson(JsonObject):
    """What a choice computed, compared with a float64 result."""

    group: str
    runs: int
    same: int
    compared: int
    beyond: int
    excess: float | None
    deterministic: bool
    rounding: str

    @classmethod
    def of(cls, output: Output | None) -> OutputJson | None:
        if output is None:
            return None
        rounding = "beyond" if output.beyond else "within" if output.compared else NO_BOUND
        return fill(cls, output, deterministic=output.steady, rounding=rounding)


class BitsChangeJson(JsonObject):
    """What a pin changes in the bits that later compiles compute."""

    bits: str
    in_use: str | None
    output: OutputJson | None
    warning: str | None
    wrong: str | None

    @classmethod
    def of(cls, row: Row, choice: Choice) -> BitsChangeJson:
        change = output_change(row, choice)
        return cls(
            bits=change.bits,
            in_use=change.now.hash if change.now else None,
            output=OutputJson.of(change.after),
            warning=output_warning(row, choice),
            wrong=why_wrong(row, choice),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A measured choice, or why one could not be measured; `at` counts from the best."""

    label: str
    choice: MeasuredChoice | None
    at: int = 0
    reason: str = ""


def _versus_best(line: _Line) -> str:
    if line.choice is None:
        return ""
    if line.at:
        return fmt.signed(line.choice.ratio - 1)
    return "best" if line.choice.verdict == "faster" else "lowest"


def _ratios(line: _Line) -> str:
    if line.choice is None or not line.at:
        return ""
    return f"{fmt.signed(line.choice.ratio_low - 1)} to {fmt.signed(line.choice.ratio_high - 1)}"


MEASURED: tuple[Field[_Line], ...] = (
    Field(
        "choice", "CHOICE", least=16, text=lambda line: line.label,
        about="the choice that was measured",
    ),
    Field(
        "median", "MEDIAN", right=True,
        text=lambda line: fmt.duration(line.choice.ms if line.choice else None),
        about="of many calls, alternating between the choices",
    ),
    Field(
        "interval", "95 % INTERVAL", right=True,
        text=lambda line: _times(line.choice.low, line.choice.high) if line.choice else "",
        about="where the true median lies, 19 times of 20",
    ),
    Field(
        "spread", "SPREAD", drop=3, right=True,
        text=lambda line: fmt.percent(line.choice.spread) if line.choice else "",
        about="how far single calls lie apart, relative",
    ),
    Field(
        "extra", "VS BEST", right=True, text=_versus_best,
        about="how much longer a call takes than with the lowest median",
    ),
    Field(
        "ratios", "INTERVAL", drop=2, right=True, text=_ratios, about="95 % interval of that"
    ),
    Field(
        "output", "OUTPUT", drop=1, about=ABOUT,
        text=lambda line: output_text(line.choice.output if line.choice else None),
    ),
    Field(
        "verdict", "VERDICT",
        text=lambda line: line.choice.verdict if line.choice else f"failed: {line.reason}",
        about="fastest, tied, slower, or unclear: more rounds may decide",
    ),
)  # fmt: skip


def _lines(tuning: Tuning, measurement: Measurement) -> list[_Line]:
    """Return a line for each choice: the best first, the failed ones last."""
    timed = [
        _Line(label(tuning, choice.hash, choice.name), choice, at)
        for at, choice in enumerate(measurement.choices)
    ]
    failed = [
        _Line(label(tuning, choice.hash, choice.name), None, reason=plain(choice.reason or ""))
        for choice in measurement.failed
    ]
    return timed + failed


def measured_text(tuning: Tuning, measurement: Measurement) -> str:
    """A line a choice."""
    looked = any(choice.output for choice in measurement.choices)
    fields = [field for field in MEASURED if looked or field.key != "output"]
    return text_table(fields, _lines(tuning, measurement))


@dataclass(frozen=True, slots=True)
class _Repeats:
    """A choice with its results in several measurements."""

    label: str
    measured: Sequence[MeasuredChoice]

    @property
    def ends(self) -> tuple[float, float]:
        times = [choice.ms for choice in self.measured]
        return min(times), max(times)

    @property
    def verdicts(self) -> str:
        counts = Counter(choice.verdict for choice in self.measured).most_common()
        return ", ".join(f"{verdict} {times}×" for verdict, times in counts)


REPEATS: tuple[Field[_Repeats], ...] = (
    Field(
        "choice", "CHOICE", least=16, text=lambda line: line.label,
        about="the choice that was measured",
    ),
    Field(
        "least", "LEAST", right=True, text=lambda line: fmt.duration(line.ends[0]),
        about="the smallest of its medians",
    ),
    Field(
        "most", "MOST", right=True, text=lambda line: fmt.duration(line.ends[1]),
        about="the largest of its medians",
    ),
    Field(
        "apart", "APART", right=True,
        text=lambda line: fmt.percent(line.ends[1] / line.ends[0] - 1),
        about="how far these two lie apart, relative",
    ),
    Field(
        "verdicts", "VERDICTS", text=lambda line: line.verdicts,
        about="how often it got which verdict",
    ),
)  # fmt: skip


def repeats_text(tuning: Tuning, measurements: Sequence[Measurement]) -> str:
    """A line a choice, as the last measurement orders them: how far its medians lie apart, and how
    often it got which verdict."""
    lines = [
        _Repeats(
            label(tuning, choice.hash, choice.name),
            [its for m in measurements if (its := m.of(choice.hash)) is not None],
        )
        for choice in measurements[-1].choices
    ]
    return text_table(REPEATS, lines)


def repeat_line(tuning: Tuning, measurement: Measurement, at: int, of: int) -> str:
    """One of several, as it comes: `2 of 3: bmm is the fastest; ...`."""
    failed = [f"{len(measurement.failed)} failed"] if measurement.failed else []
    besides = "; ".join([*failed, *measurement.trouble])
    words = f"{at} of {of}: {standing(tuning, measurement)}"
    return plain(f"{words} ({besides})" if besides else words)


CommandLine = Callable[..., str]
"""Returns the command of rocm-tui with these words; see `actions.commands.ShellCommands.line`."""


def command_line(*words: str) -> str:
    return " ".join(("rocm-tui", *words))


def sentences(
    tuning: Tuning,
    measurement: Measurement,
    id: str,
    pin: PinStatus | None = None,
    line: CommandLine = command_line,
) -> list[str]:
    """Who is faster, what that means for the choice that is in use, what disturbed it."""
    texts = [
        standing(tuning, measurement),
        meaning(tuning, measurement, id, pin, line),
        ", ".join([*conditions(measurement), *exactness(measurement)]),
        machine(measurement),
    ]
    for choice in measurement.choices:
        texts += output_sentences(label(tuning, choice.hash, choice.name), choice.output)
    return [plain(text) for text in (*texts, *measurement.trouble) if text]


def standing(tuning: Tuning, measurement: Measurement) -> str:
    """`with cold caches bmm is the fastest; cpp_X is slower by 0.9 % to 1.8 %`."""
    return f"with {measurement.caches} caches {_standing(tuning, measurement)}"


def _standing(tuning: Tuning, measurement: Measurement) -> str:
    best, *rivals = measurement.choices
    name = label(tuning, best.hash, best.name)
    if not rivals:
        return f"{name} was measured alone: there is nothing to compare it with"
    unclear = [label(tuning, c.hash, c.name) for c in rivals if c.verdict == "unclear"]
    ties = [label(tuning, c.hash, c.name) for c in rivals if c.verdict == "tied"]
    slower = [c for c in rivals if c.verdict == "slower"]
    if unclear:
        text = f"it is unclear whether {name} is faster than {_names(unclear)}"
    elif ties:
        text = f"{name} and {_names(ties)} are tied"
    else:
        text = f"{name} is the fastest"
    if slower:
        next_ = slower[0]
        by = f"by {fmt.percent(next_.ratio_low - 1)} to {fmt.percent(next_.ratio_high - 1)}"
        text += f"; {label(tuning, next_.hash, next_.name)} is slower {by}"
        text += (
            f", {counted(len(slower) - 1, 'more is', 'more are')} slower too"
            if len(slower) > 1
            else ""
        )
    if unclear:
        longer = "--measure-kernels SECONDS" if is_kernel(tuning.op) else "--budget"
        text += f"; a larger {longer} or a quieter machine may decide"
    return text


def meaning(
    tuning: Tuning,
    measurement: Measurement,
    id: str,
    pin: PinStatus | None = None,
    line: CommandLine = command_line,
) -> str:
    """Whether what is in use, pinned or Inductor's own choice, is the right one, and what to do if
    not; may be empty."""
    if pin is not None and pin.state != "orphaned":
        return pinned(tuning, measurement, id, pin, line)
    taken = stats.winner(tuning)
    measured = stats.measured(tuning, taken) if tuning.measured == measurement else None
    if taken is None or measured is None:
        return ""
    from backend.model.inductor_kernel import TRITON  # not before the first screen

    best = measurement.choices[0]
    who = "Triton" if tuning.op == TRITON else "Inductor"
    if measured.verdict == "slower":
        by = fmt.percent(measured.ratio - 1)
        better = pinnable(tuning, best.hash)
        return f"{who} takes {taken.label}, which is {by} slower: {line('pin', id, better)}"
    if measured.verdict == "tied":
        return f"{who} takes {taken.label}, and nothing measured is faster"
    if measured.verdict == "faster":
        return f"{who} takes {taken.label}, which is {_right(tuning, taken)}"
    return ""


def _right(tuning: Tuning, choice: Choice) -> str:
    """Say whether its verdict holds against all choices, or against the measured ones alone."""
    return "right" if stats.standing(tuning, choice) == "clear" else "the fastest of those measured"


def pinned(
    tuning: Tuning,
    measurement: Measurement,
    id: str,
    pin: PinStatus,
    line: CommandLine = command_line,
) -> str:
    """What holds a tuning that is pinned, and what the measurement says of that choice."""
    own = next((c.hash for c in tuning.choices if c.hash in pin.pin.hashes), None) or pin.pin.hash
    name = label(tuning, own, pin.pin.label)
    by = f"pinned by {pin.pin.who}" if pin.pin.who else "pinned"
    held = f"{name} is in use, {by}" if pin.state == "active" else f"{name} is {by}, {pin.state}"
    measured = measurement.of(own)
    if measured is None:
        return f"{held}; it was not measured"
    if measured.verdict == "slower":
        best = measurement.choices[0]
        slower = (
            f"{fmt.percent(measured.ratio - 1)} slower than {label(tuning, best.hash, best.name)}"
        )
        better = pinnable(tuning, best.hash)
        return f"{held}; it is {slower}: {line('pin', id, better)}, or {line('unpin', id)}"
    if measured.verdict == "tied":
        return f"{held}, and nothing measured is faster"
    choice = next((c for c in tuning.choices if c.hash == own), None)
    if measured.verdict != "faster" or choice is None:
        return held
    return f"{held}, which is {_right(tuning, choice)}"


def label(tuning: Tuning, hash: str | None, name: str | None) -> str:
    """The name that the tuning has for a choice: torch numbers kernels anew in each process."""
    choice_of_hash = next(
        (choice for choice in tuning.choices if hash and choice.hash == hash), None
    )
    return plain((choice_of_hash.label if choice_of_hash else None) or name or hash or "?")


def pinnable(tuning: Tuning, hash: str) -> str:
    """What `pin` takes for a choice: its name if no other has it, else the hash."""
    name = next((choice.name for choice in tuning.choices if choice.hash == hash), None)
    alone = sum(choice.name == name for choice in tuning.choices) == 1
    return name if name and alone else hash


def conditions(measurement: Measurement) -> list[str]:
    """How it was measured."""
    rounds = f"{counted(measurement.rounds, 'round')} in {fmt.seconds(measurement.seconds)}"
    return [rounds, f"{measurement.caches} caches"]


def exactness(measurement: Measurement) -> list[str]:
    """Return the resolution of the timer, if it is known."""
    step = measurement.resolution_ms
    return [] if step is None else [f"timer resolution {fmt.duration(step)}"]


def machine(measurement: Measurement) -> str:
    """How the device was doing: `1,980 MHz, 312 W, 54 °C`; empty if unknown."""
    readings = (
        (measurement.clock_mhz, "MHz"),
        (measurement.power_w, "W"),
        (measurement.temperature_c, "°C"),
    )
    return ", ".join(f"{value:,.0f} {unit}" for value, unit in readings if value is not None)


def _names(names: Sequence[str]) -> str:
    shown = list(names[:3])
    if len(names) > 3:
        shown.append(f"{len(names) - 3} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _times(low: float, high: float) -> str:
    if not (isfinite(low) and isfinite(high)):
        return fmt.NONE
    unit, scale = fmt.time_unit(high)
    return f"{fmt.in_unit(low, scale)} to {fmt.in_unit(high, scale)} {unit}"


class MeasuredJson(JsonObject):
    """The times of a measured choice in milliseconds, and over that of the best."""

    ms: float | None
    low: float | None
    high: float | None
    spread: float | None
    rounds: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    output: OutputJson | None

    @classmethod
    def of(cls, choice: MeasuredChoice | None) -> MeasuredJson | None:
        return None if choice is None else fill(cls, choice, output=OutputJson.of(choice.output))


class MeasuredChoiceJson(MeasuredJson):
    name: str | None
    hash: str


class FailedChoiceJson(JsonObject):
    name: str | None
    hash: str | None
    reason: str | None


class MeasurementJson(JsonObject):
    """A repeated measurement, best choice first."""

    when: float
    rounds: int
    seconds: float
    caches: str
    resolution_ms: float | None
    reference_ms: float | None
    trouble: tuple[str, ...]
    session: str | None
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    throttled: int
    choices: list[MeasuredChoiceJson]
    failed: list[FailedChoiceJson]

    @classmethod
    def of(cls, measurement: Measurement | None) -> MeasurementJson | None:
        if measurement is None:
            return None
        choices = [
            fill(MeasuredChoiceJson, choice, output=OutputJson.of(choice.output))
            for choice in measurement.choices
        ]
        failed = [fill(FailedChoiceJson, choice) for choice in measurement.failed]
        return fill(cls, measurement, choices=choices, failed=failed)
