"""Under `run` a pin decides before anything is compiled or benchmarked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from backend.disk.layout import Layout
from backend.model.events import ChoiceSelected, Event, TuningStarted
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from tests.support.hooked import BMM, by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

CALLS = {"bmm-": "extern_kernels.bmm(", "Cpp": "async_compile.cpp_pybinding"}


PROGRAM = """
import os, pathlib, sys, torch, torch._inductor.config as config
import torch._inductor.select_algorithm as select
from backend.disk.layout import Layout
config.max_autotune = True
layout = Layout(pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
hidden = None
select.add_preprocessing_fn(lambda choices: [c for c in choices if c.hash_key() != hidden])
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
def compile(n):  # a graph of its own around the same bmm
    print(f"# compiling {n}", file=sys.stderr, flush=True)
    torch._dynamo.reset()
    torch.compile(lambda a, b: torch.bmm(a, b) + n)(a, b)
compile(1)
print(layout.autotune.exists())
with config.patch(deterministic=True):
    compile(2)
hidden = HASH
compile(3)
hidden = None
text = layout.pins.read_text()
layout.pins.write_text(text.replace(SYSTEM, "0" * 64))
compile(4)
layout.pins.write_text(text[: len(text) // 2])
compile(5)
"""


@dataclass(frozen=True)
class Pinned:
    """What a process did that found one pin in an else empty cache dir, compile by compile."""

    pin: Pin
    autotune_cache: str
    tunings: list[tuple[TuningStarted, list[Event]]]
    stderr: list[list[str]]

    def told(self, number: int) -> list[str]:
        return [line for line in self.stderr[number] if line.startswith("rocm-tui: ")]


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    """One tuning, whose slower choice is pinned, and nothing but the pin after that."""
    cache = tmp_path_factory.mktemp("pinned") / "cache"
    launch_program(BMM, cache)
    ((start, events),) = by_tuning(sessions(cache)[0])
    fastest = events[-1]
    assert isinstance(fastest, ChoiceSelected)
    (other,) = [str(c.hash) for c in start.choices if c.hash != fastest.hash]
    key = TuningKey(start.op, start.inputs, start.precision)
    report = PinStore(Layout(cache)).pin(None, key, other, label="the slower one")
    pins, fresh = Layout(cache).pins, cache.with_name("fresh")
    Layout(fresh).home.mkdir(parents=True)
    shutil.copy(pins, Layout(fresh).pins)
    values = f"HASH, SYSTEM = {other!r}, {report.pin.system_hash!r}\n"
    done = launch_program(values + PROGRAM, fresh, env={"TORCH_LOGS": "output_code"})
    (found,) = sessions(fresh)
    parts = [part.splitlines() for part in done.stderr.split("# compiling ")]
    return Pinned(report.pin, done.stdout, by_tuning(found), parts)


def test_a_pin_needs_no_benchmark(pinned: Pinned) -> None:
    start, events = pinned.tunings[0]
    assert len(start.choices) == 2
    (selected,) = events  # nothing was compiled, timed or failed
    assert isinstance(selected, ChoiceSelected)
    assert (selected.by, selected.hash) == ("pin", pinned.pin.hash)
    stderr = pinned.stderr[1]
    assert not [line for line in stderr if "AUTOTUNE" in line]
    assert pinned.autotune_cache == "False\n"  # and nothing was written about the other choice
    assert pinned.told(1) == []
    code = [line for line in stderr if "[__output_code]" in line]
    begin = pinned.pin.hash[: len("bmm-")] if pinned.pin.hash.startswith("bmm-") else "Cpp"
    calls = [name for name, call in CALLS.items() if any(call in line for line in code)]
    # The addition behind the ATen call is a C++ kernel too; a template call takes it in.
    assert begin in calls and (begin == "bmm-" or "bmm-" not in calls)


@pytest.mark.parametrize(
    ("n", "told", "by"), [(2, "shadowed", "deterministic"), (3, "not offered that choice", "only")]
)
def test_a_pin_that_cannot_hold_is_told(pinned: Pinned, n: int, told: str, by: str) -> None:
    (line,) = pinned.told(n)
    assert told in line and pinned.pin.id in line and "the slower one" in line
    assert _by(pinned, n) == by


def test_pins_of_another_system_and_broken_files_do_not_count(pinned: Pinned) -> None:
    """The file is read again when it changed."""
    assert pinned.told(4) == [] and _by(pinned, 4) == "timing"
    line, *_ = pinned.told(5)  # behind it the closing lines of the run
    assert "pins are not honoured" in line and _by(pinned, 5) == "cache"


def _by(pinned: Pinned, n: int) -> str:
    (selected,) = (e for e in pinned.tunings[n - 1][1] if isinstance(e, ChoiceSelected))
    return selected.by
