"""Two real users on one cache dir; `tests/campaign/users.py` does it at length."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from tests.campaign import users
from tests.campaign._as_user import FIRST, SECOND, as_user, shared_dir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users reach."""
    with tempfile.TemporaryDirectory(prefix="shared-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def pin(layout: Layout) -> object:
    return PinStore(layout).pin("s", users.KEY, "c1")


@pytest.mark.parametrize("mode", users.MODES, ids=users.MODES.values())
def test_who_may_what(folder: Path, mode: int) -> None:
    library = users._library(folder)
    attempts = users._attempts(shared_dir(folder / "shared", mode), mode, library, random.Random(1))
    assert [(what, wrong) for what, wrong in attempts if wrong] == []


def test_the_line_says_why_and_what_to_do(folder: Path) -> None:
    layout = Layout(shared_dir(folder / "shared", 0o2775))
    users.put_cache(layout)
    said = [as_user(uid, lambda: pin(layout)) for uid in (FIRST, SECOND)]
    assert said[0].endswith(
        "the group 54300 can write there; chmod g-w it, or choose a cache dir of your own "
        "(TORCHINDUCTOR_CACHE_DIR)"
    )
    assert "belongs to user 54321; run as that user or choose a cache dir of your own" in said[1]
    layout.root.chmod(0o3775)
    layout.autotune.chmod(0o3775)
    assert "state='active'" in as_user(FIRST, lambda: pin(layout))


def test_timings_of_the_second_user_are_pytorchs_own(folder: Path) -> None:
    """Our journal stays out of what is not ours; the program is told and goes on."""
    layout = Layout(shared_dir(folder / "shared", 0o3775))
    users.put_cache(layout)
    assert as_user(FIRST, lambda: users.insert(layout, "[b]")) == "0"
    said = as_user(SECOND, lambda: users.insert(layout, "[c]"))
    assert said.startswith("UnsafePath: not writing into") and "TORCHINDUCTOR_CACHE_DIR" in said
    assert "[b]" in as_user(SECOND, lambda: (layout.autotune / "s").read_text())
