"""What logs lack in tuned tables: which files are which, and the lists that are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocm_tui.actions import cover
from rocm_tui.actions.cover import Missed, Written, missed_in, read_files, write_untuned
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.tables.coverage import cover as covered
from rocm_tui.tables.untuned import Untuned

MISS = "missing params_signature, returning null ResultEntry for GemmTunableOp_Half_TN,"
LOG = f"{MISS}tn_4_4_4_ld_4_4_4\n{MISS}tn_8_8_8_ld_8_8_8\n{MISS}tn_8_8_8_ld_8_8_8\n"
TABLE = "Validator,PT_VERSION,2.13.0\nGemmTunableOp_Half_TN,tn_4_4_4_ld_4_4_4,Default,0.5\n"
UNTUNED = "GemmTunableOp_Half_TN,tn_2_2_2_ld_2_2_2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "results.csv").write_text(TABLE)
    (tmp_path / "untuned.csv").write_text(UNTUNED)
    (tmp_path / "empty.log").write_text("nothing\n")
    return tmp_path


def test_the_content_of_a_file_decides_what_it_is(folder: Path) -> None:
    log, table, untuned = (folder / name for name in ("train.log", "results.csv", "untuned.csv"))
    files = read_files([log, table, untuned])
    assert (files.sources, len(files.tables), len(files.asked.tallies)) == (2, 1, 3)
    assert files.unread == []
    files = read_files([log], [table])
    assert (files.sources, len(files.tables)) == (1, 1)
    (folder / "tables").mkdir()
    table.rename(folder / "tables" / "results.csv")
    untuned.rename(folder / "tables" / "untuned.csv")
    for paths, tables in (([log, folder / "tables"], []), ([log], [folder / "tables"])):
        files = read_files(paths, tables)
        assert (files.sources, len(files.tables)) == (1, 1), "lists in a folder are no tables"
    with pytest.raises(UsageError, match="no log and no untuned list"):
        read_files([folder / "tables"])


def test_what_is_lacking_is_written_unless_there_is_a_file(folder: Path, tmp_path: Path) -> None:
    files = read_files([folder / "train.log"], [folder / "results.csv"])
    rows = covered(files.asked, files.tables).rows
    target = tmp_path / "it is mine.csv"
    (written,) = write_untuned(rows, target)
    assert written.path == target and target.read_text().count("tn_8_8_8") == 1
    assert "tn_4_4_4" not in target.read_text()
    assert f"'{target}'" in written.run and "{file}" not in written.run
    target.write_text("mine")
    with pytest.raises(RocmTuiError, match="exists already"):
        write_untuned(rows, target)
    assert target.read_text() == "mine"
    write_untuned(rows, target, force=True)
    assert "tn_8_8_8" in target.read_text()
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(RocmTuiError, match="exists already"):
        write_untuned(rows, target)


def test_several_lists_have_their_own_names_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lists = [Untuned(f"{name}.csv", "another", name, rows, "") for name, rows in
             (("a", 1), ("b", 0), ("c", 2))]  # fmt: skip
    monkeypatch.setattr(cover, "untuned_lists", lambda rows: lists)
    written = write_untuned([], tmp_path / "all.csv")
    assert [file.path.name for file in written] == ["all.a.csv", "all.c.csv"]
    assert (tmp_path / "all.c.csv").read_text() == "c" and not (tmp_path / "all.csv").exists()
    lists = lists[:1]
    assert [file.path.name for file in write_untuned([], tmp_path / "one.csv")] == ["one.csv"]


@pytest.mark.parametrize("text", [UNTUNED * 2, "nothing\n", ""])
def test_a_list_that_would_not_be_read_back_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    odd = Untuned("a.csv", "tunableop", text, 3, "")
    fine = replace(odd, text=UNTUNED, rows=1)
    for lists in ([odd], [fine, odd]):
        monkeypatch.setattr(cover, "untuned_lists", lambda rows, lists=lists: lists)
        with pytest.raises(RocmTuiError, match="3 products would be read as"):
            write_untuned([], tmp_path / "a.csv")
        assert not list(tmp_path.iterdir())
    monkeypatch.setattr(cover, "untuned_lists", lambda rows: [fine])
    assert write_untuned([], tmp_path / "a.csv") == [Written(tmp_path / "a.csv", fine)]


def test_what_a_log_missed_is_one_line(folder: Path) -> None:
    log, table = str(folder / "train.log"), str(folder / "results.csv")
    (missed,) = missed_in([log, log, str(folder / "empty.log"), "-", str(folder / "none")])
    assert missed == Missed(log, 2)
    assert missed.line.startswith("2 products missed in tuned tables: ")
    assert missed.command == f"rocm-tui cover {log}"
    for paths, tables in (([log, table], []), ([log], [table]), ([log, table], [table])):
        (missed,) = missed_in(paths, tables)
        assert missed == Missed(log, 1, 0, (table,))
        assert missed.line.startswith("1 product missed") and "none of the tables" in missed.line
        assert missed.command.endswith(f" {table}")
    assert missed_in([table, str(folder / "empty.log")]) == []
    (folder / "results.csv").write_text(TABLE + TABLE.splitlines()[1].replace("4", "8") + "\n")
    assert missed_in([log, table]) == []


def test_many_tables_are_not_named(folder: Path) -> None:
    tables = [str(folder / f"results{number}.csv") for number in range(4)]
    for path in tables:
        Path(path).write_text(TABLE)
    log = str(folder / "train.log")
    assert [missed_in([log], tables[:n])[0].tables for n in (3, 4)] == [tuple(tables[:3]), ()]


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        (Missed("a.log", 0, 1), "1 miss without a name missed"),
        (Missed("a.log", 0, 2, ("t",)), "2 misses without a name missed in tuned tables: "),
        (Missed("a.log", 1, 1), "1 product and 1 miss without a name missed"),
    ],
)
def test_misses_without_a_name_are_counted(missed: Missed, said: str) -> None:
    assert missed.line.startswith(said)
