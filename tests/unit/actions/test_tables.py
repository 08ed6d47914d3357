"""Tables found in folders and read, by `lint` and `cover` alike: the same bounds and sentences."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import PinRefused, StoreError
from backend.pins.store import PinStore
from rocm_tui.actions import tables
from rocm_tui.actions.sources import load_model
from rocm_tui.cli.entry import main
from rocm_tui.errors import NoSuchTuning
from rocm_tui.ingest.formats.tuned_table import NAMES
from rocm_tui.ingest.records import SourceStatus
from tests.support.store_disks import make_stale

ROWS = "Validator,PT_VERSION,2.13.0\nGemmTunableOp_float_NN,nn_4_4_4_ld_4_4_4,Default,0.5\n"
ASKED = "GemmTunableOp_float_NN,nn_4_4_4_ld_4_4_4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tunableop_untuned0.csv").write_text(ASKED)
    below = tmp_path / "tables" / "deep" / "er"
    below.mkdir(parents=True)
    (below / "tunableop_results0.csv").write_text(ROWS)
    return below


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def both(capsys: pytest.CaptureFixture[str], path: str) -> list[tuple[int, str]]:
    """The exit codes of `lint` and `cover` and what they say is wrong, of one path as a table."""
    lint = said(capsys, "lint", path)
    cover = said(capsys, "cover", "tunableop_untuned0.csv", "--table", path)
    return [(lint[0], lint[2]), (cover[0], cover[2])]


def test_a_folder_is_searched_to_its_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "pipe.csv")
    (folder / "gone.csv").symlink_to("nowhere")
    (folder / "round").symlink_to(folder.parent, target_is_directory=True)
    (folder / "notes.txt").write_text("no table\n")
    assert said(capsys, "lint", "tables")[:2] == (
        0,
        "1 table, 1 row, checked for no device (name one with --device): nothing found\n",
    )
    assert said(capsys, "cover", "tunableop_untuned0.csv", "tables")[0] == 0


def test_too_many_files_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_FILES", 2)
    for number in range(2):
        (folder / f"{number}.json").write_text("{}")
    lint, cover = both(capsys, "tables")
    assert lint == cover
    assert lint[0] == 2 and "tables has more than 2 files; name a folder below it" in lint[1]


def test_one_sentence_for_each_thing_that_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo("pipe.csv")
    Path("other.csv").write_text("a,b\n1,2\n")
    for path, sentence in (
        ("gone.csv", "cannot read gone.csv: No such file or directory"),
        ("pipe.csv", "pipe.csv is not a regular file; move it away"),
        ("other.csv", "other.csv is no table of a tuner that is known here"),
    ):
        lint, cover = both(capsys, path)
        assert lint == cover
        assert lint[0] == 1 and sentence in lint[1]


def test_a_table_that_is_too_large_is_refused_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never read in part: rows that are left out would look as if they were not there."""
    path = folder / "tunableop_results0.csv"
    with path.open("r+b") as stream:
        stream.truncate(safe.MAX_BYTES + 1)
    lint, cover = both(capsys, str(path))
    assert lint == cover
    assert lint[0] == 1 and "has 512 MiB, more than 512; move it away" in lint[1]


def test_what_cannot_be_read_in_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`lint` checks a damaged document, `cover` names it and goes on."""
    name = "E=8,N=512,device_name=AMD_Instinct_MI300X.json"
    (folder / name).write_text('{"1": {"BLOCK_SIZE_M": 16')
    code, out, _ = said(capsys, "lint", "tables")
    assert code == 1 and "1 line unreadable: cut off on line 1" in out
    code, _, err = said(capsys, "cover", "tunableop_untuned0.csv", "tables")
    assert code == 0 and f"{name} is damaged: cut off on line 1" in err


def test_a_table_that_is_as_it_was_is_not_read_again(folder: Path) -> None:
    path = folder / "tunableop_results0.csv"
    before = tables.load_tables([str(path)])
    again = tables.load_tables([str(path)], before)
    assert again.collection.tables[0] is before.collection.tables[0]
    (table,) = before.collection.tables
    path.unlink()
    assert tables.tables_within(1 << 20, [str(path)], {str(path): table}) == ([table], 0)
    assert tables.tables_within(1 << 20, [str(path)]) == ([], 1)


# Rows that a person means


TABLE = (
    "Validator,PT_VERSION,2.9.0\n"
    "GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.182\n"
    "GemmTunableOp_Half_TN,tn_64_64_64,Default,0.01\n"
    "GemmTunableOp_Half_TN,tn_64_64_64,Gemm_Rocblas_3,0.02\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "results0.csv"
    path.write_text(TABLE)
    return path


def test_a_row_is_meant_by_its_file_and_line(table: Path) -> None:
    assert tables.is_place(f"{table}:2") and tables.is_place(f"{table}:10")
    for text in (str(table), f"{table}:0", f"{table}:x", f"{table}-none:2", f"{table}:02"):
        assert not tables.is_place(text)
    row = tables.row_at(f"{table}:2")
    assert row.entry.line == 2 and row.table.path == str(table)
    assert row.entry.solution == "Gemm_Hipblaslt_12683"
    for text, said in (
        ("results0.csv", "FILE:LINE"),
        (f"{table}:1", "one begins on line 2"),
        (f"{table}:9", "one begins on line 4"),
        (f"{table}:4", "line 3 says, which is taken"),
    ):
        with pytest.raises(NoSuchTuning, match=said):
            tables.row_at(text)


def test_a_link_to_a_table_is_the_table(table: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(table)
    assert tables.row_at(f"{link}:2").table.path == str(table)


def test_a_solution_is_a_name_values_or_another_table(table: Path, tmp_path: Path) -> None:
    row = tables.row_at(f"{table}:2")
    named = tables.solution_of(row, "Gemm_Rocblas_-7")
    assert named.label == "Gemm_Rocblas_-7" and named.values == {"solution": "Gemm_Rocblas_-7"}
    assert "Gemm_Rocblas_-7" in named.text and "12683" not in named.text
    assert tables.solution_of(row, "solution=Gemm_Rocblas_-7") == named
    other = tmp_path / "other.csv"
    other.write_text(TABLE.replace("12683", "4711"))
    assert tables.solution_of(row, str(other)).label == "Gemm_Hipblaslt_4711"
    other.write_text(TABLE.replace("tn_320_64_128", "tn_1_1_1"))
    with pytest.raises(PinRefused, match="no entry"):
        tables.solution_of(row, str(other))
    other.write_text("M,N,K,bias,dtype,outdtype,scaleAB\n16,4096,1024,False,a,b,False\n")
    with pytest.raises(StoreError):
        tables.solution_of(row, str(other))
    aiter = tmp_path / "a8w8_tuned_gemm.csv"
    aiter.write_text("gfx,cu_num,M,N,K,kernelName,us\ngfx942,304,16,1280,8192,a,12.5\n")
    with pytest.raises(PinRefused, match=r"is a table of \w+, not of \w+"):
        tables.solution_of(row, str(aiter))
    with pytest.raises(PinRefused):
        tables.solution_of(row, "a=b=c,")


def test_a_solution_may_be_longer_than_the_name_of_a_file(tmp_path: Path) -> None:
    table = tmp_path / "a8w8_tuned_gemm.csv"
    table.write_text("gfx,cu_num,M,N,K,kernelName,us\ngfx942,304,16,1280,8192,a,12.5\n")
    values = {"kernelName": "a8w8_" * 60}
    solution = tables.solution_of(tables.row_at(f"{table}:2"), f"kernelName={'a8w8_' * 60}")
    assert solution.values == values
    assert not tables.is_place(f"{values['kernelName']}:2")


def test_a_pinned_row_is_known_by_its_place(table: Path, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cache")
    layout.root.mkdir()
    row = tables.row_at(f"{table}:2")
    solution = tables.solution_of(row, "Gemm_Rocblas_-7")
    plan = tables.plan_row(row, solution, layout)
    assert table.read_text() == TABLE and plan.replaces is None
    report = tables.pin_row(row, solution, layout, note="why")
    assert (report.pin.label, report.pin.note) == ("Gemm_Rocblas_-7", "why")
    assert "Gemm_Rocblas_-7" in table.read_text()
    pins = PinStore(layout).pins()
    assert tables.pins_at(pins, f"{table}:2") == list(pins) and len(pins) == 1
    with pytest.raises(NoSuchTuning, match="is not pinned"):
        tables.pins_at(pins, f"{table}:3")


def test_a_solution_is_shown_as_it_is_typed(table: Path, folder: Path) -> None:
    row = tables.row_at(f"{table}:2")
    assert tables.values_in_words(row.table, row.entry) == "Gemm_Hipblaslt_12683"
    ladder = folder / "E=8,N=512,device_name=AMD_Instinct_MI300X.json"
    ladder.write_text(
        '{"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}}'
    )
    (loaded,) = tables.load_tables([str(ladder)]).collection.tables
    words = tables.values_in_words(loaded, loaded.entries[0])
    assert words.count("=") == 3 and words.startswith("BLOCK_SIZE_M=16")


def test_the_row_of_a_tuning_is_read_again_and_must_be_the_same(table: Path) -> None:
    (first, *_) = load_model(Layout(table.parent), [str(table)]).rows()
    tuning = first.tuning
    assert tuning.entry is not None
    row = tables.row_of(tuning)
    assert row is not None and row.entry.line == tuning.entry.line
    assert tables.row_of(replace(tuning, entry=None)) is None
    table.write_text(TABLE.replace("tn_320", "tn_321").replace("tn_64_64_64", "tn_65_64_64"))
    assert tables.row_of(tuning) is None
    table.unlink()
    assert tables.row_of(tuning) is None


def test_tables_are_read_as_long_as_there_is_room(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "results1.csv"
    other.write_text(TABLE)
    paths, size = [str(table), str(other), str(tmp_path / "none.csv")], len(TABLE)
    read, left_out = tables.tables_within(2 * size, paths)
    assert [found.path for found in read] == paths[:2] and left_out == 1
    read, left_out = tables.tables_within(2 * size - 1, paths)
    assert [found.path for found in read] == paths[:1] and left_out == 2


def test_which_tables_have_changed_since_they_were_read(table: Path, tmp_path: Path) -> None:
    gone, new = tmp_path / "gone.csv", tmp_path / "new.csv"
    gone.write_text(TABLE)
    before = tables.load_tables([str(table), str(gone), str(new)])
    assert before.left_out == 1 and before.stamps[str(new)] is None
    gone.unlink()
    new.write_text(TABLE)
    os.utime(table, (1, 1))
    after = tables.load_tables([str(table), str(gone), str(new)], before)
    assert after.changed_since(before) == {str(gone), str(new)}
    assert after.stamps[str(table)] != before.stamps[str(table)], "its bytes are the same"
    table.write_text(TABLE.replace("0.01", "0.03"))
    last = tables.load_tables([str(table)], after)
    assert str(table) in last.changed_since(after)


def test_a_table_whose_reading_failed_is_read_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables.load_tables([str(table)])
    table.write_text(TABLE.replace("0.01", "0.003"))
    with monkeypatch.context() as broken:
        make_stale(broken, table)
        failed = tables.load_tables([str(table)], before)
    assert failed.left_out == 1 and len(failed.collection.tables) == 0
    assert tables.stamps_of([str(table)]) != failed.stamps
    again = tables.load_tables([str(table)], failed)
    assert len(again.collection.tables) == 1 and tables.stamps_of([str(table)]) == again.stamps


def test_the_tables_among_the_sources_are_those_of_a_tuners_format() -> None:
    formats = (*sorted(NAMES)[:2], "folder", "empty", "")
    sources = [
        SourceStatus(f"/{at}", format, 1, 1, 0, "polling", "read")  # type: ignore[arg-type]
        for at, format in enumerate(formats)
    ]
    assert tables.tables_among(sources) == ["/0", "/1"]
