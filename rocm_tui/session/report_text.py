"""The report of one job as the text that `compare` prints."""

from __future__ import annotations

from collections.abc import Iterable

from rocm_tui import format as fmt
from rocm_tui.session import stats
from rocm_tui.session.as_text import table
from rocm_tui.session.compare_text import lost_text
from rocm_tui.session.model import Row
from rocm_tui.session.report_types import (
    Absent,
    Bought,
    Disagreement,
    Gain,
    Repeated,
    Report,
)

GAINS = ("id", "op", "shape", "dtype", "in use", "saved", "calls", "in all", "tuning took")
GAINS_RIGHT = "lllllrrrr"
REPEATED = ("id", "op", "shape", "dtype", "times", "by", "winners", "again took")
REPEATED_RIGHT = "llllrllr"


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
        fmt.plain(tuning.op),
        fmt.plain(fmt.shapes(tuning)),
        fmt.plain(stats.dtype_of(tuning)),
    )


def _problem(row: Row) -> str:
    return " ".join(part for part in problem_cells(row) if part)


def _disagreements(found: Iterable[Disagreement]) -> list[str]:
    lines = []
    for each in found:
        lines.append(f"{_problem(each.row)}{'' if each.matters else ': a tie'}")
        for party in each.parties:
            rivals = ", ".join(
                f"{_short(label)} takes {fmt.duration(ms)}" for label, ms in party.rivals_ms
            )
            there = f"; there {rivals}" if rivals else ""
            lines.append(
                f"  {fmt.plain(party.who)}: {_short(party.choice.label)} "
                f"{fmt.duration(party.ms)}{there}"
            )
    if not lines:
        return ["Ranks and hosts agree: no problem has two choices in use."]
    return ["Chosen differently by ranks or hosts:", *lines]


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
    return (
        f"{fmt.plain(each.backend)}: {what} in {tunings} ({fmt.plain(', '.join(each.ops))}){where}"
    )


def reason_lines(each: Absent) -> list[str]:
    """Why, in a line a reason; one that says that nobody knows, if so."""
    if not each.reasons:
        return ["Inductor left it out and does not say why: operands that it does not take?"]
    return [
        fmt.plain(reason.text) if not reason.count else f"{reason.count}× {fmt.plain(reason.text)}"
        for reason in each.reasons
    ]


def _bought(bought: Bought) -> list[str]:
    if not bought.gains:
        return ["Nothing was tuned."]
    cells = [gain_cells(gain) for gain in bought.gains]
    return [bought_line(bought), table(GAINS, cells, GAINS_RIGHT)]


def bought_line(bought: Bought) -> str:
    """What all tunings save in one run, and what they cost."""
    ranks = f" on {bought.ranks} ranks together" if bought.ranks > 1 else ""
    unknown = f", of {bought.unknown} it is not known" if bought.unknown else ""
    saved = fmt.duration(bought.saved_ms) if bought.saved_ms > 0 else "nothing"
    line = (
        f"Tuning saves {saved} a run against ATen "
        f"and took {fmt.seconds(bought.seconds)}{ranks}{unknown}"
    )
    runs = bought.runs_to_pay
    return f"{line}: paid for after {runs:,.0f} runs." if runs and bought.seconds else f"{line}."


def gain_cells(gain: Gain) -> tuple[str, ...]:
    """A line of the table; a difference that cannot be told says `tie`."""
    saved = fmt.NONE if gain.saved_ms is None else "tie" if gain.tied else _saved(gain.saved_ms)
    total = (gain.saved_ms or 0.0) * (gain.calls or 0)
    return (
        *problem_cells(gain.row),
        _short(gain.choice.label),
        saved,
        fmt.NONE if gain.calls is None else str(gain.calls),
        _saved(total) if total and not gain.tied else fmt.NONE,
        fmt.seconds(gain.seconds) if gain.seconds else fmt.NONE,
    )


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
    took = fmt.seconds(each.seconds) if each.seconds else fmt.NONE
    return (*problem_cells(each.row), f"{each.times}×", by, winners, took)


def _short(label: str) -> str:
    return fmt.shorten(fmt.plain(label), 36)
