"""`show` of an entry of a table: what its row tells beside the key and the solution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main
from tests.support import sample_tables


def test_columns_have_units_and_meanings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = sample_tables.write(tmp_path / "tables")[2]
    assert main(["ls", str(table), "--json"]) == 0
    (id,) = (
        row["id"]
        for row in json.loads(capsys.readouterr().out)["tunings"]
        if row["entry"]["line"] == 3
    )
    assert main(["show", id, "--from", str(table)]) == 0
    told = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert ["us2", "81.73", "µs", "the second stage"] in told
    assert ["bw", "7069.03", "GB/s", "bytes of operands and result by the time"] in told
    assert main(["show", id, "--from", str(table), "--json"]) == 0
    columns = json.loads(capsys.readouterr().out)["entry"]["columns"]
    assert columns["us2"] == "81.73" and columns["err1"] == "0.2%" and "token" not in columns
