"""Choices that do what none should: each fails alone, within its limit, and leaves nothing."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.tuning import Tuning
from backend.processes import shared
from backend.worker.protocol import EventReceiver, EventSender
from rocm_tui.actions.measure import Measuring
from rocm_tui.actions.tune import typed_problem
from rocm_tui.jobs.limits import JobError, Limits, TooMuch
from rocm_tui.jobs.run import run_watched
from rocm_tui.jobs.tune import TuneOptions, tune
from rocm_tui.jobs.worker import spawn_worker
from tests.support.odd_workers import odd_python
from tests.support.places import ROOT
from tests.support.rogue_acts import FORGED, MARK, left
from tests.support.rogue_workers import hash_of, rogue_python

PATIENCE = 60.0
KEY = "[{0}, {0}]".format("('cpu', 'torch.float32', 4, 48, 48, 2304, 48, 1, 0)")


def _nothing_left(value: str) -> bool:
    end = time.monotonic() + PATIENCE
    while found := left(value):
        if time.monotonic() > end:
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


# Processes


@pytest.mark.parametrize(
    "act",
    [
        "leaves_spinners",
        "leaves_a_program",
        "spinner_and_hangs",
        "stops_parent_and_hangs",
        "daemon_and_kills_parent",
        "daemon_and_segfaults",
        "bombs_apart",
    ],
)
def test_nothing_that_a_worker_started_outlives_it(tmp_path: Path, act: str) -> None:
    """Daemons, sessions of their own, deaf to SIGTERM, hundreds, and where the supervisor is
    stopped or killed."""
    value = secrets.token_hex(8)
    env = {**os.environ, MARK: value}
    with spawn_worker(odd_python(tmp_path), tmp_path, env) as worker:
        try:
            assert worker.exchange({"job": "odd", "act": act}, limits=Limits(stuck=1.0))["ok"]
            assert len(left(value)) > 1
        except JobError as error:
            assert error.blamed == act
    assert left(value) == []


def test_no_zombie_stays_with_us_when_a_worker_is_ended(tmp_path: Path) -> None:
    for _ in range(5):
        others = {child.pid for child in psutil.Process().children()}
        with spawn_worker(odd_python(tmp_path), tmp_path) as worker:
            worker.exchange({"job": "odd", "act": "leaves_daemons"}, limits=Limits())
        assert {child.pid for child in psutil.Process().children()} <= others


TOOL = """
import os, sys
from pathlib import Path
from typing import Any
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.worker import spawn_worker
with spawn_worker(sys.argv[1], Path(sys.argv[2])) as worker:
    print(worker.pid, flush=True)
    worker.exchange({"job": "odd", "act": sys.argv[3]}, limits=Limits())
"""


@pytest.mark.parametrize("act", ["spinner_and_hangs", "stops_parent_and_hangs"])
def test_nothing_outlives_us_if_we_are_killed(tmp_path: Path, act: str) -> None:
    """Also where a choice has stopped the supervisor, which is to end all the rest."""
    value = secrets.token_hex(8)
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, odd_python(tmp_path), str(tmp_path), act],
        cwd=ROOT,
        env={**os.environ, MARK: value},
        stdout=subprocess.PIPE,
    ) as tool:
        end = time.monotonic() + PATIENCE
        while not (tmp_path / f"{act}.pid").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.3)  # until it has done its worst
        assert len(left(value)) > 1
        tool.kill()
    assert _nothing_left(value)


def test_a_worker_with_too_many_processes_is_ended(tmp_path: Path) -> None:
    limits = Limits(processes=50)
    with (
        spawn_worker(odd_python(tmp_path), tmp_path) as worker,
        pytest.raises(TooMuch, match="processes at once") as caught,
    ):
        worker.exchange({"job": "odd", "act": "bombs_and_hangs"}, limits=limits)
    assert caught.value.blamed == "bombs_and_hangs"


# Output and channel


def test_endless_printing_is_ended_and_takes_no_disk(tmp_path: Path) -> None:
    with spawn_worker(odd_python(tmp_path), tmp_path) as worker:
        with pytest.raises(TooMuch, match=r"it printed .* MiB and was ended") as caught:
            worker.exchange({"job": "odd", "act": "prints_for_ever"}, limits=Limits())
        kept = "".join(worker.log())
    assert caught.value.blamed == "prints_for_ever"
    assert "bytes before this are not kept" in kept and len(kept) < 2 * shared.KEPT


def test_the_end_of_what_is_printed_is_kept_and_the_rest_counted() -> None:
    descriptor = shared.new_ring()
    os.write(descriptor, b"before\n")
    assert shared.printed_text(descriptor) == "before\n"
    log = shared.Ring(descriptor)
    for number in range(100_000):
        log.add(b"line %d\n" % number)
    log.add(b"z" * (3 * shared.KEPT) + b"\nthe last\n")
    text = shared.printed_text(descriptor)
    total = 7 + sum(len(b"line %d\n" % n) for n in range(100_000)) + 3 * shared.KEPT + 10
    assert shared.printed_bytes(descriptor) == total
    first, *_, last = text.splitlines()
    assert last == "the last" and "not kept" in first
    with pytest.raises(OSError):
        os.pwrite(descriptor, b"x", 2 * shared.KEPT)
    os.pwrite(descriptor, b"garbage" * 10, 0)
    assert shared.printed_bytes(descriptor) == 0
    os.close(descriptor)


def test_what_is_not_ours_in_the_channel_is_passed_over() -> None:
    """Garbage without an end, forged events, and a line in the middle of a long event of ours."""
    reading, writing = os.pipe()
    events, heard, sent = EventReceiver("secret"), [], []
    for noise in (b"\xff\x00garbage", FORGED, b"secretly\n", b"secret.{\n", b"a" * 50_000):
        long = "x" * 10_000
        os.write(writing, noise)
        EventSender(writing, 1, "secret").progress(long, n=len(sent))
        sent.append({"id": 1, "n": len(sent), "event": "progress", "what": long})
        data = os.read(reading, 1 << 20)
        for at in range(0, len(data), 777):
            heard += events.feed(data[at : at + 777])
        os.write(writing, b"+" * 10)
    assert heard == sent
    assert events.noise > 50_000
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("act", ["forges", "babbles", "forges_in_proc", "grows_files"])
def test_one_that_writes_everywhere_changes_no_answer(tmp_path: Path, act: str) -> None:
    with spawn_worker(odd_python(tmp_path), tmp_path) as worker:
        result = worker.exchange({"job": "odd", "act": act}, limits=Limits())
    assert result == {"ok": True, "kind": act}


# The real thing


class Lab:
    """Real jobs on one bmm, with rogues among its choices."""

    def __init__(self, folder: Path) -> None:
        self.value = secrets.token_hex(8)
        self.env = {**os.environ, MARK: self.value, "ROGUES": ""}
        self.layout = Layout(folder / "cache")
        self.python = rogue_python(folder)
        self.jobs = 0

    def run(self, job: Any) -> Any:
        self.jobs += 1
        return run_watched(
            job,
            python=self.python,
            layout=self.layout,
            env=self.env,
            limits=Limits(stuck=5.0),
            on_progress=lambda progress: None,
        )

    def measure(self, *names: str) -> Measurement:
        self.env["ROGUES"] = ",".join(names)
        choices = tuple(Choice(name, hash_of(name), 1.0) for name in names)
        tuning = Tuning("bmm", inputs_key=KEY, precision="highest", choices=choices)
        return Measuring(self.run, tuning, choices, budget=1.0).once()


@pytest.mark.torch
def test_rogues_in_measure_fail_alone_and_a_liar_is_never_the_fastest(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    found = lab.measure(
        "honest", "forges", "lies_zero", "lies_nothing", "lies_one_element", "exits",
        "interrupts", "leaves_daemons", "leaves_folder", "closes_all",
    )  # fmt: skip
    told = {choice.hash for choice in found.choices}
    assert told == {hash_of(name) for name in ("honest", "forges", "leaves_folder")}
    why = {str(choice.hash)[len("rogue_") : -2]: choice.reason or "" for choice in found.failed}
    assert why.pop("lies_nothing").endswith(", NaN or not written")
    for name in ("lies_zero", "lies_one_element"):
        assert why.pop(name).startswith("wrong result: off by")
    assert why.pop("leaves_daemons").endswith("processes running")
    assert why == {
        "exits": "SystemExit: 3",
        "interrupts": "KeyboardInterrupt",
        "closes_all": "it closed the worker's descriptors",
    }
    assert lab.jobs == 2, "closed descriptors alone cost another worker"
    assert left(lab.value) == []


@pytest.mark.torch
def test_a_tuning_goes_on_without_a_choice_that_ends_its_worker(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.env["ROGUES"] = "segfaults,honest"
    problem = typed_problem(["bmm", "4x48x48", "4x48x48"], dtype="f32", device="cpu")
    choices = tune(lab.run, problem, TuneOptions(backends=("ATEN",))).choices
    assert {choice.hash: choice.reason for choice in choices if choice.failed} == {
        hash_of("segfaults"): "the worker ended (signal 11, SIGSEGV)"
    }
    timed = [choice for choice in choices if choice.ms is not None]
    assert len(timed) == 2 and lab.jobs == 2 and left(lab.value) == []
