"""What had ended before a worker was killed is reaped with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from backend.processes import tree

CHILD = """
import os, time
if os.fork() == 0:
    os._exit(0)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # it stays a zombie
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def adopting() -> Iterator[None]:
    tree.adopt()
    yield
    tree.adopt(False)


@pytest.mark.usefixtures("adopting")
def test_a_zombie_of_a_killed_process_does_not_stay() -> None:
    before = psutil.Process().children(recursive=True)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        (zombie,) = psutil.Process(process.pid).children()
        assert zombie.status() == psutil.STATUS_ZOMBIE
        assert tree.end(process.pid, bury=False) == {process.pid, zombie.pid}
    assert process.returncode == -9
    assert psutil.Process().children(recursive=True) == before
