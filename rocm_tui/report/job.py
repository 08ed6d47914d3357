"""The report of one job: who chose differently, which backends are absent, what tuning bought.

Pure functions over the tunings of all its ranks and hosts.

Which machines the tunings of a report are of: what is added up over several is no run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from backend.records import Choice, Session, Tuning
from rocm_tui.compare.comparison import spent, untold, was_tuned
from rocm_tui.compare.problems import Problem, problems
from rocm_tui.compare.types import Part, calls_of, same_choice, timed, used
from rocm_tui.report.missing import absent
from rocm_tui.report.parties import disagreement, party_names
from rocm_tui.report.types import Bought, Gain, Repeated, Report
from rocm_tui.session import stats
from rocm_tui.session.clock import waited
from rocm_tui.session.model import Row
from rocm_tui.session.providers import device_kind
from rocm_tui.session.stats import versus
from rocm_tui.session.systems import systems_of

MAY_WAIT = 0.9
WAITS = 4
WAITS_OF = 0.25
"""Milliseconds from which a time may be a wait on a busy CPU; how many of a job's times, and what
share of them, must look so: one of 25 does by chance."""


def report(part: Part) -> Report:
    """What the tunings of one job tell together."""
    found = problems(part)
    labels = party_names(part)
    disagreements = [told for each in found if (told := disagreement(each.rows, labels))]
    return Report(
        disagreements=tuple(sorted(disagreements, key=lambda each: not each.matters)),
        absent=absent(part),
        told=any(session.backends for session in part.sessions.values()),
        bought=bought(found, part),
        repeated=repeated(found),
    )


def bought(found: Iterable[Problem], part: Part) -> Bought:
    """Time saved against ATen and seconds spent, over all problems."""
    tuned = [row for row in part.rows if was_tuned(row)]
    busy = _busy_cpu(tuned)
    gains = [_gain(problem, busy) for problem in found if any(map(was_tuned, problem.rows))]
    gains.sort(key=lambda g: (g.saved_ms is None, -(g.saved_ms or 0.0) * (g.calls or 1)))
    moments = [row.tuning.when for row in tuned if row.tuning.when]
    return Bought(
        gains=tuple(gains),
        saved_ms=sum((g.saved_ms or 0.0) * (g.calls or 1) for g in gains if not g.tied),
        seconds=sum(gain.seconds for gain in gains),
        ranks=_ranks(part),
        unknown=untold(tuned),
        tunings=len(tuned),
        systems=systems(replace(part, rows=tuple(tuned))),
        since=min(moments, default=None),
        until=max(moments, default=None),
    )


def _gain(problem: Problem, busy: bool) -> Gain:
    """Of the choice that most tunings use, and of those; of several such choices the latest."""
    uses = _uses(problem.rows)
    most = max(uses, key=len)
    latest, choice = most[0]
    told = [(row, ms) for row, own in most if (ms := _saved(row.tuning, own)) is not None]
    sure = [(row, ms) for row, ms in told if not (busy and _waited(row.tuning, choice))]
    saved = [ms for _, ms in sure or told]
    waits = bool(told) and not sure
    shown = sure[0][0] if sure else latest
    return Gain(
        row=latest,
        choice=choice,
        saved_ms=median(saved) if saved else None,
        tied=waits or _tied_with_aten(shown.tuning, choice),
        calls=calls_of(problem.rows),
        seconds=spent(problem.rows),
        untold=untold(problem.rows),
        waited=waits,
    )


def _busy_cpu(rows: Iterable[Row]) -> bool:
    """Whether so many times on a CPU are whole milliseconds that calls must have waited."""
    on_cpu = (row.tuning for row in rows if device_kind(row.tuning) == "cpu")
    long = [ms for tuning in on_cpu for _, ms in timed(tuning) if ms > MAY_WAIT]
    waits = sum(waited([ms]) for ms in long)
    return waits >= WAITS and waits >= WAITS_OF * len(long)


def _waited(tuning: Tuning, choice: Choice) -> bool:
    """Whether a time of the choice, or of ATen's, may be a wait; `choice` is known by its likes."""
    aten = stats.aten(tuning)
    own = next((each for each, _ in timed(tuning) if same_choice(each, choice)), None)
    if aten is None or own is None or aten is own or device_kind(tuning) != "cpu":
        return False
    if stats.measured(tuning, own) and stats.measured(tuning, aten):
        return False
    return any(each.ms is not None and waited([each.ms]) for each in (own, aten))


def _uses(rows: Iterable[Row]) -> list[list[tuple[Row, Choice]]]:
    """The tunings, latest first, with the choice in use, those with the same one together."""
    found: list[list[tuple[Row, Choice]]] = []
    for row in rows:
        use = used(row.tuning)
        if use is not None:
            same = (each for each in found if same_choice(each[0][1], use[0]))
            home = next(same, None)
            if home is None:
                found.append(home := [])
            home.append((row, use[0]))
    return found


def _saved(tuning: Tuning, choice: Choice) -> float | None:
    """Milliseconds a call that `choice` saves against ATen; of measurements, if any."""
    aten = stats.aten(tuning)
    if aten is None or aten.ms is None or choice.ms is None:
        return None
    told, other = stats.measured(tuning, choice), stats.measured(tuning, aten)
    return other.ms - told.ms if told and other else aten.ms - choice.ms


def _tied_with_aten(tuning: Tuning, choice: Choice) -> bool:
    aten = stats.aten(tuning)
    own = next((each for each, _ in timed(tuning) if same_choice(each, choice)), choice)
    if aten is None or own == aten:
        return False
    return versus(tuning, own, aten) in ("tied", "unclear")


def _ranks(part: Part) -> int:
    """How many ranks worked side by side; 1 where none is known."""
    names = {name for row in part.rows for name in row.asked}
    sessions = [part.sessions[name] for name in names if name in part.sessions]
    known = {(each.host, each.rank) for each in sessions if each.rank is not None}
    return max(1, len(known))


def repeated(found: Iterable[Problem]) -> tuple[Repeated, ...]:
    """The problems that were tuned more than once, most seconds first."""
    again = [each for problem in found if (each := _repeated(problem))]
    return tuple(sorted(again, key=lambda each: (-each.seconds, -each.times)))


def _repeated(problem: Problem) -> Repeated | None:
    rows = [row for row in problem.rows if was_tuned(row)]
    if len(rows) < 2:
        return None
    winners: list[tuple[Choice, str]] = []
    for row in rows:
        best = stats.winner(row.tuning)
        if best is not None:
            known = next((label for other, label in winners if same_choice(other, best)), None)
            winners.append((best, known or best.label))
    processes = {row.tuning.session for row in rows}
    return Repeated(
        row=rows[0],
        times=len(rows),
        processes=None if None in processes else len(processes),
        seconds=spent(rows[:-1]),
        untold=untold(rows[:-1]),
        winners=tuple(Counter(label for _, label in winners).most_common()),
    )


def systems(part: Part) -> tuple[str, ...]:
    """A name of each: device, and host unless ranks of one job share that device; else the cache
    file, else the log, of which nobody knows where it was written."""
    named: dict[str, set[str]] = {}
    for session in part.sessions.values():
        if session.system_hash:
            for kind in ("cpu", "gpu"):
                label = _label(session, kind)
                named.setdefault(f"{session.system_hash} {kind}", set()).add(label)
    found: dict[str, None] = {}
    for row in part.rows:
        for label in sorted(_of(row.tuning, row.asked, part.sessions, named)):
            found[label] = None
    return tuple(found)


def _of(
    tuning: Tuning,
    asked: tuple[str, ...],
    sessions: Mapping[str, Session],
    named: Mapping[str, set[str]],
) -> set[str]:
    kind = device_kind(tuning) or ""
    known = [sessions[name] for name in dict.fromkeys(asked) if name in sessions]
    if known:
        return {_label(session, kind) for session in known}
    hashes = systems_of(tuning, sessions)
    if hashes:
        return {min(named.get(f"{each} {kind}", {f"cache {each[:12]}"})) for each in hashes}
    return set(tuning.sources[:1])


def _label(session: Session, kind: str) -> str:
    if kind == "cpu":
        return f"CPU of {session.host or 'an unknown host'}"
    device = session.device or session.arch or "unknown device"
    return device if session.rank is not None or not session.host else f"{device} of {session.host}"
