"""`verify`: how many pins go through one worker, and what becomes of the others when one does not.

The workers are real processes; `verify_workers.py` says what each does.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from backend.wire.jobs import VerifyResult
from rocm_tui.actions.verify import PinToVerify, Verifying
from rocm_tui.jobs.limits import WorkerDied
from rocm_tui.jobs.warm import Workers
from tests.support.torch_models import child_env
from tests.support.verify_workers import verifying_python


class Lab:
    """A cache dir with a pin for each hash, and workers of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.python = verifying_python(folder)

    def pin(self, hashes: Sequence[str]) -> None:
        layout = Layout(self.cache)
        layout.autotune.mkdir(parents=True)
        keys = {
            f"[('cpu', 'torch.float32', {8 + at}, 64, 64, 1, 0), "
            "('cpu', 'torch.float32', 64, 32, 32, 1, 0)]": hash
            for at, hash in enumerate(hashes)
        }
        ops: dict[str, dict[str, object]] = {}
        for inputs, hash in keys.items():
            op = "convolution" if hash.startswith("convolution") else "mm"
            ops.setdefault(op, {})[inputs] = {"highest": {hash: 1.0, "rival-x": 2.0}}
        document = {"system": {"hash": "hash"}, "cache": ops}
        (layout.autotune / "hash").write_text(json.dumps(document))
        for op, entries in ops.items():
            for inputs in entries:
                PinStore(layout).pin(None, TuningKey(op, inputs, "highest"), keys[inputs])

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "rocm_tui", "verify", "--python", self.python, *words]

    def verify(self, *words: str, code: int = 0) -> list[str]:
        """The sentences by the order in which they were said, without the ids."""
        done = subprocess.run(
            self.command(*words),
            env=child_env(self.cache),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert not done.stderr, "no live line where no terminal is"
        return done.stdout.splitlines()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_one_worker_for_all(lab: Lab) -> None:
    lab.pin([f"mm-{at}" for at in range(6)])
    assert len(lab.verify()) == 6
    assert len(lab.lines("started")) == 1 and len(lab.lines("jobs")) == 6
    (document,) = lab.verify("--json")
    pins = json.loads(document)["pins"]
    assert [pin["id"] for pin in pins] == [pin.id for pin in PinStore(Layout(lab.cache)).pins()]
    assert all(pin["ok"] for pin in pins) and len(lab.lines("started")) == 2


def test_a_pin_that_kills_or_hangs_its_worker_fails_alone(lab: Lab) -> None:
    lab.pin(["mm-1", "segv-2", "mm-3", "hang-4", "mm-5", "spent-6", "mm-7"])
    said = lab.verify("--timeout", "6", code=1)  # a worker's start, on a busy machine, is in it
    assert [("calls" in line) for line in said] == [True, False] * 3 + [True]
    assert "signal 11" in said[1] and "within 6 s" in said[3] and "not compile" in said[5]
    assert len(lab.lines("started")) == 4, "one more after each"


def test_workers_that_cannot_start_are_tried_twice(lab: Lab) -> None:
    lab.pin(["mm-1", "mm-2", "mm-3"])
    (lab.folder / "broken").touch()
    said = lab.verify(code=1)
    assert len(said) == 3 and all("no torch here" in line for line in said)
    assert len(lab.lines("started")) == 2


def test_a_worker_that_is_killed_at_its_start_costs_one_pin(tmp_path: Path) -> None:
    class Keeper(Workers):
        def run(self, job: Any, hear: Any, *, on_start: Any, **_: Any) -> Any:
            on_start()
            if outcomes.pop(0):
                raise WorkerDied("killed by SIGKILL")
            return VerifyResult(ok=True, hash=job.hash)

    layout = Layout(tmp_path)
    asked = [PinToVerify(Pin("mm", f"[{at}]", "", "h", "l", "s", {})) for at in range(5)]
    for deaths in ([1, 0, 0, 1, 0], [1, 0, 1, 1]):
        outcomes = deaths.copy()
        with Verifying("python", layout, kept=Keeper(layout.root)) as verifying:
            results = [result.ok for _, result in verifying.results(asked)]
        assert results == [not died for died in deaths] + [False] * (5 - len(deaths))
        assert not outcomes


def test_modes_are_tried_in_turn_and_the_last_that_fitted_first(lab: Lab) -> None:
    """torch keeps what it made for one mode, so each has workers of its own."""
    lab.pin(["mode1-a", "mode1-b", "mode1-c", "mode0-d", "mode7-e"])
    said = lab.verify(code=1)
    jobs = lab.lines("jobs")
    assert jobs[:4] == ["0 mode1-a", "1 mode1-a", "1 mode1-b", "1 mode1-c"]
    assert [("calls" in line) for line in said] == [True] * 4 + [False]
    assert "not in mode 0" in said[-1], "the reason in the first mode"
    assert sorted(job for job in jobs if job.endswith("-e")) == [f"{n} mode7-e" for n in range(3)]
    assert len(lab.lines("started")) <= 5 and len(set(jobs)) == len(jobs)


def test_our_choices_come_last_in_a_worker_of_their_own(lab: Lab) -> None:
    lab.pin(["rocm_gemm-1", "mm-2", "rocm_gemm-3", "mm-4"])
    lab.verify()
    assert [job.split()[1] for job in lab.lines("jobs")] == [
        "mm-2",
        "mm-4",
        "rocm_gemm-1",
        "rocm_gemm-3",
    ]
    assert len(lab.lines("started")) == 2


def test_what_cannot_be_rebuilt_names_the_other_proof(lab: Lab) -> None:
    lab.pin(["mm-1", "convolution-2", "mm-3"])
    said = lab.verify(code=1)
    assert sum("calls mm" in line for line in said) == 2
    (line,) = [line for line in said if "convolution" in line]
    id_ = line.partition(":")[0]
    assert line.endswith(f"use: rocm-tui verify {id_} -- python your_program.py")


def test_each_sentence_comes_as_soon_as_it_is_known(lab: Lab) -> None:
    lab.pin(["mm-1", "slow-2", "mm-3"])
    with subprocess.Popen(
        lab.command(), env=child_env(lab.cache), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert "calls mm-1" in running.stdout.readline()
        assert len(lab.lines("jobs")) < 3, "the third has not begun"
        assert len(running.stdout.readlines()) == 2
    assert running.returncode == 0


def test_a_terminal_sees_how_far_it_is(lab: Lab) -> None:
    lab.pin(["mm-1", "slow-2"])
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        lab.command(), env=child_env(lab.cache), stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    read = b""
    with contextlib.suppress(OSError):  # a terminal whose other end is closed and was read
        while part := os.read(ours, 1 << 16):
            read += part
    shown = read.decode()
    os.close(ours)
    said, _ = running.communicate(timeout=120)
    assert said.count(b"\n") == 2 and b"\x1b" not in said
    for place, rows in ((1, 8), (2, 9)):
        line = f"verifying {place} of 2: mm {rows}×64 · 64×32 f32, compiling"
        assert line in shown
    assert shown.endswith("\r\x1b[K"), "nothing of it is left"


def test_workers_that_are_somebody_elses_are_left_to_them(lab: Lab) -> None:
    lab.pin(["mm-1"])
    layout = Layout(lab.cache)
    kept = Workers(layout.root)
    try:
        for _ in range(2):
            with Verifying(lab.python, layout, env=child_env(lab.cache), kept=kept) as verifying:
                asked = [PinToVerify(pin) for pin in PinStore(layout).pins()]
                assert [result.ok for _, result in verifying.results(asked)] == [True]
        assert len(lab.lines("started")) == 1
    finally:
        kept.end()
    with Verifying(lab.python, layout, env=child_env(lab.cache)) as verifying:
        list(verifying.results(asked))
        waiting = verifying._keeper
        assert waiting.waiting
    assert not waiting.waiting, "its own end with it"
