"""Entries of other tuners' tables, and what `lint` finds in them: for the screen and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.formats.tuned_table import choice_of, choices_of
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.table import Field, Line, Span, filled, folded
from rocm_tui.render.tuned_tables import ASKED, NAMES, UNTIMED, several_text
from rocm_tui.session import numbers as fmt
from rocm_tui.session.stats import asked_sizes
from rocm_tui.tables.collection import TableRow
from rocm_tui.tables.findings import LEVELS, Finding, Level, Linted
from rocm_tui.tables.lint import RULES

MARKS: dict[Level, tuple[str, str]] = {
    "error": ("✗", "bad"),
    "warning": ("!", "warn"),
    "note": ("·", "dim"),
}
"""Sign and style of a level on the screen."""


def findings_text(linted: Linted) -> str:
    """A line a finding, and one of all: `FILE:LINE: LEVEL: WHAT; WHAT TO DO [RULE]`."""
    return "\n".join((*map(finding_text, linted.findings), _summary(linted)))


def finding_text(finding: Finding) -> str:
    where = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
    todo = f"; {finding.todo}" if finding.todo else ""
    return f"{where}: {finding.level}: {finding.text}{todo} [{finding.rule}]"


def counts_text(counts: Mapping[Level, int]) -> str:
    """`1 error, 3 notes`."""
    said = [counted(counts[level], level) for level in LEVELS if counts.get(level)]
    return ", ".join(said) or "nothing found"


def _summary(linted: Linted) -> str:
    said = counts_text(Counter(finding.level for finding in linted.findings))
    checked = f"{counted(linted.tables, 'table')}, {counted(linted.rows, 'row')}"
    device = f"for {linted.device}" if linted.device else "for no device (name one with --device)"
    return f"{checked}, checked {device}: {said}"


class FindingJson(JsonObject):
    rule: str
    level: str
    file: str
    line: int | None
    count: int
    what: str
    todo: str


class LintJson(Document, tag="rocm-tui/lint/1"):
    device: str | None
    tables: int
    rows: int
    findings: list[FindingJson]

    @classmethod
    def of(cls, linted: Linted) -> LintJson:
        return fill(
            cls,
            linted,
            device=str(linted.device) if linted.device else None,
            findings=[
                fill(FindingJson, finding, file=finding.path, what=finding.text)
                for finding in linted.findings
            ],
        )


def rules_text() -> str:
    """Each rule: how bad, what it means, where that is from."""
    return "\n".join(
        f"{rule.id:<19} {rule.level:<8} {rule.meaning}"
        + (f"\n{'':<28} {rule.source}" if rule.source else "")
        for rule in RULES
    )


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
    "splitK": ("", "parts that K is split into; CK and ASM count their own way"),
    "ksplit": ("", "parts that K is split into"),
    "block_m": ("tokens", "of an expert's block"),
    "run_1stage": ("", "1: one kernel does both stages"),
    "xbf16": ("", "1: the activations stay bf16"),
    "_tag": ("", "who made it; the loader does not compare it"),
    "num_warps": ("", "warps, or waves, of a block"),
    "num_stages": ("", "of the loop's pipeline"),
    "waves_per_eu": ("", "waves requested on a SIMD; 0 leaves it to the compiler"),
    "matrix_instr_nonkdim": ("", "M and N of the matrix instruction"),
    "kpack": ("", "elements of K that are packed"),
}  # fmt: skip
"""Units and meanings of columns, as far as their makers document them."""
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


def column_texts(shelved: TableRow) -> Iterator[tuple[str, str, str]]:
    """Return the name, value with unit, and meaning of each column besides the key."""
    entry = shelved.entry
    for name, value in entry.extra:
        unit, meaning = MEANINGS.get(name, ("", ""))
        if not value.strip():
            continue
        text = _micro(value) if name in _TIMES else f"{plain(value)} {unit}".strip()
        yield plain(name), text, meaning


def columns_text(shelved: TableRow) -> str:
    """The same for `show`; empty where there are none."""
    columns = list(column_texts(shelved))
    if not columns:
        return ""
    lines = ("".join(text for text, _ in line).rstrip() for line in _table(columns))
    return "\n".join(("further columns of its row:", *(f" {line}" for line in lines)))


def _micro(value: str) -> str:
    """A time in µs as the program writes times."""
    try:
        us = float(value)
    except ValueError:
        return plain(value)
    return fmt.duration(us / 1000) if us > 0 else f"{plain(value)} µs"


def entry_lines(shelved: TableRow, width: int, height: int) -> list[Line]:
    """Fit the facts into this many lines, findings first. Meanings are added if each fact has a
    line."""
    entry = shelved.entry
    choices = choices_of(entry)
    several = several_text(len(choices)) if entry.ms is None else ""
    solution = several or (plain(choices[0].label) if choices else ASKED)
    time = UNTIMED if entry.ms is None else fmt.duration(entry.ms)
    facts = (str(entry.device), shelved.place)
    head: Line = (
        (f" {plain(entry.op)}", "title"),
        *((f" · {plain(fact)}", "head") for fact in facts if fact),
    )
    solved = f"  {time}" if choices and not several else ""
    said: list[Line] = [
        ((f" {solution}", "strong"), (solved, "")),
        *map(finding_line, shelved.findings),
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


def key_text(shelved: TableRow) -> str:
    """What the entry is looked up by, in short: `64×1280×8192`, `M=64 E=128 N=352`."""
    key = shelved.entry.key
    if len(key) == 1:
        return plain(key[0][1])
    return plain(asked_sizes(",".join(f"{name}={value}" for name, value in key)))


def solution_text(shelved: TableRow) -> str:
    """What was taken; of a config its blocks, warps and stages. Of several without times all."""
    if not shelved.entry.solution:
        return ASKED
    choices = choices_of(shelved.entry) if shelved.entry.ms is None else ()
    if len(choices) > 1:
        return plain(" or ".join(choice.label for choice in choices))
    return plain(choice_of(shelved.entry).label)


def lint_text(shelved: TableRow) -> str:
    """Return the sign and the rule of the worst finding, and how many more there are."""
    if not shelved.findings:
        return ""
    worst, more = shelved.findings[0], len(shelved.findings) - 1
    return f"{MARKS[worst.level][0]} {worst.rule}" + (f" +{more}" if more else "")


ENTRIES: tuple[Field[TableRow], ...] = (
    Field(
        "tuner", "TUNER", 5, 12, drop=7, style="dim",
        text=lambda row: plain(NAMES.get(row.table.tuner, row.table.tuner)),
        about="whose table it is",
    ),
    Field(
        "lint", "LINT", 4, 22, facts=True, text=lint_text,
        style=lambda row: MARKS[row.findings[0].level][1] if row.findings else "",
        about="what lint found: ✗ an error, ! a warning, · a note; and by which rule",
    ),
    Field(
        "op", "OP", 9, 30, drop=5, good=20, style="strong", text=lambda row: plain(row.entry.op),
        about="what is tuned, in the tuner's words",
    ),
    Field(
        "key", "KEY", 14, 70, good=22, text=key_text,
        about="what the tuner looks the entry up by, in short",
    ),
    Field(
        "solution", "SOLUTION", 14, 60, good=24, text=solution_text,
        style=lambda row: "" if row.entry.solution else "dim",
        about="what was taken; of several without a time it is unknown which",
    ),
    Field(
        "time", "TIME", 8, 9, right=True,
        text=lambda row: "" if row.entry.ms is None else fmt.duration(row.entry.ms),
        about="the time in the table, taken by another program",
    ),
    Field(
        "device", "DEVICE", 6, 24, drop=6, style="dim",
        text=lambda row: plain(str(row.entry.device)),
        about="what it was tuned on: the arch, the compute units, or a name",
    ),
    Field(
        "place", "PLACE", 8, 60, drop=4, good=16, style="dim", text=lambda row: plain(row.place),
        about="file and line",
    ),
)  # fmt: skip
