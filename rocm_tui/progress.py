"""How far a job is, from what its worker says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rocm_tui.harmless import plain
from rocm_tui.session import numbers as fmt


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of choices or of rounds, the best so far, seconds to go.

    `log` is where the session is recorded.
    """

    what: str = ""
    compiled: int = 0
    timed: int = 0
    total: int = 0
    rounds: int = 0
    best: str = ""
    best_ms: float | None = None
    seconds_left: float | None = None
    log: str = ""

    @property
    def text(self) -> str:
        """`3/14 timed, best triton_mm_4 12.3 µs, 8 s left`; what it does where it counts none."""
        if not self.total:
            return self.what
        parts = [f"{self.timed}/{self.total} timed"]
        if self.best:
            parts.append(f"best {self.best} {fmt.duration(self.best_ms)}")
        if self.seconds_left is not None and self.timed < self.total:
            parts.append(f"{fmt.seconds(self.seconds_left)} left")
        return ", ".join(parts)


def progress_of(event: Mapping[str, Any]) -> Progress | None:
    """The progress that an event of a worker tells; its text is made harmless."""
    if event.get("event") != "progress":
        return None
    return Progress(
        what=plain(str(event.get("what", "")), 200),
        compiled=_count(event.get("compiled")),
        timed=_count(event.get("timed")),
        total=_count(event.get("total")),
        rounds=_count(event.get("rounds")),
        best=plain(str(event.get("best") or ""), 200),
        best_ms=_number(event.get("best_ms")),
        seconds_left=_number(event.get("seconds_left")),
        log=str(event.get("log") or ""),
    )


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def _number(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None
