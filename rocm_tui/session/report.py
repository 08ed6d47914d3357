"""The report of one job: who chose differently, which backends are absent, what tuning bought.

Pure functions over the tunings of all its ranks and hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from backend.records import Choice, Tuning
from rocm_tui.session import stats
from rocm_tui.session.compare import tuning_seconds
from rocm_tui.session.compare_choices import same_choice, timed, used
from rocm_tui.session.compare_pairs import Problem, problems
from rocm_tui.session.compare_types import Part, calls_of
from rocm_tui.session.model import Row
from rocm_tui.session.report_absent import absent
from rocm_tui.session.report_parties import disagreement
from rocm_tui.session.report_types import Bought, Gain, Repeated, Report
from rocm_tui.session.standing_text import versus


def report(part: Part) -> Report:
    """What the tunings of one job tell together."""
    found = problems(part)
    disagreements = [told for each in found if (told := disagreement(each.rows, part))]
    return Report(
        disagreements=tuple(sorted(disagreements, key=lambda each: not each.matters)),
        absent=absent(part),
        told=any(session.backends for session in part.sessions.values()),
        bought=bought(found, part),
        repeated=repeated(found),
    )


def bought(found: Iterable[Problem], part: Part) -> Bought:
    """Time saved against ATen and seconds spent, over all problems."""
    gains = [_gain(problem) for problem in found if any(map(_was_tuned, problem.rows))]
    gains.sort(key=lambda g: (g.saved_ms is None, -(g.saved_ms or 0.0) * (g.calls or 1)))
    tuned = [row for row in part.rows if _was_tuned(row)]
    return Bought(
        gains=tuple(gains),
        saved_ms=sum((g.saved_ms or 0.0) * (g.calls or 1) for g in gains if not g.tied),
        seconds=sum(gain.seconds for gain in gains),
        ranks=_ranks(part),
        unknown=sum(tuning_seconds(row) is None for row in tuned),
    )


def _gain(problem: Problem) -> Gain:
    """Of the choice that most tunings use, and of those; of several such choices the latest."""
    uses = _uses(problem.rows)
    most = max(uses, key=len)
    latest, choice = most[0]
    saved = [ms for row, own in most if (ms := _saved(row.tuning, own)) is not None]
    return Gain(
        row=latest,
        choice=choice,
        saved_ms=median(saved) if saved else None,
        tied=_tied_with_aten(latest.tuning, choice),
        calls=calls_of(problem.rows),
        seconds=sum(tuning_seconds(row) or 0.0 for row in problem.rows),
    )


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
    if aten is None or choice == aten:
        return False
    return versus(tuning, choice, aten) in ("tied", "unclear")


def _was_tuned(row: Row) -> bool:
    """Whether the row tells of a tuning with times, and not only of the use of an older one."""
    return bool(timed(row.tuning))


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
    rows = [row for row in problem.rows if _was_tuned(row)]
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
        seconds=sum(tuning_seconds(row) or 0.0 for row in rows[:-1]),
        winners=tuple(Counter(label for _, label in winners).most_common()),
    )
