"""What PyTorch really writes on this machine: five sources of one run must agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.records import Seen
from tests.recount import recount

pytestmark = pytest.mark.torch

PROGRAM = """
import torch, torch._inductor.config as config
config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN,CPP"
torch.compile(torch.bmm)(torch.randn(8, 128, 256), torch.randn(8, 256, 192))
"""


@dataclass(frozen=True)
class Run:
    folder: Path

    def tunings(self, *names: str) -> list[Tuning]:
        paths = [str(self.folder / name) for name in names]
        records = read_sources(paths)
        assert not [record for record in records if isinstance(record, Fault)]
        last = {record.uid: record.tuning for record in records if isinstance(record, Seen)}
        return list(last.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("real")
    (folder / "trace").mkdir()
    env = dict(
        os.environ,
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache_dir"),
        TORCHINDUCTOR_MM_LOGGING_FILE=str(folder / "mm"),
        TORCH_TRACE=str(folder / "trace"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    with (folder / "stderr.log").open("wb") as log:
        subprocess.run([sys.executable, "-c", PROGRAM], env=env, stderr=log, check=True)
    return Run(folder)


def test_every_source_tells_of_the_same_tuning(run: Run) -> None:
    (log,) = run.tunings("stderr.log")
    (cached,) = run.tunings("cache_dir")
    (traced,) = run.tunings("trace")
    for tuning in (log, cached, traced):
        assert (tuning.op, tuning.state, tuning.num_choices) == ("bmm", "done", 2)
        assert tuning.shapes == ((8, 128, 256), (8, 256, 192))
        assert tuning.strides == ((32768, 256, 1), (49152, 192, 1))
        assert tuning.dtypes == ("torch.float32", "torch.float32")
    assert (cached.device, cached.precision) == ("cpu", "highest")
    assert log.seconds.benchmark and traced.seconds.benchmark
    # The log's time includes reading and writing the cache.
    assert 0 < log.seconds.benchmark - traced.seconds.benchmark < 5


def test_another_way_to_count_agrees(run: Run, tmp_path: Path) -> None:
    """Also of a run that took twice as long, and one with another winner."""
    text = (run.folder / "stderr.log").read_text()
    slower = re.sub(r"(\d+\.\d+) ms", lambda ms: f"{float(ms[1]) * 2:.4f} ms", text)
    names = {"bmm": "cpp_CppMicroGemmFP32Vec_0", "cpp_CppMicroGemmFP32Vec_0": "bmm"}
    other = re.sub(r"(?m)^  (\w+) (?=\S+ ms)", lambda row: f"  {names.get(row[1], row[1])} ", text)
    for name, content in {"a.log": text, "b.log": slower, "c.log": other}.items():
        (tmp_path / name).write_text(content)
    for cache in (run.folder / "cache_dir" / "cache").iterdir():
        (tmp_path / cache.name).write_bytes(cache.read_bytes())
    counts, faults = recount(tmp_path)
    assert (counts["logs"], counts["pairs"], counts["caches"]) == (3, 6, 1) and faults == []


def test_times_are_the_same_doubles_or_rounded(run: Run) -> None:
    (log,) = run.tunings("stderr.log")
    (cached,) = run.tunings("cache_dir")
    (mm,) = run.tunings("mm.json")
    (traced,) = run.tunings("trace")
    exact = [choice.ms for choice in cached.choices]
    assert [choice.ms for choice in log.choices] == [round(ms, 4) for ms in exact if ms is not None]
    assert {choice.ms for choice in mm.choices} <= set(exact)
    assert traced.choices[0].ms == exact[0]
    assert traced.choices[0].name == log.choices[0].name
    assert (mm.op, mm.dims, mm.num_choices) == ("bmm", (8, 128, 192), 2)
