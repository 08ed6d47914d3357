"""What a session records of real tunings, and that pins are honoured before any of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.events import ChoiceSelected, ChoiceTimed, Event, SessionEnded, SessionStarted
from tests.support.hooked import by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

MODEL = """
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.bmm(a, b) + 1)(a, b)
torch.manual_seed(0)
linear = torch.nn.Linear(96, 64).eval()
with torch.no_grad(), config.patch(freezing=True):
    torch.compile(linear)(torch.randn(32, 96))
print("done")
"""


@dataclass(frozen=True)
class Runs:
    cache: Path
    first: list[Event]
    second: list[Event]
    stderr: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The model twice, the second time without its compiled graphs, and with a mode."""
    cache = tmp_path_factory.mktemp("runs") / "cache"
    cache.mkdir()
    first = launch_program(MODEL, cache, env={"RANK": "3"})
    for folder in (Layout(cache).fxgraph, Layout(cache).aotautograd):
        shutil.rmtree(folder, ignore_errors=True)
    launch_program(MODEL, cache, env={"TORCHINDUCTOR_INCREMENTAL_AUTOTUNE": "1"})
    one, two = sessions(cache)
    assert first.stdout == "done\n"
    return Runs(cache, one, two, first.stderr)


def test_session_says_where_it_ran(runs: Runs) -> None:
    early, header = (event for event in runs.first if isinstance(event, SessionStarted))
    assert early is runs.first[0]
    session = header.session
    assert (early.session.id, early.session.torch) == (session.id, session.torch)
    assert (session.rank, session.device, session.cache_dir) == (3, "cpu", str(runs.cache))
    assert session.torch.startswith("2.") and session.arch and session.pid > 0 and session.host
    assert session.argv[-1].endswith("program.py")
    assert (Layout(runs.cache).autotune / str(session.system_hash)).is_file()
    assert isinstance(runs.first[-1], SessionEnded)


def test_modes_of_autotuning_are_recorded(runs: Runs) -> None:
    first, second = (
        [event.session.modes for event in events if isinstance(event, SessionStarted)]
        for events in (runs.first, runs.second)
    )
    assert (first, second) == ([None, ()], [None, ("incremental",)])


def test_each_choice_is_timed_and_the_fastest_selected(runs: Runs) -> None:
    tunings = by_tuning(runs.first)
    assert [start.op for start, _ in tunings] == ["bmm", "packed_linear"]
    (cached,) = [path for path in Layout(runs.cache).autotune.iterdir() if path.is_file()]
    document = json.loads(cached.read_text())["cache"]
    for start, events in tunings:
        timed = {e.hash: e.ms for e in events if isinstance(e, ChoiceTimed)}
        assert timed == document[start.op][start.inputs][start.precision]  # the same doubles
        assert list(timed) == [choice.hash for choice in start.choices]
        assert start.shapes and len(start.shapes) == len(start.strides) == len(start.dtypes)
        selected = events[-1]
        assert isinstance(selected, ChoiceSelected)
        assert selected.by == "timing" and selected.hash == min(timed, key=timed.__getitem__)
        assert selected.benchmark_seconds is not None and selected.benchmark_seconds > 0


def test_a_cache_hit_is_told(runs: Runs) -> None:
    assert by_tuning(runs.first)
    for (start, events), (_, before) in zip(
        by_tuning(runs.second), by_tuning(runs.first), strict=True
    ):
        (selected,) = events
        assert isinstance(selected, ChoiceSelected) and isinstance(before[-1], ChoiceSelected)
        assert (selected.by, selected.hash) == ("cache", before[-1].hash), start.op
        assert selected.benchmark_seconds is None


def test_stderr_is_kept_byte_for_byte(runs: Runs) -> None:
    kept = sorted(Layout(runs.cache).sessions.glob("*.stderr.log"))
    header = runs.first[0]
    assert isinstance(header, SessionStarted)
    (own,) = [
        path for path in kept if header.session.id.startswith(path.name[: -len(".stderr.log")])
    ]
    assert own.read_text() == runs.stderr
    assert runs.stderr.count("AUTOTUNE bmm(") == 1
