"""Choices of one tuning side by side: what to compare, and a line for each fact; among them what
their kernels take: registers, LDS, spills and occupancy. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from math import inf

from backend.counted import counted, noun
from backend.model.choice import Choice, MeasuredChoice
from backend.model.origin import provider
from backend.model.tuning import Tuning
from backend.toolchain.resources import Occupancy, Unknown
from rocm_tui.harmless import plain
from rocm_tui.render.choices import RESOURCES, Footprint, verdict_word
from rocm_tui.render.table import hanging, plain_table
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.kernel_resources import ResourceUse


def footprints(answers: Mapping[str, ResourceUse | Unknown]) -> dict[str, Footprint]:
    return {hash_: Footprint(cells(answer), sentence(answer)) for hash_, answer in answers.items()}


def cells(known: ResourceUse | Unknown) -> dict[str, str]:
    """A text for each of RESOURCES; none if it is unknown."""
    if isinstance(known, Unknown):
        return {}
    taken, held = known.resources, known.occupancy
    waves = (f"{held.waves_per_simd}/{held.of}", _limit(held)) if held else ("?", "?")
    counts = [_count(number) for number in (taken.vgprs, taken.agprs, taken.sgprs)]
    texts = (*counts, size(taken.lds), size(taken.scratch), _count(_spills(known)), *waves)
    return dict(zip((column.key for column in RESOURCES), texts, strict=True))


def sentence(known: ResourceUse | Unknown) -> str:
    """All that is known, on one line."""
    if isinstance(known, Unknown):
        return f"registers and LDS unknown: {known.reason}"
    taken, held = known.resources, known.occupancy
    nvidia = known.target.kind == "cuda"
    # The most telling first: a narrow screen cuts the end.
    waves = f"{held.waves_per_simd}/{held.of} waves a SIMD ({_limit(held)})" if held else None
    facts = [waves or "occupancy unknown"]
    vectors = f"{_count(taken.vgprs)} {noun(taken.vgprs, 'register') if nvidia else 'VGPR'}"
    facts.append(vectors + (f" ({taken.agprs} AGPR)" if taken.agprs else ""))
    facts.append(f"{size(taken.lds)} {'shared memory' if nvidia else 'LDS'}")
    facts.append(
        f"{_count(_spills(known))} {noun(_spills(known), 'spill')}"
        if _spills(known) != 0
        else "no spills"
    )
    facts.append(f"{size(taken.scratch)} scratch" if taken.scratch != 0 else "no scratch")
    facts += [] if nvidia else [f"{_count(taken.sgprs)} SGPR"]
    return f"{known.target.arch or known.target}: {', '.join(facts)}"


def block(choices: Sequence[Choice], answers: Mapping[str, ResourceUse | Unknown]) -> str:
    """Return what `show` prints of the choices in `answers`; empty if there are none.

    A table of the known ones, then why the others are unknown.
    """
    ours = [(c, answer) for c in choices if (answer := answers.get(c.hash or "")) is not None]
    rows = [
        [plain(c.label), *cells(rows).values()] for c, rows in ours if isinstance(rows, ResourceUse)
    ]
    header = ("a kernel takes", *(column.title for column in RESOURCES))
    lines = [plain_table(header, rows, "l" + "r" * len(RESOURCES))] if rows else []
    reasons = [answer.reason for _, answer in ours if isinstance(answer, Unknown)]
    for reason in dict.fromkeys(reasons):
        names = [c.label for c, answer in ours if answer == Unknown(reason)]
        which = counted(len(names), "choice") if len(names) > 1 else names[0]
        lines.append(hanging("", plain(f"registers and LDS of {which} unknown: {reason}")))
    return "\n".join(lines)


def size(number: int | None) -> str:
    """Bytes: `0`, `512 B`, `34 KiB`, `16.5 KiB`."""
    return "?" if number is None else fmt.size(number).replace(".0 ", " ") if number else "0"


def _limit(held: Occupancy) -> str:
    return "full" if held.limited_by == "waves" else held.limited_by


def _spills(known: ResourceUse) -> int | None:
    taken = known.resources
    if taken.vgpr_spills is None:
        return None
    return taken.vgpr_spills + (taken.sgpr_spills or 0)


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


_MOST = 8

_WORDS = {
    "clear": "faster",
    "ahead": "~faster",
    "tied": "tie",
    "unclear": "unclear",
    "behind": "~slower",
    "slower": "slower",
}
"""`~`: by times that were taken once."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line: its title and a text for each choice. `differs` are the places, counted from 0, whose
    text is not that of the first choice that has one. One without texts heads those below it."""

    title: str
    texts: tuple[str, ...] = ()
    differs: frozenset[int] = field(default=frozenset())


def default_choices(tuning: Tuning) -> tuple[Choice, ...]:
    """Those near the best, at least the best two."""
    timed = _by_time(tuning)
    near = [choice for choice in timed if _extra(tuning, choice, timed[0]) <= stats.NEAR]
    return tuple(near[:_MOST] if len(near) > 1 else timed[:2])


def chosen(tuning: Tuning, names: AbstractSet[str]) -> tuple[Choice, ...]:
    """The choices with these hashes or names, fastest first; one alone is set beside the best."""
    wanted = [c for c in tuning.choices if (c.hash or c.label) in names]
    timed = _by_time(tuning)
    if not wanted:
        return default_choices(tuning)
    if len(wanted) == 1:
        wanted += [choice for choice in timed[:2] if choice not in wanted][:1]
    places = {id(choice): place for place, choice in enumerate(timed)}
    return tuple(sorted(wanted, key=lambda choice: places.get(id(choice), len(places))))


def _by_time(tuning: Tuning) -> list[Choice]:
    """Timed choices, the measured best first, else by their single numbers."""
    timed = list(stats.ranked(tuning))
    if tuning.measured and tuning.measured.choices:
        best = next((c for c in timed if c.hash == tuning.measured.choices[0].hash), None)
        if best is not None:
            timed.remove(best)
            timed.insert(0, best)
    return timed


def facts(
    tuning: Tuning,
    choices: Sequence[Choice],
    footprints: Mapping[str, Footprint],
    *,
    all_keys: bool = False,
) -> list[Fact]:
    """Every line below the names: times, configuration, what the kernels take.

    Configuration keys with one value for all are counted, or listed with `all_keys`.
    """
    if not choices:
        return []
    return [
        Fact("Time"),
        *_times(tuning, choices),
        *_configuration(choices, all_keys),
        *_kernels(choices, footprints),
    ]


def _times(tuning: Tuning, choices: Sequence[Choice]) -> Iterator[Fact]:
    measured = [stats.measured(tuning, choice) for choice in choices]
    ms = [stats.time_ms(tuning, choice) for choice in choices]
    unit, scale = fmt.time_unit(ms[0])
    yield Fact("verdict", tuple(_verdict(tuning, choice, choices[0]) for choice in choices))
    once = [m is None for m in measured]
    width = 6 if any(once) else 5  # all on one side of the decimal point
    number = partial(_number, scale=scale, unit=unit, width=width)
    yield Fact("time", tuple(map(number, ms, once)))
    if any(measured):
        ends = [(m.low, m.high) if m else None for m in measured]
        yield Fact("  95 % interval", tuple(_range(pair, scale, unit, width) for pair in ends))
    longer = (_longer(tuning, choice, choices[0]) for choice in choices[1:])
    first = _verdict(tuning, choices[0], choices[0]).replace("fastest", "best")
    yield Fact("vs best", (first if first.endswith("best") else "lowest", *longer))
    if any(measured):
        yield Fact("  95 % interval", tuple(_ratios(m) for m in measured))
        yield Fact("spread", tuple(fmt.percent(m.spread) if m else "" for m in measured))
        caches = f", {tuning.measured.caches}" if tuning.measured else ""
        how = [f"{counted(m.rounds, 'round')}{caches}" if m else "" for m in measured]
        timings = ["" if time is None else "one timing" for time in ms]
        yield Fact("measured", tuple(a or b for a, b in zip(how, timings, strict=True)))
        yield Fact(
            "when tuned", tuple(number(stats.single_ms(tuning, choice), True) for choice in choices)
        )
    rates = [stats.tflops(tuning, time) for time in ms]
    if any(rates):
        errors = [stats.rounding(tuning, choice) for choice in choices]
        yield Fact("throughput", tuple(map(_rate, rates, errors, once)))


def _verdict(tuning: Tuning, choice: Choice, best: Choice) -> str:
    if choice.failed:
        return "not timed" if choice.skipped else "failed"
    measured = stats.measured(tuning, choice)
    if measured is not None:
        return verdict_word(measured)
    if choice is best:
        return {"clear": "fastest", "ahead": "~fastest"}.get(stats.standing(tuning) or "", "")
    standing = stats.versus(tuning, choice, best)
    return _WORDS[standing] if standing else ""


def _extra(tuning: Tuning, choice: Choice, best: Choice) -> float:
    """How much longer than the best, relative; infinite where no time is known."""
    ratio = stats.ratio(tuning, choice, best)
    return inf if ratio is None else ratio - 1.0


def _longer(tuning: Tuning, choice: Choice, best: Choice) -> str:
    text = fmt.signed(_extra(tuning, choice, best), stats.rounding(tuning, choice, best))
    return fmt.once(text) if stats.once(tuning, choice, best) else text


def _configuration(choices: Sequence[Choice], all_keys: bool) -> Iterator[Fact]:
    """A choice without a configuration, such as a library call, makes no key differ."""
    configs = [choice.config for choice in choices]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    texts = {key: tuple(plain(config.get(key, "")) for config in configs) for key in keys}
    differ = stats.differing_keys(tuple(choices))
    if not keys:
        return
    equal = f", {len(keys) - len(differ)} are equal" if len(keys) > len(differ) else ""
    differing = "key differs" if len(differ) == 1 else "keys differ"
    yield from _heading(f"Configuration: {len(differ)} {differing}{equal}")
    yield from (_compared(plain(key), texts[key]) for key in differ)
    if all_keys:
        yield from (Fact(plain(key), texts[key]) for key in keys if key not in differ)


def _kernels(choices: Sequence[Choice], footprints: Mapping[str, Footprint]) -> Iterator[Fact]:
    yield from _heading("Kernel")
    yield Fact("from", tuple(provider(choice) or "unknown" for choice in choices))
    taken = [footprints.get(choice.hash or "") for choice in choices]
    cells = [footprint.cells if footprint else {} for footprint in taken]
    if any(cells):
        for column in RESOURCES:
            yield _compared(
                _TITLES.get(column.key, column.title),
                tuple(footprint.get(column.key, "") for footprint in cells),
            )
    hashes = tuple(plain(choice.hash or "unknown").rpartition("-")[2][:12] for choice in choices)
    yield Fact("hash", hashes)
    if any(choice.failed for choice in choices):
        reasons = tuple(plain(c.reason or "") if c.failed else "" for c in choices)
        yield Fact("failed", reasons)


_TITLES = {
    "SCRATCH": "scratch",
    "SPILLS": "spilled registers",
    "WAVES": "waves a SIMD",
    "LIMIT": "  limited by",
}


def _compared(title: str, texts: tuple[str, ...]) -> Fact:
    first = next((text for text in texts if text), "")
    differs = (at for at, text in enumerate(texts) if text and text != first)
    return Fact(title, texts, frozenset(differs))


def _heading(title: str) -> Iterator[Fact]:
    yield Fact("")
    yield Fact(title)


def _number(ms: float | None, once: bool, *, scale: float, unit: str, width: int) -> str:
    """`once`: it was taken once."""
    if ms is None:
        return ""
    text = fmt.in_unit(ms, scale)
    return f"{fmt.once(text) if once else text:>{width}} {unit}"


def _rate(rate: float | None, error: float, once: bool) -> str:
    text = fmt.throughput(rate, error) if rate else ""
    return fmt.once(text) if once else text


def _range(pair: tuple[float, float] | None, scale: float, unit: str, width: int) -> str:
    if pair is None:
        return ""
    low, high = (fmt.in_unit(ms, scale) for ms in pair)
    return f"{low:>{width}} … {high} {unit}"


def _ratios(measured: MeasuredChoice | None) -> str:
    if measured is None or measured.ratio_low == measured.ratio_high:
        return ""
    return f"{fmt.signed(measured.ratio_low - 1)} … {fmt.signed(measured.ratio_high - 1)}"
