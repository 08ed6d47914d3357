"""The report of one job: who chose differently, which backends are missing, what tuning saves.

Pure functions over the tunings of all its ranks and hosts, and of all their machines: what is added
up over several is no run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from backend.model.choice import Choice
from backend.model.origin import device_kind
from backend.model.tuning import Tuning
from rocm_tui.compare.comparison import spent, taken, untold, was_tuned
from rocm_tui.compare.problems import ProblemRows, problems
from rocm_tui.compare.types import Part, calls_of, same_choice, timed, used
from rocm_tui.report.ranks import disagreements, shared
from rocm_tui.report.systems import rows_by_system
from rocm_tui.report.types import (
    Gain,
    Repeated,
    Report,
    Savings,
    missing_backends,
)
from rocm_tui.session import stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row
from rocm_tui.session.stats import versus, waited

MAY_WAIT = 0.9
WAITS = 4
WAITS_OF = 0.25
"""Milliseconds from which a time may be a wait on a busy CPU; how many of a job's times, and what
share of them, must look so: one of 25 does by chance."""


def report(part: Part) -> Report:
    """What the tunings of one job tell together."""
    all_problems = problems(part)
    by_several = shared(all_problems, part)
    return Report(
        disagreements=disagreements(by_several.compared),
        compared=len(by_several.compared),
        not_compared=by_several.not_compared,
        missing=missing_backends(part),
        backends_known=any(session.backends for session in part.sessions.values()),
        savings=savings(all_problems, part),
        repeated=repeated(all_problems),
    )


def savings(all_problems: Iterable[ProblemRows], part: Part) -> Savings:
    """Time saved against ATen and seconds spent, over all problems, and on each system alone: no
    run uses several devices, hosts or logs together."""
    tuned = tuple(row for row in part.rows if was_tuned(row))
    apart = rows_by_system(replace(part, rows=tuned))
    parts = ((name, replace(part, rows=tuple(rows))) for name, rows in apart.items())
    together = replace(_savings(all_problems, part), systems=tuple(apart))
    if len(apart) < 2:
        return together
    each = tuple((name, _savings(problems(own), own)) for name, own in parts)
    return replace(together, by_system=each)


def _savings(all_problems: Iterable[ProblemRows], part: Part) -> Savings:
    tuned = [row for row in part.rows if was_tuned(row)]
    busy = _busy_cpu(tuned)
    gains = [_gain(problem, busy) for problem in all_problems if any(map(was_tuned, problem.rows))]
    gains.sort(key=lambda gain: (_place(gain), -(gain.saved_ms or 0.0) * (gain.calls or 1)))
    moments = [row.tuning.when for row in tuned if row.tuning.when]
    return Savings(
        gains=tuple(gains),
        saved_ms=sum(
            (gain.saved_ms or 0.0) * (gain.calls or 1)
            for gain in gains
            if gain.measured and not gain.tied
        ),
        seconds=sum(gain.seconds for gain in gains),
        ranks=_ranks(part),
        unknown=untold(tuned),
        tunings=len(tuned),
        taken=sum(map(taken, tuned)),
        since=min(moments, default=None),
        until=max(moments, default=None),
    )


def _place(gain: Gain) -> int:
    """What is measured comes first, then what could be."""
    if gain.saved_ms is None:
        return 3
    if not gain.measured:
        return 1
    return 0 if gain.saved_ms else 2


def _gain(problem: ProblemRows, busy: bool) -> Gain:
    """Of the choice that most tunings use, and of those; of several such choices the latest. Where
    some of them were measured, of these alone."""
    uses = _uses(problem.rows)
    most = max(uses, key=len)
    latest, choice = most[0]
    every = [
        (row, own, ms) for row, own in most if (ms := stats.saved_ms(row.tuning, own)) is not None
    ]
    certain = [(row, ms) for row, own, ms in every if _measured(row.tuning, own)]
    known = certain or [(row, ms) for row, _, ms in every]
    sure = [(row, ms) for row, ms in known if not (busy and _waited(row.tuning, choice))]
    saved = [ms for _, ms in sure or known]
    waits = bool(known) and not sure
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
        measured=bool(certain),
    )


def _measured(tuning: Tuning, choice: Choice) -> bool:
    """Whether it is known what the choice saves: ATen itself saves nothing."""
    aten = stats.aten(tuning)
    return choice is aten or not stats.once(tuning, choice, aten)


def _busy_cpu(rows: Iterable[Row]) -> bool:
    """Whether so many times on a CPU are whole milliseconds that calls must have waited."""
    on_cpu = (row.tuning for row in rows if device_kind(row.tuning) == "cpu")
    long = [ms for tuning in on_cpu for _, ms in timed(tuning) if ms > MAY_WAIT]
    waits = sum(waited([ms]) for ms in long)
    return waits >= WAITS and waits >= WAITS_OF * len(long)


def _waited(tuning: Tuning, choice: Choice) -> bool:
    """Whether a time of the choice, or of ATen's, may be a wait; `choice` is known by its likes."""
    aten = stats.aten(tuning)
    own = next((c for c, _ in timed(tuning) if same_choice(c, choice)), None)
    if aten is None or own is None or aten is own or device_kind(tuning) != "cpu":
        return False
    if stats.measured(tuning, own) and stats.measured(tuning, aten):
        return False
    return any(c.ms is not None and waited([c.ms]) for c in (own, aten))


def _uses(rows: Iterable[Row]) -> list[list[tuple[Row, Choice]]]:
    """The tunings, latest first, with the choice in use, those with the same one together. A pin
    that holds decides what that is, whatever they took before it was made."""
    groups: list[list[tuple[Row, Choice]]] = []
    for row in rows:
        use = used(row.tuning)
        if use is not None:
            own = (in_use(row) or use[0]) if row.pin is not None else use[0]
            same = (group for group in groups if same_choice(group[0][1], own))
            home = next(same, None)
            if home is None:
                groups.append(home := [])
            home.append((row, own))
    return groups


def _tied_with_aten(tuning: Tuning, choice: Choice) -> bool:
    aten = stats.aten(tuning)
    own = next((c for c, _ in timed(tuning) if same_choice(c, choice)), choice)
    if aten is None or own == aten:
        return False
    return versus(tuning, own, aten) in ("tied", "unclear")


def _ranks(part: Part) -> int:
    """How many ranks worked side by side; 1 where none is known."""
    names = {name for row in part.rows for name in row.asked}
    sessions = [part.sessions[name] for name in names if name in part.sessions]
    known = {(session.host, session.rank) for session in sessions if session.rank is not None}
    return max(1, len(known))


def repeated(all_problems: Iterable[ProblemRows]) -> tuple[Repeated, ...]:
    """The problems that were tuned more than once, most seconds first."""
    repeats = [repeat for problem in all_problems if (repeat := _repeated(problem))]
    return tuple(sorted(repeats, key=lambda repeat: (-repeat.seconds, -repeat.times)))


def _repeated(problem: ProblemRows) -> Repeated | None:
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
