"""What choices compute, beside how long they take: in a cell, in sentences, as JSON."""

from __future__ import annotations

from typing import Any

from backend.model.choice import Output
from rocm_tui.render.table import attributes
from rocm_tui.session import numbers as fmt

ABOUT = (
    "choices of one letter gave the same bits; ✗ so many elements are further off than rounding "
    "explains; ~ not the same in each run; ? compared with nothing"
)


def output_text(output: Output | None) -> str:
    """`A`, `B ✗ 768`, `C ~`, `A ?`; empty where nobody looked."""
    if output is None:
        return ""
    far = f" ✗ {output.beyond:,}" if output.beyond else "" if output.compared else " ?"
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
        worst = (
            f"{fmt.significant(output.excess)} times" if output.excess < 1e6 else "far more than"
        )
        told.append(
            f"{name}: {output.beyond:,} of {output.compared:,} elements are further from the "
            f"float64 result than rounding explains, the worst by {worst} what is allowed"
        )
    if not output.steady:
        told.append(
            f"{name} is not deterministic: {output.runs - output.same} of {output.runs} runs on "
            "the same inputs gave other bits than the first"
        )
    return told


def output_json(output: Output | None) -> dict[str, Any] | None:
    if output is None:
        return None
    numbers = attributes(output, "group runs same compared beyond excess")
    excess = output.excess if output.excess < float("inf") else None
    return {**numbers, "excess": excess, "deterministic": output.steady}
