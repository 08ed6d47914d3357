"""Choices, tunings and recordings that fail, and selections that torch makes in other ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    SessionStarted,
    TuningFailed,
)
from backend.store.paths import Layout
from tests.hooked import BMM, by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

BREAK_CPP = """
import torch, torch._inductor.select_algorithm as select
def broken(choices):
    for choice in choices:
        if choice.name.startswith("cpp_"):
            choice.bmreq.source_code = "#error this machine has no such unit"
    return choices
select.add_preprocessing_fn(broken)
"""

PRECOMPILE = """
import sys, types, torch, torch._inductor.select_algorithm as select
class Python312:  # Python 3.11.0 to 3.11.8 has a bug for which torch leaves precompiling out
    version_info = types.SimpleNamespace(major=3, minor=12, micro=0)
    def __getattr__(self, name):
        return getattr(sys, name)
select.sys = Python312()
"""

DEFER = """
import torch, torch._inductor.config as config, torch._inductor.select_algorithm as select
config.benchmark_epilogue_fusion = True
stock = select.AlgorithmSelectorCache.__call__
def deferring(self, *args, **kwargs):
    with config.patch(cpu_backend="triton"):  # else selections for the CPU are never put off
        result = stock(self, *args, **kwargs)
    print(result[1], type(result[0].data.data).__name__)
    return result
select.AlgorithmSelectorCache.__call__ = deferring
"""


def test_a_failing_choice_says_why(tmp_path: Path) -> None:
    done = launch_program(BREAK_CPP + BMM, tmp_path / "cache")
    ((start, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    (failed,) = [e for e in events if isinstance(e, ChoiceFailed)]
    assert failed.phase == "benchmark" and "this machine has no such unit" in failed.reason
    assert "\n" not in failed.reason
    assert [e.hash for e in events if isinstance(e, ChoiceTimed)] == [start.choices[0].hash]
    assert isinstance(events[-1], ChoiceSelected) and events[-1].hash == start.choices[0].hash
    assert "rocm-tui: " not in done.stderr


def test_compiling_ahead_is_told_choice_by_choice(tmp_path: Path) -> None:
    launch_program(PRECOMPILE + BMM, tmp_path / "cache", env={"COMPILE_ANEW": "1"})
    ((start, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    compiled = {e.hash: e.seconds for e in events if isinstance(e, ChoiceCompiled)}
    (seconds,) = compiled.values()  # of the template; the ATen call needs no compiling
    assert list(compiled) == [start.choices[1].hash]
    assert (seconds or 0) > 0.1  # a C++ compiler ran
    assert isinstance(events[-1], ChoiceSelected)
    assert (events[-1].precompile_seconds or 0) > 0.1


def test_a_choice_that_does_not_compile_ahead(tmp_path: Path) -> None:
    launch_program(PRECOMPILE + BREAK_CPP + BMM, tmp_path / "cache")
    ((start, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    (failed,) = [e for e in events if isinstance(e, ChoiceFailed)]
    assert failed.phase == "precompile" and "no such unit" in failed.reason
    assert failed.hash == start.choices[1].hash


def test_a_deferred_selection_is_told_when_it_is_made(tmp_path: Path) -> None:
    """The ATen call must win: the CPU's code generator takes no deferred template."""
    program = BREAK_CPP + DEFER + BMM.replace(" + 1)", ")")
    done = launch_program(program, tmp_path / "cache")
    assert done.stdout == "None MultiTemplateBuffer\n"  # nothing was decided at that point
    ((start, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    timed, failed, selected = events
    assert isinstance(timed, ChoiceTimed) and isinstance(failed, ChoiceFailed)
    assert isinstance(selected, ChoiceSelected)
    assert timed.hash == selected.hash == start.choices[0].hash


@pytest.mark.parametrize("setting", ["deterministic", "one"])
def test_selections_without_timings(tmp_path: Path, setting: str) -> None:
    extra = {
        "deterministic": "import torch._inductor.config as c; c.deterministic = True\n",
        "one": "import torch._inductor.config as c; c.max_autotune_gemm_backends = 'ATEN'\n",
    }[setting]
    launch_program(extra + BMM, tmp_path / "cache")
    ((_, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    (selected,) = events
    assert isinstance(selected, ChoiceSelected)
    assert selected.by == {"deterministic": "deterministic", "one": "only"}[setting]


def test_a_tuning_that_fails_fails_as_without_us(tmp_path: Path) -> None:
    raising = """
        import torch, torch._inductor.select_algorithm as select
        select.add_preprocessing_fn(lambda choices: [])
    """
    done = launch_program(
        "\n".join(line.strip() for line in raising.splitlines()) + BMM,
        tmp_path / "cache",
        expect=1,
    )
    assert "NoValidChoicesError" in done.stderr
    ((_, events),) = by_tuning(sessions(tmp_path / "cache")[0])
    (failed,) = events
    assert isinstance(failed, TuningFailed) and "No choices" in failed.reason


def test_a_program_that_tunes_nothing_leaves_no_session(tmp_path: Path) -> None:
    launch_program(
        "import torch; torch.compile(lambda x: torch.bmm(x, x) + 1)(torch.ones(2, 2, 2))",
        tmp_path / "cache",
    )
    assert sessions(tmp_path / "cache") == []


def test_what_cannot_be_recorded_is_one_line_and_the_program_goes_on(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    Layout(cache).home.write_text("a file where our folder should be")
    done = launch_program(BMM + "print('done')", cache)
    assert done.stdout == "done\n"
    told = [line for line in done.stderr.splitlines() if "no more is recorded" in line]
    assert len(told) == 1 and told[0].startswith("rocm-tui: ")
    assert "Traceback" not in done.stderr


def test_a_fork_has_its_own_session_or_none(tmp_path: Path) -> None:
    threads = (  # neither OpenMP's nor the compiler's threads survive a fork
        "import torch, torch._inductor.config as c; torch.set_num_threads(1); c.compile_threads = 1"
    )
    forking = (
        f"{threads}\n{BMM}"
        + """
import os
if (child := os.fork()) == 0:
    torch._dynamo.reset()
    torch.compile(lambda a, b: torch.bmm(a, b) * 2)(a, b)  # timed by the parent: a cache hit
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
if (silent := os.fork()) == 0:
    os._exit(0)
os.waitpid(silent, 0)
"""
    )
    launch_program(forking, tmp_path / "cache")
    found = sessions(tmp_path / "cache")
    assert len(found) == 2
    headers = [events[0] for events in found]
    assert all(isinstance(header, SessionStarted) for header in headers)
    assert len({h.session.pid for h in headers if isinstance(h, SessionStarted)}) == 2
    assert len({h.session.id for h in headers if isinstance(h, SessionStarted)}) == 2
    assert all([start.n for start, _ in by_tuning(events)] == [1] for events in found)
