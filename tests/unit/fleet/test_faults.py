"""kill -9 at a few drawn moments of one run; `python -m tests.fleet_faults` does hundreds."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fleet_faults import Story


def test_three_kills_lose_nothing_and_nothing_is_taken_twice(tmp_path: Path) -> None:
    story = Story(tmp_path / "story", random.Random("3"), moments=3).play()
    assert story.bad == []
