"""All that a row of a tuned table tells: what it is for, what was taken, the other columns with
their units, and what `lint` found of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from rocm_tui.harmless import plain
from rocm_tui.ingest.formats.tuned_table import choices_of
from rocm_tui.render.lines import filled, folded
from rocm_tui.render.lint import MARKS
from rocm_tui.render.table import Line, Span
from rocm_tui.render.tuned_tables import ASKED, UNTOLD, several_text
from rocm_tui.session import numbers as fmt
from rocm_tui.tables.findings import Finding
from rocm_tui.tables.shelf import Shelved

MEANINGS: dict[str, tuple[str, str]] = {
    "us": ("µs", "the time"),
    "us1": ("µs", "the first of two stages"),
    "us2": ("µs", "the second stage"),
    "tflops": ("TFLOP/s", "operations by the time"),
    "bw": ("GB/s", "bytes of operands and result by the time"),
    "errRatio": ("", "share of results that differ from the reference's"),
    "err_ratio": ("", "share of results that differ from the reference's"),
    "err1": ("", "share of results that differ, first stage"),
    "err2": ("", "share of results that differ, second stage"),
    "hipblaslt-Gflops": ("GFLOP/s", "operations by the time"),
    "hipblaslt-GB/s": ("GB/s", "bytes by the time"),
    "libtype": ("", "whose kernel"),
    "kernelId": ("", "its number in its library's list"),
    "solidx": ("", "its number in the library that was built"),
    "solution_index": ("", "its number in the library that was built"),
    "soulution_index": ("", "its number in the library that was built"),
    "splitK": ("", "K in so many parts; of CK and ASM as their kernels count"),
    "ksplit": ("", "K in so many parts"),
    "block_m": ("tokens", "of an expert's block"),
    "run_1stage": ("", "1: one kernel does both stages"),
    "xbf16": ("", "1: the activations stay bf16"),
    "_tag": ("", "who made it; the loader does not compare it"),
    "num_warps": ("", "warps, or waves, of a block"),
    "num_stages": ("", "of the loop's pipeline"),
    "waves_per_eu": ("", "waves asked for on a SIMD; 0 leaves it to the compiler"),
    "matrix_instr_nonkdim": ("", "M and N of the matrix instruction"),
    "kpack": ("", "elements of K that are packed"),
}  # fmt: skip
"""Units and meanings of columns, as far as their makers tell."""
_TIMES = frozenset(("us", "us1", "us2"))


def finding_line(finding: Finding) -> Line:
    """What is wrong, and what to do."""
    sign, style = MARKS[finding.level]
    where = "the whole file: " if finding.line is None else ""
    return (
        (f" {sign} {finding.rule}", style),
        (f"  {where}{plain(finding.text)}", ""),
        (f"; {plain(finding.todo)}" if finding.todo else "", "dim"),
    )


def column_texts(shelved: Shelved) -> Iterator[tuple[str, str, str]]:
    """Name, value with its unit, and meaning of each column that is told beside the key."""
    entry = shelved.entry
    for name, value in entry.extra:
        unit, meaning = MEANINGS.get(name, ("", ""))
        if not value.strip():
            continue
        text = _micro(value) if name in _TIMES else f"{plain(value)} {unit}".strip()
        yield plain(name), text, meaning


def columns_text(shelved: Shelved) -> str:
    """The same for `show`; empty where there are none."""
    columns = list(column_texts(shelved))
    if not columns:
        return ""
    lines = ("".join(text for text, _ in line).rstrip() for line in _table(columns))
    return "\n".join(("what its row tells besides:", *(f" {line}" for line in lines)))


def _micro(value: str) -> str:
    """A time in µs as the program writes times."""
    try:
        us = float(value)
    except ValueError:
        return plain(value)
    return fmt.duration(us / 1000) if us > 0 else f"{plain(value)} µs"


def entry_lines(shelved: Shelved, width: int, height: int) -> list[Line]:
    """In so many lines: what is wrong first, then what it is. Meanings stand there where they have
    a line each."""
    entry = shelved.entry
    choices = choices_of(entry)
    several = several_text(len(choices)) if entry.ms is None else ""
    solution = several or (plain(choices[0].label) if choices else ASKED)
    time = UNTOLD if entry.ms is None else fmt.duration(entry.ms)
    facts = (str(entry.device), shelved.place)
    head: Line = (
        (f" {plain(entry.op)}", "title"),
        *((f" · {plain(fact)}", "head") for fact in facts if fact),
    )
    solved = f"  {time}" if choices and not several else ""
    said: list[Line] = [
        ((f" {solution}", "strong"), (solved, "")),
        *map(finding_line, shelved.found),
    ]
    key = [(plain(name), plain(value)) for name, value in entry.key]
    lines = [filled(head, width), *(part for line in said for part in folded(line, width))]
    lines += _flow(key, width)
    columns = list(column_texts(shelved))
    if len(columns) <= height - len(lines):
        lines += _table(columns)
    else:
        lines += _flow([(name, value) for name, value, _ in columns], width)
    return [*lines[: height - 1], _MORE] if len(lines) > height else lines


_MORE: Line = ((" … enter gives it more room", "dim"),)


def _flow(pairs: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """`M 16 · N 512`, a pair never on two lines."""
    lines: list[list[Span]] = []
    used = width
    for name, value in pairs:
        needed = cell_len(name) + cell_len(value) + 4
        if used + needed > width or not lines:
            lines.append([])
            used = 0
        before = " · " if used else " "
        lines[-1] += [(before, "dim"), (f"{name} ", "dim"), (value, "")]
        used += needed
    return [tuple(line) for line in lines]


def _table(columns: Sequence[tuple[str, str, str]]) -> list[Line]:
    if not columns:
        return []
    names = max(len(name) for name, _, _ in columns)
    values = min(_VALUE, max(len(value) for _, value, _ in columns))
    return [
        ((f" {name:<{names}}  ", "dim"), (f"{fmt.shorten(value, _VALUE):<{values}}", ""),
         (f"  {meaning}" if meaning else "", "dim"))
        for name, value, meaning in columns
    ]  # fmt: skip


_VALUE = 60
