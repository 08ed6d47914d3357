"""Two ranks of one job tune the same product at the same time, in one cache dir."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.model.events import ChoiceFailed, ChoiceSelected
from tests.support.hooked import by_tuning, sessions
from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

PROGRAM = """
import time
from pathlib import Path
import torch._inductor.select_algorithm
ranks = Path(os.environ["RANKS"])
(ranks / os.environ["RANK"]).touch()
while len(list(ranks.iterdir())) < 2:
    time.sleep(0.01)
agree("bmm", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 24))
"""


def test_two_ranks_at_once(tmp_path: Path) -> None:
    cache, ranks = tmp_path / "cache", tmp_path / "ranks"
    ranks.mkdir()

    def rank(number: int) -> Ran:
        return run(PROGRAM, cache, {"RANKS": str(ranks), "RANK": str(number)}, code=False)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(rank, range(2)))
    assert [ran.agreed for ran in both] == [["bmm"], ["bmm"]]
    tunings = [events for session in sessions(cache) for _, events in by_tuning(session)]
    assert len(tunings) == 2
    for events in tunings:
        assert any(isinstance(event, ChoiceSelected) for event in events)
        assert not any(isinstance(event, ChoiceFailed) for event in events)
    (path,) = (cache / "cache").glob("[!.]*")
    (by_inputs,) = json.loads(path.read_bytes())["cache"].values()
    (times,) = (times for by_precision in by_inputs.values() for times in by_precision.values())
    assert len(times) == 2 and all(map(math.isfinite, times.values()))
