"""Entries of other tuners' tables: as rows of their own, and beside Inductor's tunings."""

from __future__ import annotations

from backend.counted import counted
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render.table import Line
from rocm_tui.session import numbers as fmt
from rocm_tui.session.in_use import taken
from rocm_tui.session.model import Row

NAMES = {
    "tunableop": "TunableOp",
    "aiter": "AITER",
    "aiter triton": "AITER Triton",
    "moe": "fused MoE",
    "hipblaslt": "hipBLASLt",
    "miopen": "MIOpen",
}
"""What the tuners are called."""
ELSEWHERE = "timed by another program, so not ranked with the choices"
UNTIMED = "no time recorded"
ASKED = "requested, not tuned"


def tuner_name(tuning: Tuning) -> str:
    """Who tuned it."""
    tuner = tuning.entry.tuner if tuning.entry else ""
    return NAMES.get(tuner, tuner) if tuner else "Inductor"


def place_of(tuning: Tuning) -> str:
    """`results0.csv:7`."""
    name = tuning.sources[0].rsplit("/", 1)[-1] if tuning.sources else "?"
    return f"{name}:{tuning.entry.line}" if tuning.entry else name


def _entry_texts(tuning: Tuning) -> list[str]:
    """Return its tuner, solution, time, device and place."""
    choice = taken(tuning) if tuning.entry else tuning.choices[0] if tuning.choices else None
    time = UNTIMED if choice is None or choice.ms is None else fmt.duration(choice.ms)
    device = tuning.entry.device if tuning.entry else ""
    solved = [choice.label, time] if choice else [several_text(len(tuning.choices)) or ASKED]
    key = (tuning.inputs_key or "").partition(",")[2] if tuning.options else ""
    parts = (tuner_name(tuning), *solved, device, place_of(tuning), key)
    return [plain(part) for part in parts if part]


def several_text(count: int) -> str:
    """Return the text for an entry with several solutions that does not say which one is taken;
    empty for others."""
    return f"{count} solutions; which one is taken is unknown" if count > 1 else ""


def beside_lines(row: Row) -> list[Line]:
    """Return a line for each entry beside a tuning; their times are not compared with its own."""
    lines: list[Line] = []
    for at, entry in enumerate(row.beside):
        who, *rest = _entry_texts(entry)
        said = f" · {ELSEWHERE}" if at == 0 else ""
        lines.append(((f" {who}  ", "accent"), ("  ".join(rest), ""), (said, "dim")))
    return lines


def beside_text(row: Row) -> list[str]:
    """The same for `show`."""
    if not row.beside:
        return []
    about = f"{counted(len(row.beside), 'entry', 'entries')} of other tuners' tables, {ELSEWHERE}:"
    return ["", about, *("  " + "  ".join(_entry_texts(entry)) for entry in row.beside)]


def entry_verdict(tuning: Tuning) -> Line:
    """Return what is shown of an entry in place of a verdict."""
    who, *rest = _entry_texts(tuning)
    return ((f" {who}", "strong"), (": " + " · ".join(rest), ""))


def entry_facts(tuning: Tuning) -> list[tuple[str, str]]:
    """Return who wrote the entry of a table, its line, its key and its solution."""
    entry = tuning.entry
    if entry is None:
        return []
    solution, choice = several_text(len(tuning.choices)) or ASKED, taken(tuning)
    if choice is not None:
        time = UNTIMED if choice.ms is None else fmt.once(fmt.duration(choice.ms))
        solution = f"{choice.label}, {time}"
    key = (tuning.inputs_key or "").replace(",", ", ").replace(",  ", ", ")
    return [
        ("tuner", f"{tuner_name(tuning)}, line {entry.line}"),
        ("key", key),
        ("solution", solution),
    ]
