"""What people come for takes few keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terminal_lab import needs_tmux
from tests.tasks import MOST_KEYS, TASKS, Task, count, run

pytestmark = needs_tmux


@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=[pytest.mark.torch] * task.demo) for task in TASKS],
    ids=[task.question for task in TASKS],
)
def test_task(task: Task, tmp_path: Path) -> None:
    assert count(task) <= MOST_KEYS
    run(task, tmp_path)
