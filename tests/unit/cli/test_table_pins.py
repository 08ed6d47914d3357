"""Pins of entries of tuned tables on the command line: one list, one history, one undo with the
others, and the file byte for byte as it was."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import PinRefused, StoreError
from backend.pins.store import PinStore
from backend.tables.model import Table, Tuner, table_system
from rocm_tui.actions.tables import pin_row, row_at, solution_of
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.entry import main

ROWS = (
    b"Validator,PT_VERSION,2.9.0\n"
    b"Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\r\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.182\r\n"
    b"GemmTunableOp_Half_TN,tn_64_64_64,Default,0.01\n"
    b"GemmTunableOp_Half_TN,tn_64_64_64,Gemm_Rocblas_3,0.02"
)
PINNED = ROWS.replace(b"Gemm_Hipblaslt_12683,0.182", b"Gemm_Rocblas_-7,nan")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    path = tmp_path / "results0.csv"
    path.write_bytes(ROWS)
    return path


def pins(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    main(["pins", "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["pins"]
    return found


@pytest.mark.parametrize("option", [["--bitwise"], ["--wrong"], ["--from", "x"]])
def test_an_option_that_a_row_cannot_obey_is_refused(table: Path, option: list[str]) -> None:
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7", *option]) == ExitCode.USAGE
    assert table.read_bytes() == ROWS


def test_a_row_is_pinned_shown_and_taken_back(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{table}:3"
    assert main(["pin", place, "Gemm_Rocblas_-7", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(
        "results0.csv:3: GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Rocblas_-7,nan\n"
    )
    assert table.read_bytes() == ROWS and pins(capsys) == []
    assert main(["pin", place, "Gemm_Rocblas_-7", "--note", "a reason"]) == 0
    assert table.read_bytes() == PINNED
    (pin,) = pins(capsys)
    assert (pin["op"], pin["label"], pin["state"], pin["note"]) == (
        "table:tunableop:GemmTunableOp_Half_TN", "Gemm_Rocblas_-7", "unproven", "a reason",
    )  # fmt: skip
    assert "not seen from here" in pin["detail"]
    assert main(["verify", pin["id"]]) == 1
    assert "another tuner's program takes it from its table" in capsys.readouterr().out
    assert main(["pins"]) == 1
    said = capsys.readouterr().out
    assert "GemmTunableOp_Half_TN" in said and "table:" not in said
    assert main(["unpin", pin["id"]]) == 0
    assert table.read_bytes() == ROWS and pins(capsys) == []


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is parsed of tables."""
    seen: list[bytes] = []
    parse = Tuner.table

    def spied(tuner: Tuner, data: bytes, path: str) -> Table:
        seen.append(data)
        return parse(tuner, data, path)

    monkeypatch.setattr(Tuner, "table", spied)
    return seen


def test_a_table_is_parsed_once_for_a_pin_and_once_to_take_it_back(
    table: Path, parsed: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7", "--dry-run"]) == 0
    assert parsed == [ROWS]
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert parsed == [ROWS] * 2
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0  # nothing is written
    assert parsed == [ROWS] * 2 + [PINNED]
    assert main(["undo"]) == 0
    assert parsed == [ROWS] * 2 + [PINNED] * 2
    assert main(["undo"]) == 0
    assert parsed == [ROWS] * 2 + [PINNED] * 3
    assert table.read_bytes() == ROWS


def test_a_table_that_changed_between_the_look_and_the_pin_is_read_again(
    table: Path, tmp_path: Path, parsed: list[bytes]
) -> None:
    layout = Layout(tmp_path / "cache")
    row = row_at(f"{table}:3")
    newer = ROWS.replace(b"0.182", b"0.175").replace(b"PT_VERSION,2.9.0\n", b"PT_VERSION,2.9.0\n\n")
    table.write_bytes(newer)
    report = pin_row(row, solution_of(row, "Gemm_Rocblas_-7"), layout)
    held = newer.replace(b"Gemm_Hipblaslt_12683,0.175", b"Gemm_Rocblas_-7,nan")
    assert (table.read_bytes(), parsed) == (held, [ROWS, newer])
    assert report.status is not None and report.status.state == "unproven"
    PinStore(layout).unpin(report.pin.key)
    assert table.read_bytes() == newer

    row = row_at(f"{table}:5")
    table.write_bytes(ROWS.replace(b"tn_64_64_64", b"tn_65_64_64"))
    with pytest.raises(PinRefused, match="is not in"):
        pin_row(row, solution_of(row, "Default"), layout)


def test_each_table_has_the_pins_of_its_own_rows(table: Path) -> None:
    other = table.with_name("results1.csv")
    other.write_bytes(ROWS)
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert main(["pin", f"{other}:3", "solution=Default,ms=0.3"]) == 0
    pinned = other.read_bytes()
    assert table.read_bytes() == PINNED != pinned
    for path in (table, other):
        path.write_bytes(ROWS)  # as the program that tunes writes it again
    main(["pin", "--reconcile"])
    assert (table.read_bytes(), other.read_bytes()) == (PINNED, pinned)


def test_a_released_row_of_one_table_is_not_that_of_another(table: Path, tmp_path: Path) -> None:
    other = table.with_name("results1.csv")
    other.write_bytes(ROWS)
    for path in (table, other):
        assert main(["pin", f"{path}:3", "Gemm_Rocblas_-7"]) == 0
    store = PinStore(Layout(tmp_path / "cache"))
    (key,) = {pin.key for pin in store.pins()}
    store.unpin(key, system_hash=table_system(table))
    assert (table.read_bytes(), other.read_bytes()) == (ROWS, PINNED)
    for path in (table, other):  # by a program that has an old copy
        path.write_bytes(PINNED.replace(b"Default,0.01", b"Default,0.03"))
    main(["pin", "--reconcile"])
    assert b"Gemm_Rocblas_-7" in other.read_bytes() and b"Gemm_Rocblas_-7" not in table.read_bytes()


def test_steps_back_go_through_all_that_was_pinned(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert main(["pin", f"{table}:4", "Gemm_Hipblaslt_1"]) == 0
    assert main(["pin", f"{table}:3", "solution=Default,ms=0.3"]) == 0
    assert b"tn_320_64_128,Default,0.3\r\n" in table.read_bytes()
    assert main(["undo"]) == 0
    assert table.read_bytes() == PINNED.replace(b"64,Default,0.01", b"64,Gemm_Hipblaslt_1,nan")
    assert main(["undo"]) == 0
    assert table.read_bytes() == PINNED
    assert main(["undo"]) == 0
    assert table.read_bytes() == ROWS
    assert main(["undo"]) == 1


def test_a_program_that_writes_its_table_anew_is_seen_and_the_pin_applied_again(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pin", f"{table}:3", "Gemm_Rocblas_-7"])
    newer = ROWS.replace(b"0.182", b"0.175") + b"\nGemmTunableOp_Half_TN,tn_8_8_8,Default,0.3\n"
    table.write_bytes(newer)
    assert pins(capsys)[0]["state"] == "drifted"
    assert main(["pins", "--reconcile"]) == 1
    held = newer.replace(b"Gemm_Hipblaslt_12683,0.175", b"Gemm_Rocblas_-7,nan")
    assert table.read_bytes() == held
    assert pins(capsys)[0]["drifts"] == 1
    assert main(["unpin", "--all"]) == 0
    assert table.read_bytes() == newer


def test_a_row_or_a_table_that_is_gone_leaves_the_pin_an_orphan(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pin", f"{table}:3", "Gemm_Rocblas_-7"])
    without = b"".join(line for line in ROWS.splitlines(keepends=True) if b"tn_320" not in line)
    table.write_bytes(without)
    assert "no longer in" in pins(capsys)[0]["detail"]
    table.unlink()
    (pin,) = pins(capsys)
    assert pin["state"] == "orphaned" and "there is no" in pin["detail"]
    assert main(["unpin", pin["id"]]) == 0 and pins(capsys) == []


@pytest.mark.parametrize(
    "place, choice, why",
    [
        (":2", "Default", "line 2 of"),
        (":99", "Default", "line 99 of"),
        (":5", "Default", "line 4 says, which is taken"),
        (":3", "Gemm Rocblas", "is no solution"),
        (":3", "kernel=7", "is not set here"),
        (":3", "ms=,", "NAME=VALUE"),
    ],
)
def test_what_is_refused_changes_nothing(
    table: Path, capsys: pytest.CaptureFixture[str], place: str, choice: str, why: str
) -> None:
    assert main(["pin", f"{table}{place}", choice]) in (1, 2)
    assert why in capsys.readouterr().err
    assert table.read_bytes() == ROWS and pins(capsys) == []


def test_no_table_is_written_through_a_folder_of_others(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.parent.chmod(0o777)
    try:
        assert main(["pin", f"{table}:3", "Default"]) != 0
    finally:
        table.parent.chmod(0o755)
    assert table.read_bytes() == ROWS and pins(capsys) == []


def test_a_table_that_a_program_has_open_is_left_alone(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch appends what it tunes to a stream that it opened once: into a file that was exchanged
    meanwhile, it would be lost."""
    append = (
        "import sys; f = open(sys.argv[1], 'a'); print(flush=True); input(); f.write('\\nmore')"
    )
    command = [sys.executable, "-c", append, str(table)]

    def told(*words: str) -> str:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
            assert program.stdout and program.stdout.readline() == "\n"
            assert main(list(words)) == ExitCode.TRY_AGAIN
            program.communicate("\n")
        return capsys.readouterr().err

    assert "try again when it has ended" in told("pin", f"{table}:3", "Gemm_Rocblas_-7")
    assert table.read_bytes() == ROWS + b"\nmore" and pins(capsys) == []
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert "lost" in told("unpin", "--all") and len(pins(capsys)) == 1
    assert main(["unpin", "--all"]) == 0
    assert table.read_bytes() == ROWS + b"\nmore" * 2


def test_of_several_pins_all_or_none_are_unpinned(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other0.csv"
    other.write_bytes(ROWS)
    for path in (table, other):
        assert main(["pin", f"{path}:3", "Gemm_Rocblas_-7"]) == 0
    ids = [pin["id"] for pin in pins(capsys)]
    with other.open("ab"):
        assert main(["unpin", f"{table}:3", f"{other}:3"]) == ExitCode.TRY_AGAIN
    assert (table.read_bytes(), other.read_bytes()) == (PINNED, PINNED)
    assert [(pin["id"], pin["state"]) for pin in pins(capsys)] == [(id, "unproven") for id in ids]
    assert main(["unpin", f"{table}:3", f"{other}:3"]) == 0
    assert (table.read_bytes(), other.read_bytes()) == (ROWS, ROWS)
    assert main(["undo"]) == 0
    assert (table.read_bytes(), other.read_bytes()) == (PINNED, PINNED)


def test_an_unpin_that_was_cut_short_is_finished(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    with monkeypatch.context() as cut:

        def kill(first: Path, second: Path) -> bool:
            raise KeyboardInterrupt

        cut.setattr("backend.disk.exchange.exchange", kill)
        assert main(["unpin", "--all"]) != 0
    assert table.read_bytes() == PINNED and pins(capsys) == []
    safe.temporary_path(table).write_bytes(b"half of")
    capsys.readouterr()
    assert main(["unpin", "--all"]) == 0
    assert "unpinned Gemm_Rocblas_-7" in capsys.readouterr().out
    assert table.read_bytes() == ROWS
    assert sorted(path.name for path in table.parent.iterdir()) == ["cache", table.name]


def test_a_pin_that_could_not_be_made_is_not_said_to_be_taken_back(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as full:

        def no_room(first: Path, second: Path) -> bool:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr("backend.disk.exchange.exchange", no_room)
        assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 1
    assert "the disk is full" in capsys.readouterr().err and table.read_bytes() == ROWS
    assert main(["unpin", "--all"]) == 0
    assert capsys.readouterr().out == "nothing is pinned\n"


def test_mode_and_group_of_a_table_stay(table: Path) -> None:
    table.chmod(0o640)
    other = next(iter({*os.getgroups(), 54300} - {table.stat().st_gid}))
    try:
        os.chown(table, -1, other)
    except PermissionError:
        pytest.skip("no other group to give it")
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert (table.stat().st_gid, table.stat().st_mode & 0o777) == (other, 0o640)


def test_the_entry_of_another_table_is_taken_over(table: Path) -> None:
    other = table.with_name("other.csv")
    other.write_bytes(ROWS.replace(b"Gemm_Hipblaslt_12683,0.182", b"Gemm_Hipblaslt_4,0.1"))
    assert main(["pin", f"{table}:3", str(other)]) == 0
    assert table.read_bytes() == other.read_bytes()
    other.write_bytes(ROWS.replace(b"gfx942", b"gfx950"))
    assert main(["pin", f"{table}:3", str(other)]) != 0


def test_pins_of_entries_go_to_the_table_of_another_machine(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pin", f"{table}:3", "Gemm_Rocblas_-7"])
    shared = tmp_path / "pins.json"
    assert main(["export", "-o", str(shared)]) == 0
    there, unlike = tmp_path / "there.csv", tmp_path / "unlike.csv"
    there.write_bytes(ROWS)
    unlike.write_bytes(ROWS.replace(b"gfx942", b"gfx950"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "second"))
    (tmp_path / "second").mkdir()
    assert main(["import", str(shared), "--yes"]) == 1
    assert "--table" in capsys.readouterr().out
    assert main(["import", str(shared), "--table", str(unlike), "--yes"]) == 1
    assert "is not in" in capsys.readouterr().out
    assert main(["import", str(shared), "--table", str(there), "--yes"]) == 0
    assert there.read_bytes() == PINNED
    capsys.readouterr()
    assert main(["import", str(shared), "--table", str(there), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pins"][0]["action"] == "same"
    assert main(["undo", "--json"]) == 0 and there.read_bytes() == ROWS
    assert json.loads(capsys.readouterr().out)["command"] == "import"


def test_only_the_named_pins_of_a_file_are_imported(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ROWS + b"\nGemmTunableOp_Half_TN,tn_32_32_32,Default,0.01\n"
    table.write_bytes(rows)
    there, shared = tmp_path / "there.csv", tmp_path / "pins.json"
    there.write_bytes(rows)
    for line in (3, 6):
        assert main(["pin", f"{table}:{line}", "Gemm_Rocblas_-7"]) == 0
    wanted, _ = (pin["id"] for pin in pins(capsys))
    assert main(["export", "-o", str(shared)]) == 0
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "second"))
    (tmp_path / "second").mkdir()
    assert main(["import", str(shared), wanted, "--table", str(there), "--yes"]) == 0
    assert [pin["id"] for pin in pins(capsys)] == [wanted]


def _pin_and_unpin(place: str) -> None:
    while True:
        main(["pin", place, "Gemm_Rocblas_-7"])
        main(["unpin", "--all"])


def test_a_kill_at_any_moment_leaves_one_or_the_other_and_nothing_lost(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("fork")
    for moment in range(12):
        child = context.Process(target=_pin_and_unpin, args=(f"{table}:3",))
        child.start()
        time.sleep(0.05 + 0.013 * moment)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert table.read_bytes() in (ROWS, PINNED)
    main(["pins", "--reconcile"])
    main(["unpin", "--all"])
    assert table.read_bytes() == ROWS
    shutil.rmtree(table.parent / "cache")
    assert [path.name for path in table.parent.iterdir()] == [table.name]


def test_a_row_that_a_program_read_while_it_was_pinned_does_not_stay_so(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes its whole table anew at its end; what stood there before the pin is known."""
    assert main(["pin", f"{table}:3", "Gemm_Rocblas_-7"]) == 0
    assert main(["unpin", "--all"]) == 0
    newer = PINNED + b"\nGemmTunableOp_Half_TN,tn_8_8_8,Default,0.3\n"
    for command in (["pins", "--reconcile"], ["pin", f"{table}:3", "Gemm_Rocblas_-8"]):
        table.write_bytes(newer)
        assert main(command) in (0, 1)
        main(["unpin", "--all"])
        assert table.read_bytes() == newer.replace(PINNED, ROWS)


def test_a_row_is_unpinned_by_its_place(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = table.with_name("results1.csv")
    other.write_bytes(ROWS)  # the same keys, so the same ids
    for path in (table, other):
        assert main(["pin", f"{path}:3", "Gemm_Rocblas_-7"]) == 0
    assert main(["unpin", f"{table}:4"]) == 1
    assert "results0.csv:4 is not pinned" in capsys.readouterr().err
    assert main(["unpin", f"{table}:3", f"{table}:3"]) == 0
    assert table.read_bytes() == ROWS and other.read_bytes() == PINNED
    assert main(["unpin", f"{table}:1"]) == 1
    assert "begins no entry of the tunableop table; one begins on line 3" in capsys.readouterr().err


def test_a_row_that_is_no_text_is_not_pinned(table: Path) -> None:
    row = row_at(f"{table}:3")
    values = solution_of(row, "Gemm_Rocblas_-7")
    latin = ROWS.replace(b"Gemm_Hipblaslt_12683", b"Gemm_Hipblaslt_\xe9")
    table.write_bytes(latin)
    layout = Layout(table.parent / "cache")
    with pytest.raises(StoreError, match="UTF-8"):
        pin_row(row, values, layout)
    assert table.read_bytes() == latin and PinStore(layout).pins() == ()


def test_numbers_of_rows_are_reported(table: Path) -> None:
    layout = Layout(table.parent / "cache")
    row = row_at(f"{table}:3")
    pin_row(row, solution_of(row, "Gemm_Rocblas_-7"), layout)
    store = PinStore(layout)
    (pin,) = store.pins()
    assert store.plan(pin.system_hash, pin.key, pin.hash, pin.config).numbers == 0
    table.write_bytes(ROWS)
    (status,) = store.status()
    assert status.state == "drifted" and f"row of {table} was written over" in status.detail
    (status,) = store.reconcile()
    assert status.state == "unproven" and status.pin.drifts == 1
    assert store.unpin(pin.key).numbers == 1 and table.read_bytes() == ROWS
    assert store.reconcile() == [] and table.read_bytes() == ROWS


def test_another_pin_over_a_row_that_was_written_over_is_no_drift(table: Path) -> None:
    layout = Layout(table.parent / "cache")
    row = row_at(f"{table}:3")
    pin_row(row, solution_of(row, "Gemm_Rocblas_-7"), layout)
    table.write_bytes(ROWS.replace(b"0.182", b"0.175"))
    row = row_at(f"{table}:3")
    pin_row(row, solution_of(row, "Gemm_Rocblas_-8"), layout)
    store = PinStore(layout)
    assert [entry.what for entry in store.history()] == ["pin", "repin"]
    (pin,) = store.pins()
    assert pin.drifts == 0 and b"Gemm_Rocblas_-8" in table.read_bytes()
    missing = table.with_name("missing.csv")
    with pytest.raises(PinRefused, match=r"the table .*missing\.csv is not there"):
        store.plan(None, pin.key, pin.hash, pin.config, table=missing)
    assert store.unpin(pin.key).numbers == 1
    assert table.read_bytes() == ROWS.replace(b"0.182", b"0.175")
