"""The lock under which a pinned row of another tuner's table is written."""

from __future__ import annotations

import threading
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.file import PinRequest, read_pin_file
from backend.pins.store import PinStore
from backend.pins.tables import TableRows
from rocm_tui.actions.tables import pin_row, row_at, solution_of

ROWS = (
    b"Validator,PT_VERSION,2.9.0\nGemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.182\n"
)
PINNED = ROWS.replace(b"Gemm_Hipblaslt_12683,0.182", b"Gemm_Rocblas_-7,nan")


def test_a_row_is_written_once_nobody_else_holds_the_lock_of_its_table(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cache")
    layout.root.mkdir()
    table = tmp_path / "results0.csv"
    table.write_bytes(ROWS)
    row = row_at(f"{table}:2")
    pin = threading.Thread(
        target=pin_row, args=(row, solution_of(row, "Gemm_Rocblas_-7"), layout), daemon=True
    )
    with safe.locked_table(table):
        pin.start()
        pin.join(0.5)
        assert table.read_bytes() == ROWS
    pin.join(20)
    assert table.read_bytes() == PINNED
    (status,) = PinStore(layout).status()
    assert status.state == "unproven"


def test_a_pin_is_looked_for_in_the_table_of_its_own_system(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cache")
    layout.root.mkdir()
    tables = [tmp_path / name for name in ("a.csv", "b.csv")]
    for table in tables:
        table.write_bytes(ROWS)
        row = row_at(f"{table}:2")
        pin_row(row, solution_of(row, "Gemm_Rocblas_-7"), layout)
    file = read_pin_file(layout.pins)
    for record, table in zip(file.pins, tables, strict=True):
        request = PinRequest(
            record.system_hash, TuningKey(record.op, record.inputs, record.precision), record.hash
        )
        assert TableRows().locate(file, request) == table
