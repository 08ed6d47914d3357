"""A worker that takes more than it may is ended: real processes that know no torch."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from backend.disk.layout import Layout
from rocm_tui.jobs.limits import Limits, TooMuch
from rocm_tui.jobs.run import run_watched
from tests.support.odd_workers import Odd, odd_python


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(seconds=30.0, processes=1), r"^it ran \d+ processes at once and was ended"),
        (Limits(seconds=30.0, memory=1 << 20, of=4 << 30), r"^it used .* of 4.* and was ended"),
    ],
    ids=["processes", "memory"],
)
def test_a_worker_that_takes_too_much_is_ended(
    tmp_path: Path, limits: Limits, message: str
) -> None:
    before = psutil.Process().children(recursive=True)
    with pytest.raises(TooMuch, match=message):
        run_watched(
            Odd("hang"),
            python=odd_python(tmp_path),
            layout=Layout(tmp_path / "cache"),
            env=os.environ,
            limits=limits,
            on_progress=lambda progress: None,
        )
    assert psutil.Process().children(recursive=True) == before
