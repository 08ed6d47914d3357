"""Cold samples: no two calls of one read the same, and the caches are emptied before the first."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend.inductor.sampling import MOST_COPIES, Repeat, cpu_cache_bytes, smallest_gap
from backend.measure.rounds import Rounds, Sample, trouble_of
from backend.measure.sensors import DeviceState
from tests.support.places import ROOT
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch


def _child(part: str, cache: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*warm_python(), "-m", "tests.support.cold_child", part],
        cwd=ROOT,
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_each_call_of_a_cold_sample_reads_another_copy(tmp_path: Path) -> None:
    told = _child("bench", tmp_path)
    copies = told["copies"]
    assert 1 < copies <= MOST_COPIES and told["places"] == 3 * copies
    flushed, read, often = told["calls"]
    assert flushed >= 1 and 1 < read <= copies and often == 1
    assert 0 < told["resolution"] < 1e-3
    assert told["renewed"], "the copies of the round before are let go"
    tight = told["tight"]
    assert 1 < tight["copies"] <= 400_000 // (3 * 4 * 48 * 48 * 4) and tight["calls"][2] == 1
    packed = told["packed"]  # such a weight stays where it is
    assert packed["copies"] == packed["calls"][1] == packed["calls"][2] == 1
    assert (told["default"], told["large"]) == ("hot", "cold")


def test_a_gpu_whose_events_are_coarse_is_timed_over_many_copies(tmp_path: Path) -> None:
    told = _child("gpu", tmp_path)
    assert told["tick"] == pytest.approx(1.024e-3, rel=1e-3) and told["cold"] == [True, False]
    assert told["calls"] == MOST_COPIES and told["hot"] > MOST_COPIES and told["long"] == 1
    copies = [f"copy {at}" for at in range(MOST_COPIES)]
    assert told["order"] == ["spin", "flush", "event", *copies, "event"]
    assert told["ms"] == pytest.approx(0.0037, abs=1.024e-3 / MOST_COPIES)
    assert abs(told["single"] - 0.0037) > 1.024e-3 / MOST_COPIES


def test_a_sample_is_kept_within_the_copies_that_there_are() -> None:
    assert Repeat(4, 5).within(20) == Repeat(4, 5)
    assert Repeat(4, 5).within(13) == Repeat(2, 5)
    assert Repeat(4, 5).within(3) == Repeat(1, 3)
    assert Repeat(1, 64).within(1) == Repeat(1, 1)


def test_the_step_of_a_clock_is_the_smallest_difference_of_its_times() -> None:
    assert smallest_gap([3.0, 1.0, 1.5, 3.0]) == 0.5
    assert smallest_gap([0.1, 0.1 * (1 + 1e-8)]) == smallest_gap([]) == 0.0


def test_all_last_level_caches_that_we_may_use_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3", "4")):
        for at, (level, size) in enumerate(((1, "32K"), (1, "48K"), (2, "1024K"), (3, "32768K"))):
            index = tmp_path / f"cpu{cpu}/cache/index{at}"
            index.mkdir(parents=True)
            (index / "level").write_text(f"{level}\n")
            (index / "type").write_text("Unified\n")
            (index / "size").write_text(f"{size}\n")
            (index / "shared_cpu_list").write_text(f"{shared if level == 3 else cpu}\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert cpu_cache_bytes(tmp_path) == 2 * 32 << 20
    assert cpu_cache_bytes(tmp_path / "none") == 64 << 20


def test_a_job_tells_how_the_device_was_doing_and_which_rounds_were_throttled(
    tmp_path: Path,
) -> None:
    told = _child("job", tmp_path)
    assert (told["clock_mhz"], told["power_w"], told["temperature_c"]) == (2000.0, 65.5, 71.0)
    assert told["caches"] == "cold" and 0 < told["resolution_ms"] < 1e-3
    throttled, rounds = told["throttled"], told["rounds"]
    assert throttled >= 1 and rounds >= 1
    does = "does" if throttled == 1 else "do"
    sentence = re.compile(rf"{throttled} of \d+ rounds {does} not count: throttled \(power cap\)")
    assert any(map(sentence.fullmatch, told["trouble"])), told["trouble"]


def _rounds(clean: int, *states: DeviceState) -> Rounds:
    rounds = Rounds(["a"], states=list(states), throttled=len(states))
    for series, count in ((rounds.clean, clean), (rounds.disturbed, len(states))):
        for _ in range(count):
            series.add(0, {"a": Sample(1.0)}, Sample(1.0))
    return rounds


def test_throttled_rounds_are_told_with_their_reasons_and_alone_prove_nothing() -> None:
    capped, hot = (
        DeviceState(throttled=("power cap",)),
        DeviceState(throttled=("too hot", "power cap")),
    )
    assert trouble_of(_rounds(20)) == ()
    assert trouble_of(_rounds(20, capped, hot)) == (
        "2 of 22 rounds do not count: throttled (power cap, too hot)",
    )
    assert trouble_of(_rounds(0, capped)) == (
        "every round was throttled (power cap), so nothing is proved",
    )
