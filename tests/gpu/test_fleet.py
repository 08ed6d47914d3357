"""The GPUs of this machine as a fleet: each of them tunes, into one cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout

SHAPES = ("512x512 512x512", "512x1024 1024x512", "1024x512 512x1024", "256x2048 2048x256")


def rocm_tui(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def on_fleet(root: Path, word: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        rocm_tui(root, "tune", "--all", "--fleet", word, "--json").stdout
    )
    return document


def test_all_gpus_tune_into_one_cache(tmp_path: Path) -> None:
    for shapes in SHAPES:
        rocm_tui(tmp_path, "tune", "mm", *shapes.split(), "--dtype", "bf16")
    [before], _ = read_caches(Layout(tmp_path))
    document = on_fleet(tmp_path, "local")
    assert document["merged"] == len(SHAPES)
    [after], _ = read_caches(Layout(tmp_path))
    assert {k: set(t) for k, t in after.entries.items()} == {
        k: set(t) for k, t in before.entries.items()
    }
    gpus = len(document["agents"])
    assert gpus > len(SHAPES) or all(agent["done"] for agent in document["agents"])
    for agent in document["agents"]:
        facts = agent["facts"]
        assert facts["arch"] and facts["compute_units"] and facts["bus"] and facts["system_hash"]
        assert facts["driver"]
