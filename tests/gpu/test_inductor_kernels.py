"""Triton kernels that Inductor launches, of a real model on a GPU: each tuning is recorded as
Inductor's own log tells it, and a pinned config is launched with nothing timed.
"""

from __future__ import annotations

import collections
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.inductor.hooks.environment import MEASURE
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceAdded,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    SessionStarted,
    TuningStarted,
)
from backend.model.inductor_kernel import OPS
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.actions.trial_program import ONCE, steps_of, try_program
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.session.model import Model
from tests.support.hooked import launch, launch_program, sessions
from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

BINARIES = (".cubin", ".hsaco")
MODEL = ROOT / "tests" / "support" / "inductor_model.py"


@dataclass
class Tuned:
    """A recorded tuning of a kernel."""

    start: TuningStarted
    system: str
    times: dict[str, float]
    refused: int = 0
    added: list[Choice] = field(default_factory=list)
    by: str = ""
    selected: str = ""

    @property
    def timed(self) -> int:
        return len(self.times) + self.refused


def run(cache: Path, *options: str) -> tuple[dict[str, Any], list[Tuned]]:
    """What the program said, and what was recorded of its kernels."""
    command = [sys.executable, "-W", "ignore", str(MODEL), *options]
    done = launch(command, cache, "--quiet")
    assert done.returncode == 0, done.stderr[-3000:]
    print([line for line in done.stderr.splitlines() if line.startswith("rocm-tui")])
    return json.loads(done.stdout.splitlines()[-1]), recorded(cache)


def recorded(cache: Path) -> list[Tuned]:
    """Of the latest program."""
    tunings: dict[int, Tuned] = {}
    system = ""
    for event in sessions(cache)[-1]:
        if isinstance(event, SessionStarted):
            system = event.session.system_hash or system
        elif isinstance(event, TuningStarted) and event.op in OPS:
            tunings[event.n] = Tuned(event, system, {})
        elif isinstance(event, ChoiceTimed) and event.n in tunings:
            tunings[event.n].times[event.hash] = event.ms
        elif isinstance(event, ChoiceFailed) and event.n in tunings:
            tunings[event.n].refused += event.phase == "benchmark"
        elif isinstance(event, ChoiceAdded):
            tunings[event.n].added.append(event.choice)
        elif isinstance(event, ChoiceSelected) and event.n in tunings:
            tunings[event.n].by, tunings[event.n].selected = event.by, event.hash
    return list(tunings.values())


def test_what_is_tuned_is_recorded_and_a_pin_is_launched(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    told, tunings = run(cache, "max_autotune_pointwise=true")
    by_kernel: collections.Counter[str] = collections.Counter()
    for each in tunings:
        by_kernel[each.start.kernel] += each.timed
    print(f"{len(tunings)} kernels, {sum(by_kernel.values())} configs, {told['seconds']:.1f} s:")
    print(collections.Counter(each.start.op for each in tunings))
    assert dict(by_kernel) == told["timed"]
    assert len(tunings) == sum(told["tuned"].values()) >= 5
    print("recorded as Inductor's log says")
    ops = {each.start.op for each in tunings}
    assert {"pointwise", "user_autotune"} <= ops and ops & {"reduction", "persistent_reduction"}

    chosen = max(tunings, key=lambda each: max(each.times.values()) / min(each.times.values()))
    slowest = max(chosen.times, key=chosen.times.__getitem__)
    (choice,) = (c for c in chosen.start.choices if c.hash == slowest)
    print(f"pinned: {chosen.start.kernel} {choice.label}", sorted(chosen.times.values()))
    pin(cache, chosen, choice)
    again, kernels = run(cache, "max_autotune_pointwise=true")
    name = chosen.start.kernel
    print(f"warm, {again['seconds']:.1f} s, tuned", len(again["tuned"]), again["launched"][name])
    assert_pinned(again, kernels, chosen, choice)

    PinStore(Layout(cache)).unpin(key_of(chosen))
    free, _ = run(cache, "max_autotune_pointwise=true")
    print("unpinned:", free["launched"][name])
    assert free["launched"][name] != choice.description


def test_coordinate_descent_is_recorded_and_what_it_found_is_pinned(tmp_path: Path) -> None:
    """In an empty cache, where no other process has compiled anything."""
    cache = tmp_path / "cache"
    told, tunings = run(cache, "coordinate_descent_tuning=true", "width=256")
    timed, added = sum(each.timed for each in tunings), sum(len(each.added) for each in tunings)
    print(f"{len(tunings)} kernels, {timed} configs, {added} by descent, {told['seconds']:.1f} s")
    assert timed == sum(told["timed"].values())
    assert told["timed"]["descent"] >= added > 0

    chosen = max(tunings, key=lambda each: len(each.added))
    choice = next(c for c in reversed(chosen.added) if c.hash in chosen.times)
    print(f"pinned: {chosen.start.kernel} {choice.label} of {len(chosen.times)}")
    pin(cache, chosen, choice)
    for path in [path for path in cache.iterdir() if path.name != "rocm_tui"]:
        shutil.rmtree(path)
    again, kernels = run(cache, "coordinate_descent_tuning=true", "width=256")
    binaries = [p for p in cache.rglob(f"{chosen.start.kernel}.*") if p.suffix in BINARIES]
    print(f"cold, {again['seconds']:.1f} s, tuned", len(again["tuned"]), [str(p) for p in binaries])
    assert_pinned(again, kernels, chosen, choice)
    assert len(binaries) == 1


def test_configs_are_measured_in_the_program_with_its_arguments(tmp_path: Path) -> None:
    """The best by our rounds is among the best by Inductor's single times, and its slowest is not
    even measured. What the model computes is what it computes unmeasured."""
    plain, _ = run(tmp_path / "plain", "max_autotune_pointwise=true")
    cache = tmp_path / "cache"
    command = [sys.executable, "-W", "ignore", str(MODEL), "max_autotune_pointwise=true"]
    done = launch(command, cache, "--quiet", env={MEASURE: "2"})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print([line for line in done.stderr.splitlines() if line.startswith("rocm-tui")])
    assert told["loss"] == pytest.approx(plain["loss"], rel=1e-2)
    print("seconds", plain["seconds"], told["seconds"])
    model = Model()
    model.apply(read_sources([str(cache)]))
    rows = [row for row in model.rows() if row.tuning.op in OPS]
    measured = [row.tuning for row in rows if row.tuning.measured is not None]
    several = [row for row in rows if sum(c.ms is not None for c in row.tuning.choices) > 1]
    assert len(measured) == len(several) >= 5
    for tuning in measured:
        assert tuning.measured is not None and tuning.measured.caches == "cold"
        times = {choice.hash: choice.ms for choice in tuning.choices if choice.ms is not None}
        best = tuning.measured.choices[0]
        print(tuning.op, tuning.kernel, best.name, best.ms, best.verdict, tuning.measured.trouble)
        assert times[best.hash] <= 1.1 * min(times.values()) or len(tuning.measured.choices) == 2
        assert not tuning.measured.failed


STEPPING = """
import torch, torch._inductor.config as config
config.max_autotune_pointwise = True
model = torch.compile(lambda x, b: torch.nn.functional.gelu((x + b).t().contiguous()))
x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
b = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
for _ in range(20):
    for _ in range(50):
        model(x, b)
    torch.cuda.synchronize()
    print("step", flush=True)
"""


def test_the_slowest_config_makes_the_program_slower(tmp_path: Path) -> None:
    """Inductor's slowest by far, pinned, in turn with the program without the pin."""
    cache = tmp_path / "cache"
    launch_program(STEPPING, cache, "--quiet")
    chosen = max(recorded(cache), key=lambda each: max(each.times.values()))
    slowest = max(chosen.times, key=chosen.times.__getitem__)
    (choice,) = (c for c in chosen.start.choices if c.hash == slowest)
    expected = chosen.times[slowest] / min(chosen.times.values())
    print(f"pinned: {chosen.start.kernel} {choice.label}, {expected:.2f} x by single times")
    pin(cache, chosen, choice)
    words = [sys.executable, "-W", "ignore", "-c", STEPPING]
    steps = steps_of("^step", None, 3)
    trial = try_program(words, Layout(cache), steps, pairs=3, env=child_env(cache))
    print(trial.standings, trial.trouble)
    assert trial.trouble == (ONCE,)
    ratio = trial.standings[1].ratio
    assert ratio > 1 + (expected - 1) / 4


def assert_pinned(
    told: dict[str, Any], kernels: list[Tuned], pinned: Tuned, choice: Choice
) -> None:
    assert told["launched"][pinned.start.kernel] == choice.description
    assert pinned.start.kernel not in told["tuned"]
    ours = [each for each in kernels if each.start.inputs == pinned.start.inputs]
    assert {(each.by, each.selected, each.timed) for each in ours} == {("pin", choice.hash, 0)}


def key_of(tuned: Tuned) -> TuningKey:
    return TuningKey(tuned.start.op, tuned.start.inputs, tuned.start.precision)


def pin(cache: Path, tuned: Tuned, choice: Choice) -> None:
    """As a person does; without what stock PyTorch would read, so that `run` alone holds it."""
    model = Model()
    model.apply(read_sources([str(cache)]))
    rows = [row for row in model.rows() if row.tuning.inputs_key == tuned.start.inputs]
    pinned = pin_choice(pinnable(rows[0], choice.hash or "", model.sessions), Layout(cache))
    print(pinned.state, pinned.detail)
    for path in cache.rglob("*.best_config"):
        path.unlink()
