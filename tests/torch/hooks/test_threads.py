"""Several threads compile with our templates: the process that benchmarks for all of them is
started by one, which may end while another's choice is measured there. It must outlive that."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.model.events import ChoiceFailed, ChoiceSelected, ChoiceTimed
from tests.support.hooked import by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

PROGRAM = """
import threading, time, torch, torch._inductor.select_algorithm
from backend.inductor.benchmark import process as rocm_process
import request  # beside this program, so that the process finds it

quick = threading.Event()
def first():
    print(rocm_process.benchmark(request.Held(False)), flush=True)
    quick.set()
    request.wait_for("begun")
def second():
    quick.wait()
    print(rocm_process.benchmark(request.Held(True)), flush=True)
one, two = threading.Thread(target=first), threading.Thread(target=second)
one.start(); two.start(); one.join()
print("ended", two.is_alive(), flush=True)
time.sleep(0.5)  # a process that ends with the first thread is given the time for it
(request.FOLDER / "go on").touch()
two.join()
rocm_process.shut_down()

def compiles(n):
    a, b = torch.randn(2, 16 + n, 32), torch.randn(2, 32, 24)
    assert torch.allclose(torch.compile(torch.bmm, dynamic=False)(a, b), torch.bmm(a, b), atol=1e-4)
threads = [threading.Thread(target=compiles, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

REQUEST = '''
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent

def wait_for(name):
    while not (FOLDER / name).exists():
        time.sleep(0.01)

@dataclass
class Held:
    """Is measured until there is a file `go on`, if it is held."""
    held: bool
    device = "cpu"
    def benchmark(self):
        with (FOLDER / "runs").open("a") as runs:
            print(self.held, file=runs)
        if self.held:
            (FOLDER / "begun").touch()
            wait_for("go on")
        return float(self.held)
'''


def test_no_choice_fails_because_another_thread_ended(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = tmp_path / "cache-program"
    folder.mkdir()
    (folder / "request.py").write_text(REQUEST)
    env = {
        "ROCM_TUI_TEMPLATES": "1",
        "ROCM_TUI_TEMPLATE_BUDGET": "1",
        "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN",
    }
    done = launch_program(PROGRAM, cache, "--max-autotune", env=env)
    assert done.stdout.splitlines() == ["0.0", "ended True", "1.0"]
    # A process that was lost with the first thread would be started again, and measure it twice.
    assert (folder / "runs").read_text().split() == ["False", "True"]
    (events,) = sessions(cache)
    assert [event for event in events if isinstance(event, ChoiceFailed)] == []
    tunings = by_tuning(events)
    assert len(tunings) == 4
    for start, told in tunings:
        timed = {event.hash for event in told if isinstance(event, ChoiceTimed)}
        assert timed == {choice.hash for choice in start.choices} and len(timed) >= 2
        assert isinstance(told[-1], ChoiceSelected)
