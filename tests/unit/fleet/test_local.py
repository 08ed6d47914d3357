"""`--fleet local`: the queue with a worker a device. Real processes that wait instead of computing,
some of them killed; what the cache has is what one worker would have put there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_tui.errors import UsageError
from rocm_tui.fleet.facts import FleetOptions, NoTuningDevice
from rocm_tui.fleet.local import local_devices
from rocm_tui.jobs.limits import Limits
from tests.support.fleet_lab import assert_right, kept, run, wait_until, waiting_units
from tests.support.places import ROOT
from tests.support.waiting_workers import alive, ended, log_of, times_of


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four that are visible; a worker sees by either variable which one is its own."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_which_devices_the_words_mean() -> None:
    assert local_devices(["local"], 2) == (["0", "1"], 0)
    assert local_devices(["local:1"], 2) == (["0"], 0)
    assert local_devices(["local"], 0) == ([], 1)
    assert local_devices(["local:2"], 0) == local_devices(["local:cpu:2"], 8) == ([], 2)
    assert local_devices(["local", "local:cpu:8"], 2) == (["0", "1"], 8)
    for word in ("local:x", "local:0", "local:cpu:1:1", "lokal", "local:-1", ""):
        with pytest.raises(UsageError, match="is not a fleet; write local"):
            local_devices([word], 4)
    for word, why in (("local:3", "2 visible"), ("local:cpu:999", "256 at most")):
        with pytest.raises(NoTuningDevice, match=why):
            local_devices([word], 2)


def test_gpus_behind_minus_one_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for shown, devices in {"-1": ([], 1), "0,-1,1": (["0"], 0)}.items():
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", shown)
        assert local_devices(["local"]) == devices


def test_each_device_has_a_worker_and_their_times_are_in_one_cache(tmp_path: Path) -> None:
    units = waiting_units(12, 0.1)
    results = run(tmp_path, "local", units)
    assert results.count("merged") == 12 and len(results.devices) == 4
    assert sorted(ended(tmp_path)) == sorted(unit.job.inputs or "" for unit in units)
    gpus = {entry["gpu"]: entry["pid"] for entry in log_of(tmp_path)}
    assert sorted(gpus) == ["0", "1", "2", "3"]
    assert len({entry["pid"] for entry in log_of(tmp_path)}) == 4, (
        "one that described its device goes on to tune"
    )
    assert len(kept(tmp_path)) == 12
    assert_right(kept(tmp_path))


def test_workers_share_the_memory_and_the_compilers_of_the_machine(tmp_path: Path) -> None:
    alone, shared = Limits.of_this_machine(), Limits.of_this_machine(4)
    assert alone.of is not None and shared.memory == int(alone.of * 0.8 / 4)
    run(tmp_path, "local", waiting_units(1, 0.0))
    cores = len(os.sched_getaffinity(0))
    assert {entry["threads"] for entry in log_of(tmp_path)} == {str(max(1, cores // 4))}


def test_a_problem_whose_worker_dies_is_tuned_on_another_device(tmp_path: Path) -> None:
    (tmp_path / "dies-2").touch()
    results = run(tmp_path, "local:2", waiting_units(4, 0.2))
    assert results.count("merged") == 4
    two = [entry for entry in log_of(tmp_path) if entry["inputs"] == "[2]"]
    assert [entry["what"] for entry in two] == ["begins", "begins", "ends"]
    assert two[0]["gpu"] != two[1]["gpu"]
    assert_right(kept(tmp_path))


def test_on_one_device_a_dead_worker_fails_its_problem_alone(tmp_path: Path) -> None:
    (tmp_path / "dies-2").touch()
    results = run(tmp_path, "local:1", waiting_units(3, 0.0))
    assert (results.count("merged"), results.count("failed")) == (2, 1)
    [why] = results.units["unit2"].reasons.values()
    assert "SIGKILL" in why and "[2]" not in kept(tmp_path)


def test_with_repeat_one_card_s_times_count_of_those_that_agree(tmp_path: Path) -> None:
    """In the file is the whole set of one of them, whoever wrote last."""
    (tmp_path / "slow-1").touch()
    results = run(tmp_path, "local:3", waiting_units(3, 0.1), FleetOptions(repeat=3))
    assert len(ended(tmp_path)) == 9
    for unit in results.units.values():
        assert (unit.winner, unit.holds, unit.of) == ("mm-1", 2, 3)
        assert unit.merged_from is not None and not unit.merged_from.endswith(":1")
    assert_right(kept(tmp_path))


def test_unlike_devices_get_no_work_and_are_named(tmp_path: Path) -> None:
    (tmp_path / "unlike-3").touch()
    lines: list[str] = []
    results = run(tmp_path, "local", waiting_units(4, 0.0), FleetOptions(tell=lines.append))
    assert {entry["gpu"] for entry in log_of(tmp_path)} <= {"0", "1", "2"}
    [line] = lines
    assert "gets no work" in line and "80 CUs" in line and len(results.refused) == 1
    other = run(tmp_path, "local", waiting_units(4, 0.0), FleetOptions(device_class="80 CUs"))
    assert [name.rpartition(":")[2] for name in other.devices] == ["3"]
    with pytest.raises(NoTuningDevice, match="304 CUs"):
        run(tmp_path, "local", waiting_units(1, 0.0), FleetOptions(device_class="gfx90a"))


def test_what_the_cache_has_is_skipped_where_only_the_missing_are_wanted(tmp_path: Path) -> None:
    run(tmp_path, "local:2", waiting_units(3, 0.0))
    lines: list[str] = []
    wanted = FleetOptions(missing=True, tell=lines.append)
    results = run(tmp_path, "local:2", waiting_units(5, 0.0), wanted)
    assert (results.count("skipped"), results.count("merged")) == (3, 2)
    assert sorted(ended(tmp_path)) == ["[1]", "[2]", "[3]", "[4]", "[5]"]
    assert lines == ["3 problems left out: the cache has their times"]


def test_problems_of_a_cpu_are_left_out_where_gpus_tune(tmp_path: Path) -> None:
    first, second = waiting_units(2, 0.0)
    cpu = replace(first, job=replace(first.job, inputs=None, device="cpu"))
    lines: list[str] = []
    results = run(tmp_path, "local:1", [cpu, second], FleetOptions(tell=lines.append))
    assert (results.count("skipped"), results.count("merged")) == (1, 1)
    assert lines == ["1 problem of a CPU left out; --fleet local:cpu tunes them"]


def test_kills_of_workers_and_drivers_lose_nothing_and_write_nothing_wrong(tmp_path: Path) -> None:
    """Drivers are killed at drawn moments, and workers below them, until all is in the cache. What
    was in it when a driver began is not tuned again by it."""
    count, draw = 40, random.Random(7)
    began: list[tuple[int, set[str]]] = []
    for kill in ("driver", "worker", "driver", "workers", None):
        began.append((len(log_of(tmp_path)), set(kept(tmp_path))))
        words = [sys.executable, "-m", "tests.support.fleet_lab", tmp_path, "local", str(count)]
        driver = subprocess.Popen([*words, "0.2"], cwd=ROOT)
        at = began[-1][0] + draw.randrange(6, 12)
        if kill is not None:
            _wait_for_work(tmp_path, at, driver)
            _kill(kill, driver, tmp_path)
        driver.wait(240)
        assert_right(kept(tmp_path))
        # A worker may be killed after it has written its times, and before it says that it ended.
        assert set(ended(tmp_path)) <= set(kept(tmp_path)), "what ended is in the cache"
        wait_until(lambda: not alive(tmp_path))
    assert len(kept(tmp_path)) == count
    entries = log_of(tmp_path)
    for number, (start, held) in enumerate(began):
        end = began[number + 1][0] if number + 1 < len(began) else len(entries)
        assert not held & {entry["inputs"] for entry in entries[start:end]}


def _wait_for_work(folder: Path, lines: int, driver: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: len(log_of(folder)) >= lines or driver.poll() is not None)


def _kill(what: str, driver: subprocess.Popen[bytes], folder: Path) -> None:
    if what == "driver":
        driver.kill()
        return
    working = list(alive(folder))
    for pid in working if what == "workers" else working[:1]:
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def test_ctrl_c_ends_all_workers(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.support.fleet_lab", tmp_path, "local", "4", "600"]
    driver = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(log_of(tmp_path)) == 4)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(240) != 0
    assert not alive(tmp_path) and not ended(tmp_path)
    assert times_of("[1]") not in kept(tmp_path).values()
