"""What is asked of a fleet becomes units: one a problem, by who knows most of it, weighed."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.problem import Problem
from backend.model.tuning import Seconds, Tuning
from rocm_tui.actions.fleet import Asked, Run, Wanted, seconds_of, units_of
from rocm_tui.fleet.opening import Joined
from rocm_tui.fleet.pipe import Pipes
from rocm_tui.fleet.protocol import NoFleet
from rocm_tui.fleet.record import runs
from rocm_tui.jobs.tune import TuneOptions, problem_of
from rocm_tui.session.graphs import Share
from rocm_tui.session.model import Row
from tests.support.waiting_agent import waiting_starts, waiting_unit

INPUTS = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"
OPTIONS = TuneOptions()


def asked(threads: int | None = None, calls: int = 0, seconds: float | None = None) -> Asked:
    choices = (Choice("mm", "mm-1", 1.0), Choice("cpp", "cpp-2", 2.0), Choice("x", "x-3"))
    tuning = Tuning(
        "mm",
        precision="highest",
        inputs_key=INPUTS,
        threads=threads,
        choices=choices,
        seconds=Seconds(benchmark=seconds),
    )
    row = Row("k", tuning.id, 1, tuning, share=Share("program", calls))
    return Asked(problem_of(tuning), False, "mm", row)


def test_a_problem_that_many_ranks_tell_of_is_one_unit_and_its_calls_are_added() -> None:
    [unit] = units_of([asked(4, 10, 3.0), asked(4, 20, 2.0), asked(None, 5)], OPTIONS)
    assert (unit.calls, unit.weight, unit.job.threads) == (30.0, 3.0, 4)
    assert unit.id == problem_of(asked().row.tuning).id  # type: ignore[union-attr]
    assert unit.known == {"mm-1": 1.0, "cpp-2": 2.0} and unit.job.inputs == INPUTS


def test_one_key_with_other_threads_is_another_unit() -> None:
    first, second = units_of([asked(4), asked(8)], OPTIONS)
    assert second.id == f"{first.id}-2" and (first.job.threads, second.job.threads) == (4, 8)


def test_what_a_unit_will_take() -> None:
    row = asked(seconds=7.0).row
    assert row is not None
    assert seconds_of(row.tuning) == 7.0
    [bounded] = units_of([asked(seconds=7.0)], TuneOptions(budget=2.0))
    assert bounded.weight == 2.0
    [by_choices] = units_of([asked()], OPTIONS)
    [unknown] = units_of([Asked(Problem("mm", ((8, 8), (8, 8))), False, "mm")], OPTIONS)
    assert 0 < by_choices.weight < unknown.weight


def test_a_run_without_a_fleet_leaves_no_record(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    run = Run.begin(layout, Wanted(("lokal",)), [waiting_unit(1, 0.1)])
    with run, pytest.raises(NoFleet, match="did you mean 'local'"):
        run.work()
    assert runs(layout) == []


def test_two_fleets_are_one(tmp_path: Path) -> None:
    fleet = Joined([Pipes(waiting_starts(["a"])), Pipes(waiting_starts(["b"]))])
    wanted = Wanted(("test",), canary=False)
    with Run.begin(Layout(tmp_path), wanted, [waiting_unit(n, 0.2) for n in range(4)]) as run:
        run.work(fleet)
    assert {name: agent.done for name, agent in run.standing.agents.items()} == {"a": 2, "b": 2}
    with pytest.raises(NoFleet, match="a would be used by two"):
        Joined([Pipes(waiting_starts(["a"])), Pipes(waiting_starts(["a"]))])
