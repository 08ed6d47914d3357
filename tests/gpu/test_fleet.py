"""A fleet of this machine's GPUs: facts of each device, one cache that all their times get into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from rocm_tui.fleet import lines
from rocm_tui.fleet.record import Reader, record_path

SHAPES = ("512x512 512x512", "512x1024 1024x512", "1024x512 512x1024", "256x2048 2048x256")


def rocm_tui(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def test_all_gpus_tune_into_one_cache(tmp_path: Path) -> None:
    for shapes in SHAPES:
        done = rocm_tui(tmp_path, "tune", "mm", *shapes.split(), "--dtype", "bf16")
        assert done.returncode == 0, done.stderr
    [before], _ = read_caches(Layout(tmp_path))
    done = rocm_tui(tmp_path, "tune", "--all", "--fleet", "local", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["merged"] == len(SHAPES)
    [after], _ = read_caches(Layout(tmp_path))
    assert {k: set(t) for k, t in after.entries.items()} == {
        k: set(t) for k, t in before.entries.items()
    }
    for _, line in Reader(record_path(Layout(tmp_path), document["run"])).news():
        if isinstance(line, lines.Done):
            facts = line.done.facts
            assert facts.arch and facts.compute_units and facts.bus and facts.system_hash
            assert facts.driver and (facts.clock or 0) > 0
