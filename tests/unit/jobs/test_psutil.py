"""What a library knows of processes is asked of it, where that library may be."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import backend
import rocm_tui
from backend.processes import tree
from rocm_tui.jobs.limits import memory_of_machine, proportional

PYPROJECT = Path(str(rocm_tui.__file__)).parents[1] / "pyproject.toml"


def _sources(package: str | None) -> list[Path]:
    sources = list(Path(str(package)).parent.rglob("*.py"))
    assert len(sources) > 100
    return sources


def test_psutil_is_installed_with_us_and_the_backend_does_without() -> None:
    dependencies = PYPROJECT.read_text().partition("dependencies = [")[2].partition("]")[0]
    assert '"psutil' in dependencies
    for path in _sources(backend.__file__):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            assert "psutil" not in [*names, getattr(node, "module", None)], path


def test_no_process_is_read_by_hand_beside_it() -> None:
    """Of other processes than ours, that is."""
    for path in _sources(rocm_tui.__file__):
        read = re.findall(r"/proc/(?:\{|\"|%)", path.read_text())
        assert not read, path


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_the_end_of_a_process_is_that_of_all_below_it() -> None:
    """Also of what has a session of its own; its exit code is kept for who waits, where asked."""
    for bury in (True, False):
        program = "sleep 600 & setsid sleep 600 & wait"
        process = subprocess.Popen(["sh", "-c", program], start_new_session=True)
        while len(below := tree.below(process.pid)) < 2 or not all(p.resident for p in below):
            time.sleep(0.05)
        pids = {process.pid, *(started.pid for started in below)}
        assert proportional(below) > 0
        assert tree.end(process.pid, bury=bury) == pids
        while any(tree.read(pid) is not None for pid in pids):  # killed, and not yet gone
            time.sleep(0.01)
        assert proportional(below) == 0, "they have ended"
        assert process.wait() == (0 if bury else -9)
    assert memory_of_machine() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
