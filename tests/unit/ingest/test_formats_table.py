"""The table of formats: who is in it, and that an entry is all that a new one needs."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest import formats
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats import event_log, registry, stderr_log
from rocm_tui.ingest.formats.reader import Complaints, Format, WholeLines
from rocm_tui.ingest.formats.stderr_log import StderrLog
from rocm_tui.ingest.records import Record, Seen


def test_every_format_stands_in_the_table_under_a_name_of_its_own() -> None:
    modules = [
        importlib.import_module(f"{formats.__name__}.{module.name}")
        for module in pkgutil.iter_modules(formats.__path__)
    ]
    listed = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    assert len(listed) >= 5
    assert set(map(id, listed)) <= set(map(id, registry.FORMATS))
    names = [format.name for format in registry.FORMATS]
    assert len(set(names)) == len(names) and not {"", "folder", registry.EMPTY} & set(names)


@pytest.mark.parametrize("format", registry.FORMATS, ids=lambda format: format.name)
def test_a_format_has_one_way_to_be_read(format: Format) -> None:
    ways = [format.stream, format.document, format.refused]
    assert sum(map(bool, ways)) == 1
    assert format.of_file is None or format.stream is not None
    assert format.suffixes


def parse(data: bytes, source: str) -> list[Record]:
    return [Seen(f"{source}#1", Tuning(op=data.decode().split()[1]))]


def test_an_entry_is_all_that_a_new_format_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are recognised by their beginning, in folders by their suffix too."""
    new = Format("new", re.compile(rb"NEW "), suffixes=frozenset({".new"}), document=parse)
    monkeypatch.setattr(registry, "FORMATS", (new, *registry.FORMATS))
    monkeypatch.setattr(registry, "_BY_NAME", {**registry._BY_NAME, "new": new})
    monkeypatch.setattr(registry, "_BY_SUFFIX", {".new": frozenset({"new"})})
    path = tmp_path / "a.new"
    path.write_text("NEW mm\n")
    for source in (path, tmp_path):
        (seen,) = read_sources([str(source)])
        assert isinstance(seen, Seen) and seen.tuning.op == "mm"


def test_complaints_end_and_say_so() -> None:
    complaints = Complaints("a", 2)
    texts = [p.what for n in range(5) for p in complaints.about(f"{n} is odd", n)]
    assert texts == ["0 is odd", "1 is odd", "more problems are not listed"]
    (other,) = complaints.about("x" * 1000, kind="long")
    assert len(other.what) == 300 and other.what.endswith("x…")
    assert complaints.once("again", 1, "long") == []
    torn = [p.what for n in range(4) for p in complaints.about(f"{n} is torn", n, "a torn row")]
    assert torn[2:] == ["more problems of this kind follow and are not listed: a torn row"]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_whole_lines_however_the_bytes_come(size: int) -> None:
    data = b"a\n\nbc\n" + b"d" * 50 + b"\nlast"
    lines = WholeLines(20)
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    whole = size == 100  # what is there with its end is no burden
    assert found == [b"a", b"", b"bc", b"d" * 50 if whole else b""]
    assert lines.dropped == (not whole)
    assert lines.open == lines.rest() == b"last"
    assert lines.open == lines.rest() == b""


@pytest.mark.parametrize("size", [7, 60])
def test_a_line_that_is_too_long_is_one_problem_in_its_place(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(event_log, "MAX_LINE", 40)
    data = b"\n" + b"z" * 200 + b'{"event": "odd"}\n' + b"odd\n"
    log = event_log.EventLog("a.jsonl")
    faults = [f for at in range(0, len(data), size) for f in log.feed(data[at : at + size])]
    told = [(fault.line, fault.what) for fault in faults if isinstance(fault, Fault)]
    assert [line for line, _ in told] == [2, 3] and told[0][1] == "a line of more than 16 MiB"


def test_a_marker_cut_in_two_is_lost_however_the_bytes_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stderr_log, "MAX_LINE", 300)
    before = b"step 1\n" * 20_000 + b"[x] out of resource: y\n"
    data = before + b"z" * 295 + b"AUTOTUNE mm(4x4, 4x4)\nstep 2\n"
    for size in (7, len(data)):
        log = StderrLog("a.log")
        records = [r for at in range(0, len(data), size) for r in log.feed(data[at : at + size])]
        assert records + log.close() == []
