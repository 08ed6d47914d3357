"""Choices, tunings and recordings that fail, and selections that torch makes in other ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.events import (
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionStarted,
    TuningFailed,
    TuningStarted,
)
from tests.support.hooked import BMM, by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

CASES = """
import glob, os, sys, types, torch, torch._inductor.config as config
import torch._inductor.select_algorithm as select
def bmm(n, after=lambda c: c + 1):  # each n is another tuning
    torch._dynamo.reset()
    a, b = torch.randn(4, 16 + n, 64), torch.randn(4, 64, 96)
    torch.compile(lambda a, b: after(torch.bmm(a, b)))(a, b)
class Python:  # Python 3.11.0 to 3.11.8 has a bug for which torch leaves precompiling out
    def __init__(self, *version):
        self.version_info = types.SimpleNamespace(**dict(zip(("major", "minor", "micro"), version)))
    def __getattr__(self, name):
        return getattr(sys, name)
def without_units(choices):
    for choice in choices:
        if choice.name.startswith("cpp_"):
            choice.bmreq.source_code = "#error this machine has no such unit"
    return choices
change = lambda choices: choices
select.add_preprocessing_fn(lambda choices: change(choices))

bmm(0)
logs = glob.glob(os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/rocm_tui/sessions/*.jsonl")
print([open(log).read().count('"tuning_started"') for log in logs if ".run." not in log])
config.max_autotune = True

change, select.sys = without_units, Python(3, 11, 0)
bmm(1)
select.sys = Python(3, 12, 0)
bmm(2)
change = lambda choices: choices
os.environ["COMPILE_ANEW"] = "1"
bmm(3)
del os.environ["COMPILE_ANEW"]
with config.patch(deterministic=True):
    bmm(4)
with config.patch(max_autotune_gemm_backends="ATEN"):
    bmm(5)

change, select.sys = without_units, Python(3, 11, 0)
stock = select.AlgorithmSelectorCache.__call__
def deferring(self, *args, **kwargs):
    with config.patch(cpu_backend="triton"):  # else selections for the CPU are never put off
        result = stock(self, *args, **kwargs)
    print(result[1], type(result[0].data.data).__name__)
    return result
select.AlgorithmSelectorCache.__call__ = deferring
with config.patch(benchmark_epilogue_fusion=True):
    bmm(6, lambda c: c)
select.AlgorithmSelectorCache.__call__ = stock

change = lambda choices: []
bmm(7)
"""
"""Many tunings in one process, the last of which fails it."""


@dataclass(frozen=True)
class Told:
    """What the program printed, and what its session holds of each tuning, by `n`."""

    stdout: list[str]
    stderr: str
    tunings: dict[int, tuple[TuningStarted, list[Event]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    cache = tmp_path_factory.mktemp("cases") / "cache"
    done = launch_program(CASES, cache, expect=1)
    (events,) = sessions(cache)
    tunings = by_tuning(events)
    assert [start.shapes[0] for start, _ in tunings] == [(4, 16 + n, 64) for n in range(1, 8)]
    return Told(done.stdout.splitlines(), done.stderr, dict(enumerate(tunings, 1)))


def test_a_failing_choice_says_why(told: Told) -> None:
    start, events = told.tunings[1]
    (failed,) = [e for e in events if isinstance(e, ChoiceFailed)]
    assert failed.phase == "benchmark" and "this machine has no such unit" in failed.reason
    assert "\n" not in failed.reason
    assert [e.hash for e in events if isinstance(e, ChoiceTimed)] == [start.choices[0].hash]
    assert isinstance(events[-1], ChoiceSelected) and events[-1].hash == start.choices[0].hash
    assert told.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`


def test_a_choice_that_does_not_compile_ahead(told: Told) -> None:
    start, events = told.tunings[2]
    (failed,) = [e for e in events if isinstance(e, ChoiceFailed)]
    assert failed.phase == "precompile" and "no such unit" in failed.reason
    assert failed.hash == start.choices[1].hash


def test_compiling_ahead_is_told_choice_by_choice(told: Told) -> None:
    start, events = told.tunings[3]
    compiled = {e.hash: e.seconds for e in events if isinstance(e, ChoiceCompiled)}
    (seconds,) = compiled.values()  # of the template; the ATen call needs no compiling
    assert list(compiled) == [start.choices[1].hash]
    assert (seconds or 0) > 0.1  # a C++ compiler ran
    assert isinstance(events[-1], ChoiceSelected)
    assert (events[-1].precompile_seconds or 0) > 0.1


@pytest.mark.parametrize(("n", "by"), [(4, "deterministic"), (5, "only")])
def test_selections_without_timings(told: Told, n: int, by: str) -> None:
    (selected,) = told.tunings[n][1]
    assert isinstance(selected, ChoiceSelected) and selected.by == by


def test_a_deferred_selection_is_told_when_it_is_made(told: Told) -> None:
    """The ATen call must win: the CPU's code generator takes no deferred template."""
    assert told.stdout[1:] == ["None MultiTemplateBuffer"]  # nothing was decided at that point
    start, events = told.tunings[6]
    begun, timed, failed, selected = events
    assert isinstance(begun, BenchmarkStarted)
    assert isinstance(timed, ChoiceTimed) and isinstance(failed, ChoiceFailed)
    assert isinstance(selected, ChoiceSelected)
    assert timed.hash == selected.hash == start.choices[0].hash


def test_a_tuning_that_fails_fails_as_without_us(told: Told) -> None:
    assert "NoValidChoicesError" in told.stderr
    (failed,) = told.tunings[7][1]
    assert isinstance(failed, TuningFailed) and "No choices" in failed.reason


def test_a_graph_without_a_tuning_is_a_session_without_one(told: Told) -> None:
    assert told.stdout[0] == "[0]"


FORKS = (
    """
import torch, torch._inductor.config as config
torch.set_num_threads(1)  # neither OpenMP's nor the compiler's threads survive a fork
config.compile_threads = 1
"""
    + BMM
    + """
import os
def fork():
    if (child := os.fork()) == 0:
        torch._dynamo.reset()
        return True
    assert os.waitpid(child, 0)[1] == 0
    return False
if fork():
    torch.compile(lambda a, b: torch.bmm(a, b) * 2)(a, b)  # timed by the parent: a cache hit
    os._exit(0)
if fork():
    os._exit(0)
if fork():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] += "-broken"
    torch.compile(lambda a, b: torch.bmm(a, b) * 3)(a, b)
    print("done", flush=True)
    os._exit(0)
"""
)


@dataclass(frozen=True)
class Forked:
    cache: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    cache = tmp_path_factory.mktemp("forks") / "cache"
    broken = cache.with_name("cache-broken")
    broken.mkdir()
    Layout(broken).home.write_text("a file where our folder should be")
    done = launch_program(FORKS, cache)
    return Forked(cache, done.stdout, done.stderr)


def test_what_cannot_be_recorded_is_one_line_and_the_program_goes_on(forked: Forked) -> None:
    assert forked.stdout == "done\n"
    told = [line for line in forked.stderr.splitlines() if "no more is recorded" in line]
    assert len(told) == 1 and told[0].startswith("rocm-tui: ")
    assert "Traceback" not in forked.stderr


def test_a_fork_has_its_own_session_or_none(forked: Forked) -> None:
    found = sessions(forked.cache)
    assert len(found) == 2
    headers = [events[0] for events in found]
    assert all(isinstance(header, SessionStarted) for header in headers)
    assert len({h.session.pid for h in headers if isinstance(h, SessionStarted)}) == 2
    assert len({h.session.id for h in headers if isinstance(h, SessionStarted)}) == 2
    assert all([start.n for start, _ in by_tuning(events)] == [1] for events in found)
