"""Every file below the folder that ROCM_TUI_TABLES names: rows are counted by a second way, and
each file comes back byte for byte."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.tables.model import Table
from backend.tables.registry import parse
from rocm_tui.ingest.formats.registry import HEAD, format_named, known_format, sniff
from rocm_tui.ingest.formats.tuned_table import MOST_ROWS
from rocm_tui.ingest.records import Seen

FOLDER = os.environ.get("ROCM_TUI_TABLES", "")
FILES = (
    sorted(
        path
        for path in Path(FOLDER).rglob("*")
        if path.is_file() and path.suffix not in (".md", ".tsv")
    )
    if FOLDER
    else []
)
pytestmark = pytest.mark.skipif(not FOLDER, reason="ROCM_TUI_TABLES names no folder")


def counted(table: Table) -> int:
    """Rows by a second way, which looks at as little as it can."""
    lines = [line.strip(b"\r \t") for line in table.data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    if table.tuner == "tunableop":
        return sum(b"TunableOp_" in line for line in lines)
    if Path(table.path).suffix in (".db", ".udb"):
        with closing(sqlite3.connect(f"file:{table.path}?mode=ro&immutable=1", uri=True)) as base:
            asked = "SELECT count(DISTINCT config) FROM perf_db"
            return int(base.execute(asked).fetchone()[0])
    if table.tuner == "miopen":
        return sum(b"=" in line for line in lines)
    if table.tuner == "hipblaslt":
        return sum(line.startswith((b"N,", b"T,")) for line in lines)
    if table.tuner == "aiter":
        return sum(bool(line.strip(b",")) for line in lines) - 1
    if table.tuner in ("moe", "aiter triton"):
        return configs(json.loads(table.data), 0)
    raise AssertionError(f"count the rows of {table.tuner}")


def configs(value: object, depth: int) -> int:
    """Outermost objects with something in them that is none, but for the document."""
    if not isinstance(value, dict):
        return 0
    if depth > 0 and any(not isinstance(each, dict) for each in value.values()):
        return 1
    return sum(configs(each, depth + 1) for each in value.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_public_file(path: Path) -> None:
    data = path.read_bytes()
    table = parse(data, str(path))
    assert table is not None, "no tuner knows it"
    assert not table.problems
    format = known_format(str(path)) or sniff(data[:HEAD])
    assert format.removesuffix(" db") == table.tuner
    assert len(table.entries) == counted(table)  # a header alone is a table too
    assert table.rewritten({entry: table.text(entry) for entry in table.entries}) == table.data
    assert table.data == data or format.endswith(" db")
    assert all(table.text(entry) and entry.op for entry in table.entries)
    assert shown(path, data) == min(len(table.entries), MOST_ROWS)


def shown(path: Path, data: bytes) -> int:
    """Rows that `ls` and Watch have of it."""
    format = format_named(known_format(str(path)) or sniff(data))
    assert format is not None
    if format.stream is not None:
        reader = format.stream(str(path))
        records = [*reader.feed(data), *reader.close()]
    else:
        assert format.document is not None
        records = format.document(data, str(path))
    return len({record.uid for record in records if isinstance(record, Seen)})
