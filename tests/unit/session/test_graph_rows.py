"""Graphs as rows: which program speaks for one that several called, and what of it is how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.graph import Graph, GraphTimes, TuningUse
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.errors import NoSuchGraph
from rocm_tui.ingest.records import GraphSeen, Record, Seen, SessionSeen
from rocm_tui.session.graph_rows import GraphRow, find_graph, graph_rows, tunings_of
from rocm_tui.session.model import Model

MM = Tuning(
    "mm", inputs_key="x", precision="highest", session="s1", when=1.0,
    choices=(Choice("triton_mm_1", "triton-1", 1.0), Choice("mm", "mm-1", 2.0), Choice("log")),
)  # fmt: skip
ADDMM = replace(MM, op="addmm", session=None, choices=(Choice("addmm", "addmm-1", 0.5),))
IN_MM = TuningUse("mm", "x", "highest", 1, "triton-1")
IN_ADDMM = TuningUse("addmm", "x", "highest", 4, "addmm-1")
LOST = TuningUse("bmm", "x", "highest", 1, "bmm-1")
SESSIONS = [Session(f"s{n}", pid=n, argv=(f"{n}.py",), started=float(n)) for n in range(1, 4)]
RANKS = [Session(f"r{n}", pid=n, rank=n, argv=("job.py",), started=9.0) for n in (4, 5)]


def seen(
    id: str, session: str, calls: int, ms: float | None, *uses: TuningUse, g: int = 1
) -> GraphSeen:
    times = GraphTimes(calls, int(ms is not None), ms, "device")
    return GraphSeen(f"/{session}.jsonl", g, Graph(id, tunings=uses), session, times, None)


def rows_of(*graphs: Record, layout: Layout | None = None) -> list[GraphRow]:
    model = Model()
    model.apply(map(SessionSeen, (*SESSIONS, *RANKS)))
    model.apply([Seen("/s1.jsonl#1", MM), Seen("/c#1", ADDMM), *graphs])
    return graph_rows(model, layout or Layout(Path("/none")))


def test_the_latest_program_that_called_a_graph_speaks() -> None:
    rows = rows_of(
        seen("aaaaaa1", "s1", 2, 1.0),
        seen("aaaaaa1", "s2", 3, 4.0),
        seen("aaaaaa1", "s3", 0, None),
        seen("bbbbbb2", "s1", 1, 2.0, g=2),
        seen("bbbbbb2", "s2", 2, 6.0, g=2),
        seen("cccccc3", "s3", 0, None, g=2),
    )
    assert [(row.id, row.times.calls, row.share) for row in rows] == [
        ("aaaaaa1", 3, 0.5), ("bbbbbb2", 2, 0.5), ("cccccc3", 0, None),
    ]  # fmt: skip
    assert [row.session and row.session.id for row in rows] == ["s2", "s2", "s3"]
    assert all("2.py" in row.program for row in rows[:2]) and rows[0].times.by == "device"


def test_ranks_are_added_up() -> None:
    four, five = (rank.id for rank in RANKS)
    (row, other) = rows_of(
        seen("aaaaaa1", four, 2, 3.0), seen("aaaaaa1", five, 1, 6.0),
        seen("bbbbbb2", five, 4, 1.0, g=2),
        seen("aaaaaa1", five, 5, None, g=3),
    )  # fmt: skip
    assert (row.times.calls, row.times.timed, row.times.ms) == (8, 2, 4.0)
    assert (row.share, other.share) == (0.75, 0.25)
    assert row.session is not None and row.session.id in (four, five)


def test_the_tunings_of_a_graph_are_longest_first() -> None:
    (row,) = rows_of(seen("aaaaaa1", "s2", 1, 10.0, LOST, IN_MM, IN_ADDMM))
    assert [(key.op, use.share) for key, use in row.tunings.items()] == [
        ("addmm", 0.2), ("mm", 0.1), ("bmm", None),
    ]  # fmt: skip
    assert [use.row and use.row.tuning.op for use in row.tunings.values()] == ["addmm", "mm", None]
    (row,) = rows_of(seen("aaaaaa1", "s2", 1, 10.0, IN_MM, replace(IN_MM, hash="mm-1", count=2)))
    ((_, united),) = row.tunings.items()
    assert (united.use.count, united.use.hash, united.share) == (3, None, pytest.approx(0.5))
    (row,) = rows_of(seen("aaaaaa1", "s2", 1, 10.0, IN_MM, replace(IN_MM, count=2)))
    ((_, united),) = row.tunings.items()
    assert (united.use.count, united.use.hash) == (3, "triton-1")


def test_the_tuning_that_the_process_asked_for_goes_before_later_ones() -> None:
    again = replace(MM, session="s3", when=8.0, choices=(Choice("mm", "mm-1", 3.0),))
    for session, when in (("s1", 1.0), ("s3", 8.0), ("s2", 8.0)):
        (row,) = rows_of(Seen("/s3.jsonl#1", again), seen("aaaaaa1", session, 1, 10.0, IN_MM))
        ((_, use),) = row.tunings.items()
        assert use.row is not None and use.row.tuning.when == when


def test_a_text_is_named_where_it_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    rows = rows_of(seen("aaaaaa1", "s2", 1, 1.0), layout=layout)
    assert rows[0].path is None
    path = layout.graphs / "aaaaaa1.py"
    path.parent.mkdir(parents=True)
    path.touch()
    rows = rows_of(seen("aaaaaa1", "s2", 1, 1.0), seen("aab", "s2", 1, 3.0, g=2), layout=layout)
    assert [row.path for row in rows] == [None, path]
    assert find_graph(rows, "aaa") is rows[1]
    for text, word in (("aa", "begins several"), ("x", "rocm-tui graphs")):
        with pytest.raises(NoSuchGraph, match=word):
            find_graph(rows, text)


def test_choices_by_their_hashes() -> None:
    model = Model()
    model.apply([Seen("/s1.jsonl#1", MM), Seen("/l#1", Tuning("mm", choices=MM.choices))])
    ((key, choices),) = tunings_of(model).items()
    assert key == MM.key and dict(choices) == {"triton-1": MM.choices[0], "mm-1": MM.choices[1]}
