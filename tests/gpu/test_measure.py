"""`measure` on a GPU: cold unless hot is asked for, how exact, and how the device was doing.

Skipped where torch sees no GPU. The product of a decode step of a llama-like model, 8x4096x4096.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.wire.codec import read
from backend.wire.jobs import MeasureResult
from rocm_tui.actions.measure import measurement_of
from rocm_tui.jobs.worker import spawn_worker
from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

SHAPES = [[8, 4096], [4096, 4096]]
ASKED: dict[str, dict[str, str]] = {
    "default": {},
    "cold": {"caches": "cold"},
    "hot": {"caches": "hot"},
}

STATE = """
import json, torch
from backend.inductor.sampling import sensor_of
sensor = sensor_of(torch.device("cuda", 0))
a = torch.ones(4096, 4096, device="cuda", dtype=torch.float16)
for _ in range(50):
    a @ a
state = sensor()
print(json.dumps([state.clock_mhz, state.power_w, state.temperature_c, state.throttled]))
"""

STEP = """
import json, torch
from backend.inductor.sampling import Repeat, timer_for
device = torch.device("cuda", 0)
torch.cuda.init()
timer = timer_for(device, "cold")
weights = [torch.ones(4096, 4096, device=device, dtype=torch.bfloat16) for _ in range(24)]
row = torch.ones(8, 4096, device=device, dtype=torch.bfloat16)
outs = [torch.empty(8, 4096, device=device, dtype=torch.bfloat16) for _ in weights]
def call(weight, out):
    return lambda: torch.mm(row, weight, out=out)
runs = [call(weight, out) for weight, out in zip(weights, outs)]
for run in runs: run()
told = {}
for name, some, repeat in (
    ("rotated", runs, Repeat(1, 24)),
    ("single", runs, Repeat(1, 1)),
    ("warm", runs[:1], Repeat(1, 24)),
):
    times = sorted(timer.sample(some, repeat) for _ in range(40))
    told[name] = [times[20], (times[30] - times[10]) / 2 / times[20]]
print(json.dumps({"tick": timer.tick_ms, **told}))
"""


def _python(program: str, cache: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        env=child_env(cache, {"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_cold_is_the_default_and_every_measurement_tells_how_it_was_made(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    tune = {"job": "tune", "op": "mm", "shapes": SHAPES, "dtypes": ["torch.bfloat16"], "mode": 1}
    with spawn_worker(sys.executable, cache, child_env(cache)) as worker:
        tuned = worker.exchange(tune)
        job = {
            "job": "measure",
            **{name: tuned[name] for name in ("op", "inputs", "precision")},
            "hashes": [choice["hash"] for choice in tuned["choices"] if choice["ms"]][:4],
            "mode": 1,
            "budget": 5.0,
        }
        made = {
            name: measurement_of(read(MeasureResult, worker.exchange({**job, **asked})))
            for name, asked in ASKED.items()
        }
    for name, measurement in made.items():
        best = measurement.choices[0]
        print(
            f"{name}: {measurement.caches}, {measurement.rounds} rounds in "
            f"{measurement.seconds:.2f} s, best {best.name} {1e3 * best.ms:.2f} us "
            f"(spread {100 * best.spread:.1f} %), known to "
            f"{1e6 * (measurement.resolution_ms or 0):.1f} ns, {measurement.clock_mhz} MHz, "
            f"{measurement.power_w} W, "
            f"{measurement.temperature_c} C, {measurement.throttled} throttled, "
            f"{measurement.trouble}, {[c.reason for c in measurement.failed]}"
        )
    assert {name: one.caches for name, one in made.items()} == {
        "default": "cold",
        "cold": "cold",
        "hot": "hot",
    }
    for measurement in made.values():
        assert measurement.resolution_ms is not None
        assert 0 < measurement.resolution_ms < 0.02 * measurement.choices[0].ms
        assert measurement.clock_mhz and 100 < measurement.clock_mhz < 5000
        assert measurement.temperature_c and 10 < measurement.temperature_c < 120
    best = made["hot"].choices[0]  # slower ones may wait for something else than memory
    cold = made["cold"].of(best.hash)
    assert cold is not None and cold.ms > 1.05 * best.ms


def test_the_state_of_the_device_is_read(tmp_path: Path) -> None:
    clock, power, temperature, throttled = _python(STATE, tmp_path)
    print(f"{clock} MHz, {power} W, {temperature} C, {throttled}")
    assert clock > 100 and temperature > 10


def test_rotated_calls_are_as_slow_as_single_ones_and_told_more_exactly(tmp_path: Path) -> None:
    told = _python(STEP, tmp_path)
    print(told)
    assert 0 < told["tick"] <= 2e-3
    assert told["rotated"][0] > 1.2 * told["warm"][0]
    assert told["rotated"][1] <= told["single"][1] + 0.005
