"""A second count of the real logs, by a few plain patterns and none of our reader's code.

A header begins a table and the next one of the same process ends it; what stands between is its.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.model.tuning import Tuning
from tests.support.log_lab import LOGS, Result, needs_corpus, read
from tests.support.scan_lab import scanned

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PROCESS = re.compile(r"\[(?:rank|default|[a-z_]+)(\d+)\]:")
HEADER = re.compile(r"\bAUTOTUNE (\w+)\(")
ROW = re.compile(r"(\S+) (\d+\.\d+|inf) ms (?:\d+\.\d%|<DIVIDED BY ZERO ERROR>)")
FOOTER = re.compile(r"Process AUTOTUNE (?:benchmarking )?takes ([\d.]+) seconds")
PRECOMPILE = re.compile(r"and ([\d.]+) seconds precompiling")
CHOICES = re.compile(r"for (\d+) choices")


class Table(NamedTuple):
    op: str
    rows: tuple[tuple[str, float], ...]
    seconds: float | None
    precompile: float | None
    choices: int | None


def counted(text: str) -> list[Table]:
    """The tables of a log, those of a process one after another."""
    lines: dict[str, list[str]] = {}
    for line in re.split(r"[\r\n]+", COLOUR.sub("", text)):
        process = PROCESS.search(line)
        lines.setdefault(process[1] if process else "", []).append(line)
    tables: list[Table] = []
    for mine in lines.values():
        _, *parts = re.split(r"(?=\bAUTOTUNE \w+\()", "\n".join(mine))
        tables += map(table, parts)
    return tables


def table(part: str) -> Table:
    header, rows = HEADER.match(part), ROW.findall(part)
    assert header
    ends = [part[found.start() :].partition("\n")[0] for found in FOOTER.finditer(part)]
    # One that tells of fewer choices than there are rows is another table's, whose header is gone.
    end = next((e for e in ends if int((CHOICES.findall(e) or [99])[0]) >= len(rows)), "")
    footer, precompile, choices = FOOTER.match(end), PRECOMPILE.search(end), CHOICES.search(end)
    return Table(
        header[1],
        tuple((name, float(ms)) for name, ms in rows),
        float(footer[1]) if footer else None,
        float(precompile[1]) if precompile else None,
        int(choices[1]) if choices else None,
    )


def ours(tuning: Tuning, counts: bool) -> Table:
    rows = tuple((c.name or "", c.ms if c.ms is not None else float("inf")) for c in tuning.choices)
    seconds = tuning.seconds
    choices = tuning.num_choices if counts else None
    return Table(tuning.op, rows, seconds.benchmark, seconds.precompile, choices)


def agree(result: Result, text: str) -> None:
    theirs = counted(text)
    whole = [each for each in theirs if each.rows]
    # The number of choices also stands in the statistics, which are not looked at here.
    mine = [ours(tuning, any(t.choices for t in whole)) for tuning in result.tunings]
    bare = [each._replace(choices=None) for each in mine]
    assert sorted(bare, key=repr) == sorted((t._replace(choices=None) for t in whole), key=repr)
    told = {each for each in whole if each.choices is not None}
    assert told <= set(mine)
    assert len(result.empty) == len(theirs) - len(whole)


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_second_count_agrees_on_every_real_log(path: Path) -> None:
    text = path.read_text(errors="replace")
    agree(read(path.read_bytes()), text)
    agree(scanned(path.read_bytes()), text)


@needs_corpus
def test_the_second_count_sees_what_there_is() -> None:
    found = [counted(path.read_text(errors="replace")) for path in LOGS]
    assert sum(map(len, found)) == 117
    assert sum(len(table.rows) for each in found for table in each) > 700
    text = "\n".join(path.read_text(errors="replace") for path in LOGS)
    assert len(HEADER.findall(text)) > 100 and len(FOOTER.findall(text)) > 100


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_second_count_agrees_where_a_footer_or_rows_are_missing(path: Path) -> None:
    """Every real log again, with lines taken out: a table's end, or all of its rows."""
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if FOOTER.search(line)][:3]
    heads = [at for at, line in enumerate(lines) if HEADER.search(line)][:3]
    for end in ends:
        text = "".join(lines[:end] + lines[end + 1 :])
        agree(read(text), text)
    for head in heads:
        stop = next((at for at in range(head + 1, len(lines)) if HEADER.search(lines[at])), None)
        rest = [line for line in lines[head + 1 : stop] if not ROW.search(line)]
        text = "".join([*lines[: head + 1], *rest, *lines[len(lines) if stop is None else stop :]])
        agree(read(text), text)
