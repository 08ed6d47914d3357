"""Hand-made tunings to compare: problems by number, choices by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backend.model.choice import Caches, Choice, MeasuredChoice, Measurement, sort_choices
from backend.model.session import Session
from backend.model.tuning import Seconds, Tuning
from rocm_tui.compare.comparison import whole
from rocm_tui.compare.types import Comparison, Pair, TuningSet
from rocm_tui.ingest.records import MeasurementSeen, Record, Seen, SessionSeen
from rocm_tui.session.model import Model


def shapes(n: int) -> tuple[tuple[int, ...], ...]:
    return ((8, 64 * n, 32), (8, 32, 96))


def inputs(n: int, suffix: str = "") -> str:
    m = 64 * n
    left = f"('cuda', 'torch.float16', 8, {m}, 32, {32 * m}, 32, 1, 0)"
    return f"[{left}, ('cuda', 'torch.float16', 8, 32, 96, 3072, 96, 1, 0)]{suffix}"


def choices(times: Mapping[str, float | None]) -> tuple[Choice, ...]:
    made = [
        Choice(name=name, hash=f"{name}-0123456789abcdef", ms=ms, failed=ms is None)
        for name, ms in times.items()
    ]
    return sort_choices(made)


def tuning(
    n: int,
    times: Mapping[str, float | None],
    *,
    session: str | None = "s",
    when: float = 1.0,
    seconds: float | None = 2.0,
    source: str = "/c/rocm_tui/sessions/s.jsonl",
    rank: int | None = None,
) -> Tuning:
    """What a session log (or, without a session, a cache file) tells of problem `n`."""
    return Tuning(
        "bmm",
        shapes(n),
        ((2048 * n, 32, 1), (3072, 96, 1)),
        ("torch.float16", "torch.float16"),
        device="cuda",
        precision="highest",
        inputs_key=inputs(n),
        choices=choices(times),
        seconds=Seconds(benchmark=seconds),
        session=session,
        when=when,
        sources=(source,),
        rank=rank,
        selected_by="timing" if session else None,
    )


def log(n: int, times: Mapping[str, float | None], *, source: str = "/l/train.log") -> Tuning:
    """The same as stderr has it: names and rounded times, no keys."""
    rounded = {name: None if ms is None else round(ms, 4) for name, ms in times.items()}
    bare = [replace(choice, hash=None) for choice in choices(rounded)]
    told = tuning(n, {}, session=None, source=source)
    return replace(
        told, device=None, precision=None, inputs_key=None, when=None, choices=tuple(bare)
    )


def measurement(
    n: int,
    times: Mapping[str, float],
    *,
    half: float = 0.005,
    reference: float | None = 1.0,
    when: float = 5.0,
    caches: Caches = "hot",
    trouble: tuple[str, ...] = (),
    system: str | None = None,
) -> Measurement:
    """Each choice with an interval of plus and minus `half`, relative."""
    best = min(times.values())
    told = [
        MeasuredChoice(
            f"{name}-0123456789abcdef",
            ms,
            ms * (1 - half),
            ms * (1 + half),
            0.02,
            40,
            ms / best,
            ms / best * (1 - half),
            ms / best * (1 + half),
            "faster" if ms == best else "slower",
            name,
        )
        for name, ms in sorted(times.items(), key=lambda item: item[1])
    ]
    return Measurement(
        "bmm",
        inputs(n),
        "highest",
        when,
        tuple(told),
        reference_ms=reference,
        caches=caches,
        trouble=trouble,
        system_hash=system,
    )


def as_tuned(tuning: Tuning) -> Measurement:
    """One that finds the times that the tuning has."""
    times = {c.name or "": c.ms for c in tuning.choices if c.ms is not None}
    told = measurement(1, times)
    return replace(told, inputs=tuning.inputs_key or "")


def part(
    *tunings: Tuning,
    label: str = "part",
    measured: Iterable[Measurement] = (),
    sessions: Iterable[Session] = (),
) -> TuningSet:
    """What a model makes of them."""
    model = Model()
    records: list[Record] = [SessionSeen(session) for session in sessions]
    for at, one in enumerate(tunings):
        records.append(Seen(f"{one.sources[0]}#{at}", one))
    records += [MeasurementSeen(f"/m/{at}", one) for at, one in enumerate(measured)]
    model.apply(records)
    return whole(label, model)


def only(comparison: Comparison) -> Pair:
    (pair,) = comparison.common
    return pair
