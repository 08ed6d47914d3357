"""Which tunings of two parts are the same problem.

Two tunings are of one problem if nothing that both tell differs. A log tells fewer things than a
cache, so what it tells may fit several problems: then it is none of them, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from backend.records import Measurement, Shape, Tuning
from rocm_tui.session import join
from rocm_tui.session.compare_types import Part
from rocm_tui.session.model import Row

_DIALECT = ":"
"""Stands in the precision keys of torch 2.15 (`cuda:none,mkldnn:none`), not in `highest`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one problem from another; what is empty is not known.

    `system` is the name of the cache file, which stands for device, Triton and CUDA or HIP version.
    """

    inputs: str
    precision: str
    device: str
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    dims: Shape
    system: str

    @property
    def known(self) -> int:
        """How many of them are known."""
        return sum(bool(value) for value in astuple(self))

    def fits(self, other: Identity, *, systems: bool) -> bool:
        """Whether nothing that both know differs; `systems` tells whether the system counts."""
        return (
            _agree(self.inputs, other.inputs)
            and _same_precision(self.precision, other.precision)
            and _agree(self.device, other.device)
            and _agree(self.shapes, other.shapes)
            and _agree(self.strides, other.strides)
            and _agree(self.dtypes, other.dtypes)
            and _agree(self.dims, other.dims)
            and (not systems or _agree(self.system, other.system))
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a part: its tunings and its measurements, latest first."""

    identity: Identity
    rows: tuple[Row, ...]
    measured: tuple[Measurement, ...] = ()


def _agree(one: object, two: object) -> bool:
    return not one or not two or one == two


def _same_precision(one: str, two: str) -> bool:
    """Versions of torch that write it in different ways cannot be compared in it."""
    return (_DIALECT in one) != (_DIALECT in two) or _agree(one, two)


def identity(tuning: Tuning, part: Part) -> Identity:
    session = part.sessions.get(tuning.session or "")
    head, bracket, suffix = (tuning.inputs_key or "").rpartition("]")
    return Identity(
        inputs=head + bracket + suffix.partition(":")[0],  # 2.15 puts its benchmark policy there
        precision=tuning.precision or "",
        device=(tuning.device or "").partition(":")[0],
        shapes=tuning.shapes,
        strides=tuning.strides,
        dtypes=tuning.dtypes,
        dims=tuning.dims,
        system=(session.system_hash if session else None) or _cache_file(tuning.sources),
    )


def _cache_file(sources: Iterable[str]) -> str:
    """The system hash that the name of a cache file is."""
    places = (Path(source) for source in sources)
    return next((place.name for place in places if place.parent.name == "cache"), "")


def problems(part: Part) -> dict[join.Problem, list[Problem]]:
    """The problems of a part, by what is coarsely the same."""
    found: dict[join.Problem, list[tuple[Identity, list[Row]]]] = {}
    told = [(identity(row.tuning, part), row) for row in part.rows]
    # The fullest first: what tells less must fit exactly one of them.
    for who, row in sorted(told, key=lambda pair: -pair[0].known):
        bucket = found.setdefault(join.problem_of(row.tuning), [])
        same = [rows for known, rows in bucket if known == who]
        same = same or [rows for known, rows in bucket if known.fits(who, systems=True)]
        if len(same) == 1:
            same[0].append(row)
        else:
            bucket.append((who, [row]))
    return {
        coarse: [Problem(who, _latest_first(rows), _measured(rows, part)) for who, rows in bucket]
        for coarse, bucket in found.items()
    }


def _latest_first(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row.when or 0.0, row.occurrence), reverse=True))


def _measured(rows: Sequence[Row], part: Part) -> tuple[Measurement, ...]:
    found = {one: None for row in rows for one in part.measured.get(row.key, ())}
    return tuple(sorted(found, key=lambda one: -one.when))


def pair_up(a: Part, b: Part) -> tuple[list[tuple[Problem, Problem]], list[Problem], list[Problem]]:
    """The problems of both, those of A alone, those of B alone."""
    ours, theirs = problems(a), problems(b)
    pairs: list[tuple[Problem, Problem]] = []
    only_a: list[Problem] = []
    only_b: list[Problem] = []
    for coarse in dict.fromkeys([*ours, *theirs]):
        left, right = list(ours.get(coarse, ())), list(theirs.get(coarse, ()))
        pairs += _matched(left, right, exact=True) + _matched(left, right, exact=False)
        only_a += left
        only_b += right
    return pairs, only_a, only_b


def _matched(
    left: list[Problem], right: list[Problem], *, exact: bool
) -> list[tuple[Problem, Problem]]:
    """Those that fit each other and no other one; they are taken out of the lists."""

    def fit(one: Problem, two: Problem) -> bool:
        if exact:
            return one.identity == two.identity
        return one.identity.fits(two.identity, systems=False)

    found = []
    for one in list(left):
        mine = [two for two in right if fit(one, two)]
        if len(mine) == 1 and sum(fit(other, mine[0]) for other in left) == 1:
            found.append((one, mine[0]))
            left.remove(one)
            right.remove(mine[0])
    return found
