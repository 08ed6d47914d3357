"""Backends that a job asked for and of which nothing usable appeared, with the reasons.

Inductor leaves a backend out without a word where something about the machine, the operands or an
installation does not fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend.model.choice import Choice
from backend.model.origin import provider
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.types import Part
from rocm_tui.report.types import Absent, Reason

CONVOLUTION = "conv:"
"""Stands before a backend that was asked for in convolutions, which have a list of their own."""

_BACKENDS = {
    "aten": "ATEN",
    "triton": "TRITON",
    "cpp": "CPP",
    "rocm": "ROCM",
    "cutlass": "CUTLASS",
    "cutedsl": "CUTEDSL",
    "nv_universal_gemm": "NVGEMM",
}
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+|/\S+")


@dataclass(slots=True)
class _Seen:
    """What was seen of one backend; the ops of `lacking` have no usable choice in a session."""

    lacking: dict[str, None] = field(default_factory=dict)
    sessions: dict[str, None] = field(default_factory=dict)
    tunings: int = 0
    present: bool = False
    failed: list[Choice] = field(default_factory=list)
    told: dict[str, None] = field(default_factory=dict)


def backend_of(choice: Choice) -> str | None:
    """The name under which Inductor's option asks for what made a choice; None if not known."""
    source = provider(choice)
    if source == "ck":
        return "CKTILE" if "ck_tile" in f"{choice.name} {choice.hash}" else "CK"
    return _BACKENDS.get(source or "")


def absent(part: Part) -> tuple[Absent, ...]:
    """One entry a backend, in the order in which they were asked for."""
    seen: dict[str, _Seen] = {}
    asked: dict[str, dict[str, list[Tuning]]] = {}
    for row in part.rows:
        for name in dict.fromkeys(row.asked):
            asked.setdefault(name, {}).setdefault(row.tuning.op, []).append(row.tuning)
    for session in part.sessions.values():
        for op, tunings in asked.get(session.id, {}).items():
            for backend in _asked(session, op):
                _look(seen.setdefault(backend, _Seen()), backend, session, op, tunings)
    return tuple(_entry(name, backend) for name, backend in seen.items() if backend.lacking)


def _asked(session: Session, op: str) -> Iterable[str]:
    if not op.startswith("conv"):
        return [name for name in session.backends if not name.startswith(CONVOLUTION)]
    marked = [name for name in session.backends if name.startswith(CONVOLUTION)]
    return [name.removeprefix(CONVOLUTION) for name in marked]


def _look(seen: _Seen, backend: str, session: Session, op: str, tunings: list[Tuning]) -> None:
    every = [choice for tuning in tunings for choice in tuning.choices]
    theirs = [choice for choice in every if backend_of(choice) == backend]
    if any(not choice.failed for choice in theirs):
        seen.present = True
        return
    if backend == _BACKENDS["aten"] and any(provider(choice) is None for choice in every):
        return  # ATen has no mark in its names: what nobody knows may be its kernel
    seen.lacking[op] = None
    seen.sessions[session.id] = None
    seen.tunings += len(tunings)
    seen.failed += theirs
    for remark in session.absent:
        name, _, reason = remark.partition(": ")
        if name == backend and reason:
            seen.told[reason] = None


def _entry(backend: str, seen: _Seen) -> Absent:
    return Absent(
        backend=backend,
        ops=tuple(seen.lacking),
        tunings=seen.tunings,
        everywhere=not seen.present,
        failed=len(seen.failed),
        reasons=(*(Reason(text, 0) for text in seen.told), *grouped(seen.failed)),
        sessions=tuple(seen.sessions),
    )


def grouped(failed: Iterable[Choice]) -> tuple[Reason, ...]:
    """Failures by reason, most frequent first; reasons that differ in numbers or paths are one."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for choice in failed:
        reason = choice.reason or "no reason known"
        kind = _VARIABLE.sub("#", reason.replace(choice.name or "\0", "#"))
        counts[kind] += 1
        example.setdefault(kind, reason)
    return tuple(Reason(example[kind], count) for kind, count in counts.most_common())
