"""Instances of a library of headers as choices of ours, by a small library of Composable Kernel's
shape that compiles for the CPU."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.disk.layout import Layout
from backend.model.origin import is_own, provider
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.rocm_programs import Ran, last_session, run, selections

pytestmark = pytest.mark.torch

LIBRARY = Path(__file__).parents[2] / "support" / "ck_like"

PRODUCT = """
a, b = torch.randn(37, 70), torch.randn(70, 50)
agree("ck", lambda a, b: torch.relu(a @ b), a, b)
"""


class Story(NamedTuple):
    """A program run cold, and again once its tuning was pinned to an instance."""

    layout: Layout
    cold: Ran
    pinned: str
    again: Ran


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    layout = Layout(tmp_path_factory.mktemp("ck") / "cache")
    path = os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")])
    env = {"ROCM_TUI_CK": "8", "PYTHONPATH": path.strip(os.pathsep)}
    cold = run(PRODUCT, layout.root, env)
    ((start, _),) = last_session(layout.root)
    ours = next(choice for choice in start.choices if choice.name == "rocm_ck_0")
    assert ours.hash
    key = TuningKey(start.op, start.inputs, start.precision)
    status = PinStore(layout).pin(None, key, ours.hash, label=ours.name).status
    assert status is not None and status.state == "active", status
    return Story(layout, cold, ours.hash, run(PRODUCT, layout.root, env))


def test_instances_that_fit_are_offered_and_measured(story: Story) -> None:
    ((start, _),) = last_session(story.layout.root)
    found = [choice for choice in start.choices if choice.name.startswith("rocm_ck_")]
    # Of four, one has another dtype, and one computes whole tiles only.
    assert [choice.name for choice in found] == ["rocm_ck_0", "rocm_ck_1"]
    assert all(provider(choice) == "ck" and is_own(choice.hash) for choice in found)
    assert "K_PER_BLOCK=32" in found[0].description
    assert "BLOCK_GEMM_PIPELINE_VERSION=v1, SPLIT_K=1" in found[0].description
    commands = [line for line in story.cold.kernels_compiled if "ck_like" in line]
    assert len(commands) == 2 and all("-std=c++20" in line for line in commands)


def test_one_that_is_wrong_fails_alone(story: Story) -> None:
    log = "".join(path.read_text() for path in sorted(story.layout.sessions.glob("*.jsonl")))
    assert re.search(r"choice_failed.*rocm_ck-.*wrong result", log)
    assert "rocm-tui: no instances" not in story.cold.stderr


def test_a_pinned_instance_is_called_and_right(story: Story) -> None:
    ((selected, by),) = selections(story.layout.root).values()
    assert (selected, by) == (story.pinned, "pin")
    assert story.again.agreed == ["ck"]
    assert story.again.kernels_compiled == []
    assert "standard='c++20'" in story.again.stderr
    ((key, status),) = [(s.pin.key, s) for s in PinStore(story.layout).status()]
    assert key.op == "mm" and status.state == "active"
