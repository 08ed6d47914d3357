"""What choices compute, beside how long they take: in a cell, in sentences, as JSON."""

from __future__ import annotations

from typing import Any

from backend.counted import counted, noun
from backend.model.choice import Choice, Output
from rocm_tui.harmless import plain
from rocm_tui.render.table import attributes
from rocm_tui.session.in_use import output_change
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import why_wrong

ABOUT = (
    "choices of one letter gave the same bits; ✗ so many elements are further off than rounding "
    "explains; ~ not the same in each run; no bound: nothing says how far off is too far"
)

NO_BOUND = "no bound"


def output_text(output: Output | None) -> str:
    """`A`, `B ✗ 768`, `C ~`, `A no bound`; empty where nobody looked."""
    if output is None:
        return ""
    far = f" ✗ {output.beyond:,}" if output.beyond else "" if output.compared else f" {NO_BOUND}"
    return f"{output.group}{far}{'' if output.steady else ' ~'}"


def output_style(output: Output | None) -> str:
    if output is None or not (output.beyond or not output.steady):
        return "dim"
    return "bad" if output.beyond else "warn"


def output_sentences(name: str, output: Output | None) -> list[str]:
    """What a person should know of the result of `name`, if anything."""
    if output is None:
        return []
    told = []
    if output.beyond:
        told.append(
            f"{name}: {output.beyond:,} of {counted(output.compared, 'element')} "
            f"{noun(output.beyond, 'is', 'are')} further from the float64 result than rounding "
            "explains, the worst by "
            f"{_times(output.excess)} what is allowed"
        )
    if not output.steady:
        told.append(
            f"{name} is not deterministic: {output.runs - output.same} of "
            f"{counted(output.runs, 'run')} on the same inputs gave other bits than the first"
        )
    return told


def _times(excess: float) -> str:
    if not excess < 1e6:
        return "far more than"
    return f"{excess:,.0f}×" if excess >= 10 else f"{excess:.1f}×"


def output_warning(row: Row, choice: Choice) -> str | None:
    """What a pin of `choice` changes in the results of a model; None where it is not known to."""
    change = output_change(row, choice)
    told = output_sentences(choice.label, change.after)
    if change.bits == "other" and change.now is not None and change.now.hash != choice.hash:
        told.insert(0, f"{choice.label} gives other bits than {change.now.label}, which is in use")
    return plain(f"{'; '.join(told)}.") if told else None


def why_not_bitwise(row: Row, choice: Choice) -> str | None:
    """Why it is not proved that a pin of `choice` leaves every bit as it is; None if it is."""
    change = output_change(row, choice)
    if change.bits == "same":
        return None
    if change.bits == "other":
        return output_warning(row, choice) or f"{plain(choice.label)} gives other bits."
    names = [one.label for one in (change.now, choice) if one is not None]
    return plain(
        f"it is not known whether {' and '.join(names)} give the same bits: rocm-tui measure "
        f"{row.id} {' '.join(names)}"
    )


def output_json(output: Output | None) -> dict[str, Any] | None:
    if output is None:
        return None
    numbers = attributes(output, "group runs same compared beyond excess")
    excess = output.excess if output.excess < float("inf") else None
    far = "beyond" if output.beyond else "within" if output.compared else NO_BOUND
    return {**numbers, "excess": excess, "deterministic": output.steady, "rounding": far}


def change_json(row: Row, choice: Choice) -> dict[str, Any]:
    """What a pin of `choice` makes of the bits that later compiles compute."""
    change = output_change(row, choice)
    return {
        "bits": change.bits,
        "in_use": change.now.hash if change.now else None,
        "output": output_json(change.after),
        "warning": output_warning(row, choice),
        "wrong": why_wrong(row, choice),
    }
