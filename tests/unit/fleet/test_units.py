"""What is asked for becomes units: one a problem, by who knows most of it, weighed."""

from __future__ import annotations

import json
from pathlib import Path

from backend.model.choice import Choice
from backend.model.problem import Problem
from backend.model.tuning import Seconds, Tuning
from backend.wire.jobs import TuneJob
from rocm_tui.fleet.units import Asked, Unit, in_cache, seconds_of, units_of
from rocm_tui.jobs.tune import TuneOptions, problem_of
from rocm_tui.session.graphs import Share
from rocm_tui.session.model import Row

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


def test_a_problem_of_many_ranks_is_one_unit_and_its_calls_are_added() -> None:
    [unit] = units_of([asked(4, 10, 3.0), asked(4, 20, 2.0), asked(None, 5)], OPTIONS)
    assert (unit.calls, unit.weight, unit.job.threads) == (35.0, 3.0, 4)
    assert unit.id == problem_of(asked().row.tuning).id  # type: ignore[union-attr]
    assert unit.cached_ms == {"mm-1": 1.0, "cpp-2": 2.0} and unit.job.inputs == INPUTS


def test_one_key_with_other_threads_is_another_unit() -> None:
    first, second = units_of([asked(4), asked(8)], OPTIONS)
    assert second.id == f"{first.id}-2" and (first.job.threads, second.job.threads) == (4, 8)


def test_calls_without_threads_are_those_of_the_problem_with_threads() -> None:
    [unit] = units_of([asked(None, 100, 9.0), asked(4, 1)], OPTIONS)
    assert (unit.calls, unit.weight, unit.job.threads) == (101.0, 9.0, 4)


def test_what_a_unit_will_take() -> None:
    row = asked(seconds=7.0).row
    assert row is not None
    assert seconds_of(row.tuning) == 7.0
    [bounded] = units_of([asked(seconds=7.0)], TuneOptions(budget=2.0))
    assert bounded.weight == 2.0
    [by_choices] = units_of([asked()], OPTIONS)
    [unknown] = units_of([Asked(Problem("mm", ((8, 8), (8, 8))), False, "mm")], OPTIONS)
    assert 0 < by_choices.weight < unknown.weight


def test_what_takes_long_and_is_called_often_comes_first() -> None:
    problems = [Problem("mm", ((n, 8), (8, 8))) for n in (8, 16, 24)]
    calls = dict(zip(problems, (1.0, 30.0, 20.0), strict=True))
    units = units_of(
        [Asked(p, False, str(p.shapes[0][0]), calls=calls[p]) for p in problems], OPTIONS
    )
    assert [unit.title for unit in units] == ["16", "24", "8"]


def test_which_problems_the_cache_has(tmp_path: Path) -> None:
    """By their keys; those of other tuners' lists, which have none, by their shapes."""
    path = tmp_path / "file"
    cache = {"mm": {INPUTS: {"highest": {"mm-1": 1.0}}}}
    path.write_text(json.dumps({"system": {}, "cache": cache}))
    square, types = ((8, 8), (8, 8)), ("torch.float32",)
    typed = TuneJob("mm", shapes=square, dtypes=types, strides=((8, 1), (8, 1)))
    wide = TuneJob("mm", shapes=((8, 8), (8, 16)), dtypes=types, strides=((8, 1), (16, 1)))
    jobs = {
        "key": TuneJob("mm", INPUTS, "highest"),
        "precision": TuneJob("mm", INPUTS, "high"),
        "op": TuneJob("bmm", INPUTS, "highest"),
        "typed": typed,
        "wide": wide,
    }
    units = [Unit(id, id, job) for id, job in jobs.items()]
    assert in_cache(units, path, gpus=False) == {"key", "typed"}
    assert in_cache(units, path, gpus=True) == {"key"}  # no GPU has timed it
    assert in_cache(units, tmp_path / "none", gpus=False) == set()


def test_a_problem_of_a_cpu_is_known_by_its_key_or_its_device() -> None:
    gpu = INPUTS.replace("cpu", "cuda")
    jobs = [TuneJob("mm", INPUTS), TuneJob("mm", device="cpu"), TuneJob("mm", gpu), TuneJob("mm")]
    assert [Unit("u", "u", job).on_cpu for job in jobs] == [True, True, False, False]
