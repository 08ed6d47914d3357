"""What torch.profiler writes on this machine: a cold process and a warm one, inference and
training; with the cache dir their kernels are told to be tunings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.session import Fault
from rocm_tui.actions.sources import known_graphs, load_model
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.records import GraphSeen

pytestmark = pytest.mark.torch

PROGRAM = """
import sys, torch, torch._inductor.config as config
from torch.profiler import ProfilerActivity, profile
config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN,CPP"
def f(a, b, c):
    return torch.bmm(torch.relu(torch.bmm(a, b)), c)
compiled = torch.compile(f)
def traced(name, step):
    if name != "whole":
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(5):
            step()
    profiler.export_chrome_trace(f"{sys.argv[1]}-{name}.json")
def inputs(grad):
    shapes = ((4, 16, 48), (4, 48, 32), (4, 32, 64))
    return [torch.randn(*shape, requires_grad=grad) for shape in shapes]
plain, learnt = inputs(False), inputs(True)
traced("whole", lambda: compiled(*plain))
traced("inference", lambda: compiled(*plain))
traced("training", lambda: compiled(*learnt).sum().backward())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    env = dict(
        os.environ,
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache_dir"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    for name in ("cold", "warm"):
        words = [sys.executable, "-c", PROGRAM, str(folder / name)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("process", ["cold", "warm"])
@pytest.mark.parametrize("part", ["whole", "inference", "training"])
def test_graphs(folder: Path, process: str, part: str) -> None:
    records = read_sources([str(folder / f"{process}-{part}.json")])
    assert not [record for record in records if isinstance(record, Fault)]
    graphs = [record for record in records if isinstance(record, GraphSeen)]
    kinds = [seen.graph.kind for seen in graphs]
    assert kinds == (["forward", "backward"] if part == "training" else ["inference"])
    for seen in graphs:
        assert seen.times is not None and seen.times.calls == 5 and seen.times.by == "host"
        assert seen.times.ms and 0 < seen.times.timed <= 5
        assert sum(kernel.ms for kernel in seen.kernels) <= seen.times.ms
        assert seen.graph.key is not None and seen.graph.key.startswith("f")


def test_a_cold_process_and_a_warm_one_have_the_same_graphs(folder: Path) -> None:
    keys = [
        [
            record.graph.key
            for record in read_sources([str(folder / f"{process}-{part}.json")])
            if isinstance(record, GraphSeen)
        ]
        for part in ("inference", "training")
        for process in ("cold", "warm")
    ]
    assert keys[0] == keys[1] and keys[2] == keys[3]


@pytest.mark.parametrize("part", ["inference", "training"])
def test_tunings(folder: Path, part: str) -> None:
    """The text of the graph below the cache dir tells which tunings it holds; those that ATen won
    are seen at work."""
    layout, trace = Layout(folder / "cache_dir"), str(folder / f"warm-{part}.json")
    rows = {row.tuning.key: row for row in load_model(layout, [trace]).rows()}
    (forward,) = [g for g in known_graphs(layout, [trace]) if g.graph.kind != "backward"]
    assert len(forward.tunings) == 2
    for key, tuning in forward.tunings.items():
        row = rows[key]
        assert tuning.use.count == 1 and row.share is not None and row.share.calls == 5
        assert row.share.program == f"warm-{part}.json"
        fastest = row.tuning.choices[0]
        assert tuning.use.hash == fastest.hash
        if (fastest.hash or "").startswith("bmm"):
            assert tuning.basis == "seen" and tuning.share is not None and 0 < tuning.share < 1
        else:
            assert tuning.basis in ("once", "at most")
