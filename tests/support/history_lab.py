"""One problem over three days: two sessions that tuned it under two versions of PyTorch, one that
took it from the cache, a measurement and a pin between them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningMeasured, TuningStarted
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Selection
from backend.pins.store import PinStore
from tests.support.screen_lab import SYSTEM, inputs, write_cache

DAY = 86400.0
MONDAY = float(int(time.time())) - 5 * DAY
"""Some day of the last week: pins are made today."""
KEY = TuningKey("mm", inputs(8), "highest")
SHAPES = ((8, 64), (64, 64))
STRIDES = ((64, 1), (64, 1))
TIMES = {"triton_mm-aa": 0.08, "mm-bb": 0.16}
"""What the cache holds of it, as the last session timed it."""


def write_run(
    root: Path,
    pid: int,
    when: float,
    times: dict[str, float],
    torch: str,
    by: Selection = "timing",
    *,
    dtype: str = "torch.float32",
) -> None:
    """The log of a process that asked for the product of 8x64 by 64x64."""
    session = Session(
        f"s{pid}", "node", pid, torch=torch, device="AMD Instinct MI300X", arch="gfx942",
        system_hash=SYSTEM, started=when,
    )  # fmt: skip
    writer = EventWriter(Layout(root), session)
    choices = tuple(Choice(name.partition("-")[0] + "_1", name) for name in TIMES)
    key = KEY.inputs.replace("torch.float32", dtype)
    types = (dtype,) * 2
    writer.write(
        TuningStarted(1, when, "mm", key, "highest", SHAPES, STRIDES, types, "cpu", choices)
    )
    for name, ms in times.items():
        writer.write(ChoiceTimed(1, name, ms))
    best = min(times, key=lambda name: times[name]) if times else "triton_mm-aa"
    writer.write(ChoiceSelected(1, when, best, by, 1.0, 1.0))
    writer.close()


def write_measurement(root: Path, when: float) -> None:
    first = MeasuredChoice("mm-bb", 0.15, 0.149, 0.151, 0.01, 40, 1.0, 1.0, 1.0, "faster")
    other = MeasuredChoice("triton_mm-aa", 0.18, 0.17, 0.19, 0.01, 40, 1.2, 1.1, 1.3, "slower")
    measured = Measurement(
        *("mm", KEY.inputs, "highest"), when, (first, other), rounds=40, system_hash=SYSTEM,
        session="m",
    )  # fmt: skip
    writer = EventWriter(Layout(root), Session("m", "node", 9, started=when, torch="2.13.0"))
    writer.write(TuningMeasured(measured))
    writer.close()


def write_week(root: Path) -> None:
    """All of it, below one cache dir, with another problem beside."""
    cache = write_cache(root, 8, 32)
    held = json.loads(cache.read_text())
    triton = "3.6.0" + "a" * 64 + "-" + "b" * 64
    held["system"] = {"version": {"triton": triton, "hip": "7.1.25"}, "device": {"name": "gfx942"}}
    held["cache"]["mm"][KEY.inputs]["highest"] = TIMES
    cache.write_text(json.dumps(held))
    write_run(root, 1, MONDAY, {"triton_mm-aa": 0.20, "mm-bb": 0.14}, "2.11.0")
    write_run(root, 2, MONDAY + DAY, TIMES, "2.13.0")
    write_run(root, 3, MONDAY + 1.5 * DAY, {}, "2.13.0", "cache")
    write_run(root, 4, MONDAY, {"triton_mm-aa": 9.0}, "2.11.0", dtype="torch.bfloat16")
    write_measurement(root, MONDAY + 2 * DAY)
    PinStore(Layout(root)).pin(
        SYSTEM, KEY, "mm-bb", label="mm_1", note="measured faster", who="ann"
    )
