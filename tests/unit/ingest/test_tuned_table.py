"""Tables of other tuners as sources: rows of their own, as they come, whatever else is there."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from backend.model.problem import Problem
from backend.model.session import Fault
from backend.tables.model import MAX_LINE, NOT_ITS_FORM, TOO_LONG, Entry, NotAProblem
from rocm_tui.ingest.follow.tailer import QUIET, Tailer
from rocm_tui.ingest.formats import tuned_table
from rocm_tui.ingest.formats.registry import format_named
from rocm_tui.ingest.formats.tuned_table import MORE
from rocm_tui.ingest.records import Gone, Record, Seen

HEAD = b"Validator,PT_VERSION,2.13.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
ROWS = (
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_TN_12683,0.182\n"
    b"GemmTunableOp_BFloat16_TN,tn_96_16_64_ld_64_64_96,Default,0.0125\r\n"
    b"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_8_8_8_ld_8_8_8,Default,0.5\n"
)
BROKEN = b"GemmTunableOp_Half_TN,tn_1_1_1,no solution,soon\n"


def read(
    data: bytes, cuts: list[int] | None = None, tuner: str = "tunableop", name: str = "r.csv"
) -> list[Record]:
    """As a reader tells of data that comes in pieces."""
    format = format_named(tuner)
    assert format is not None and format.stream is not None
    reader = format.stream(name)
    edges = [0, *sorted(cuts or []), len(data)]
    records = [r for a, b in pairwise(edges) for r in reader.feed(data[a:b])]
    return records + reader.close()


def test_each_row_is_an_entry() -> None:
    records = read(b"\xef\xbb\xbf" + HEAD + ROWS + BROKEN)
    first, second, scaled, problem = records
    assert isinstance(first, Seen) and isinstance(second, Seen) and isinstance(scaled, Seen)
    tuning = first.tuning
    assert tuning.entry is not None
    assert (tuning.entry.tuner, tuning.entry.line, tuning.entry.device) == (
        "tunableop",
        3,
        "gfx942",
    )
    assert (tuning.op, tuning.shapes) == ("mm", ((64, 128), (128, 320)))
    assert [(c.name, c.ms, c.hash) for c in tuning.choices] == [
        ("Gemm_Hipblaslt_TN_12683", 0.182, None)
    ]
    assert tuning.key is None and tuning.inputs_key == "GemmTunableOp_Half_TN,tn_320_64_128"
    assert scaled.tuning.op.startswith("ScaledGemmTunableOp") and not scaled.tuning.shapes
    assert problem == Fault("r.csv", NOT_ITS_FORM, 6)
    assert len({record.uid for record in records if isinstance(record, Seen)}) == 3


def test_cut_anywhere_it_tells_the_same() -> None:
    data = HEAD + ROWS + BROKEN + b"x" * (3 * MAX_LINE) + ROWS[:66] + ROWS
    whole = read(data)
    draw = random.Random(3)
    for _ in range(20):
        assert read(data, draw.sample(range(len(data)), 6)) == whole
    assert [r.what for r in whole if isinstance(r, Fault)] == [NOT_ITS_FORM, TOO_LONG]


def test_a_find_db_of_any_name_is_recognised_by_its_beginning() -> None:
    """Its lines have times, so one that lacks its time is torn."""
    key = "64-28-30-3x3-96-14-15-8-1x1-2x2-1x1-0-NCHW-FP16-F"
    whole = f"{key}=GemmFwdRest:3.1,0,miopenConvolutionFwdAlgoGEMM\n"
    torn = f"{key.replace('64', '32', 1)}=GemmFwdRest:3.1\n"
    for name in ("copy.txt", "gfx942130.HIP.fdb.txt"):
        records = read((whole + torn).encode(), tuner="miopen", name=name)
        (problem,) = [record for record in records if isinstance(record, Fault)]
        assert problem.line == 2
        assert len([record for record in records if isinstance(record, Seen)]) == 1


def test_hostile_text_is_harmless() -> None:
    evil = b"GemmTunableOp_Half_TN,tn_8_4_2,\x1b[31mGemm\x9b\0,1\n" * 3
    records = read(HEAD + evil + bytes(range(256)) * 9 + b"\n" + evil)
    rows = [record for record in records if isinstance(record, Seen)]
    assert len(rows) == 6 and "Gemm" in rows[0].tuning.choices[0].label
    for record in records:
        text = record.tuning.choices[0].label if isinstance(record, Seen) else str(record)
        assert "\x1b" not in text and "\x9b" not in text and "\0" not in text


def test_a_flood_of_damage_is_told_once() -> None:
    faults = [r for r in read(HEAD + BROKEN * 5000) if isinstance(r, Fault)]
    assert len(faults) == 21 and "not listed" in faults[-1].what


def test_rows_appear_as_a_program_appends_them(tmp_path: Path) -> None:
    path = tmp_path / "tunableop_results0.csv"
    path.write_bytes(HEAD)
    tailer = Tailer(str(path))
    assert tailer.poll(0.0) == []
    with path.open("ab") as stream:
        stream.write(ROWS[:66] + ROWS[66:-8])  # the last row is cut in its solution
    assert len(tailer.poll(1.0)) == 2 and tailer.retry_at is not None
    later = tailer.poll(1.0 + QUIET)
    assert all(isinstance(record, Fault) for record in later)
    with path.open("ab") as stream:
        stream.write(ROWS[-8:])
    (last,) = tailer.poll(9.0)
    assert isinstance(last, Seen) and last.tuning.choices[0].ms == 0.5


def test_a_half_written_time_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(HEAD + ROWS[:64])  # `0.18`
    tailer = Tailer(str(path))
    tailer.poll(0.0)
    (half,) = tailer.poll(QUIET)
    assert tailer.retry_at is None and tailer.poll(2.0) == [], "it was told"
    path.write_bytes(HEAD + ROWS)
    whole = tailer.poll(3.0)
    assert isinstance(half, Seen) and isinstance(whole[0], Seen)
    assert half.uid == whole[0].uid and whole[0].tuning.choices[0].ms == 0.182


@pytest.mark.parametrize("change", ["truncated", "replaced"])
def test_another_file_in_its_place_is_read_anew(tmp_path: Path, change: str) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(HEAD + ROWS)
    tailer = Tailer(str(path))
    assert len(tailer.poll(0.0)) == 3
    if change == "replaced":
        path.unlink()
    path.write_bytes(HEAD + ROWS[:66])
    gone, first = tailer.poll(1.0)
    assert isinstance(gone, Gone) and isinstance(first, Seen)


def test_of_files_beyond_all_measure_the_first_rows_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that are followed at once share the room; what is closed leaves it."""
    monkeypatch.setattr(tuned_table.RowQuota, "_all", WeakSet())  # those of other tests
    monkeypatch.setattr(tuned_table, "MOST_ROWS", 5)
    monkeypatch.setattr(tuned_table, "_LOOK", 1)
    format = format_named("tunableop")
    assert format is not None and format.stream is not None
    first, second = format.stream("first.csv"), format.stream("second.csv")
    assert len(first.feed(HEAD + ROWS)) == 3
    *rows, more = second.feed(HEAD + ROWS + BROKEN + ROWS)
    assert len(rows) == 2 and all(isinstance(row, Seen) for row in rows)
    assert more == Fault("second.csv", MORE) and second.feed(ROWS) == []
    assert first.feed(ROWS) == [Fault("first.csv", MORE)]
    del first, second
    assert len(format.stream("third.csv").feed(HEAD + ROWS)) == 3


def test_documents_share_the_room_with_all_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_table.RowQuota, "_all", WeakSet())  # those of other tests
    monkeypatch.setattr(tuned_table, "MOST_ROWS", 5)
    step = '"{}": {{"BLOCK_SIZE_M": 16, "num_warps": 4}}'
    steps = ["{" + ", ".join(step.format(m) for m in range(1, n + 1)) + "}" for n in range(7)]

    def written(n: int, path: Path) -> Path:
        path.write_text(steps[n])
        return path

    names = [f"E=8,N={n},device_name=AMD_Instinct_MI300X.json" for n in range(3)]
    paths = [written(3, tmp_path / name) for name in names]
    tailers = [Tailer(str(path), "moe") for path in paths]
    told = [[type(record) for record in tailer.poll(0.0)] for tailer in tailers]
    assert told == [[Seen] * 3, [Seen, Seen, Fault], [Fault]]
    written(4, paths[0])  # its own rows do not stand in its way
    assert sum(isinstance(record, Seen) for record in tailers[0].poll(2.0)) == 0
    tailers[1].withdraw()
    written(5, paths[0])
    gone, *rows = tailers[0].poll(4.0)  # that there are more is no longer so
    assert isinstance(gone, Gone) and [type(row) for row in rows] == [Seen] * 5


def test_a_row_that_is_still_written_is_no_fault_until_nobody_ends_it() -> None:
    format = format_named("tunableop")
    assert format is not None and format.stream is not None
    row = ROWS[: ROWS.index(b"\n") + 1]
    for cut in range(
        len("GemmTunableOp_Half_TN,"), len("GemmTunableOp_Half_TN,tn_320_64_128,Gemm")
    ):
        reader = format.stream("r.csv")
        assert [type(record) for record in reader.feed(HEAD + row + row[:cut])] == [Seen]
        assert reader.settle() == []
        assert not reader.waits
        assert [type(record) for record in reader.feed(row[cut:])] == [Seen]
        assert reader.close() == []
        reader = format.stream("r.csv")
        reader.feed(HEAD + row + row[:cut])
        assert reader.settle() == []
        (fault,) = reader.close()
        assert isinstance(fault, Fault) and fault.line == 4


BLOCKS = (("BLOCK_SIZE_M", "16"), ("BLOCK_SIZE_N", "128"), ("BLOCK_SIZE_K", "64"))
LAUNCH = (("num_warps", "4"), ("num_stages", "2"), ("x", "1"))


def entry(
    solution: str, ms: float | None = None, line: int = 3, start: int = 0, **facts: Any
) -> Entry:
    return Entry(line, start, 9, "gemm\x07", facts.pop("key", ()), solution, ms, **facts)


@pytest.mark.parametrize(
    ("row", "choices"),
    [
        (entry("", 1.0), []),
        (entry("s\x07", 0.5), [("s", 0.5, "")]),
        (entry("s", 0.5, others=(("o\x07", 0.75),)), [("s", 0.5, ""), ("o", 0.75, "")]),
        (entry("s", extra=(("s", "1,2"), ("t", "3"))), [("s", None, "s:1,2"), ("t", None, "t:3")]),
        (entry("s", 0.5, extra=(("s", "1,2"),)), [("s", 0.5, "")]),
        (entry("s", extra=(("t", "3"), ("s", "1"))), [("s", None, "")]),
        (entry("BLOCK_SIZE_M=16", extra=(*BLOCKS, *LAUNCH)),
         [("16×128×64, 4 warps, 2 stages", None, "BLOCK_SIZE_M=16")]),
        (entry("BLOCK_SIZE_M=16", extra=BLOCKS), [("16×128×64", None, "BLOCK_SIZE_M=16")]),
        (entry("BLOCK_SIZE_M=16", extra=BLOCKS[:2]), [("BLOCK_SIZE_M=16", None, "")]),
        (entry("other", extra=BLOCKS), [("other", None, "")]),
    ],
)  # fmt: skip
def test_the_choices_of_an_entry(row: Entry, choices: list[Any]) -> None:
    assert [(c.name, c.ms, c.description) for c in tuned_table.choices_of(row)] == choices
    told = tuned_table.seen("aiter", row, not_a_problem, "/t.csv")
    assert told.uid == "/t.csv#3" and told.tuning.num_choices == len(choices)
    assert told.tuning.entry is not None and told.tuning.entry.unread == "why"
    assert (told.tuning.op, told.tuning.inputs_key) == ("gemm", "gemm,")


def not_a_problem(row: Entry) -> Problem:
    raise NotAProblem("why\x07")


def test_an_entry_is_named_by_its_place_and_its_key() -> None:
    def problem(row: Entry) -> Problem:
        return Problem("mm", ((2, 3), (3, 4)), dtypes=("torch.int8",) * 2, precision="high")

    one = tuned_table.seen("t", entry("s", start=7, key=(("params", "x"),)), problem, "/t.csv")
    two = tuned_table.seen("t", entry("s", key=(("M", "1"), ("N", "2"))), problem, "/t.csv")
    assert (one.uid, two.uid) == ("/t.csv#3.7", "/t.csv#3")
    assert (one.tuning.inputs_key, two.tuning.inputs_key) == ("gemm,x", "gemm,M=1,N=2")
    assert (one.tuning.op, one.tuning.shapes, one.tuning.precision) == (
        "mm",
        ((2, 3), (3, 4)),
        "high",
    )
    assert one.tuning.entry is not None and not one.tuning.entry.unread


def test_a_mark_of_the_encoding_begins_a_file_and_no_other_line() -> None:
    for head, op in ((b"", "mm"), (HEAD, "GemmTunableOp_Half_TN")):
        first = read(head + b"\xef\xbb\xbf" + ROWS)[0]
        assert isinstance(first, Seen) and first.tuning.op.endswith(op)
