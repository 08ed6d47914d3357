"""Which job a process is a rank of, told by environments and by who started whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.ranks import job
from backend.ranks.job import AGREE, FOLDER, JobMember, MeetingFolder


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, JobMember(1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "0"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({}, None),
    ],
)
def test_a_rank_knows_its_place(env: dict[str, str], place: JobMember | None) -> None:
    assert job.job_member(env) == place


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0), ("0", 0), ("12.5", 12.5), ("-1", 0), ("nan", 0), ("x", 0)]
)
def test_the_limit(text: str, seconds: float) -> None:
    assert job.limit({AGREE: text}) == seconds


@pytest.mark.parametrize(
    ("env", "here"),
    [
        ({"LOCAL_WORLD_SIZE": "4"}, True),
        ({"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, False),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, True),
        ({"SLURM_NNODES": "2", "MASTER_ADDR": "127.0.0.1"}, False),
        ({"MASTER_ADDR": "127.0.0.1"}, True),
        ({"MASTER_ADDR": "node1"}, False),
        ({}, False),
    ],
)
def test_whether_all_ranks_are_here(env: dict[str, str], here: bool) -> None:
    assert job.one_host(4, env) is here
    found = job.meeting(4, Layout(Path("/cache")), env)
    assert isinstance(found, MeetingFolder) is here
    if not here:
        assert found == ""  # the store of the job is left


def test_a_folder_that_is_named_is_for_all_hosts(tmp_path: Path) -> None:
    found = job.meeting(4, Layout(Path("/cache")), {FOLDER: str(tmp_path)})
    assert found == MeetingFolder(tmp_path, tmp_path)


ASK = "from backend.ranks import job; print(job.launcher())"
RANKS = f"""
import json, os, subprocess, sys
from backend.processes.tree import identity
ask = [sys.executable, "-c", {ASK!r}]
def rank(number, *command):
    env = {{**os.environ, **{{name: "x" for name in sys.argv[1:]}}}}
    env |= {{"RANK": str(number), "WORLD_SIZE": "3"}}
    return subprocess.run([*command, *ask], env=env, capture_output=True, text=True).stdout.strip()
shell = ["sh", "-c", '"$@"; true', "sh"]
nested = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]
print(json.dumps([identity(os.getpid()), rank(0), rank(1, *shell), rank(2, *nested)]))
"""


@pytest.mark.parametrize(
    ("slurm", "more"),
    [({}, []), ({"SLURM_PROCID": "0"}, ["TORCHELASTIC_RUN_ID"])],
    ids=["plain", "slurm"],
)
def test_ranks_of_one_launcher_meet_whatever_stands_between(
    slurm: dict[str, str], more: list[str]
) -> None:
    """A shell, or `rocm-tui run`, in each rank; torchrun in an allocation of SLURM, where the shell
    and torchrun have a rank of their own."""
    command = [sys.executable, "-c", RANKS, *more]
    env = {**os.environ, **slurm}
    done = [subprocess.run(command, capture_output=True, check=True, env=env) for _ in range(2)]
    first, second = (json.loads(one.stdout) for one in done)
    assert first[0] and len(set(first)) == 1 and len(set(second)) == 1
    assert first[0] != second[0]  # the next start is another job
