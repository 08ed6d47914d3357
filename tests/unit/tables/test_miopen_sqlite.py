"""MIOpen's perf-dbs in SQLite, as its own schema has them: read from a copy of their bytes."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from backend.model.session import Fault
from backend.tables.miopen import _COLUMNS, text_of
from backend.tables.model import MAX_LINE, TOO_LONG, Table
from backend.tables.registry import parse, problem_of_entry
from rocm_tui.cli.entry import main
from rocm_tui.ingest.formats.reader import NotReadable
from rocm_tui.ingest.formats.registry import format_named, sniff
from rocm_tui.ingest.records import Seen

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="takes Python 3.11")

WORDS = ("layout", "data_type", "direction")
NUMBERS = tuple(name for name in _COLUMNS if name not in WORDS)
CONFIG = (
    "CREATE TABLE `config` (`id` INTEGER PRIMARY KEY ASC"
    + "".join(f",`{name}` TEXT NOT NULL" for name in WORDS)
    + "".join(f",`{name}` INT NOT NULL" for name in NUMBERS)
    + ")"
)
PERF = (
    "CREATE TABLE `perf_db` (`id` INTEGER PRIMARY KEY ASC,`solver` TEXT NOT NULL,"
    "`config` INTEGER NOT NULL, `params` TEXT NOT NULL)"
)
SIZES = (2, 64, 28, 30, 1, 3, 3, 1, 96, 8, 1, 1, 0, 2, 2, 0, 1, 1, 0, 0, 1)


@contextmanager
def opened(path: Path, config: str = CONFIG, perf: str = PERF) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as database:
        for sql in (config, perf):
            database.execute(sql)
        yield database
        database.commit()


def fill(
    database: sqlite3.Connection, *solvers: tuple[str, str], direction: str = "F", images: int = 8
) -> None:
    """A convolution, and what was found for each of its solvers."""
    names = ",".join((*WORDS, *NUMBERS))
    sizes = (*SIZES[:9], images, *SIZES[10:])
    values = ("NCHW", "FP16", direction, *sizes)
    marks = ",".join("?" * len(values))
    made = database.execute(f"INSERT INTO config ({names}) VALUES ({marks})", values)
    for solver, params in solvers:
        database.execute(
            "INSERT INTO perf_db (solver, config, params) VALUES (?, ?, ?)",
            (solver, made.lastrowid, params),
        )


def table(path: Path) -> Table:
    found = parse(path.read_bytes(), str(path))
    assert found is not None and found.tuner == "miopen"
    return found


def test_a_line_a_convolution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gfx942130_1.1.0.udb"
    with opened(path) as database:
        fill(database, ("ConvAsm1x1U", "1,8,2"), ("ConvOcl", "4\n4"))
        fill(database, ("ConvAsmBwd", "16"), direction="W")
    before = path.read_bytes()
    found = table(path)
    first, second = found.entries
    assert found.text(first) == (
        b"2x64x28x30x1x3x3x1x96x8x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xF=ConvAsm1x1U:1,8,2;ConvOcl:4 4"
    )
    assert (first.solution, first.ms, first.others) == ("ConvAsm1x1U", None, (("ConvOcl", None),))
    assert str(first.device) == "gfx942:304" and second.op == "convolution_bwd_weight"
    assert problem_of_entry(found, first).shapes == ((8, 64, 28, 30), (96, 64, 3, 3))
    assert main(["ls", str(path)]) == 0
    listed = capsys.readouterr().out
    assert "ConvAsmBwd" in listed and "ConvAsm1x1U" not in listed  # which of two is not told
    assert main(["lint", str(tmp_path)]) == 0
    assert "1 table, 2 rows" in capsys.readouterr().out
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_writer_is_not_disturbed(tmp_path: Path) -> None:
    """MIOpen's user databases are written ahead: a transaction that is open stays open, and what
    has not come to the file is not seen."""
    path = tmp_path / "gfx942130_1.1.0.udb"
    with opened(path) as database:
        fill(database, ("ConvA", "1"))
        database.commit()
        assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        database.execute("BEGIN EXCLUSIVE")
        fill(database, ("ConvB", "2"), images=16)
        assert [entry.solution for entry in table(path).entries] == ["ConvA"]
        database.commit()
    assert [entry.solution for entry in table(path).entries] == ["ConvA", "ConvB"]


def test_damaged_and_hostile_files(tmp_path: Path) -> None:
    path = tmp_path / "gfx942130.db"
    with opened(path) as database:
        for images in range(40):
            fill(database, *((f"Conv{at}", "1," * 40) for at in range(20)), images=images)
    whole = path.read_bytes()
    chosen = random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chosen.randrange(1, 40)):
            data[chosen.randrange(16, len(data))] = chosen.randrange(256)
        try:
            assert text_of(bytes(data[: chosen.randrange(100, len(data) + 1)])) is not None
        except ValueError as error:
            assert "perf-db" in str(error)
    format = format_named(sniff(whole))
    assert format is not None and format.name == "miopen db" and format.document is not None
    assert sum(isinstance(record, Seen) for record in format.document(whole, str(path))) == 40
    with pytest.raises(NotReadable, match="no perf-db"):
        format.document(whole[:5000], str(path))


def test_a_convolution_of_absurd_length_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "gfx942130.db"
    with opened(path) as database:
        fill(database, ("ConvOcl", "4"))
        fill(database, *((f"Conv{at}", "1" * (MAX_LINE // 4)) for at in range(5)), images=9)
        fill(database, ("ConvOcl", "4"), images=10)
    format = format_named("miopen db")
    assert format is not None and format.document is not None
    seen, *rest = format.document(path.read_bytes(), str(path))
    assert isinstance(seen, Seen) and isinstance(rest[0], Seen)
    assert rest[1:] == [Fault(str(path), TOO_LONG, 2)]


@pytest.mark.parametrize(
    "config",
    [
        "CREATE VIEW config AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id+1 FROM n) "
        "SELECT id FROM n",
        "CREATE VIEW config AS SELECT load_extension('x') AS id",
        "CREATE TABLE config (id, layout AS (hex(zeroblob(9000000))))",
        "CREATE TABLE config (id)",
    ],
)
def test_nothing_of_a_file_is_run(tmp_path: Path, config: str) -> None:
    path = tmp_path / "gfx942130.db"
    names = ",".join(f"1 AS {name}" for name in _COLUMNS)
    with opened(path, config.replace("SELECT id FROM n", f"SELECT id,{names} FROM n")) as database:
        database.execute("INSERT INTO perf_db (solver, config, params) VALUES ('a', 1, 'b')")
    with pytest.raises(ValueError, match="no perf-db of MIOpen that can be read"):
        text_of(path.read_bytes())


def test_compiled_kernels_are_no_table(tmp_path: Path) -> None:
    path = tmp_path / "gfx942130.ukdb"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE kern_db (id INTEGER PRIMARY KEY, kernel_blob BLOB NOT NULL)")
    format = format_named(sniff(path.read_bytes()))
    assert format is not None and "compiled" in format.refused
    assert parse(path.read_bytes(), str(path)) is None
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE t (id)")
    other = format_named(sniff((tmp_path / "other.db").read_bytes()))
    assert other is not None and other.name == "binary"


def test_an_id_that_many_convolutions_share_is_refused(tmp_path: Path) -> None:
    """A join of them has more rows than a file of 140 KiB can hold, by the square."""
    path = tmp_path / "gfx942130.db"
    with opened(path, CONFIG.replace("PRIMARY KEY ASC", "NOT NULL DEFAULT 1")) as database:
        for n in range(1000):
            fill(database, ("ConvAsm1x1U", f"{n}"))
        database.execute("UPDATE perf_db SET config = 1")
    with pytest.raises(ValueError, match=r"too many for a file of its size|interrupted"):
        text_of(path.read_bytes())


def test_parameters_that_a_join_repeats_are_refused(tmp_path: Path) -> None:
    """A file of 150 KiB had 49 MB of text, which took 12 seconds to read."""
    path = tmp_path / "gfx942130.db"
    with opened(path, CONFIG.replace("PRIMARY KEY ASC", "NOT NULL DEFAULT 1")) as database:
        for n in range(700):
            fill(database, images=n + 1)
        for _ in range(25):
            insert = "INSERT INTO perf_db (solver, config, params) VALUES ('a', 1, ?)"
            database.execute(insert, ("x" * 2800,))
    with pytest.raises(ValueError, match="an id of `config` is not unique"):
        text_of(path.read_bytes())
