"""Kernels that are measured in the program that tunes them: `run --measure-kernels`.

Inductor's own tuner runs, with Triton's compiler for gfx942; the GPU is made up: a launch is as
long on this CPU as its config says, and writes what a test can look at.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.inductor.hooks.environment import MEASURE
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.render.detail import show_text
from rocm_tui.session.model import Model, Row
from rocm_tui.session.refusals import why_not_measured
from tests.support import autotuned
from tests.support.hooked import launch
from tests.support.places import ROOT
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "inductor_kernels_program.py"
POINTWISE = "triton_poi_fused_add_relu_1"


@dataclass(frozen=True)
class Ran:
    rows: dict[str, Row]
    launched: Counter[str]
    benched: Counter[str]
    said: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    cache = tmp_path_factory.mktemp("measured") / "cache"
    command = [triton_python(), "-W", "ignore", str(PROGRAM), "max_autotune_pointwise=true"]
    command.append(f"compute={POINTWISE}:XBLOCK=1024")
    env = {"PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1", MEASURE: "1"}
    done = launch(command, cache, "--quiet", env={**env, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    model = Model()
    model.apply(read_sources([str(cache)]))
    return Ran(
        {row.tuning.op: row for row in model.rows()},
        Counter(kernel for kernel, _ in told["launched"]),
        Counter(kernel for kernel, _ in told["benched"]),
        [line for line in done.stderr.splitlines() if line.startswith("rocm-tui: ")],
    )


def test_the_fastest_config_is_found_again_with_the_programs_arguments(ran: Ran) -> None:
    assert set(ran.rows) >= {"pointwise", "persistent_reduction", "user_autotune"}
    for row in ran.rows.values():
        measured, timed = row.tuning.measured, row.tuning.choices
        assert measured is not None, (row.tuning.op, ran.said)
        by_hash = {choice.hash: choice.ms or 0.0 for choice in timed}
        best, *rivals = measured.choices
        assert rivals and not measured.failed
        # On a machine that is busy with other work it may be unclear, but not wrong.
        for rival in rivals:
            if rival.verdict == "slower":
                assert by_hash[rival.hash] > by_hash[best.hash] and rival.ratio > 1.1
        if best.verdict == "faster":
            assert by_hash[best.hash] == min(by_hash.values())
        assert measured.session == row.tuning.session and measured.caches == "hot"


def test_what_another_config_computes_is_told_by_its_letter(ran: Ran) -> None:
    tuning = ran.rows["pointwise"].tuning
    assert tuning.measured is not None
    blocks = {choice.hash: choice.config["XBLOCK"] for choice in tuning.choices}
    letters = {}
    for one in tuning.measured.choices:
        assert one.output is not None and one.output.steady
        letters[blocks[one.hash]] = one.output.group
    assert len(set(letters.values())) == len(letters) == 2
    assert any("of the largest number" in sentence for sentence in tuning.measured.trouble)
    other = ran.rows["user_autotune"].tuning.measured
    assert other is not None and not [s for s in other.trouble if "differs" in s]


def test_nothing_of_the_programs_is_written(ran: Ran) -> None:
    """Inductor times each config once, and the program launches each kernel twice."""
    assert all(count == 2 for count in ran.launched.values())
    assert len(ran.said) == 3  # the end of `run`
    assert sum(ran.benched.values()) == sum(
        choice.ms is not None for row in ran.rows.values() for choice in row.tuning.choices
    )


def test_a_kernel_of_triton_is_measured_with_what_its_tuner_restores(tmp_path: Path) -> None:
    """Its times are kept, so that it is not tuned: the command that `measure` prints measures it,
    in the row of the kept times."""
    cache, kept = tmp_path / "cache", tmp_path / "triton"
    autotuned.run(kept, 1024)
    tuning = _only_row(kept).tuning
    (printed,) = re.findall("`(.*?)`", why_not_measured(tuning, tuning.choices) or "")
    command = shlex.join(autotuned.argv(1024))
    words = printed.replace("NEW", str(tmp_path / "new")).replace("CMD", command)
    words = words.replace("rocm-tui run", f"{sys.executable} -m rocm_tui run --quiet")
    words = words.replace("--measure-kernels", "--measure-kernels 1")
    made_up = autotuned.environment(kept, REAL="1", TORCHINDUCTOR_CACHE_DIR=str(cache))
    done = subprocess.run(words, shell=True, env=made_up, capture_output=True, text=True)
    assert "1 Triton kernel measured in the program" in done.stderr, words
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["benched"] == [32, 64, 128] and told["launched"] == [{"block": 64, "warps": 2}]
    # The tensor is doubled by the program's launch alone.
    # Hot calls follow each other in one memory of ours, which begins with what stood there.
    assert told["found"][0] == 3.0 and told["left"] == 6.0
    row = _only_row(cache, kept)
    assert row.tuning.key == tuning.key and str(autotuned.files(kept)[0]) in row.tuning.sources
    measured = row.tuning.measured
    assert measured is not None, done.stderr
    assert {one.name for one in measured.choices} == {"BLOCK=64 w2 s3", "BLOCK=128 w4 s3"}
    assert measured.choices[0].verdict in ("faster", "unclear") and not measured.failed
    if measured.choices[0].verdict == "faster":
        assert "Triton takes BLOCK=64 w2 s3, which is right" in show_text(row)
    assert {one.output and one.output.group for one in measured.choices} == {"A"}


def _only_row(*sources: Path) -> Row:
    model = Model()
    model.apply(read_sources([str(source) for source in sources]))
    (row,) = model.rows()
    return row
