"""A fleet of this machine's CPU with real workers, and Ray with real ones: what gets into the cache
is what one worker puts there, but for the times."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from tests.support.documents import document

WORDS = ("mm", "32x32", "32x32", "--dtype", "f32", "--templates")


def rocm_tui(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def kept(root: Path) -> Mapping[TuningKey, Mapping[str, float]]:
    [file], problems = read_caches(Layout(root))
    assert problems == [] and file.system["hash"] == file.system_hash
    return file.entries


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache dir with one tuning, of few choices: each is compiled."""
    root = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "4")
        done = rocm_tui(root, "tune", *WORDS)
        assert done.returncode == 0, done.stderr
        if len(next(iter(kept(root).values()))) < 4:
            pytest.skip("nothing compiles our kernels here")
        yield root


@pytest.mark.parametrize("word", ["local:cpu:2", "ray"])
def test_the_file_is_that_of_one_worker_but_for_the_times(
    tuned: Path, tmp_path: Path, word: str
) -> None:
    """The fleet tunes what the cache has: it is tuned anew, and has the same choices."""
    if word == "ray":
        pytest.importorskip("ray")
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    alone = kept(tmp_path)
    done = rocm_tui(tmp_path, "tune", "--all", "--fleet", word, "--json")
    assert done.returncode == 0, done.stderr
    outcome = document(done.stdout, "tune-fleet")
    assert (outcome["units"], outcome["merged"], outcome["left"]) == (1, 1, 0)
    fleet = kept(tmp_path)
    assert {key: set(times) for key, times in fleet.items()} == {
        k: set(t) for k, t in alone.items()
    }
    for key, times in fleet.items():
        assert len(times) > 1 and all(ms != alone[key][hash] for hash, ms in times.items())
    listed = document(rocm_tui(tmp_path, "ls", "--json").stdout, "ls")["tunings"]
    assert len(listed) > 1 and len({(row["id"], row["in_use"]) for row in listed}) == 1
    again = rocm_tui(tmp_path, "tune", "--all", "--missing", "--fleet", word)
    assert again.returncode == 0 and kept(tmp_path) == fleet
    assert again.stdout == "0 problems of 1 tuned and in the cache, 1 left out\n"


def test_what_has_one_choice_is_said_to_have_one_and_is_no_failure(tmp_path: Path) -> None:
    """A CPU has nothing to choose from for a plain product."""
    words = (*WORDS[:-1], "--no-templates")
    done = rocm_tui(tmp_path, "tune", *words, "--fleet", "local:cpu")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout == "0 problems of 1 tuned and in the cache, 1 has one choice: nothing to tune\n"
    )
    assert "was not tuned" not in done.stderr
    alone = rocm_tui(tmp_path, "tune", *words, "--json")
    assert alone.returncode == 0, alone.stderr
    told = document(alone.stdout, "tune")
    assert told["failed"] == told["tunings"] == []
    assert [one["reason"] for one in told["single"]] == [
        "there is nothing to choose from: Inductor offers mm"
    ]
    assert "has one choice" in alone.stderr
