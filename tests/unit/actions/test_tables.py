"""Tables found in folders and read, by `lint` and `cover` alike: the same bounds and sentences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.disk import safe
from rocm_tui.actions import tables
from rocm_tui.cli.entry import main

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
