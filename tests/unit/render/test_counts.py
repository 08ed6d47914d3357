"""What a source does not tell is not said: how many choices there were, how fast one is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.model.session import Fault
from rocm_tui.cli.entry import main
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.detail import tuning_facts
from rocm_tui.render.problems import trouble_lines, troubles
from rocm_tui.render.tunings import LIST
from rocm_tui.session.model import Model, Row
from tests.support.odd_logs import NEW_TRITON, OLD_TRITON

ROWS = "".join(
    f"  triton_mm_{n} 0.{n + 10:03}0 ms {1000 / (n + 10):.1f}% BLOCK_M={n}\n" for n in range(10)
)
HEAD = "AUTOTUNE mm(64x32, 32x16)\n"
OLD_END = "SingleProcess AUTOTUNE takes 4.5 seconds\n"
NEW_END = (
    "SingleProcess AUTOTUNE benchmarking takes 4.5 seconds and 1.0 seconds precompiling"
    " for 34 choices\n"
)


def rows(tmp_path: Path, text: str) -> list[Row]:
    path = tmp_path / "x.log"
    path.write_text(text)
    model = Model()
    model.apply(read_sources([str(path)]))
    assert not model.problems
    return model.rows()


def said(row: Row) -> tuple[str, str, str]:
    """How many choices, in `ls`, in the table, and in the details."""
    details = "".join(text for text, _ in detail_lines.cost(row.tuning))
    return LIST[4].text(row), tuning_cells.cells(row, 0.0)["n"][0], details.split(" · ")[0].strip()


def test_ten_rows_of_a_log_are_ten_shown_unless_it_tells_the_number(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, HEAD + ROWS + OLD_END)
    assert said(row) == ("10 shown", "10+", "10 shown")
    (row,) = rows(tmp_path, HEAD + ROWS + NEW_END)
    assert said(row) == ("34", "34", "34 choices")
    (row,) = rows(tmp_path, HEAD + ROWS)
    assert said(row)[0] == "10 shown"


def test_json_says_null_for_a_number_that_nobody_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    path.write_text(HEAD + ROWS + OLD_END)
    main(["ls", "--json", str(path), "--cache-dir", str(tmp_path)])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    assert (tuning["num_choices"], len(tuning["choices"])) == (None, 10)


def test_what_triton_took_is_shown_without_a_time(tmp_path: Path) -> None:
    old, new = rows(tmp_path, NEW_TRITON + OLD_TRITON)
    cells = [field.text(new) for field in LIST]
    assert (cells[1], cells[2], cells[4]) == ("triton", "matmul_kernel 512×256", "1 shown")
    assert cells[5].startswith("BLOCK_M=64, ") and cells[5].endswith("num_stages=3")
    assert cells[6] == "-" or not cells[6].strip("-–— ")
    assert dict(tuning_facts(new))["spent"] == "1.2 s benchmarking"
    assert tuning_cells.cells(old, 0.0)["winner"][0].startswith("BLOCK_SIZE=128")
    assert old.id != new.id


def test_the_same_words_of_a_source_are_one_line_with_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        HEAD + ROWS + OLD_END + "Exception out of resource: shared\n" * 30 + "out of resource: b\n"
    )
    main(["ls", str(path), "--cache-dir", str(tmp_path)])
    assert capsys.readouterr().err.splitlines() == [
        f"rocm-tui: {path}:13: Exception out of resource: shared (30 times)",
        f"rocm-tui: {path}:43: out of resource: b",
    ]


def test_troubles_are_in_the_order_of_the_last_time() -> None:
    told = [Fault("a", "x", 1), Fault("b", "x", 2), Fault("a", "y"), Fault("a", "x", 9)]
    assert [trouble.line() for trouble in troubles(told)] == ["b:2: x", "a: y", "a:1: x (2 times)"]


def test_problems_of_one_form_are_one_line_with_a_count() -> None:
    """They differ in numbers and in words that hold some."""
    row = "the row of triton_mm_{} (0.0{} ms) belongs to no open table"
    rows = [Fault("a", row.format(n, n), n) for n in range(11, 18)]
    others = [Fault("a", "the row of mm (0.01 ms) belongs to no open table", 30), Fault("a", "x")]
    assert list(trouble_lines([*rows, *others])) == [
        f"a:11: {row.format(11, 11)} (and 6 more like it)",
        "a:30: the row of mm (0.01 ms) belongs to no open table",
        "a: x",
    ]
    assert list(trouble_lines(rows[:3])) == [f"a:{n}: {row.format(n, n)}" for n in (11, 12, 13)]
    elsewhere = [Fault(name, row.format(n, n), n) for n in (1, 2) for name in "ab"]
    assert len(list(trouble_lines(elsewhere))) == 4


def test_what_many_sources_say_is_one_line() -> None:
    told = [Fault(f"{name}.csv", "x", 7) for name in "abcd"]
    told += [Fault("e.csv", "y"), Fault("b", "z"), Fault("a.csv", "y"), Fault("c.csv", "y")]
    assert list(trouble_lines(told)) == [
        "a.csv and 3 other sources: x", "e.csv: y", "b: z", "a.csv: y", "c.csv: y",
    ]  # fmt: skip
