"""Rows as the plain text that `ls` and `show` print."""

from __future__ import annotations

from collections.abc import Sequence

from backend.model.choice import Choice
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui import format as fmt
from rocm_tui.session import measured_text, stats
from rocm_tui.session.model import Row
from rocm_tui.session.standing_text import lead_text, versus

HEADER = ("id", "op", "shape", "dtype", "choices", "winner", "time", "vs ATen", "to 2nd", "pin")
RIGHT = "llllrlrrrl"

CHOICE_HEADER = ("#", "choice", "time", "", "from", "hash", "configuration")
CHOICE_RIGHT = "rlrrlll"
APART = "apart: under the same key, but no program is known that offers it beside the others"


def row_cells(row: Row) -> tuple[str, ...]:
    """One line of `ls`. A gain inside the tie band says `tie`, not a number."""
    tuning = row.tuning
    best = stats.winner(tuning)
    return (
        row.id if row.occurrence == 1 else f"{row.id} ({row.occurrence})",
        fmt.plain(tuning.op),
        fmt.shorten(fmt.shapes(tuning), 40),
        fmt.plain(stats.dtype_of(tuning)),
        stats.tried_text(tuning),
        fmt.shorten(fmt.plain(best.label), 36) if best else _unknown_time(tuning),
        fmt.duration(stats.time_ms(tuning, best)),
        _against_aten(tuning),
        lead_text(tuning),
        row.pin_state or "",
    )


def _unknown_time(tuning: Tuning) -> str:
    """What stands for the winner where no choice has a time."""
    chosen = stats.chosen(tuning)
    return fmt.shorten(fmt.plain(chosen.description), 36) if chosen else tuning.state


def _against_aten(tuning: Tuning) -> str:
    best, rival, gain = stats.winner(tuning), stats.aten(tuning), stats.gain(tuning)
    if best is not None and provider(best) == "aten":
        return "is ATen"
    if best is None or rival is None or gain is None:
        return fmt.NONE
    found = versus(tuning, best, rival)
    words = {"tied": "tie", "unclear": "unclear"}
    return words.get(found or "", fmt.factor(gain))


def facts(row: Row) -> list[tuple[str, str]]:
    """What `show` says above the choices: name and value of each known fact."""
    tuning = row.tuning
    best = stats.winner(tuning)
    throughput = stats.tflops(tuning, stats.time_ms(tuning, best))
    known = [
        ("tuning", f"{row.id}, occurrence {row.occurrence}, {tuning.state}"),
        ("operands", fmt.operands(tuning)),
        ("strides", " · ".join(str(list(strides)) for strides in tuning.strides)),
        ("dtypes", ", ".join(tuning.dtypes)),
        ("device", tuning.device or ""),
        ("precision", tuning.precision or ""),
        ("winner", _winner(row)),
        ("throughput", f"{fmt.throughput(throughput)} TFLOP/s" if throughput else ""),
        ("saved", _saved(tuning)),
        ("spent", _spent(row)),
        ("pin", f"{row.pin.pin.label}, {row.pin.state}" if row.pin else ""),
        ("rank", "" if tuning.rank is None else str(tuning.rank)),
        ("sources", ", ".join(fmt.plain(source) for source in tuning.sources)),
    ]
    return [(name, fmt.plain(value)) for name, value in known if value]


def _saved(tuning: Tuning) -> str:
    """Nothing where the winner is not known to be faster than ATen."""
    best, rival, saved = stats.winner(tuning), stats.aten(tuning), stats.saved_ms(tuning)
    if best is None or rival is None or saved is None or versus(tuning, best, rival) != "clear":
        return ""
    return f"{fmt.duration(saved)} a call against ATen"


def _winner(row: Row) -> str:
    tuning = row.tuning
    best, found = stats.winner(tuning), stats.standing(tuning)
    if best is None or found is None:
        known = best or stats.chosen(tuning)
        return known.label if known else ""
    lead = stats.lead(tuning)
    if found == "tied":
        return f"{best.label}, tied with the second ({fmt.percent(abs(lead or 0.0))} apart)"
    if found == "unclear":
        return f"{best.label}, unclear whether it is the fastest"
    if found == "slower":
        return f"{best.label}, beaten when measured again"
    return f"{best.label}, {fmt.percent(lead)} ahead"


def _spent(row: Row) -> str:
    seconds = row.tuning.seconds
    parts = [
        f"{fmt.seconds(value)} {name}"
        for name, value in (
            ("precompiling", seconds.precompile),
            ("prescreening", seconds.prescreen),
            ("benchmarking", seconds.benchmark),
        )
        if value is not None
    ]
    return ", ".join(parts)


def choice_cells(place: int, choice: Choice, best: Choice | None, pinned: str | None) -> list[str]:
    """One line of `show`: place, name, time, time over the best, backend, hash, configuration."""
    ratio = ""
    if best and best.ms and choice.ms is not None:
        ratio = f"+{fmt.percent(choice.ms / best.ms - 1)}" if choice is not best else "best"
    if choice.failed:
        ratio = "failed"
    if not choice.offered:
        ratio = "apart"
    config = ", ".join(f"{key}={value}" for key, value in choice.config.items())
    mark = "* " if pinned is not None and choice.hash == pinned else ""
    return [
        f"#{place}" if choice.ms is not None and choice.offered else "",
        fmt.plain(mark + choice.label),
        fmt.duration(choice.ms),
        ratio,
        provider(choice) or "?",
        fmt.plain(choice.hash or "?"),
        fmt.plain(choice.reason or config or choice.description),
    ]


def show_text(row: Row, only: Choice | None = None) -> str:
    """What `show` prints: the facts, then every choice, or `only` that one."""
    lines = [f"{name:<11}{value}" for name, value in facts(row)]
    best, pinned = stats.winner(row.tuning), row.pin.pin.hash if row.pin else None
    rows = [
        choice_cells(place, choice, best, pinned)
        for place, choice in enumerate(row.tuning.choices, start=1)
        if only is None or choice is only
    ]
    lines += ["", table(CHOICE_HEADER, rows, CHOICE_RIGHT)]
    if not all(choice.offered for choice in row.tuning.choices):
        lines += ["", APART]
    found = row.tuning.measured
    if found is not None and only is None:
        again = measured_text.rows(row.tuning, found)
        lines += ["", "Measured again:", table(measured_text.HEADER, again, measured_text.RIGHT)]
        lines += ["", *measured_text.sentences(row.tuning, found, row.id, row.pin)]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Columns of text; those whose place in `right` holds `r` are aligned to the right."""
    cells = [[fmt.plain(text) for text in row] for row in (header, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    lines = []
    for row in cells:
        parts = [
            text.rjust(width) if right[at : at + 1] == "r" else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
