"""The report of one job as the text that `compare` prints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rocm_tui.harmless import plain
from rocm_tui.render.compare import lost_text
from rocm_tui.render.table import table
from rocm_tui.report.types import (
    Absent,
    Bought,
    Disagreement,
    Gain,
    Repeated,
    Report,
)
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.model import Row

GAINS = ("id", "op", "shape", "dtype", "in use", "saved", "calls", "in all", "tuning took")
GAINS_RIGHT = "lllllrrrr"
REPEATED = ("id", "op", "shape", "dtype", "times", "by", "winners", "again took")
REPEATED_RIGHT = "llllrllr"
_LONG = 30 * 86400.0
"""Seconds between tunings from which it is said when they were made."""


def text(report: Report) -> str:
    """The four parts, each with a headline that says what was found."""
    blocks = [
        _disagreements(report.disagreements),
        _absent(report.absent, report.told),
        _bought(report.bought),
        _repeated(report.repeated),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def problem_cells(row: Row) -> tuple[str, str, str, str]:
    """Id, op, shape and types."""
    tuning = row.tuning
    return (
        row.id,
        plain(tuning.op),
        plain(stats.sizes_text(tuning)),
        plain(stats.dtype_of(tuning)),
    )


def _problem(row: Row) -> str:
    return " ".join(part for part in problem_cells(row) if part)


def _disagreements(found: Sequence[Disagreement]) -> list[str]:
    lines = []
    for each in found:
        lines.append(f"{_problem(each.row)}{'' if each.matters else ': a tie'}")
        for party in each.parties:
            rivals = ", ".join(
                f"{_short(label)} takes {fmt.duration(ms)}" for label, ms in party.rivals_ms
            )
            there = f"; there {rivals}" if rivals else ""
            lines.append(
                f"  {plain(party.who)}: {_short(party.choice.label)} "
                f"{fmt.duration(party.ms)}{there}"
            )
    if not lines:
        return ["Ranks and hosts agree: no problem has two choices in use."]
    return [f"Chosen differently by {parties(found)}:", *lines]


def parties(found: Sequence[Disagreement]) -> str:
    """Whose choices differ; logs may have nothing to do with each other."""
    logs = "logs, of which it is not known whether they are of one job"
    if all(each.told for each in found):
        return "ranks or hosts"
    return f"ranks or hosts, or by {logs}" if any(each.told for each in found) else logs


def _absent(found: Iterable[Absent], told: bool) -> list[str]:
    lines = []
    for each in found:
        lines.append(absent_line(each))
        lines += [f"  {line}" for line in reason_lines(each)]
    if lines:
        return ["Requested but absent:", *lines]
    if told:
        return ["Every backend that was asked for has a choice that works."]
    return ["Which backends were asked for is told by sessions of `rocm-tui run` only."]


def absent_line(each: Absent) -> str:
    """`CK: no choice in 12 tunings (bmm, mm)`."""
    tunings = "1 tuning" if each.tunings == 1 else f"{each.tunings} tunings"
    what = f"all {each.failed} choices failed" if each.failed else "no choice"
    where = "" if each.everywhere else ", though there is one elsewhere"
    return f"{plain(each.backend)}: {what} in {tunings} ({plain(', '.join(each.ops))}){where}"


def reason_lines(each: Absent) -> list[str]:
    """Why, in a line a reason; one that says that nobody knows, if so."""
    if not each.reasons:
        return ["Inductor left it out and does not say why: operands that it does not take?"]
    return [
        plain(reason.text) if not reason.count else f"{reason.count}× {plain(reason.text)}"
        for reason in each.reasons
    ]


def _bought(bought: Bought) -> list[str]:
    if not bought.gains:
        return ["Nothing was tuned."]
    cells = [gain_cells(gain) for gain in bought.gains]
    return [*bought_lines(bought), table(GAINS, cells, GAINS_RIGHT)]


def bought_lines(bought: Bought) -> list[str]:
    """What all tunings save in one run and what they cost, then what that leaves out."""
    lines = [f"{_saves(bought)} {_took(bought)}{_paid(bought)}"]
    summed = [gain for gain in bought.valued if not gain.tied and gain.saved_ms]
    once = sum(gain.calls is None for gain in summed)
    if once:
        what = "one problem is" if once == 1 else f"{once} problems are"
        lines.append(f"Nothing tells how often {what} called: counted once.")
    waits = sum(gain.waited for gain in bought.gains)
    if waits:
        what = "One problem is" if waits == 1 else f"{waits} problems are"
        lines.append(
            f"{what} not counted: times are whole milliseconds, as of "
            "calls that wait on a busy CPU. `rocm-tui measure` tells what is saved."
        )
    if len(bought.systems) > 1:
        names = [plain(name, 60) for name in bought.systems[:3]]
        more = [f"{len(bought.systems) - 3} more"] if len(bought.systems) > 3 else []
        lines.append(
            f"This adds up {len(bought.systems)} machines or logs, which no one run uses together: "
            f"{', '.join([*names, *more])}."
        )
    if bought.since and bought.until and bought.until - bought.since > _LONG:
        first, last = (
            time.strftime("%Y-%m-%d", time.localtime(when)) for when in (bought.since, bought.until)
        )
        lines.append(f"Tuned between {first} and {last}.")
    return lines


def _saves(bought: Bought) -> str:
    """The sum, and of what it is the sum."""
    known, count = len(bought.valued), len(bought.gains)
    if not known:
        none = "it has no" if count == 1 else f"none of {count} problems has a"
        return f"What tuning saves against ATen is not known: {none} time of ATen. Tuning"
    sums = f"saves {fmt.duration(bought.saved_ms)}" if bought.saved_ms > 0 else "saves nothing"
    if bought.saved_ms < 0:
        sums = f"loses {fmt.duration(-bought.saved_ms)}"
    rest = f" ({known} of {count} problems: {count - known} without a time of ATen)"
    return f"Tuning {sums} a run against ATen{rest if known < count else ''} and"


def _took(bought: Bought) -> str:
    ranks = f" on {bought.ranks} ranks together" if bought.ranks > 1 else ""
    if not bought.seconds and bought.unknown:
        return "took nobody knows how long"
    if bought.unknown:
        does = "does" if bought.unknown == 1 else "do"
        some = f"{bought.unknown} of {bought.tunings} tunings {does} not tell"
        return f"took at least {fmt.seconds(bought.seconds)}{ranks} ({some})"
    return f"took {fmt.seconds(bought.seconds)}{ranks}"


def _paid(bought: Bought) -> str:
    """After how many runs it is paid for, as far as that is known."""
    runs = bought.runs_to_pay
    if runs is None:
        unknown = bought.saved_ms > 0 and len(bought.systems) < 2
        return "; after how many runs it is paid for is not known." if unknown else "."
    least = "at least " if bought.at_least else ""
    known, count = len(bought.valued), len(bought.gains)
    who = f"; those {known} are" if known < count else ":"
    return f"{who} paid for after {least}{runs:,.0f} runs."


def gain_cells(gain: Gain) -> tuple[str, ...]:
    """A line of the table; a difference that cannot be told says `tie`."""
    saved = fmt.NONE if gain.saved_ms is None else "tie" if gain.tied else _saved(gain.saved_ms)
    saved = "waited" if gain.waited else saved
    total = (gain.saved_ms or 0.0) * (gain.calls or 0)
    return (
        *problem_cells(gain.row),
        _short(gain.choice.label),
        saved,
        fmt.NONE if gain.calls is None else str(gain.calls),
        _saved(total) if total and not gain.tied else fmt.NONE,
        _seconds(gain.seconds, gain.untold),
    )


def _seconds(seconds: float, untold: int) -> str:
    """What tunings took: `≥` where some of them do not tell."""
    if not seconds:
        return fmt.NONE
    return f"{'≥' if untold else ''}{fmt.seconds(seconds)}"


def _saved(ms: float) -> str:
    return "is ATen" if ms == 0 else fmt.duration(ms) if ms > 0 else lost_text(ms)


def _repeated(found: Iterable[Repeated]) -> list[str]:
    cells = [repeated_cells(each) for each in found]
    if not cells:
        return ["No problem was tuned twice."]
    return ["Tuned again and again:", table(REPEATED, cells, REPEATED_RIGHT)]


def repeated_cells(each: Repeated) -> tuple[str, ...]:
    winners = ", ".join(f"{_short(label)} {times}×" for label, times in each.winners)
    processes = each.processes
    by = fmt.NONE if processes is None else f"{processes} process{'es' if processes > 1 else ''}"
    took = _seconds(each.seconds, each.untold)
    return (*problem_cells(each.row), f"{each.times}×", by, winners, took)


def _short(label: str) -> str:
    return fmt.shorten(plain(label), 36)
