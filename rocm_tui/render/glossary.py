"""Every term, column and state with the sentence that explains it.

The help screen and docs/data/glossary.csv are generated from this. A column brings its own
sentence, so that a new column is explained where it is defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocm_tui.render import improve
from rocm_tui.render.agree import DIFFERING
from rocm_tui.render.choices import PANE, QUANTILES, RESOURCES, SHOWN, STEP
from rocm_tui.render.compare import ALONE, CHANGES, ENTRY, PAIRS
from rocm_tui.render.graphs import ARMS, GRAPH_TUNINGS, GRAPHS, KERNELS, SIDES, TABLE_SIDES
from rocm_tui.render.history import HISTORY
from rocm_tui.render.measured import MEASURED, REPEATS
from rocm_tui.render.pages import PAGES
from rocm_tui.render.pins import HISTORY_COLUMNS, PIN_COLUMNS, PIN_SIGNS
from rocm_tui.render.table import Column, Field
from rocm_tui.render.tunings import COLUMNS, ID
from rocm_tui.session.query.fields import FIELDS


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A word as the screen shows it, as commands print it, and what it means."""

    title: str
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that belong together."""

    title: str
    entries: tuple[GlossaryEntry, ...]


TERMS = {
    "op": "what Inductor tunes: mm, addmm, bmm, convolution, ...",
    "inputs key": "the operands' shapes, strides, types and device, as Inductor caches them",
    "precision": "of float32 products; the third key of Inductor's autotune cache",
    "choice": "one candidate kernel: ATen, Triton, C++, CK or a ROCm template",
    "choice hash": "the name under which Inductor caches a choice's time",
    "tuning": "one autotuning of an op, inputs and precision: its choices and times",
    "session": "one process that tuned something: host, pid, rank, torch, device",
    "source": "a file that is read: a log, a cache, a trace, a table of another tuner",
    "pin": "a person's decision that a tuning shall use a choice, until it is unpinned",
    "offered": "put up together by one program; two may offer different choices under one key",
    "fastest": "the choice with the smallest time of a tuning, which Inductor takes unless another "
    "is pinned",
    "in use": "what programs take: the pinned choice while its pin holds, else the fastest",
    "vs ATen": "ATen's time over that of what is in use: 1.25× is 1.25 times as fast",
    "lead": "how far the next choice lies behind what is in use, relative to it",
    "saved": "what a call, or a pass of the model, takes less than with ATen",
    "tie": "two choices as fast as each other: within 2 % for single times",
    "~": "made of a time that was taken once: a first look, no verdict (m measures)",
    "?, suspect": "made of one that is not to be believed: `show` says why (a measures all)",
    "measured": "timed many times, alternating with its rivals, with an interval",
    "layout": "of a product's factors: N lies by rows, T by columns, + with gaps between them",
    "bar": "how much slower than the best: a longer one is slower, to the scale above it",
    "hot, cold": "inputs that are in the caches when a kernel starts, or are not",
    "graph": "one compiled FX graph of a program",
    "trial": "whole passes of a graph, alternating with a choice in place and without",
    "share": "part of a program's time in compiled graphs, as far as that was seen",
    "to gain": "share that a choice measured to be faster saves; at most all until one is measured",
    "missing backend": "requested, but none of its choices could be used",
}
"""Words used everywhere: on the screen, by commands, in JSON and in the documentation."""
STANDINGS = {
    "faster": "or fastest: its whole interval lies beyond the others'",
    "tied": "the difference is smaller than what matters, and that is known",
    "slower": "its whole interval lies behind the best",
    "unclear": "more rounds or a quieter machine may decide",
    "beaten": "in use, and a measurement found another to be faster: `#2 wins` names the second",
    "apart": "under the same key, but no program is known that offers it beside these",
    "failed": "did not compile or run; the reason is beside it",
}
TUNING_STATES = {
    "running": "choices are being timed: 3/14 are",
    "done": "all choices were timed, or one was taken from the cache or a pin",
    "cut": "its end, or a row, could not be read: who is fastest is not known",
}


def groups() -> tuple[Group, ...]:
    """Return all groups, in the order in which a reader meets them."""
    return (
        _words("Terms", TERMS.items()),
        _words("Verdicts", STANDINGS.items()),
        _words("States of a tuning", TUNING_STATES.items()),
        _words("States of a pin", ((state, sign.about) for state, sign in PIN_SIGNS.items())),
        _columns("Tunings: ls and Watch", (ID, *COLUMNS)),
        _filter_fields(),
        _columns("Choices: show", (*SHOWN, QUANTILES, STEP)),
        _columns("Choices on the screen", PANE),
        _columns("What a kernel takes", RESOURCES),
        _columns("Measured: measure and show", MEASURED),
        _columns("Measured several times", REPEATS),
        _columns("Compared: what both have", PAIRS),
        _columns("Compared: what one has", ALONE),
        _columns("Compared: keys of two tables with another solution", CHANGES),
        _columns("Compared: what one table has", ENTRY),
        *(_columns(f"Report: {name}", columns) for name, columns in PAGES.items()),
        _columns("Chosen differently: agree", DIFFERING),
        _columns("Graphs: graphs", GRAPHS),
        _columns("A graph's tunings", GRAPH_TUNINGS),
        _columns("A graph's kernels", KERNELS),
        _columns("Tried in a graph: trial", ARMS),
        _columns("Tried in a program: trial -- CMD", SIDES),
        _columns("Tuned tables in a program: trial --table", TABLE_SIDES),
        _columns("Improved: improve", improve.GAINS),
        _columns("Pins that improve proposes", improve.PINS),
        _columns("Proved: prove", improve.PROOFS),
        _columns("History of a problem: show --history", HISTORY),
        _columns("Pins", PIN_COLUMNS),
        _columns("History of pins", HISTORY_COLUMNS),
    )


def _filter_fields() -> Group:
    entries = ((f.name, f.name, f"{f.about}: {f.example}") for f in FIELDS)
    return Group(
        "Fields of a filter: / and ls --filter", tuple(GlossaryEntry(*entry) for entry in entries)
    )


def _words(title: str, words: Iterable[tuple[str, str]]) -> Group:
    return Group(title, tuple(GlossaryEntry(word, word, about) for word, about in words))


def _columns(title: str, columns: Iterable[Column]) -> Group:
    """Return a group of the columns with a title: a bar or a detail explains itself."""
    return Group(title, tuple(_entry(column) for column in columns if column.title))


def _entry(column: Column) -> GlossaryEntry:
    name = column.heading if isinstance(column, Field) else column.title.lower()
    return GlossaryEntry(column.title, name, column.about)
