"""What compiles a choice is part of its name; and what is compiled already needs no compiler."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.disk.layout import Layout
from backend.model.events import ChoiceTimed
from backend.model.origin import any_toolchain, toolchain_of
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.rocm_programs import Ran, last_session, run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm

select_algorithm.add_preprocessing_fn(
    lambda choices: [c for c in choices if c.name.startswith("rocm_")] or choices)
agree("bmm", torch.bmm, torch.randn(4, 37, 64), torch.randn(4, 64, 96))
"""
BUDGET = {"ROCM_TUI_TEMPLATE_BUDGET": "2"}
ASKED = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""Graphs are compiled again, so that the autotune cache is asked."""


class Story(NamedTuple):
    cold: Ran
    first: list[str]
    """Hashes that were timed."""
    state: tuple[str, str]
    """Of a pin of the first of them, in the end."""
    warm: Ran
    asked: Ran
    asked_times: list[str]
    upgraded: Ran
    second: list[str]


def timed(cache: Path) -> list[str]:
    return [
        e.hash for _, events in last_session(cache) for e in events if isinstance(e, ChoiceTimed)
    ]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("toolchain")
    cache = folder / "cache"
    cold = run(PROGRAM, cache, BUDGET)
    first, (start, _) = timed(cache), last_session(cache)[0]
    store = PinStore(Layout(cache))
    store.pin(None, TuningKey(start.op, start.inputs, start.precision), first[0], label="ours")
    none = {"PATH": str(folder / "nothing"), "CXX": "", "CUDA_HOME": "", **BUDGET}
    warm = run(PROGRAM, cache, none)
    asked = run(PROGRAM, cache, {**none, **ASKED})
    asked_times = timed(cache)
    upgraded = run(PROGRAM, cache, {**BUDGET, **ASKED, "CXX": str(_upgraded(folder))})
    (status,) = store.status()
    state = status.state, status.detail
    return Story(cold, first, state, warm, asked, asked_times, upgraded, timed(cache))


def _upgraded(folder: Path) -> Path:
    """The same compiler under another version."""
    script = folder / "g++"
    real = shutil.which("g++")
    script.write_text(
        '#!/bin/sh\ncase "$*" in --version) echo "g++ (later) 99.0";; '
        f'*) exec "{real}" "$@";; esac\n'
    )
    script.chmod(0o755)
    return script


def test_a_graph_runs_where_no_compiler_is(story: Story) -> None:
    assert story.cold.kernels_compiled and story.warm.commands == ""
    assert story.warm.agreed == ["bmm"] and len(story.warm.calls) == 1
    assert story.warm.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`


def test_what_was_compiled_is_offered_under_its_name(story: Story) -> None:
    assert story.asked.agreed == ["bmm"] and len(story.asked.calls) == 1
    assert story.asked_times == []  # they are known


def test_another_compiler_is_timed_anew(story: Story) -> None:
    assert len(story.first) == len(story.second) == 2
    assert not {*story.first} & {*story.second}
    assert {*map(any_toolchain, story.first)} == {*map(any_toolchain, story.second)}
    assert len({*map(toolchain_of, story.first)}) == len({*map(toolchain_of, story.second)}) == 1
    assert story.upgraded.agreed == ["bmm"]


def test_a_pin_of_the_other_toolchain_says_so(story: Story) -> None:
    state, detail = story.state
    assert state == "orphaned" and "another compiler" in detail and "pin it again" in detail
