"""A worker's job that names the choices of another device finds those that PyTorch offers on its
own. The GPUs are made up; PyTorch and Triton are real."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT
from tests.support.torch_models import child_env
from tests.support.triton_lab import triton_python


@pytest.mark.parametrize("kind", ["hip", "cuda"])
def test_jobs_find_the_choices_of_another_device(tmp_path: Path, kind: str) -> None:
    answers = _answers(kind, tmp_path, 1, 0)
    triton = [answer for answer in answers if answer["asked"].startswith("triton_")]
    assert len(triton) > 2
    for answer in answers:
        assert answer["job"] in answer["offered"]
        assert answer["answer"] == answer["asked"]
        assert answer["verified"] == [True, answer["asked"], ""]
    assert all(answer["asked"] not in answer["offered"] for answer in triton)


def _answers(kind: str, cache: Path, asked: int, own: int) -> list[dict[str, Any]]:
    words = ["-m", "tests.support.device_job_program", kind, str(asked), str(own)]
    done = subprocess.run(
        [triton_python(), "-W", "ignore", *words],
        cwd=ROOT,
        env=child_env(cache),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
