"""Until when the proof of a pin counts, as sessions tell: until another torch is at work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.model.session import Session
from rocm_tui.harmless import plain

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


def with_torch(
    statuses: Iterable[PinStatus], sessions: Mapping[str, Session]
) -> tuple[PinStatus, ...]:
    """The pins, those proofs stale after which another torch was seen at work on their system."""
    return tuple(_judged(status, sessions) for status in statuses)


def _judged(status: PinStatus, sessions: Mapping[str, Session]) -> PinStatus:
    proof = status.proof
    if proof is None or status.stale or not proof.torch:
        return status
    system = status.pin.system_hash
    for session in sessions.values():
        other = session.torch and session.torch != proof.torch
        if other and session.system_hash == system and session.started > proof.when:
            return replace(status, stale=f"torch {plain(session.torch)} ran since")
    return status
