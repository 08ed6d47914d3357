"""What failed for no fault of its own is tried again by the next process; a kernel's own fault is
kept beside the times of its rivals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.model.events import ChoiceFailed, ChoiceSelected, ChoiceTimed
from tests.support.rocm_programs import last_session, run

pytestmark = pytest.mark.torch

BUSY = r"""
import copy, dataclasses
from torch._inductor import select_algorithm
from torch._functorch import config as functorch
config.fx_graph_cache = functorch.enable_autograd_cache = False

HEADERS = "#include <rocm_tui/gpu.h>\n#include <signal.h>\n#include <unistd.h>\n"
BODIES = {
    "endless": "for (;;) pause();",
    "killed": "kill(getpid(), SIGKILL);",
    "starved": "return 2;",
    "wrong": "return 0;",
}

def busy(choice, body):
    "Its source, which does this first when it is called while there is the file FLAG."
    source, asks = choice.bmreq.spec.source, "if (workspace_size != nullptr) {"
    assert source.count(asks) == 1
    first = f'if (!workspace_size && access("{os.environ["FLAG"]}", F_OK) == 0) {{ {body} }}'
    return HEADERS + source.replace(asks, f"{first}\n  {asks}")

def plant(choices):
    ours = next(choice for choice in choices if choice.name.startswith("rocm_gemm"))
    twins = []
    for name, body in BODIES.items():
        twin = copy.copy(ours)
        twin.name, twin.bmreq = f"rocm_{name}", copy.copy(ours.bmreq)
        twin.bmreq.spec = dataclasses.replace(ours.bmreq.spec, source=busy(ours, body))
        twins.append(twin)
    return [*choices, *twins]

select_algorithm.add_preprocessing_fn(plant)
a, b = torch.randn(2, 20, 32), torch.randn(2, 32, 24)
agree("first", torch.bmm, a, b)
agree("again", torch.bmm, a, b)
"""

FAILED = {
    "rocm_endless": "no result within 5 s",
    "rocm_killed": "died of SIGKILL",
    "rocm_starved": "returned error 2",
    "rocm_wrong": "elements are NaN",
}


class Tuning(NamedTuple):
    """What became of the choices of one tuning, by name."""

    failed: dict[str, str]
    timed: set[str]
    by: str


def tunings(cache: Path) -> Iterator[Tuning]:
    """Of the last process."""
    for start, events in last_session(cache):
        names = {choice.hash: str(choice.name) for choice in start.choices}
        (selected,) = [event for event in events if isinstance(event, ChoiceSelected)]
        yield Tuning(
            {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)},
            {names[e.hash] for e in events if isinstance(e, ChoiceTimed)},
            str(selected.by),
        )


def kept(cache: Path) -> dict[str, float]:
    """The times of the one tuning in the persistent cache."""
    (path,) = (cache / "cache").glob("[!.]*")
    (by_inputs,) = json.loads(path.read_bytes())["cache"].values()
    (by_precision,) = by_inputs.values()
    (times,) = by_precision.values()
    assert isinstance(times, dict)
    return times


def test_only_its_own_fault_is_kept(tmp_path: Path) -> None:
    cache, flag = tmp_path / "cache", tmp_path / "busy"
    env = {"ROCM_TUI_BENCHMARK_SECONDS": "5", "FLAG": str(flag)}
    flag.touch()
    ran = run(BUSY, cache, env, code=False)
    assert ran.agreed == ["first", "again"]
    first, again = tunings(cache)
    assert first.failed.keys() == FAILED.keys()
    for name, reason in FAILED.items():
        assert reason in first.failed[name], first.failed
    assert first.by == "timing" and again == Tuning({}, set(), "cache")
    times = kept(cache)
    assert [ms for ms in times.values() if ms == float("inf")] == [float("inf")]
    assert len(times) == 3  # bmm, ours, and the one that is wrong

    flag.unlink()
    run(BUSY, cache, env, code=False)
    first, again = tunings(cache)
    assert first.failed == {} and first.timed >= FAILED.keys()
    assert again.by == "cache" and len(kept(cache)) == 6
