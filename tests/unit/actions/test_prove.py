"""Stock processes with the pins and without, in pairs; the figure goes into the pins' notes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import cache_paths, is_raised
from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.graph import Trial, TrialArm
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob, TrialResult, WorkerJob
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.actions.prove import Proving, annotate, pins_of
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.trial import NotTried
from rocm_tui.cli import graphs as command
from rocm_tui.cli.entry import main
from rocm_tui.config.settings import Config
from rocm_tui.jobs.run import RunJob
from rocm_tui.json_output import builtins_of
from rocm_tui.render.improve import ProofJson, gain_text, proof_figure
from rocm_tui.search.types import note_with
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from rocm_tui.tui.graph_actions import prove_order
from tests.support.documents import document
from tests.support.graph_log import inputs
from tests.support.improve_lab import GRAPH, TEXT, graph_of, write_graph
from tests.support.store_disks import make_stale


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = write_graph(tmp_path / "cache")
    pin(layout, 8, "mm-1", "mine")
    return layout


def pin(layout: Layout, m: int, choice: str, note: str = "") -> None:
    model = load_model(layout)
    (row,) = graph_rows(model, layout)
    held = next(held for key, held in row.tunings.items() if key.inputs == inputs(m))
    assert held.row is not None
    pin_choice(pinnable(held.row, choice, model.sessions), layout, note=note)


@dataclass
class Stock:
    """A `RunJobAt`: a pass takes as long as `ms` says of the cache dir, each process a bit else."""

    layout: Layout
    pinned_ms: float = 9.5
    seen: list[tuple[bool, TrialJob]] = field(default_factory=list)
    at_root: Layout | None = None

    def at(self, layout: Layout) -> RunJob:
        return replace(self, at_root=layout)

    def __call__(self, job: WorkerJob[Any]) -> Any:
        assert isinstance(job, TrialJob)
        where = self.at_root or self.layout
        pinned = bool(PinStore(where).pins())
        assert (where.graphs / f"{GRAPH}.py").read_text() == TEXT
        (cache,) = cache_paths(where)
        held = json.loads(cache.read_text())["cache"]["mm"].values()
        raised = any(is_raised(ms) for tuned in held for ms in tuned["highest"].values())
        assert raised == pinned
        self.seen.append((pinned, job))
        wave = 1 + 0.002 * (len(self.seen) % 3)
        ms = (self.pinned_ms if pinned else 10.0) * wave
        return TrialResult(True, trial=Trial(GRAPH, 1.0, (TrialArm((), ms, kernels=7),)))


def the_pin(layout: Layout) -> Pin:
    (only,) = PinStore(layout).pins()
    return only


def test_each_process_is_stock_and_fresh_and_half_of_them_have_no_pin(layout: Layout) -> None:
    stock = Stock(layout)
    proof = Proving(stock, layout, graph_of(layout), seed=1).go()
    assert [pinned for pinned, _ in stock.seen].count(True) == 8
    assert [pinned for pinned, _ in stock.seen].count(False) == 8
    assert all(job.stock and job.fresh and job.arms == ((),) for _, job in stock.seen)
    order = [pinned for pinned, _ in stock.seen]
    assert order != [False, True] * 8
    assert proof.verdict == "faster"
    assert proof.low < 0.95 < proof.high
    assert (proof.pairs, proof.kernels_after) == (8, 7)
    assert [path for path in layout.graphs.iterdir() if path.is_dir()] == []


def test_two_proofs_at_once_disturb_each_other_in_nothing(layout: Layout) -> None:
    class Meanwhile(Stock):
        def __call__(self, job: WorkerJob[Any]) -> Any:
            if not self.seen:
                Proving(Stock(layout), layout, graph_of(layout), pairs=3).go()
            return super().__call__(job)

    meanwhile = Meanwhile(layout)
    assert Proving(meanwhile, layout, graph_of(layout), pairs=3).go().verdict == "faster"
    assert len(meanwhile.seen) == 6


def test_a_process_has_the_budget_of_the_settings_unless_another_is_given(layout: Layout) -> None:
    usual, short = Stock(layout), Stock(layout)
    Proving(usual, layout, graph_of(layout), pairs=3).go()
    Proving(short, layout, graph_of(layout), pairs=3, budget=2.5).go()
    assert {job.budget for _, job in usual.seen} == {Config().budgets.prove}
    assert {job.budget for _, job in short.seen} == {2.5}


def test_a_graph_without_a_session_is_proven_too(layout: Layout) -> None:
    stock = Stock(layout)
    Proving(stock, layout, replace(graph_of(layout), session=None), pairs=3).go()
    assert {job.threads for _, job in stock.seen} == {None}


def test_one_disturbed_process_spoils_no_proof(layout: Layout) -> None:
    class Disturbed(Stock):
        def __call__(self, job: WorkerJob[Any]) -> Any:
            result = super().__call__(job)
            if len(self.seen) != 7:
                return result
            slow = TrialArm((), 1000.0, kernels=7)
            return replace(result, trial=replace(result.trial, arms=(slow,)))

    proof = Proving(Disturbed(layout), layout, graph_of(layout), seed=1).go()
    assert proof.verdict == "faster"


def test_what_is_not_faster_is_said(layout: Layout) -> None:
    proof = Proving(Stock(layout, 10.6), layout, graph_of(layout), pairs=3).go()
    assert proof.verdict == "slower"
    assert "% slower (" in gain_text(proof)


def test_the_figure_goes_into_the_note_and_the_history(layout: Layout) -> None:
    pin(layout, 16, "tri-1")
    proof = Proving(Stock(layout), layout, graph_of(layout)).go()
    annotate(layout, proof, proof_figure(proof))
    notes = {pin.inputs: pin.note for pin in PinStore(layout).pins()}
    assert notes[inputs(8)].startswith(f"mine; prove: graph {GRAPH} ")
    assert notes[inputs(16)] == proof_figure(proof)
    assert [entry.what for entry in PinStore(layout).history()] == ["pin", "pin", "note", "note"]
    annotate(layout, proof, proof_figure(proof))
    assert len(PinStore(layout).history()) == 4
    assert all(status.state == "active" for status in PinStore(layout).status())


def test_a_pin_that_is_gone_or_another_by_then_gets_no_note(layout: Layout) -> None:
    pin(layout, 16, "tri-1")
    proof = Proving(Stock(layout), layout, graph_of(layout), pairs=3).go()
    first, second = PinStore(layout).pins()
    PinStore(layout).unpin(first.key)
    pin(layout, 24, "tri-1")
    assert annotate(layout, proof, proof_figure(proof)) == ""
    notes = {pin.inputs: pin.note for pin in PinStore(layout).pins()}
    assert notes == {second.inputs: proof_figure(proof), inputs(24): ""}


def test_a_note_that_cannot_be_written_hides_no_result(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Run(Stock):
        def tell(self, *news: Any) -> None:
            pass

    def proving(work: Any, layout: Layout, graph: GraphRow, **options: Any) -> Proving:
        return Proving(Stock(layout), layout, graph, pairs=3)

    monkeypatch.setattr(command, "Proving", proving)
    lock = safe.lock_of(layout.root, layout.pins)
    lock.unlink()
    lock.mkdir()
    assert main(["prove", "--yes", "--json", "--cache-dir", str(layout.root)]) == 0
    out, err = capsys.readouterr()
    assert document(out, "prove")["verdict"] == "faster"
    assert "rocm-tui: the figure is not in the notes of all pins: " in err
    run: Any = Run(layout)
    said = prove_order(graph_of(layout), layout).work(run)
    assert "% faster (" in said and "; the figure is not in the notes of all pins: " in said


@pytest.mark.parametrize(
    ("note", "after"),
    [
        ("", "prove: graph a 2 %"),
        ("mine", "mine; prove: graph a 2 %"),
        ("improve: graph a 4.4 % faster (3.9 to 4.9 %)", "prove: graph a 2 %"),
        ("mine; prove: graph a 1 %; more", "mine; more; prove: graph a 2 %"),
        ("prove: graph b 1 %", "prove: graph b 1 %; prove: graph a 2 %"),
    ],
)
def test_a_note_keeps_what_a_person_wrote(note: str, after: str) -> None:
    assert note_with(note, "a", "prove: graph a 2 %") == after


def test_an_unclear_proof_leaves_the_figure_of_the_search() -> None:
    note = note_with("improve: graph a 4 %; prove: graph a 3 %", "a", "prove: graph a ?", False)
    assert note == "improve: graph a 4 %; prove: graph a ?"


def test_without_a_pin_there_is_nothing_to_prove(tmp_path: Path) -> None:
    layout = write_graph(tmp_path / "cache")
    with pytest.raises(NotTried, match="is pinned"):
        Proving(Stock(layout), layout, graph_of(layout))


def test_pins_of_another_graph_are_left_alone(layout: Layout) -> None:
    graph = graph_of(layout)
    kept = {key: held for key, held in graph.tunings.items() if key.inputs != inputs(8)}
    assert pins_of(replace(graph, tunings=kept), PinStore(layout).status()) == ()
    assert len(pins_of(graph, PinStore(layout).status())) == 1


def test_what_breaks_leaves_no_copy_and_the_note_as_it_was(layout: Layout) -> None:
    class Broken(Stock):
        def __call__(self, job: WorkerJob[Any]) -> Any:
            return TrialResult(False, reason="the baseline cannot be run")

    with pytest.raises(NotTried, match="cannot be run"):
        Proving(Broken(layout), layout, graph_of(layout)).go()
    assert [path for path in layout.graphs.iterdir() if path.is_dir()] == []
    assert the_pin(layout).note == "mine"


def test_pins_that_cannot_be_read_after_the_last_process_hide_no_result(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Last(Stock):
        def __call__(self, job: WorkerJob[Any]) -> Any:
            result = super().__call__(job)
            if len(self.seen) == 6:
                make_stale(monkeypatch, layout.pins)
            return result

    proof = Proving(Last(layout), layout, graph_of(layout), pairs=3).go()
    assert proof.verdict == "faster" and [each.pin.note for each in proof.pins] == ["mine"]
    assert "pins.json: Stale file handle" in annotate(layout, proof, "5 %")


def test_json_is_strict(layout: Layout) -> None:
    words = builtins_of(ProofJson.of(Proving(Stock(layout), layout, graph_of(layout)).go()))
    assert words["verdict"] == "faster"
    assert [one["state"] for one in words["pins"]] == ["active"]
