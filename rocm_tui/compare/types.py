"""What a comparison of two sets of tunings consists of. Times are milliseconds, ratios B over A."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backend.model.choice import Choice, Measurement, Verdict
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import same_choice
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import rounding

Basis = Literal["measured", "median", "single"]
"""Where a time is from: a repeated measurement, the median of several tunings, one tuning."""


@dataclass(frozen=True, slots=True)
class TuningSet:
    """One of the two sets that are compared.

    It has the tunings, the sessions that made them, and all repeated measurements of each tuning by
    the key of its row, latest first. `took` has the hash that a session selected last for a key, if
    several sessions requested the tuning: they may differ.
    """

    label: str
    rows: tuple[Row, ...]
    sessions: Mapping[str, Session] = field(default_factory=dict)
    measured: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    took: Mapping[tuple[str, TuningKey | None], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standpoint:
    """What one set knows of one problem.

    `row` is the latest occurrence, `rows` are all of them, latest first. `choice` is the one in
    use: the selected one if that is known, else the fastest. `ms` is its most reliable time, `low`
    and `high` its 95 % interval if it was measured. `measured` is the measurement that it is from,
    one of the `measurements` of that choice.
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
        """How often the session that requested it most did so; None if no session did."""
        return calls_of(self.rows)


def calls_of(rows: Sequence[Row]) -> int | None:
    """Return how often the session that requested a problem most did so; None if none did."""
    asked = Counter(session for row in rows for session in row.asked)
    return max(asked.values(), default=None)


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem that both sets tuned.

    `ratio` is what the verdict is about: B's time over A's, corrected for a whole machine that
    became slower or faster; `raw` is uncorrected. `low` to `high` is the interval of the ratio.
    `reason` is the sentence behind the verdict: B is `faster`, `tied`, `slower` or `unclear`.
    `alike` means that the two may be compared: the same choice, or the winners of the same offered
    set. If not, the verdict is `unclear`, and the ratio means nothing.
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
    def error(self) -> float:
        """The relative error of the ratio by the digits of the times that were taken once."""
        return rounding(*(each.ms for each in (self.a, self.b) if each.basis != "measured"))

    @property
    def lost_ms(self) -> float:
        """Milliseconds that one call takes longer in B; negative if it became faster."""
        return self.b.ms - self.a.ms

    @property
    def calls(self) -> int | None:
        """How often one run of B calls it, else one of A; None if no session recorded that."""
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
    """The noise of single numbers.

    `band` is the relative difference up to which two numbers count as equal. It was derived from
    `choices` choices timed on both sides, in `problems` problems; 0 if it is the default. `shift`
    is the factor by which all of them became slower (above 1) or faster; 1 if there is none.
    """

    band: float
    choices: int = 0
    problems: int = 0
    shift: float = 1.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over what both sets have with a verdict that is not unclear, weighted by call count.

    `lost_ms` is the loss of the pairs with the verdict `slower`, `gained_ms` the gain of the
    `faster` ones, both positive: what may be noise is not summed. `a_seconds` and `b_seconds` are
    the durations of all tunings, except for `a_unknown` and `b_unknown` ones of unknown duration.
    """

    a_ms: float
    b_ms: float
    lost_ms: float
    gained_ms: float
    verdicts: Mapping[Verdict, int]
    a_seconds: float
    b_seconds: float
    a_unknown: int = 0
    b_unknown: int = 0
    error: float = 0.0
    """The relative error of `b_ms` over `a_ms` by the digits of the times that were summed."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sets compared; `common` is sorted by time lost, most first.

    `untimed` are tunings of which one set has no time. `notes` are sentences about the whole: other
    devices, other versions, a machine that became slower.
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
