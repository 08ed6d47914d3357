"""Kernels that Inductor tunes, under `rocm-tui run`: recorded, and pinned from inside.

Inductor's own tuner runs, with Triton's compiler for gfx942; the GPU and its times are made up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.events import ChoiceFailed
from backend.model.inductor_kernel import OPS
from backend.model.tuning import Tuning
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import Seen
from rocm_tui.session.model import Model
from tests.support.hooked import launch, logs_of, sessions
from tests.support.places import ROOT
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "inductor_kernels_program.py"
POINTWISE, USER = "triton_poi_fused_add_relu_1", "user_kernel"


@dataclass(frozen=True)
class Ran:
    """What the program did: `[kernel, config]` of each; what was recorded; what we said."""

    benched: Sequence[list[str]]
    launched: Sequence[list[str]]
    compiled: Sequence[list[str]]
    debug: Sequence[str]
    tunings: Sequence[Tuning]
    said: Sequence[str]

    def of(self, op: str) -> Tuning:
        """The first of this op."""
        return next(tuning for tuning in self.tunings if tuning.op == op)


def run(cache: Path, *more: str) -> Ran:
    options = ["max_autotune_pointwise=true", "coordinate_descent_tuning=true", *more]
    command = [triton_python(), "-W", "ignore", str(PROGRAM), f"code={cache}.code", *options]
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = launch(command, cache, "--quiet", env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(sessions(cache)) > 0  # every line is good
    log = EventLog("log")
    seen = {r.uid: r.tuning for r in _records(log, logs_of(cache)[-1]) if isinstance(r, Seen)}
    said = [line for line in done.stderr.splitlines() if line.startswith("rocm-tui: ")]
    told: dict[str, Any] = json.loads(done.stdout)
    return Ran(**told, tunings=list(seen.values()), said=said)


def _records(log: EventLog, path: Path) -> list[Any]:
    return [*log.feed(path.read_bytes()), *log.close()]


def pin(cache: Path, tuning: Tuning, choice: Choice) -> None:
    """As a person does, with what all sources tell."""
    model = Model()
    model.apply(read_sources([str(cache)]))
    rows = [row for row in model.rows() if row.tuning.inputs_key == tuning.inputs_key]
    row = rows[-1]  # torch 2.8 tunes a kernel again that is made again
    pin_choice(pinnable(row, choice.hash or "", model.sessions), Layout(cache))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels") / "cache"


@pytest.fixture(scope="module")
def first(cache: Path) -> Ran:
    return run(cache, f"refuse={POINTWISE}:num_warps=8")


def test_each_config_that_is_timed_is_recorded(first: Ran) -> None:
    timed = {
        (tuning.kernel, _sorted(choice))
        for tuning in first.tunings
        for choice in tuning.choices
        if choice.ms is not None
    }
    assert timed == {(kernel, config) for kernel, config in first.benched}
    assert {t.op for t in first.tunings} == {"pointwise", "persistent_reduction", "user_autotune"}
    told = [line for line in first.debug if line.startswith("Benchmark all input configs")]
    assert len(told) == len(first.tunings)
    assert len(first.said) == 3  # the end of `run`


def test_the_winner_is_what_is_launched(first: Ran) -> None:
    assert first.tunings
    for tuning in first.tunings:
        (winner,) = [c for c in tuning.choices if c.hash == tuning.selected]
        configs = {config for kernel, config in first.launched if kernel == tuning.kernel}
        assert configs == {_sorted(winner)}
        assert tuning.choices[0].ms == winner.ms
        assert tuning.selected_by == "timing"
        assert tuning.seconds.benchmark is not None and 0 < tuning.seconds.benchmark < 600


def test_the_path_of_coordinate_descent_is_told(first: Ran) -> None:
    tuning = first.of("persistent_reduction")
    steps = [choice for choice in tuning.choices if choice.moved]
    told = [line for line in first.debug if line.startswith("COORDESC: XBLOCK")]
    assert 0 < len(steps) <= len(told)
    by_hash = {choice.hash: choice for choice in tuning.choices}
    for step in steps:
        origin = by_hash[step.origin]
        differs = [name for name in step.config if step.config[name] != origin.config.get(name)]
        assert [part.split()[0] for part in (step.moved or "").split(", ")] == differs
    assert tuning.num_choices == len(tuning.choices)
    assert not [choice for choice in first.of("user_autotune").choices if choice.moved]


def test_what_cannot_be_loaded_says_why(first: Ran) -> None:
    failed = [choice for choice in first.of("pointwise").choices if choice.failed]
    assert failed and all("num_warps=8" in choice.description for choice in failed)
    assert all("shared memory, Required: 99999" in (choice.reason or "") for choice in failed)


def test_a_benchmark_that_crashes_is_recorded_of_its_config(cache: Path, first: Ran) -> None:
    for path in cache.rglob("*.best_config"):
        path.unlink()
    ran = run(cache, f"only={USER}", f"crash={USER}:BLOCK=256")
    assert [entry for entry in ran.launched if entry[0] == USER] != []  # the one that crashed
    failed = [event for event in sessions(cache)[-1] if isinstance(event, ChoiceFailed)]
    hashes = {c.config["BLOCK"]: c.hash for c in first.of("user_autotune").choices}
    assert [(event.hash, event.phase) for event in failed] == [(hashes["256"], "benchmark")]
    assert "illegal memory access" in failed[0].reason


def test_a_tuning_tells_its_kernel_and_where_that_stands(first: Ran) -> None:
    tuning = first.of("pointwise")
    assert tuning.kernel == POINTWISE
    assert f"def {POINTWISE}(" in Path(tuning.code).read_text()
    assert (tuning.inputs_key or "").startswith("triton_poi_fused_add_relu[1536000, ")
    assert set(tuning.dtypes) == {"torch.bfloat16"}


def test_hooks_that_fail_step_aside_with_one_line_each(cache: Path, first: Ran) -> None:
    """What records, then what asks for pins: the kernel is tuned and launched as by stock."""
    for path in cache.rglob("*.best_config"):
        path.unlink()
    ran = run(cache, "break=KernelWatch._start", "break=_Hooks._pin_of")
    kernel = ran.launched[0][0]
    assert len(ran.launched) == 2 and ran.launched == [e for e in first.launched if e[0] == kernel]
    assert [entry for entry in first.benched if entry[0] == kernel] == ran.benched
    unrecorded, aside, *_ = ran.said  # the last three are the end of `run`
    assert "the tuning of a Triton kernel is not recorded: RuntimeError" in unrecorded
    assert "and step aside: the program goes on under stock PyTorch" in aside


def test_pinned_configs_are_launched_and_no_rival_is_compiled(cache: Path, first: Ran) -> None:
    """One config of the list, one that only coordinate descent finds, and one that the GPU refuses
    by now: that kernel is tuned as if there were no pin."""
    slow = first.of("pointwise").choices
    slowest = [choice for choice in slow if choice.ms is not None and not choice.moved][-1]
    found = next(c for c in reversed(first.of("persistent_reduction").choices) if c.moved)
    users = {choice.config["BLOCK"]: choice for choice in first.of("user_autotune").choices}
    pin(cache, first.of("pointwise"), slowest)
    pin(cache, first.of("persistent_reduction"), found)
    pin(cache, first.of("user_autotune"), users["256"])
    for path in cache.rglob("*.best_config"):
        path.unlink()

    again = run(cache, f"refuse={USER}:BLOCK=256")
    for op, choice in (("pointwise", slowest), ("persistent_reduction", found)):
        kernel, tuning = first.of(op).kernel, again.of(op)
        assert {config for name, config in again.compiled if name == kernel} == {_sorted(choice)}
        assert {config for name, config in again.launched if name == kernel} == {_sorted(choice)}
        assert kernel not in dict(again.benched)
        assert (tuning.selected_by, tuning.selected) == ("pin", choice.hash)
        assert tuning.inputs_key == first.of(op).inputs_key and tuning.op in OPS
    assert {config for name, config in again.launched if name == USER} == {_sorted(users["64"])}
    (line,) = [line for line in again.said if "does not hold" in line]
    assert "(BLOCK=256 w4 s3) does not hold in this user_autotune kernel: " in line
    assert "out of resource: shared memory" in line


def _sorted(choice: Choice) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(choice.config.items())
                     if name != "waves_per_eu")  # fmt: skip
