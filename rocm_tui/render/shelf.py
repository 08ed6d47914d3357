"""Entries of tuned tables, for the screen that lists and finds them."""

from __future__ import annotations

from rocm_tui.harmless import plain
from rocm_tui.ingest.formats.tuned_table import choice_of, choices_of
from rocm_tui.render.lint import MARKS
from rocm_tui.render.table import Field
from rocm_tui.render.tuned_tables import ASKED, NAMES
from rocm_tui.session import numbers as fmt
from rocm_tui.session.stats import asked_sizes
from rocm_tui.tables.shelf import Shelved


def key_text(shelved: Shelved) -> str:
    """What the entry is looked up by, in short: `64×1280×8192`, `M=64 E=128 N=352`."""
    key = shelved.entry.key
    if len(key) == 1:
        return plain(key[0][1])
    return plain(asked_sizes(",".join(f"{name}={value}" for name, value in key)))


def solution_text(shelved: Shelved) -> str:
    """What was taken; of a config its blocks, warps and stages. Of several without times all."""
    if not shelved.entry.solution:
        return ASKED
    choices = choices_of(shelved.entry) if shelved.entry.ms is None else ()
    if len(choices) > 1:
        return plain(" or ".join(choice.label for choice in choices))
    return plain(choice_of(shelved.entry).label)


def time_text(shelved: Shelved) -> str:
    """Empty where none is told."""
    return "" if shelved.entry.ms is None else fmt.duration(shelved.entry.ms)


def lint_text(shelved: Shelved) -> str:
    """The sign of the worst that was found of it, and by which rule; how many more."""
    if not shelved.found:
        return ""
    worst, more = shelved.found[0], len(shelved.found) - 1
    return f"{MARKS[worst.level][0]} {worst.rule}" + (f" +{more}" if more else "")


ENTRIES: tuple[Field[Shelved], ...] = (
    Field(
        "tuner", "TUNER", 5, 12, drop=7, style="dim",
        text=lambda one: plain(NAMES.get(one.table.tuner, one.table.tuner)),
        about="whose table it is",
    ),
    Field(
        "lint", "LINT", 4, 22, facts=True, text=lint_text,
        style=lambda one: MARKS[one.found[0].level][1] if one.found else "",
        about="what lint found: ✗ an error, ! a warning, · a note; and by which rule",
    ),
    Field(
        "op", "OP", 9, 30, drop=5, good=14, style="strong", text=lambda one: plain(one.entry.op),
        about="what is tuned, in the tuner's words",
    ),
    Field(
        "key", "KEY", 14, 70, good=22, text=key_text,
        about="what the tuner looks the entry up by, in short",
    ),
    Field(
        "solution", "SOLUTION", 14, 60, good=24, text=solution_text,
        style=lambda one: "" if one.entry.solution else "dim",
        about="what was taken; of several without a time, which of them is not told",
    ),
    Field(
        "time", "TIME", 8, 9, right=True, text=time_text,
        about="how long it took, as the table tells it: another program timed it",
    ),
    Field(
        "device", "DEVICE", 6, 24, drop=6, style="dim",
        text=lambda one: plain(str(one.entry.device)),
        about="what it was tuned on: the arch, the compute units, or a name",
    ),
    Field(
        "place", "PLACE", 8, 60, drop=4, good=12, style="dim", text=lambda one: plain(one.place),
        about="file and line",
    ),
)  # fmt: skip
