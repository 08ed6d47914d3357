"""A real program whose autotune cache names a slow kernel as the winner of its only product.

`TORCHINDUCTOR_VEC_ISA_OK=0`, PyTorch's own switch, makes Inductor generate C++ without vector
instructions. Its template then uses the reference kernel, three plain loops, which takes about ten
times as long as ATen's library call on any CPU. A tuning finds that out, so the only thing planted
is a number: the time that the cache records for the slow choice, as a disturbed tuning writes it.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.cache.autotune import cache_of, cache_paths, walk
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import MeasuredChoice, Measurement
from backend.model.events import SessionEnded, TuningMeasured
from backend.model.session import Session
from tests.support.places import ROOT
from tests.support.torch_models import child_env

SLOW, FAST = "CppMicroGemmRef-", "bmm-"
"""How the hashes of the two choices begin: Inductor's reference kernel and ATen."""
CALLS_SLOW = ["cpp_fused_add_bmm_relu_0"]
CALLS_FAST = ["extern_kernels.bmm", "cpp_fused_add_relu_0"]
"""What the program's generated code calls with either choice; the template fuses what follows."""

PROGRAM = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "fused_program.py")]
_CALL = re.compile(r"\[__output_code\]\s+(extern_kernels\.\w+|cpp_fused_\w+)\(")


@dataclass(frozen=True)
class Tuned:
    """The program's tuning as the persistent cache has it; `times` are milliseconds by hash."""

    op: str
    inputs: str
    precision: str
    times: dict[str, float]

    def hash(self, start: str) -> str:
        (match,) = [hash for hash in self.times if hash.startswith(start)]
        return match


def environment(cache: Path, **more: str) -> dict[str, str]:
    return child_env(cache, {"TORCHINDUCTOR_VEC_ISA_OK": "0", **more})


def rocm_tui(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=environment(cache),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


def started(cache: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command, which the caller ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words],
        env=environment(cache),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stock_calls(cache: Path) -> list[str]:
    """Run the program under stock PyTorch; return the kernels that its compiled graph calls."""
    done = subprocess.run(
        PROGRAM,
        env=environment(cache, TORCH_LOGS="output_code"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return _CALL.findall(done.stderr)


def tuned(cache: Path) -> Tuned:
    """The one tuning of the program."""
    (path,) = cache_paths(Layout(cache))
    ((op, inputs, precision, times),) = walk(cache_of(path, json.loads(path.read_text())))
    return Tuned(op, inputs, precision, {hash: float(ms) for hash, ms in times.items()})


def record_slow_as_winner(cache: Path) -> None:
    """Write a quarter of the fast choice's time for the slow one, and drop the compiled graph, so
    that stock PyTorch compiles the slow choice from now on."""
    (path,) = cache_paths(Layout(cache))
    document = json.loads(path.read_text())
    tuning = tuned(cache)
    times = document["cache"][tuning.op][tuning.inputs][tuning.precision]
    times[tuning.hash(SLOW)] = times[tuning.hash(FAST)] / 4
    path.write_text(json.dumps(document))
    shutil.rmtree(cache / "fxgraph")


def record_measurement_of_slow_as_faster(cache: Path) -> None:
    """Log a measurement, newer than any other, in which the slow choice alone is twice as fast."""
    tuning = tuned(cache)
    choices = (
        MeasuredChoice(tuning.hash(SLOW), 0.01, 0.01, 0.01, 0.01, 40, 1.0, 1.0, 1.0, "faster"),
        MeasuredChoice(tuning.hash(FAST), 0.02, 0.02, 0.02, 0.01, 40, 2.0, 1.9, 2.1, "slower"),
    )
    now = time.time()
    session = Session(
        "5e551011", host=socket.gethostname(), pid=1, argv=("measure",), started=now, device="cpu"
    )
    writer = EventWriter(Layout(cache), session)
    writer.write(
        TuningMeasured(
            Measurement(tuning.op, tuning.inputs, tuning.precision, now, choices, rounds=40)
        )
    )
    writer.write(SessionEnded(now))
    writer.close()
    assert not writer.error


def wait_until(condition: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    """Wait while `running` is alive until `condition` holds."""
    deadline = time.monotonic() + 240
    while not condition():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
