"""The pins that hold, by op and inputs key: which one a tuning has, and the times that it hides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.model.inductor_kernel import is_inductors
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.session.join import Member
from rocm_tui.session.merge import with_times

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


class Pins:
    """All pins of a cache dir, as they were last read."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._pins: dict[tuple[str, str], list[PinStatus]] = {}
        self._awaited: frozenset[tuple[str, str]] = frozenset()

    def put(self, statuses: Iterable[PinStatus]) -> set[tuple[str, str]]:
        """Let these be the pins; the ops and inputs keys of which another one is known now."""
        pins: dict[tuple[str, str], list[PinStatus]] = {}
        for status in statuses:
            pins.setdefault((status.pin.op, status.pin.inputs), []).append(status)
        before, self._pins = self._pins, pins
        known, self._awaited = self._awaited, frozenset()
        keys = pins.keys() | before.keys()
        return {key for key in keys if pins.get(key) != before.get(key)} | known

    def await_(self, keys: frozenset[tuple[str, str]]) -> None:
        """These ops and inputs keys have pins, of which the states follow."""
        self._awaited = keys

    def awaits(self, tuning: Tuning) -> bool:
        """Whether it has a pin of which it is not known yet whether it holds."""
        return (tuning.op, tuning.inputs_key or "") in self._awaited

    def of(self, tuning: Tuning) -> PinStatus | None:
        """The pin of the system that tuned this: another device or Triton has another cache file.

        Where no source tells the system, the pin of any.
        """
        pins = self._pins and self._pins.get((tuning.op, tuning.inputs_key or ""))
        if not pins:
            return None
        kernel = is_inductors(tuning.op)  # whose key tells the device
        systems = () if kernel else systems_of(tuning, self._sessions)
        fits = (status for status in pins if not systems or status.pin.system_hash in systems)
        return next(fits, None)

    def unmasked(self, member: Member) -> Member:
        """Put a pinned tuning's measured times in place of the `Infinity` by which an older version
        held the pin; raised numbers are read as what was measured."""
        if not self._pins:
            return member
        tuning = member.tuning
        status = self.of(tuning)
        if status is None or tuning.session is not None or tuning.precision is None:
            return member
        measured = status.pin.timings.get(tuning.precision, {})
        return replace(member, tuning=replace(tuning, choices=with_times(tuning, measured)))
