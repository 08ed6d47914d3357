"""A search as it is made: in workers, within a budget, kept in a file, told, ended and gone on."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, PinRefused, StoreError
from backend.model.events import TuningMeasured
from backend.pins.store import PinStore
from backend.wire.codec import to_json
from backend.wire.jobs import MeasureJob, TrialJob, WorkerJob
from rocm_tui.actions.improve import (
    AlreadyRunning,
    GraphSearch,
    SearchProgress,
    SearchUnreadable,
    only_search,
    pick_graph,
    pin_proposals,
    plan_proposals,
    proposals,
    read_search,
    result_of,
    rows_of,
    search_path,
    write_search,
)
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.trial import NotTried
from rocm_tui.config.settings import Config
from rocm_tui.errors import NoSuchGraph, RocmTuiError
from rocm_tui.jobs.limits import JobError
from rocm_tui.json_output import builtins_of
from rocm_tui.render.improve import SearchJson, news_text, no_gain_text, note_of, summary
from rocm_tui.search.steps import best_arm, finished
from rocm_tui.search.types import Search
from rocm_tui.session.graph_rows import GraphTuning
from rocm_tui.session.stats import NEAR
from tests.support.graph_log import inputs, measurement, use, writer_of
from tests.support.improve_lab import FIVE_PERCENT, GRAPH, Workers, gains, graph_of, write_graph
from tests.support.search_lab import additive
from tests.support.store_disks import make_stale


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return write_graph(tmp_path / "cache")


def improving(layout: Layout, workers: Workers, **options: Any) -> GraphSearch:
    return GraphSearch(workers, layout, graph_of(layout), **options)


def improve(layout: Layout, workers: Workers, **options: Any) -> Search:
    return improving(layout, workers, **options).go()


def test_what_is_faster_in_the_graph_is_proposed_though_it_is_slower_alone(layout: Layout) -> None:
    search = improve(layout, Workers(gains({16: FIVE_PERCENT})))
    gain = result_of(search)
    assert gain is not None
    assert gain.low < 0.95 < gain.high
    (proposal,) = proposals(search)
    assert proposal.subject.inputs == inputs(16)
    assert proposal.candidate.hash == "tri-1"
    assert proposal.candidate.alone is not None
    assert proposal.candidate.alone.verdict == "slower"


def test_what_is_faster_alone_and_slower_in_the_graph_is_not(layout: Layout) -> None:
    workers = Workers(gains({8: 0.04}), slower=0.95)
    search = improve(layout, workers)
    assert proposals(search) == ()
    assert finished(search)
    subject = search.subjects[0]
    assert subject.candidates[0].alone is not None
    assert subject.candidates[0].alone.verdict == "faster"


def test_the_heaviest_is_measured_first_and_tried_at_once(layout: Layout) -> None:
    workers = Workers()
    improve(layout, workers)
    kinds = [(type(job).__name__, job) for job in workers.jobs]
    assert [name for name, _ in kinds] == ["MeasureJob", "TrialJob"] * 3
    measured = [job.inputs for _, job in kinds if isinstance(job, MeasureJob)]
    assert measured == [inputs(8), inputs(16), inputs(24)]


def test_what_a_session_measured_is_not_measured_again(layout: Layout) -> None:
    writer = writer_of(layout.root, "another", started=300.0)
    writer.write(TuningMeasured(measurement(8, "mm-1", "tri-1", 2.0, 1.02)))
    writer.close()
    workers = Workers()
    improve(layout, workers)
    measured = [job.inputs for job in workers.jobs if isinstance(job, MeasureJob)]
    assert measured == [inputs(16), inputs(24)]


def test_what_measuring_rules_out_is_not_tried_but_the_fastest_of_each_kind_is(
    layout: Layout,
) -> None:
    workers = Workers(slower=1.5)
    search = improve(layout, workers)
    assert search.subjects
    assert all(len(subject.candidates) == 1 for subject in search.subjects)  # of another maker


def test_a_search_has_the_budget_of_the_settings_unless_another_is_given(layout: Layout) -> None:
    assert improving(layout, Workers()).budget == Config().budgets.improve
    assert improving(layout, Workers(), budget=2.5).budget == 2.5


def test_a_confirmation_has_processes_of_its_own(layout: Layout) -> None:
    workers = Workers(gains({8: FIVE_PERCENT}))
    improve(layout, workers)
    assert [job.fresh for job in workers.trials] == [False] * 3 + [True] * 5
    assert all(job.arms[0] == () for job in workers.trials[3:])


def test_each_step_is_kept_and_a_killed_search_loses_one_trial(layout: Layout) -> None:
    class Killed(BaseException):
        pass

    def stop(job: WorkerJob[Any]) -> None:
        if len(workers.jobs) == 5:
            raise Killed

    workers = Workers(gains({8: FIVE_PERCENT}), before=stop)
    with pytest.raises(Killed):
        improve(layout, workers)
    left = read_search(layout, GRAPH)
    assert left is not None
    assert len(left.tries) == 2
    after = Workers(gains({8: FIVE_PERCENT}))
    search = improve(layout, after)
    assert search.tries[:2] == left.tries
    assert len(after.trials) == 1 + 5
    assert result_of(search) is not None


def test_a_finished_search_does_nothing_more(layout: Layout) -> None:
    first = improve(layout, Workers(gains({8: FIVE_PERCENT})))
    workers = Workers()
    assert improve(layout, workers) == first
    assert workers.jobs == []
    improve(layout, workers, restart=True)
    assert len(workers.trials) == 3


def test_another_text_begins_anew_and_says_so(layout: Layout) -> None:
    improve(layout, Workers())
    (layout.graphs / f"{GRAPH}.py").write_text("# another\n")
    news: list[SearchProgress] = []
    workers = Workers()
    improve(layout, workers, tell=news.append)
    assert "text" in news[0].anew
    assert len(workers.trials) == 3


def test_another_torch_begins_anew_and_says_so(layout: Layout) -> None:
    def stop(job: WorkerJob[Any]) -> None:
        if len(workers.jobs) == 3:
            raise KeyboardInterrupt

    workers = Workers(before=stop)
    with pytest.raises(KeyboardInterrupt):
        improve(layout, workers)
    news: list[SearchProgress] = []
    search = improve(layout, Workers(torch="2.14.0"), tell=news.append)
    assert any("torch" in one.anew for one in news)
    assert {attempt.trial.torch for attempt in search.tries if attempt.trial} == {"2.14.0"}


def test_tuned_again_begins_anew(layout: Layout) -> None:
    improve(layout, Workers())
    path = next(layout.autotune.iterdir())
    cache = json.loads(path.read_text())
    cache["cache"]["mm"][inputs(8)]["highest"]["mm-1"] = 1.0
    path.write_text(json.dumps(cache))
    news: list[SearchProgress] = []
    improve(layout, Workers(), tell=news.append)
    assert "tuned again" in news[0].anew


@pytest.mark.parametrize("unread", ["cache", "folder", "pins"])
def test_a_search_is_kept_while_its_tunings_cannot_be_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    first = improve(layout, Workers())
    improving_again = improving(layout, Workers())
    paths = {"cache": next(layout.autotune.iterdir()), "folder": layout.autotune}
    with monkeypatch.context() as broken:
        make_stale(broken, paths.get(unread, layout.pins))
        with pytest.raises(CacheUnreadable, match="Stale file handle"):
            improving_again.go()
    assert read_search(layout, GRAPH) == first


def test_another_bound_begins_anew(layout: Layout) -> None:
    improve(layout, Workers())
    news: list[SearchProgress] = []
    improve(layout, Workers(), tell=news.append, within=0.2)
    assert "--within" in news[0].anew


OPTION = "epilogue_fusion=False"


def with_options(layout: Layout, **more: Any) -> Search:
    """A search in which an option was confirmed."""
    search = improve(layout, Workers(additive({OPTION: FIVE_PERCENT})), options=True, **more)
    gain = result_of(search)
    assert gain is not None and [change.identity for change in gain.arm] == [OPTION]
    return search


def test_an_unconfirmed_search_without_a_control_begins_anew(layout: Layout) -> None:
    """Earlier versions kept options that were no faster than a new tuning."""
    first = with_options(layout)
    screened = [attempt.kind == "screen" and best_arm(attempt) for attempt in first.tries]
    (at,) = (at for at, arm in enumerate(screened) if arm)
    trial = first.tries[at].trial
    assert trial is not None
    again = "Inductor benchmarked choices again for it, which can be a part of the difference"
    kept = replace(first.tries[at], trial=replace(trial, trouble=(again,)))
    news: list[SearchProgress] = []
    for tries, anew in (
        ((*first.tries[:at], kept), "did not compare options with a new tuning: begun anew"),
        ((*first.tries[:at], kept, *first.tries[at + 1 :]), ""),  # it is confirmed
    ):
        write_search(layout, replace(first, tries=tries))
        news.clear()
        improve(layout, Workers(additive({OPTION: FIVE_PERCENT})), tell=news.append)
        assert news[0].anew.endswith(anew) and bool(news[0].anew) is bool(anew)


def test_what_nobody_asks_for_goes_on_as_it_was(layout: Layout) -> None:
    first = with_options(layout, templates=True, within=0.2)
    again = Workers()
    assert improve(layout, again) == first == improve(layout, again, within=0.2)
    assert improve(layout, again, options=True, templates=True) == first
    assert again.jobs == []
    plain = improve(layout, again, restart=True)
    assert plain.within == NEAR and not any(subject.options for subject in plain.subjects)


def test_a_search_of_options_alone_goes_on_without_asking_for_them(layout: Layout) -> None:
    row = replace(graph_of(layout), tunings={})
    first = GraphSearch(Workers(), layout, row, options=True).go()
    assert GraphSearch(Workers(), layout, row).go() == first


def test_options_that_are_asked_for_begin_anew_where_nothing_was_confirmed(layout: Layout) -> None:
    improve(layout, Workers())
    news: list[SearchProgress] = []
    with_options(layout, tell=news.append)
    assert news[0].anew == "the last search tried other options: begun anew"


@pytest.mark.parametrize("asked", [{"within": 0.3}, {"templates": True}])
def test_a_confirmed_gain_is_discarded_by_restart_alone(
    layout: Layout, asked: dict[str, Any]
) -> None:
    first = with_options(layout)
    workers = Workers()
    with pytest.raises(NotTried, match=f"`rocm-tui improve {GRAPH} --restart` discards it"):
        improve(layout, workers, **asked)
    assert workers.jobs == [] and read_search(layout, GRAPH) == first
    assert improve(layout, workers, restart=True, **asked).started > first.started


def test_a_confirmed_gain_of_another_torch_or_text_stays_too(layout: Layout) -> None:
    first = with_options(layout)
    screened = next(attempt for attempt in first.tries if first.subjects[attempt.subject].options)
    others = [attempt for attempt in first.tries if attempt is not screened]
    write_search(layout, replace(first, tries=(*others, screened)))  # so something is left to do
    before = search_path(layout, GRAPH).read_bytes()
    with pytest.raises(NotTried, match="by another torch or device; that search confirmed a gain"):
        improve(layout, Workers(torch="2.14.0"))
    (layout.graphs / f"{GRAPH}.py").write_text("# another\n")
    with pytest.raises(NotTried, match="the graph's text is another one"):
        improve(layout, Workers())
    assert search_path(layout, GRAPH).read_bytes() == before


def test_a_cancelled_search_says_nothing_of_what_it_was_at(layout: Layout) -> None:
    def cancel(job: WorkerJob[Any]) -> None:
        if len(workers.jobs) == 3:
            raise RocmTuiError("cancelled")

    workers = Workers(gains({8: FIVE_PERCENT}), before=cancel)
    with pytest.raises(RocmTuiError, match="cancelled"):
        improve(layout, workers)
    search = read_search(layout, GRAPH)
    assert search is not None
    assert [bool(attempt.failed) for attempt in search.tries] == [False]
    assert [subject.ready for subject in search.subjects].count(True) == 2


def test_a_budget_ends_it_and_says_what_is_open(layout: Layout) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()

    def work(job: WorkerJob[Any]) -> None:
        clock.now += 10.0

    workers = Workers(before=work)
    search = improve(layout, workers, budget=100.0, clock=clock)
    assert len(workers.jobs) == 3
    assert not finished(search)
    assert search.seconds == 10.0


def test_two_at_once_on_one_graph_are_refused(layout: Layout) -> None:
    with (
        only_search(layout, GRAPH),
        pytest.raises(AlreadyRunning, match="improved by another process"),
        only_search(layout, GRAPH),
    ):
        pass
    with only_search(layout, GRAPH):
        pass


def confirmation_of_one(words: dict[str, Any]) -> dict[str, Any]:
    first = words["tries"][0]
    return {**first, "kind": "confirm", "arms": first["arms"][:1]}


def with_time(words: dict[str, Any], name: str, value: float) -> str:
    """The search with another number of the first arm of its first trial."""
    changed = json.loads(json.dumps(words))
    changed["tries"][0]["trial"]["arms"][0][name] = value
    return json.dumps(changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda words: "no JSON",
        lambda words: "[" * 100_000,
        lambda words: json.dumps([]),
        lambda words: json.dumps({**words, "version": 99}),
        lambda words: json.dumps({**words, "graph": "ccccccc"}),
        lambda words: json.dumps({**words, "subjects": []}),
        lambda words: json.dumps({**words, "tries": [{**words["tries"][0], "kind": "guess"}]}),
        lambda words: json.dumps({**words, "tries": [{**words["tries"][0], "error": -1}]}),
        lambda words: json.dumps({**words, "tries": [{**words["tries"][0], "arms": []}]}),
        lambda words: json.dumps({**words, "tries": [{**words["tries"][0], "subject": 7}]}),
        lambda words: json.dumps({**words, "tries": [{**words["tries"][0], "error": 1.01}]}),
        lambda words: json.dumps({**words, "tries": [confirmation_of_one(words)]}),
        lambda words: with_time(words, "ms", 0.0),
        lambda words: with_time(words, "ratio", -1.0),
    ],
)
def test_what_is_no_search_is_refused_and_stays(layout: Layout, change: Any) -> None:
    search = improve(layout, Workers())
    path = search_path(layout, GRAPH)
    hostile = change(to_json(search))
    path.write_text(hostile)
    with pytest.raises(SearchUnreadable, match="--restart"):
        improve(layout, Workers())
    assert path.read_text() == hostile
    improve(layout, Workers(), restart=True)
    assert read_search(layout, GRAPH) is not None


def test_what_is_not_known_is_kept_as_it_is(layout: Layout) -> None:
    search = improve(layout, Workers())
    (first, *_) = search.tries
    assert first.trial is not None
    base, arm = first.trial.arms
    vague = replace(arm, ratio_low=0.0, ratio_high=inf, verdict="unclear")
    trial = replace(first.trial, arms=(base, vague))
    search = replace(search, tries=(replace(first, trial=trial),))
    write_search(layout, search)
    assert read_search(layout, GRAPH) == search
    json.dumps(builtins_of(SearchJson.of(search)), allow_nan=False)


def test_no_file_is_written_through_a_symlink(layout: Layout, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    search_path(layout, GRAPH).symlink_to(target)
    with pytest.raises((StoreError, SearchUnreadable)):
        improve(layout, Workers(), restart=True)
    assert target.read_text() == "mine"


def test_a_failing_choice_does_not_end_the_search(layout: Layout) -> None:
    def broken(job: WorkerJob[Any]) -> None:
        if isinstance(job, TrialJob) and any(
            swap.inputs == inputs(8) for arm in job.arms for swap in arm
        ):
            raise JobError("the worker died: SIGSEGV")

    search = improve(layout, Workers(gains({16: FIVE_PERCENT}), before=broken))
    assert [one.subject.inputs for one in proposals(search)] == [inputs(16)]
    assert any("SIGSEGV" in line for line in summary(search))


def test_a_search_that_stopped_says_why_and_its_next_run_tries_again(layout: Layout) -> None:
    """Each tuning has one choice here, so that nothing else is left to try."""

    def full(job: WorkerJob[Any]) -> None:
        if isinstance(job, TrialJob):
            raise JobError("the GPU is full")

    search = improve(layout, Workers(before=full))
    assert [bool(attempt.failed) for attempt in search.tries] == [True] * 3
    assert not finished(search)
    text = no_gain_text(search, 600.0)
    assert text == "the search stopped, because 3 trials in a row failed: the GPU is full"
    assert not any("stopped" in line for line in summary(search))
    search = improve(layout, Workers(gains({8: FIVE_PERCENT})))
    assert result_of(search) is not None and finished(search)
    assert not any(attempt.failed for attempt in search.tries)


def test_failures_of_an_earlier_run_do_not_stop_the_next_one(layout: Layout) -> None:
    def cut(job: WorkerJob[Any]) -> None:
        if len(workers.trials) == 2:
            raise KeyboardInterrupt
        if isinstance(job, TrialJob):
            workers.jobs.append(job)
            raise JobError("the GPU is full")

    workers = Workers(before=cut)
    with pytest.raises(KeyboardInterrupt):
        improve(layout, workers)
    left = read_search(layout, GRAPH)
    assert left is not None and len(left.tries) == 2

    def once(job: WorkerJob[Any]) -> None:
        if isinstance(job, TrialJob) and not fuller.trials:
            fuller.jobs.append(job)
            raise JobError("the GPU is full")

    fuller = Workers(gains({16: FIVE_PERCENT}), before=once)
    search = improve(layout, fuller)
    assert [bool(attempt.failed) for attempt in search.tries[:2]] == [True, False]
    assert result_of(search) is not None


def test_outputs_are_said_to_differ_only_where_they_did(layout: Layout) -> None:
    def of_the_worker(reason: str) -> Search:
        workers = Workers(gains({8: FIVE_PERCENT}))
        failing = {"mm-1": reason}
        workers.before = lambda job: workers.failing.update(
            failing if len(workers.jobs) > 5 else {}
        )
        search = improve(layout, workers, restart=True)
        assert result_of(search) is None
        return search

    text = "; ".join(summary(of_the_worker("out of memory")))
    assert "differed" not in text and "new processes have not confirmed it yet" in text
    wrong = "wrong result: output 0 has another shape or type"
    assert "in new processes its outputs differed" in "; ".join(summary(of_the_worker(wrong)))


AGAIN = "Inductor benchmarked choices again for mm-1, which can be a part of the difference"


def test_what_disturbed_the_confirmation_is_said(layout: Layout) -> None:
    def trouble(job: TrialJob) -> tuple[str, ...]:
        busy = f"busy neighbour: in trial {len(workers.trials)}"
        return (busy, AGAIN) if job.fresh else ("preempted",)

    workers = Workers(gains({8: FIVE_PERCENT}), trouble=trouble)
    search = improve(layout, workers)
    expected = ["busy neighbour: in trial 8", AGAIN]
    assert summary(search)[-2:] == expected
    assert not any("preempted" in line for line in summary(search))
    assert builtins_of(SearchJson.of(search))["trouble"] == expected
    assert summary(improve(layout, Workers(), restart=True))[1:] == []


def test_the_pins_carry_the_figure(layout: Layout) -> None:
    search = improve(layout, Workers(gains({8: FIVE_PERCENT, 16: FIVE_PERCENT})))
    gain = result_of(search)
    assert gain is not None
    note = note_of(search, gain)
    assert note.startswith(f"improve: graph {GRAPH} ")
    assert "% faster (" in note
    sessions = load_model(layout).sessions
    rows = rows_of(graph_of(layout))
    planned = plan_proposals(proposals(search), rows, sessions, layout)
    pinned = pin_proposals(planned, layout, note)
    assert len(pinned) == 2
    assert all(one.active for one in pinned)
    assert {pin.note for pin in PinStore(layout).pins()} == {note}
    assert {(pin.inputs, pin.hash) for pin in PinStore(layout).pins()} == {
        (inputs(8), "mm-1"),
        (inputs(16), "tri-1"),
    }


def test_what_was_pinned_since_it_was_asked_about_stays(layout: Layout) -> None:
    search = improve(layout, Workers(gains({8: FIVE_PERCENT, 16: FIVE_PERCENT})))
    sessions = load_model(layout).sessions
    planned = plan_proposals(proposals(search), rows_of(graph_of(layout)), sessions, layout)
    last, _ = planned[-1]
    other = "mm-1" if last.hash == "tri-1" else "tri-1"
    PinStore(layout).pin(None, last.key, other, label="another", who="ann@box")
    with pytest.raises(PinRefused, match="another was pinned meanwhile by ann@box; nothing"):
        pin_proposals(planned, layout, "")
    assert [pin.hash for pin in PinStore(layout).pins()] == [other]


def test_pinned_tunings_are_searched_as_if_they_were_not(layout: Layout) -> None:
    """The pin raises a rival's number; the search goes by what was measured."""
    first = improve(layout, Workers(gains({8: FIVE_PERCENT})))
    rows = rows_of(graph_of(layout))
    sessions = load_model(layout).sessions
    pin_proposals(plan_proposals(proposals(first), rows, sessions, layout), layout, "")
    workers = Workers()
    assert improve(layout, workers) == first
    assert workers.jobs == []


def test_the_live_line_tells_where_it_is(layout: Layout) -> None:
    lines: list[str] = []

    def tell(news: SearchProgress) -> None:
        lines.append(news_text(news.search, news.step, news.left))

    improve(layout, Workers(gains({8: FIVE_PERCENT})), tell=tell)
    assert "tuning 1 of 3, mm 8×32 · 32×64: measuring its choices alone" in lines[0]
    assert "1 choice in the graph; nothing kept yet" in lines[1]
    assert "some 5" in lines[3]
    assert "confirming in new processes, 1 of 5" in lines[6]
    assert lines[-1].startswith("done; ")
    assert "% faster (" in lines[-1]


def test_json_tells_all(layout: Layout) -> None:
    words = builtins_of(SearchJson.of(improve(layout, Workers(gains({8: FIVE_PERCENT})))))
    json.dumps(words, allow_nan=False)
    assert words["gain"]["verdict"] == "faster"
    assert [len(tuning["candidates"]) for tuning in words["tunings"]] == [1, 1, 1]
    assert words["tunings"][0]["candidates"][0]["graph"][0]["verdict"] == "faster"


def test_the_graph_that_a_person_means(layout: Layout) -> None:
    row = graph_of(layout)
    assert pick_graph([row]) is row
    assert pick_graph([row], "aaa") is row
    with pytest.raises(NoSuchGraph):
        pick_graph([row], "b")
    with pytest.raises(NotTried, match="not captured"):
        pick_graph([replace(row, path=None)])
    refused = replace(row, path=None, graph=replace(row.graph, uncaptured="an op of torchvision"))
    with pytest.raises(NotTried, match=f"graph {GRAPH} could not be captured: an op of torchv"):
        pick_graph([refused], "aaa")
    with pytest.raises(NotTried, match="capture"):
        pick_graph([])


def test_a_tuning_that_no_source_has_is_neither_measured_nor_tried(layout: Layout) -> None:
    row, unknown = graph_of(layout), use(99)
    tunings = {**row.tunings, unknown.key: GraphTuning(unknown)}
    workers = Workers()
    search = GraphSearch(workers, layout, replace(row, tunings=tunings)).go()
    assert finished(search)
    (unfit,) = (subject for subject in search.subjects if subject.unfit)
    assert (unfit.inputs, unfit.unfit) == (
        unknown.inputs,
        "its tuning is in no cache that was read",
    )
    measured = {job.inputs for job in workers.jobs if isinstance(job, MeasureJob)}
    assert measured == {inputs(8), inputs(16), inputs(24)}


def test_a_search_goes_on_where_a_tuning_is_read_no_more(layout: Layout) -> None:
    """It began with --from, and is continued without."""

    jobs: list[WorkerJob[Any]] = []

    def interrupt(job: WorkerJob[Any]) -> None:
        jobs.append(job)
        if len(jobs) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        improve(layout, Workers(before=interrupt), options=True)
    row = graph_of(layout)
    tunings = {key: GraphTuning(held.use) for key, held in row.tunings.items()}
    search = GraphSearch(Workers(), layout, replace(row, tunings=tunings)).go()
    assert finished(search)
    unfit = [subject.unfit for subject in search.subjects if subject.unfit]
    assert unfit == ["its tuning is in no cache that was read"] * 2, "one was measured"


def test_a_graph_without_anything_to_try_says_why(layout: Layout) -> None:
    row = graph_of(layout)
    with pytest.raises(RocmTuiError, match="no choice of a known tuning"):
        GraphSearch(Workers(), layout, replace(row, tunings={})).go()
