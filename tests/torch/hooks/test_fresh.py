"""Programs that turn caches off, or work in temporary ones: their sessions and pins are still those
of the cache dir in which the person looks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from backend.model.events import ChoiceSelected, Event, SessionEnded, SessionStarted, TuningStarted
from tests.support.hooked import by_tuning, launch_program, sessions

PROGRAM = """
import os, pathlib, torch, torch._inductor.config as config
from torch._inductor.utils import fresh_cache
config.max_autotune = True
# Each n is another tuning; one choice needs no compiler.
def bmm(n, backends="ATEN", dynamic=False):
    torch._dynamo.reset()
    a, b = torch.randn(4, 16 + n, 64), torch.randn(4, 64, 96)
    with config.patch(max_autotune_gemm_backends=backends):
        got = torch.compile(torch.bmm, dynamic=dynamic)(a, b)
    assert torch.allclose(got, torch.bmm(a, b), atol=1e-4)
def here():
    return pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
home = here()
with fresh_cache():
    bmm(0)
    bmm(1)
    temporary = here()
    print("temporary", temporary != home, sorted(p.name for p in temporary.glob("rocm_tui/*")))
print("removed", not temporary.exists())
bmm(2)
with fresh_cache():
    with fresh_cache():
        bmm(3)
    bmm(4)
with config.patch(force_disable_caches=True):
    bmm(5)

import torch._inductor.select_algorithm as select
from backend.inductor.torch import tuning as torch_api
from backend.model.problem import TuningKey
from backend.disk.layout import Layout
from backend.pins.store import PinStore
tuned = []
def timed(timings, name, nodes, *rest):
    inputs = repr([select.AlgorithmSelectorCache.key_of(node) for node in nodes])
    key = TuningKey(name, inputs + torch_api.key_suffix("cpu"), torch_api.precision())
    tuned.append((key, {choice.hash_key() for choice in timings}))
select.add_feedback_saver(timed)
bmm(6, "ATEN,CPP")
(key, hashes), = tuned
print("choices", len(hashes))
aten, = (name for name in hashes if name.startswith("bmm-"))
PinStore(Layout(home)).pin(None, key, aten, label="aten")
with fresh_cache():
    bmm(6, "ATEN,CPP")
with config.patch(force_disable_caches=True):
    bmm(6, "ATEN,CPP")
bmm(6, "ATEN,CPP", dynamic=True)
print("tunings", len(tuned))
"""


@dataclass(frozen=True)
class Ran:
    stdout: list[str]
    stderr: str
    events: list[Event]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    cache = tmp_path_factory.mktemp("fresh") / "cache"
    done = launch_program(PROGRAM, cache, "--quiet")
    (events,) = sessions(cache)
    return Ran(done.stdout.splitlines(), done.stderr, events)


@pytest.mark.torch
def test_all_tunings_are_recorded_where_the_person_looks(ran: Ran) -> None:
    """Those before, in and after a temporary cache dir, and those without any cache."""
    starts = [event for event in ran.events if isinstance(event, TuningStarted)]
    assert [start.shapes[0][1] - 16 for start in starts] == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]
    assert isinstance(ran.events[0], SessionStarted) and isinstance(ran.events[-1], SessionEnded)
    assert f"10 tunings recorded in {ran.events[0].session.cache_dir}" in ran.stderr


@pytest.mark.torch
def test_the_temporary_folder_is_as_without_us(ran: Ran) -> None:
    assert ran.stdout[:2] == ["temporary True []", "removed True"]


@pytest.mark.torch
def test_pins_are_obeyed_in_temporary_cache_dirs_and_without_caches(ran: Ran) -> None:
    """And where sizes are dynamic."""
    assert ran.stdout[2:] == ["choices 2", "tunings 1"]  # only the first of the four was timed
    last = by_tuning(ran.events)[-4:]
    chosen = [e for _, events in last for e in events if isinstance(e, ChoiceSelected)]
    assert [event.by for event in chosen] == ["timing", "pin", "pin", "pin"]
    assert all(event.hash.startswith("bmm-") for event in chosen[1:])
    ours = [line for line in ran.stderr.splitlines() if line.startswith("rocm-tui: ")]
    assert len(ours) == 3 and ours[1] == "rocm-tui: worth a look: whether the pins are used"
