"""Under `run` a pin decides before anything is compiled or benchmarked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.events import ChoiceSelected
from backend.records import Pin, TuningKey
from backend.store.paths import Layout
from backend.store.pins import PinStore
from tests.hooked import BMM, by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

OUTPUT_CODE = {"TORCH_LOGS": "output_code"}
CALLS = {"bmm-": "extern_kernels.bmm(", "Cpp": "async_compile.cpp_pybinding"}


@dataclass(frozen=True)
class Pinned:
    cache: Path
    pin: Pin


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    """One tuning, whose slower choice is pinned, and no autotune cache any more."""
    cache = tmp_path_factory.mktemp("pinned") / "cache"
    launch_program(BMM, cache)
    ((start, events),) = by_tuning(sessions(cache)[0])
    fastest = events[-1]
    assert isinstance(fastest, ChoiceSelected)
    (other,) = [str(c.hash) for c in start.choices if c.hash != fastest.hash]
    key = TuningKey(start.op, start.inputs, start.precision)
    report = PinStore(Layout(cache)).pin(None, key, other, label="the slower one")
    shutil.rmtree(Layout(cache).autotune)  # only pins.json tells it now
    return Pinned(cache, report.pin)


def _fresh(pinned: Pinned, tmp_path: Path) -> Path:
    """A cache dir with nothing in it but the pins."""
    cache = tmp_path / "cache"
    Layout(cache).home.mkdir(parents=True)
    shutil.copy(Layout(pinned.cache).pins, Layout(cache).pins)
    return cache


def test_a_pin_needs_no_benchmark(pinned: Pinned, tmp_path: Path) -> None:
    cache = _fresh(pinned, tmp_path)
    done = launch_program(BMM, cache, env=OUTPUT_CODE)
    ((start, events),) = by_tuning(sessions(cache)[0])
    assert len(start.choices) == 2
    (selected,) = events  # nothing was compiled, timed or failed
    assert isinstance(selected, ChoiceSelected)
    assert (selected.by, selected.hash) == ("pin", pinned.pin.hash)
    assert "AUTOTUNE" not in done.stderr
    assert not Layout(cache).autotune.exists()  # and nothing was written about the other choice
    code = [line for line in done.stderr.splitlines() if "[__output_code]" in line]
    begin = pinned.pin.hash[: len("bmm-")] if pinned.pin.hash.startswith("bmm-") else "Cpp"
    calls = [name for name, call in CALLS.items() if any(call in line for line in code)]
    # The addition behind the ATen call is a C++ kernel too; a template call takes it in.
    assert begin in calls and (begin == "bmm-" or "bmm-" not in calls)


@pytest.mark.parametrize(
    ("change", "told", "by"),
    [
        ("import torch._inductor.config as c; c.deterministic = True", "shadowed", "deterministic"),
        (
            "import torch, torch._inductor.select_algorithm as s\n"
            "s.add_preprocessing_fn(lambda cs: [c for c in cs if c.hash_key() != HASH])",
            "orphaned",
            "only",
        ),
    ],
)
def test_a_pin_that_cannot_hold_is_told(
    pinned: Pinned, tmp_path: Path, change: str, told: str, by: str
) -> None:
    cache = _fresh(pinned, tmp_path)
    done = launch_program(f"HASH = {pinned.pin.hash!r}\n{change}\n{BMM}", cache)
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("rocm-tui: ")]
    assert told in line and pinned.pin.id in line and "the slower one" in line
    ((_, events),) = by_tuning(sessions(cache)[0])
    assert isinstance(events[-1], ChoiceSelected) and events[-1].by == by


def test_pins_of_another_system_and_broken_files_do_not_count(
    pinned: Pinned, tmp_path: Path
) -> None:
    cache = _fresh(pinned, tmp_path)
    text = Layout(cache).pins.read_text()
    Layout(cache).pins.write_text(text.replace(pinned.pin.system_hash, "0" * 64))
    launch_program(BMM, cache)
    Layout(cache).pins.write_text(text[: len(text) // 2])
    shutil.rmtree(Layout(cache).fxgraph)
    shutil.rmtree(Layout(cache).aotautograd, ignore_errors=True)
    done = launch_program(BMM, cache)
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("rocm-tui: ")]
    assert "pins are not honoured" in line
    first, second = ([e for e in s if isinstance(e, ChoiceSelected)] for s in sessions(cache))
    assert [e.by for e in first] == ["timing"] and [e.by for e in second] == ["cache"]
