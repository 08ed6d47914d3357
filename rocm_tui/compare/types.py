"""What a comparison of two sets of tunings speaks of, and when two runs mean the same choice.

Times are milliseconds, ratios B over A.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import Literal

from backend.model.choice import Choice, Measurement, Verdict
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.session.model import Row

SHORTEST, LONGEST = 1e-9, 1e12
"""Milliseconds that no kernel takes; ratios of what lies between are finite."""
_NUMBER = re.compile(r"_\d+$")


def text_key(choice: Choice) -> str:
    """What names a choice in every run: its configuration, else its name without the number.

    Inductor numbers its templates' choices as they come, so the number says nothing of the kernel.
    """
    name = choice.name or ""
    return choice.description or (name if name[-1:].isalpha() else _NUMBER.sub("", name))


def identity_of(choice: Choice) -> str | None:
    """What names a choice on every device of a kind; its own hash where that is not known."""
    return choice.identity or choice.hash


def same_choice(a: Choice, b: Choice) -> bool:
    """Whether two runs mean the same choice, as far as identities, configurations or names show."""
    ours, theirs = identity_of(a), identity_of(b)
    if ours and theirs:
        return ours == theirs
    return bool(text_key(a)) and text_key(a) == text_key(b)


def is_timed(tuning: Tuning) -> bool:
    """Whether a choice of it has a time."""
    return any(_is_time(choice) for choice in tuning.choices)


def _is_time(choice: Choice) -> bool:
    """A log may say anything: not every number is one."""
    ms = choice.ms
    return ms is not None and SHORTEST < ms < LONGEST and choice.offered and not choice.failed


def timed(tuning: Tuning) -> list[tuple[Choice, float]]:
    """Choices with their times, fastest first."""
    return [(choice, choice.ms or 0.0) for choice in tuning.choices if _is_time(choice)]


def used(tuning: Tuning) -> tuple[Choice, float] | None:
    """The choice that the compiled model calls and its time: selected, else the fastest."""
    first = None
    for choice in tuning.choices:
        if not _is_time(choice):
            continue
        if first is None:
            first = choice
        if not tuning.selected or choice.hash == tuning.selected:
            return choice, choice.ms or 0.0
    return None if first is None else (first, first.ms or 0.0)


def log_ratios(a: Iterable[Row], b: Iterable[Row], but: Iterable[Choice] = ()) -> list[float]:
    """log(B's time / A's time) of each choice timed on both sides, without those of `but`.

    Several times of one choice are their median.
    """
    ours, theirs = _times(a), _times(b)
    by_identity = {identity_of(choice): ms for choice, ms in theirs if choice.hash}
    by_text: dict[str, tuple[Choice, float]] | None = None
    left_out = list(but)
    ratios = []
    for choice, ms in ours:
        if any(same_choice(choice, other) for other in left_out):
            continue
        other_ms = by_identity.get(identity_of(choice)) if choice.hash else None
        if other_ms is None and not (choice.hash and len(by_identity) == len(theirs)):
            if by_text is None:
                by_text = {text_key(other): (other, ms) for other, ms in theirs}
            other, other_ms = by_text.get(text_key(choice), (choice, None))
            if choice.hash and other.hash:
                continue
        if other_ms is not None:
            ratios.append(log(other_ms / ms))
    return ratios


def _times(rows: Iterable[Row]) -> list[tuple[Choice, float]]:
    """Every choice that can be told from the others of its tuning, with its median time."""
    every = [timed(row.tuning) for row in rows]
    if len(every) == 1:  # most problems were tuned once, and its choices are not alike
        keys = {identity_of(choice) for choice, _ in every[0]}
        if keys == {None}:
            keys = {text_key(choice) or None for choice, _ in every[0]}
        if len(keys) == len(every[0]) and not keys & {None, ""}:
            return every[0]
    by_key: dict[str, tuple[Choice, list[float]]] = {}
    for known in every:
        bare = not all(choice.hash for choice, _ in known)
        texts = Counter(text_key(choice) for choice, _ in known) if bare else {}
        for choice, ms in known:
            key = identity_of(choice) or text_key(choice)
            if choice.hash or (key and texts[key] == 1):
                by_key.setdefault(key, (choice, []))[1].append(ms)
    return [
        (choice, times[0] if len(times) == 1 else median(times))
        for choice, times in by_key.values()
    ]


Basis = Literal["measured", "median", "single"]
"""Where a time is from: a repeated measurement, the median of several tunings, one tuning."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two things compared: its tunings, the sessions that made them, and all repeated
    measurements of each tuning by the key of its row, latest first. `took` has the hash of what a
    session selected last of a key, where several asked for one tuning: they need not agree."""

    label: str
    rows: tuple[Row, ...]
    sessions: Mapping[str, Session] = field(default_factory=dict)
    measured: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    took: Mapping[tuple[str, TuningKey | None], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standpoint:
    """What one part knows of one problem.

    `row` is the latest occurrence, `rows` are all of them, latest first. `choice` is the one in
    use: selected if that is told, else the fastest. `ms` is its most reliable time that is known,
    `low` and `high` the 95 % interval of it where it was measured. `measured` is the measurement
    that it is from, one of the `measurements` of that choice.
    """

    row: Row
    rows: tuple[Row, ...]
    choice: Choice
    ms: float
    basis: Basis
    low: float | None = None
    high: float | None = None
    measured: Measurement | None = None
    measurements: tuple[Measurement, ...] = ()

    @property
    def tuning(self) -> Tuning:
        return self.row.tuning

    @property
    def calls(self) -> int | None:
        """How often the session that asked for it most did so; None where no session tells."""
        return calls_of(self.rows)


def calls_of(rows: Sequence[Row]) -> int | None:
    """How often the session that asked for a problem most did so; None where no session tells."""
    if len(rows) == 1 and len(rows[0].asked) < 2:  # most of them
        return len(rows[0].asked) or None
    asked = [session for row in rows for session in row.asked]
    if len(asked) < 2:
        return len(asked) or None
    return max(Counter(asked).values())


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem that both parts tuned.

    `ratio` is what the verdict is about: B's time over A's, freed from what the whole machine
    became slower or faster by; `raw` is the plain one. `low` to `high` is what the ratio may be.
    `reason` is the sentence behind the verdict. B is `faster`, `tied`, `slower` or `unclear`.
    `alike` tells whether the two may be compared at all: the same choice, or the winners of the
    same offered set. If not, the verdict is `unclear`, and the ratio means nothing.
    """

    id: str
    a: Standpoint
    b: Standpoint
    ratio: float
    raw: float
    low: float
    high: float
    verdict: Verdict
    reason: str
    alike: bool = True
    same_tuning: bool = False
    """Whether both know one and the same tuning alone, which one of them made."""

    @property
    def lost_ms(self) -> float:
        """Milliseconds that one call takes longer in B; negative if it became faster."""
        return self.b.ms - self.a.ms

    @property
    def calls(self) -> int | None:
        """How often one run of B calls it, else one of A; None where no session tells."""
        return self.b.calls if self.b.calls is not None else self.a.calls

    @property
    def lost_total_ms(self) -> float:
        """`lost_ms` times the calls, or once where they are not known."""
        return self.lost_ms * (self.calls or 1)

    @property
    def same_choice(self) -> bool:
        """Whether both use the same choice. See `same_choice`."""
        return same_choice(self.a.choice, self.b.choice)


@dataclass(frozen=True, slots=True)
class Noise:
    """What single numbers cannot tell.

    `band` is the relative difference up to which two numbers are taken as equal. `choices` is how
    many choices timed on both sides it was derived from, in `problems` problems; 0 if it is the
    default. `shift` is the factor by which all of them became slower (above 1) or faster, 1 if
    there is no such factor.
    """

    band: float
    choices: int = 0
    problems: int = 0
    shift: float = 1.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over what both have and is alike, each problem as often as it is called, or once.

    `lost_ms` is that of the pairs with the verdict `slower`, `gained_ms` that of the `faster` ones,
    both positive: differences that cannot be told from noise are not added up. `a_seconds` and
    `b_seconds` are what tuning took, of all that the parts tuned; `a_untold` and `b_untold` tunings
    do not tell.
    """

    a_ms: float
    b_ms: float
    lost_ms: float
    gained_ms: float
    verdicts: Mapping[Verdict, int]
    a_seconds: float
    b_seconds: float
    a_untold: int = 0
    b_untold: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two parts compared; `common` is sorted by time lost, most first.

    `untimed` are tunings of which one part tells no time. `notes` are sentences about the whole:
    other devices, other versions, a machine that became slower.
    """

    a: str
    b: str
    common: tuple[Pair, ...]
    only_a: tuple[Standpoint, ...]
    only_b: tuple[Standpoint, ...]
    untimed: tuple[Row, ...]
    totals: Totals
    noise: Noise
    notes: tuple[str, ...] = ()
