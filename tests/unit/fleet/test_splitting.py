"""A problem that is split: which choices are in which heat, what gets into the final, what the
cache entry says; a run of such problems, also one that is ended and gone on with."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import read_cache
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines
from rocm_tui.fleet.messages import Unit
from rocm_tui.fleet.pipe import Pipes
from rocm_tui.fleet.record import Reader
from rocm_tui.fleet.splitting import LEAST, finalists, heats_for, split, whole
from tests.support.waiting_agent import HASH, waiting_starts, waiting_unit

WANTED = Wanted(fleet=("test",), canary=False)
CHOICES = ["triton-0", "mm-aten", *(f"triton-{n}" for n in range(1, 19))]
TIMES = {hash: 1.0 + n for n, hash in enumerate(CHOICES)}


def problem(number: int = 1, seconds: float = 0.4) -> Unit:
    return replace(waiting_unit(number, seconds), known=TIMES)


def test_a_problem_is_split_where_it_is_long_and_enough_choices_are_known() -> None:
    unit = problem(seconds=10.0)
    assert heats_for(unit, CHOICES, 10.0) == 0
    assert heats_for(unit, CHOICES, 4.0) == 2 == len(CHOICES) // LEAST
    assert heats_for(unit, CHOICES * 5, 4.0) == 3
    assert heats_for(unit, CHOICES[:9], 1.0) < 2 and heats_for(unit, (), 1.0) == 0


def test_each_heat_has_fast_ones_and_every_choice_is_in_one_heat() -> None:
    first, second, final = split(problem(), CHOICES, 2)
    assert [unit.id for unit in (first, second)] == ["0000001.1", "0000001.2"]
    assert (final.id, final.after) == ("0000001", (first.id, second.id))
    assert {first.part_of, second.part_of} == {final.id} and final.part_of == ""
    assert first.job.only is None and second.job.without is None
    assert first.job.without is not None and second.job.only is not None
    assert set(first.job.without) | {"mm-aten"} == set(second.job.only)  # what is unknown: in one
    assert second.job.only[:3] == ("mm-aten", "triton-1", "triton-3")


def test_the_best_of_each_heat_and_the_library_get_into_the_final() -> None:
    close = {"triton-a": 1.0, "triton-b": 1.02, "triton-c": 1.04, "triton-d": 1.06}
    heat = close | {"triton-e": 1.09, "triton-f": 1.2, "mm-aten": 9.0, "triton-g": math.inf}
    few = {"triton-x": 5.0, "mm-aten": 9.0}
    assert finalists([heat, few]) == ("mm-aten", *close, "triton-e", "triton-x")
    assert len(finalists([{"mm-aten": 1.0, "cpp-1": math.inf}])) == 2  # one alone is not timed


def test_what_the_heats_ruled_out_is_never_faster_than_what_beat_it_there() -> None:
    heat = {f"triton-{n}": 1.0 + n for n in range(6)} | {"triton-bad": math.inf}
    slow = {hash: 5 * ms for hash, ms in heat.items() if hash in finalists([heat])}
    times, raised = whole(slow, [heat], {"triton-skipped": 3.0})
    assert times.keys() == {*heat, "triton-skipped"} and raised == 2
    assert {hash: times[hash] for hash in slow} == slow and math.isinf(times["triton-bad"])
    assert min(times["triton-4"], times["triton-5"]) > max(slow.values())
    fast = {hash: ms / 5 for hash, ms in slow.items()}
    times, raised = whole(fast, [heat], {})
    assert (times["triton-4"], times["triton-5"], raised) == (5.0, 6.0, 0)  # as measured
    assert whole(heat, (), {"other": 1.0}) == (heat, 0)


def test_a_run_has_heats_on_all_devices_and_one_whole_entry(tmp_path: Path) -> None:
    units = [*split(problem(1), CHOICES, 2), *split(problem(2), CHOICES, 2), waiting_unit(3, 0.1)]
    starts = waiting_starts(["a"]) | waiting_starts(["slow"], HASH, "304", "3")
    with Run.begin(Layout(tmp_path), WANTED, units) as run:
        run.work(Pipes(starts))
    counts = run.standing.counts()
    assert (counts.units, counts.merged, counts.left) == (3, 3, 0)
    entries = read_cache(Layout(tmp_path).autotune / HASH).entries
    for number in (1, 2):
        final = run.standing.units[f"{number:07x}"]
        [done] = final.results.values()
        assert done.result is not None and 2 * 4 < len(done.result.times) < len(CHOICES)
        times = entries[TuningKey("mm", f"[{number}]", "highest")]
        assert times.keys() == set(CHOICES) and min(times, key=times.__getitem__) == CHOICES[0]
        assert {hash: times[hash] for hash in done.result.times} == done.result.times
        assert final.merged is not None and final.merged.heats == 2
        assert final.merged.told == len(CHOICES) - len(done.result.times)
    news = [line for _, line in Reader(run.path).news()]
    assert len({line.done.agent for line in news if isinstance(line, lines.Done)}) == 2


def test_heats_that_are_done_are_not_tuned_again(tmp_path: Path) -> None:
    units = split(problem(seconds=0.6), CHOICES, 2)
    with Run.begin(Layout(tmp_path), WANTED, units) as run:

        def stop() -> None:
            if run.standing.units[units[0].id].results:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run.work(Pipes(waiting_starts(["a"])), look=stop)
    with Run.resume(Layout(tmp_path), WANTED, run.name) as again:
        assert again.standing.counts().left == 1
        again.work(Pipes(waiting_starts(["b"])))
    news = [line for _, line in Reader(run.path).news()]
    done = [line.done.unit for line in news if isinstance(line, lines.Done)]
    assert done == [unit.id for unit in units]
    assert again.standing.counts().merged == 1


def test_a_heat_that_fails_is_the_problems_failure(tmp_path: Path) -> None:
    heat, other, final = split(problem(seconds=0.2), CHOICES, 2)
    bad = replace(heat, title="own fault")
    with Run.begin(Layout(tmp_path), WANTED, [bad, other, final]) as run:
        run.work(Pipes(waiting_starts(["a"])))
    counts = run.standing.counts()
    assert (counts.units, counts.failed, counts.left) == (1, 1, 0)
    assert run.standing.units[final.id].reasons == ("own fault: a: it cannot",)
