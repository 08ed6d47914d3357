"""What `tune` tunes, under which hashes it keeps the times of a GPU, and for which other GPUs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from backend.cache.journal import Tuned
from backend.cache.variants import ChoiceVariants
from backend.disk.layout import Layout
from backend.inductor.benchmark.errors import CompileFailed, NotCompiled
from backend.inductor.hooks import lookup
from backend.inductor.torch import tuning as torch_api
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    TimesTakenOver,
    TuningStarted,
)
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.wire.events import decode
from backend.worker import retuning
from backend.worker.jobs.tune import TuningRecorder
from backend.worker.retuning import Budget, ChoiceTimings, StoredHashes, TuneTask
from rocm_tui.actions.sources import load_model
from tests.support.device_modules import compiled_on, write_choice

pytestmark = pytest.mark.torch

INPUTS = "[('cuda', 'torch.float16', 8, 8, 8, 1, 0), ('cuda', 'torch.float16', 8, 8, 8, 1, 0)]"
SIZES = (16, 32, 64)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "cache"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(root))
    torch_api.StockSelector.get_local_cache_path.cache_clear()
    compiled_on(root, 0)  # what the worker sees is its GPU 0
    yield root
    torch_api.StockSelector.get_local_cache_path.cache_clear()


def choices_on(root: Path, index: int) -> list[str]:
    return [write_choice(root, index, BLOCK_M=size) for size in SIZES]


def story_of(task: TuneTask) -> TuningRecorder:
    return TuningRecorder(lambda what, **fields: None, lambda: None, task.kept_as)


def keep(
    kept_as: StoredHashes, timings: dict[str, float], skipped: tuple[str, ...] = ()
) -> TuneTask:
    """Keep what a tuning of the worker's GPU measured."""
    task = TuneTask(lambda key: True, Budget(None), ChoiceTimings(ChoiceMark(), {}), kept_as)
    task.budget.skipped.update(skipped)
    selector = retuning.selector(task, story_of(task), False)
    selector._keep(Tuned("mm", INPUTS, "highest", timings, time.time()))
    assert not task.lost
    return task


def cached(root: Path) -> dict[str, float]:
    text = (Layout(root).autotune / torch_api.system_hash()).read_text()
    times: dict[str, float] = json.loads(text)["cache"]["mm"][INPUTS]["highest"]
    return times


def test_times_are_kept_under_the_hashes_of_the_device_that_was_named(root: Path) -> None:
    here = choices_on(root, 0)
    times = {**dict(zip(here, (0.1, math.inf, 0.3), strict=True)), "mm": 0.2}
    task = keep(StoredHashes(ChoiceVariants(root), 3), times)
    there = choices_on(root.with_name("elsewhere"), 3)
    assert cached(root) == {**dict(zip(there, (0.1, math.inf, 0.3), strict=True)), "mm": 0.2}
    assert (task.written, task.taken_over) == (cached(root), {})
    (row,) = load_model(Layout(root)).rows()
    assert row.tuning.device_index == 3


def test_other_devices_take_times_over_in_one_go(root: Path) -> None:
    here = choices_on(root, 0)
    times = {**dict(zip(here, (0.1, math.inf, 0.3), strict=True)), "mm": 0.2}
    task = keep(StoredHashes(ChoiceVariants(root), 0, (1, 2)), times)
    for index in (0, 1, 2):
        there = choices_on(root.with_name("elsewhere"), index)
        assert [cached(root)[name] for name in there] == [0.1, math.inf, 0.3]
    assert len(cached(root)) == 10 and len(task.taken_over) == 6
    journal = Layout(root).home / "tuned" / f"{torch_api.system_hash()}.folded.jsonl"
    assert len(journal.read_text().splitlines()) == 2, "a head and one line"
    rows = load_model(Layout(root)).rows()
    assert sorted(row.tuning.device_index or 0 for row in rows) == [0, 1, 2]
    assert all(len(row.tuning.choices) == 4 for row in rows)


def test_what_another_device_measured_stays(root: Path) -> None:
    here, there = choices_on(root, 0), choices_on(root, 1)
    keep(StoredHashes(ChoiceVariants(root), 1), dict.fromkeys(here, 0.5))
    task = keep(StoredHashes(ChoiceVariants(root), 0, (1,)), dict.fromkeys(here, 0.1))
    assert [cached(root)[name] for name in there] == [0.5, 0.5, 0.5]
    assert task.taken_over == {}


def test_what_was_taken_over_is_taken_over_again(root: Path) -> None:
    here, there = choices_on(root, 0), choices_on(root, 1)
    for ms in (0.5, 0.1):
        keep(StoredHashes(ChoiceVariants(root), 0, (1,)), dict.fromkeys(here, ms))
    assert [cached(root)[name] for name in there] == [0.1, 0.1, 0.1]


def test_a_budget_takes_no_time_away_from_the_device_that_was_named(root: Path) -> None:
    here = choices_on(root, 0)
    kept_as = StoredHashes(ChoiceVariants(root), 3)
    keep(kept_as, dict.fromkeys(here, 0.5))
    keep(kept_as, {here[0]: 0.1, here[1]: math.inf}, skipped=(here[1], here[2]))
    there = choices_on(root, 3)
    assert [cached(root)[name] for name in there] == [0.1, 0.5, 0.5]


class Offered:
    """A choice that is offered."""

    def __init__(self, hash: str, failed: bool = False) -> None:
        self.hash_key = lambda: hash
        self.failed = failed


def test_only_kernels_at_fault_for_not_compiling_ahead_are_kept_as_failed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of torch's errors, too: a pool is broken if its process was killed as memory ran out."""
    errors = [
        BrokenProcessPool("a process in the pool was terminated abruptly"),
        NotCompiled("another process has been compiling it for 300 s"),
        RuntimeError("Traceback ...\nOSError: [Errno 28] No space left on device"),
        CompileFailed("a.hip:1: error: no"),
        RuntimeError("out of resource: shared memory"),
    ]
    here = [write_choice(root, 0, BLOCK_M=16 << at) for at in range(len(errors))]
    kept_as = StoredHashes(ChoiceVariants(root))
    keep(kept_as, dict.fromkeys(here, 0.5))
    reports: list[Any] = []
    monkeypatch.setattr(torch_api, "watch_precompile_errors", reports.append)
    retuning.watch_timeouts()
    task = TuneTask(lambda key: True, Budget(None), ChoiceTimings(ChoiceMark(), {}), kept_as)
    selector = retuning.selector(task, story_of(task), False)
    selector._choices = offered = tuple(Offered(name, failed=True) for name in here)  # type: ignore[assignment]
    for choice, error in zip(offered, errors, strict=True):
        reports[0](choice, error)
    selector._keep(Tuned("mm", INPUTS, "highest", {"mm": 0.2}, time.time()))
    assert [cached(root)[name] for name in here] == [0.5, 0.5, 0.5, math.inf, math.inf]


def test_a_choice_of_ours_that_the_machine_failed_is_not_kept_as_failed(root: Path) -> None:
    here = choices_on(root, 0)
    kept_as = StoredHashes(ChoiceVariants(root))
    keep(kept_as, dict.fromkeys(here, 0.5))
    task = TuneTask(lambda key: True, Budget(None), ChoiceTimings(ChoiceMark(), {}), kept_as)
    selector = retuning.selector(task, story_of(task), False)
    timings: dict[Any, float] = {Offered(name): math.inf for name in here}
    lookup.note_blameless_failure(next(iter(timings)))
    with lookup.looking_up("problem") as measured:
        measured(timings)
        news = {choice.hash_key(): ms for choice, ms in timings.items()}
        selector.update_local_cache({"mm": {INPUTS: {"highest": news}}})
    lookup.forget_blameless_failures()
    assert [cached(root)[name] for name in here] == [0.5, math.inf, math.inf]


def test_the_mode_is_told_by_the_choices_of_any_device(root: Path) -> None:
    offered: list[Any] = [Offered(name) for name in choices_on(root, 0)]
    kept_as = StoredHashes(ChoiceVariants(root))
    known = dict.fromkeys(choices_on(root, 1), 0.1)
    assert not retuning._in_another_mode(offered, known, kept_as)
    known = {write_choice(root, 1, BLOCK_M=128): 0.1}
    assert retuning._in_another_mode(offered, known, kept_as)


def test_the_log_has_the_hashes_and_the_device_that_was_named(root: Path) -> None:
    here = choices_on(root, 0)
    story = TuningRecorder(
        lambda what, **fields: None, lambda: None, StoredHashes(ChoiceVariants(root), 3, (1,))
    )
    n = story.next_number()
    choices = tuple(Choice(f"triton_mm_{at}", name) for at, name in enumerate(here))
    shapes = ((8, 8), (8, 8))
    dtypes = ("torch.float16",) * 2
    story.write(
        TuningStarted(
            n, 5.0, "mm", INPUTS, "highest", shapes, ((8, 1),) * 2, dtypes, "cuda", choices
        )
    )
    story.write(ChoiceTimed(n, here[0], 0.1))
    story.write(ChoiceFailed(n, here[1], "benchmark", "no room"))
    story.write(ChoiceSelected(n, 6.0, here[0], "benchmark", 1.0, 1.0))
    story.taken_over({"triton_mm-c1": math.inf})
    story.end()
    there = choices_on(root.with_name("elsewhere"), 3)
    events = [decode(line) for line in Path(story.log).read_text().splitlines()]
    assert not any(name in Path(story.log).read_text() for name in here)
    started = next(event for event in events if isinstance(event, TuningStarted))
    assert [choice.hash for choice in started.choices] == there
    taken = next(event for event in events if isinstance(event, TimesTakenOver))
    assert (taken.n, taken.device, taken.devices) == (n, 3, (1,))
    assert taken.timings == {"triton_mm-c1": math.inf}
    (row,) = load_model(Layout(root)).rows()
    assert row.tuning.device_index == 3 and row.tuning.selected == there[0]
    assert {choice.hash for choice in story.choices} == set(here)


def test_what_inductor_asks_for_beside_is_given_its_first_choice_and_not_tuned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no time is spent on it, and none is kept."""
    offered: list[list[str]] = []

    def select(self: Any, name: str, choices: list[str], *args: Any) -> str:
        offered.append(choices)
        return choices[0]

    key = TuningKey("mm", INPUTS, "highest")
    monkeypatch.setattr(torch_api.StockSelector, "__call__", select)
    monkeypatch.setattr(torch_api, "tuning_key", lambda *args: key)
    kept_as = StoredHashes(ChoiceVariants(Path()))
    task = TuneTask(lambda key: False, Budget(None), ChoiceTimings(ChoiceMark(), {}), kept_as)
    selector = retuning.selector(task, story_of(task), False)
    assert selector("mm", ["aten", "triton"], [], None) == "aten"
    assert offered == [["aten"]] and task.tuned == [key] and task.key is None
