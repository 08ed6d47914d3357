"""What a tuning is to a program: calls, share, what could be gained; by hand-made numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.events import GraphCalled, GraphCompiled, TuningMeasured
from backend.model.graph import Graph
from rocm_tui.actions.sources import load_model
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.records import Gone
from rocm_tui.render.shares import SHARES
from rocm_tui.session.graph_rows import graph_rows
from rocm_tui.session.graphs import Share
from rocm_tui.session.model import Model, Row
from tests.support.graph_log import measurement, tune, use, write_program, writer_of


def row_of(model: Model, m: int) -> Row:
    return next(row for row in model.rows() if row.tuning.shapes[0][0] == m)


def share_of(model: Model, m: int) -> Share:
    share = row_of(model, m).share
    assert share is not None
    return share


def model_of(cache: Path) -> Model:
    return load_model(Layout(cache))


def test_shares_of_a_program(tmp_path: Path) -> None:
    write_program(tmp_path)
    model = model_of(tmp_path)
    assert not model.problems
    # 80 calls of four, each 1 ms, and a tenth of 50 calls of 4 ms: 340 ms of 1000
    share = share_of(model, 8)
    assert share.calls == 370
    assert share.share == pytest.approx(0.34)
    assert share.basis == "once"
    assert (share.gain, share.at_most) == (None, None), "nothing was measured"
    assert [(p.graph, p.count, p.calls, p.share) for p in share.parts] == [
        ("aaaaaa1", 4, 80, pytest.approx(0.4)),
        ("bbbbbb2", 1, 50, pytest.approx(0.1)),
    ]
    # 80 calls of 2 ms: measured, and ATen takes 1.6 ms
    share = share_of(model, 16)
    assert (share.calls, share.basis) == (80, "measured")
    assert share.share == pytest.approx(0.16)
    assert share.gain == share.to_gain == pytest.approx(80 * 0.4 / 1000)
    assert share.at_most == pytest.approx(0.16 * (1 - 1 / 1.375))
    assert row_of(model, 32).share is None


def test_a_choice_that_is_as_fast_as_the_best_leaves_nothing_to_gain(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    measured = measurement(8, "mm-1", "tri-1", 1.0, 1.05)
    best, other = measured.choices
    tied = replace(measured, choices=(best, replace(other, verdict="tied")))
    writer.write(TuningMeasured(tied))
    writer.write(GraphCompiled(1, 105.0, Graph("aaaaaa1", tunings=(use(8),))))
    writer.write(GraphCalled(1, 106.0, 10, 3, 20.0))
    writer.close()
    share = share_of(model_of(tmp_path), 8)
    assert (share.gain, share.at_most) == (0.0, 0.0)


def test_where_the_best_is_unclear_nobody_knows_the_gain(tmp_path: Path) -> None:
    """The choice in use was the fastest by its median; a rival may be up to 40 % faster."""
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    best, other = measurement(8, "tri-1", "mm-1", 1.0, 1.05).choices
    doubtful = replace(other, verdict="unclear", ratio_low=0.6, ratio_high=5.94)
    told = replace(measurement(8, "tri-1", "mm-1", 1.0, 1.05), choices=(
        replace(best, verdict="unclear"), doubtful,
    ))  # fmt: skip
    writer.write(TuningMeasured(told))
    writer.write(GraphCompiled(1, 105.0, Graph("aaaaaa1", tunings=(use(8),))))
    writer.write(GraphCalled(1, 106.0, 10, 3, 2.0))
    writer.close()
    share = share_of(model_of(tmp_path), 8)
    assert (share.gain, share.at_most) == (None, pytest.approx(0.5 * 0.4))
    texts = {field.key: field.text(share) for field in SHARES}
    assert (texts["share"], texts["to_gain"]) == ("~50.0 %", "≤~20.0 %")


def test_a_graph_that_was_never_called_has_no_share(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    for number, id in enumerate(("aaaaaa1", "bbbbbb2"), start=1):
        writer.write(GraphCompiled(number, 105.0, Graph(id, tunings=(use(8),))))
    writer.write(GraphCalled(1, 107.0, 10, 5, 4.0))
    writer.close()
    model = model_of(tmp_path)
    shares = {row.id: row.share for row in graph_rows(model, Layout(tmp_path))}
    assert shares == {"aaaaaa1": 1.0, "bbbbbb2": None}


def test_times_that_cannot_be_are_scaled_to_the_graph(tmp_path: Path) -> None:
    """9 ms and 1 ms of a graph that takes 4."""
    write_program(tmp_path)
    model = model_of(tmp_path)
    share = share_of(model, 24)
    assert (share.basis, share.share) == ("once", pytest.approx(0.2 * 0.9))
    assert share.parts[0].share == pytest.approx(0.9)
    for row in graph_rows(model, Layout(tmp_path)):
        assert sum(tuning.share or 0.0 for tuning in row.tunings.values()) <= 1 + 1e-9


@pytest.mark.parametrize("order", [(8, 16, 24), (24, 16, 8)])
def test_the_shares_of_a_program_are_no_more_than_all_of_it(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Whatever comes first: each new time leaves less of the graph to the others."""
    model = Model()
    writer = writer_of(tmp_path)
    writer.write(GraphCompiled(1, 105.0, Graph("aaaaaa1", tunings=tuple(map(use, order)))))
    writer.write(GraphCalled(1, 106.0, 10, 3, 2.0))
    for n, m in enumerate(order, start=1):
        tune(writer, n, m, 3.0, 2.0)
    writer.close()
    tailer = Tailer(str(writer.path))
    while found := tailer.poll():
        model.apply(found)
    shares = [share_of(model, m).share for m in order]
    assert shares == [pytest.approx(1 / 3)] * 3
    assert not model.join().changed


def test_calls_that_change_everything(tmp_path: Path) -> None:
    """Another graph's calls change the total, and so the share of rows that it does not hold."""
    log = write_program(tmp_path)
    model = model_of(tmp_path)
    (program,) = model.graphs.programs()
    assert program.total == 1000.0
    assert [seen.graph.id for seen in program.graphs] == ["aaaaaa1", "bbbbbb2"]
    seen = program.graphs[1]
    assert seen.times is not None
    more = replace(seen, times=replace(seen.times, calls=300))
    changes = model.apply([more])
    assert row_of(model, 16).key in changes.changed
    assert share_of(model, 16).share == pytest.approx(160 / 2000)
    changes = model.apply([Gone(str(log))])
    assert not model.rows() and not model.graphs.programs() and not model.graphs.trials("aaaaaa1")


def test_what_is_not_known(tmp_path: Path) -> None:
    """A graph that was never timed, a choice that nobody timed, and one that is not called."""
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    tune(writer, 2, 16, 2.0, 1.0)
    tune(writer, 3, 24, 2.0, 1.0)
    writer.write(GraphCompiled(1, 1.0, Graph("aaaaaa1", tunings=(use(8),))))
    writer.write(GraphCalled(1, 2.0, 7))
    writer.write(GraphCompiled(2, 1.0, Graph("aaaaaa2", tunings=(use(16, 1, None),))))
    writer.write(GraphCalled(2, 2.0, 8, 2, 4.0))
    writer.write(GraphCompiled(3, 1.0, Graph("aaaaaa3", tunings=(use(24),))))
    writer.close()
    model = model_of(tmp_path)
    for m, calls in ((8, 7), (16, 8)):
        share = share_of(model, m)
        assert (share.calls, share.share, share.to_gain) == (calls, None, None)
    assert row_of(model, 24).share is None


def test_the_latest_program_counts(tmp_path: Path) -> None:
    for id, started, calls in (("01d", 100.0, 3), ("4e3", 90000.0, 5), ("1ate", 99000.0, 0)):
        writer = writer_of(tmp_path, id, started=started)
        tune(writer, 1, 8, 2.0, 1.0)
        writer.write(GraphCompiled(1, started, Graph("aaaaaa1", tunings=(use(8),))))
        if calls:
            writer.write(GraphCalled(1, started + 1, calls, 1, 4.0))
        writer.close()
    model = model_of(tmp_path)
    shares = [row.share for row in model.rows()]
    assert {share.calls for share in shares if share} == {3, 5}
    assert len(model.graphs.programs()) == 3


def test_ranks_are_one_program(tmp_path: Path) -> None:
    """Four ranks of one job, then the same job again: each once."""
    for run, started in enumerate((1000.0, 9000.0)):
        for rank in range(4):
            writer = writer_of(tmp_path, f"{run}{rank}", rank, started + rank)
            if not rank:
                tune(writer, 1, 8, 2.0, 1.0)
            writer.write(GraphCompiled(1, started, Graph("aaaaaa1", tunings=(use(8),))))
            writer.write(GraphCalled(1, started + 9, 10 + rank, 1, 2.0))
            writer.close()
    model = model_of(tmp_path)
    programs = model.graphs.programs()
    assert [program.total for program in programs] == [92.0] * 2
    share = next(row.share for row in model.rows() if row.share)
    assert (share.calls, share.share) == (46, 0.5)
    assert [(part.graph, part.calls) for part in share.parts] == [("aaaaaa1", 46)]


def test_a_rank_that_timed_nothing_makes_no_call_shorter(tmp_path: Path) -> None:
    for rank, ms in enumerate((2.0, None)):
        writer = writer_of(tmp_path, f"5e55{rank}", rank=rank)
        writer.write(GraphCompiled(1, 105.0, Graph("ccccccc", tunings=(use(8),))))
        writer.write(GraphCalled(1, 106.0, 10, 1 if ms else 0, ms))
        writer.close()
    (row,) = graph_rows(model_of(tmp_path), Layout(tmp_path))
    assert (row.times.calls, row.times.timed, row.times.ms) == (20, 1, 2.0)


def test_nodes_of_one_tuning_that_call_different_choices(tmp_path: Path) -> None:
    """What is fused with each decides: three take Triton's, one ATen's."""
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    graph = Graph("ccccccc", tunings=(use(8, 3), use(8, 1, "mm-1")))
    writer.write(GraphCompiled(1, 105.0, graph))
    writer.write(GraphCalled(1, 106.0, 10, 3, 20.0))
    writer.close()
    model = model_of(tmp_path)
    share = share_of(model, 8)
    assert share.calls == 40
    assert share.share == pytest.approx((3 * 1.0 + 2.0) / 20)
    assert [(part.count, part.calls) for part in share.parts] == [(4, 10)]
    (row,) = graph_rows(model, Layout(tmp_path))
    (held,) = row.tunings.values()
    assert (held.use.count, held.use.hash) == (4, None)
    assert held.share == pytest.approx(0.25)
