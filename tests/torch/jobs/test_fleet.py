"""A fleet of this machine's CPU with real workers: what gets into the cache is what one worker puts
there, but for the times; and a run that is over has nothing left to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.wire.jobs import TuneJob
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import splitting
from rocm_tui.fleet.messages import Unit
from rocm_tui.fleet.places import fleet_folder

WORDS = ("mm", "32x32", "32x32", "--dtype", "f32", "--templates")


def rocm_tui(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def kept(root: Path) -> Mapping[TuningKey, Mapping[str, float]]:
    [file], problems = read_caches(Layout(root))
    assert problems == [] and file.system["hash"] == file.system_hash
    return file.entries


def hashes(entries: Mapping[TuningKey, Mapping[str, float]]) -> dict[TuningKey, set[str]]:
    return {key: set(times) for key, times in entries.items()}


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


def test_the_file_is_that_of_one_worker_but_for_the_times(tuned: Path, tmp_path: Path) -> None:
    """The fleet tunes what the cache has: it is tuned anew, and has the same choices."""
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    alone = kept(tmp_path)
    done = rocm_tui(tmp_path, "tune", "--all", "--fleet", "local:cpu", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["units"], document["merged"], document["left"]) == (1, 1, 0)
    fleet = kept(tmp_path)
    assert {key: set(times) for key, times in fleet.items()} == {
        k: set(t) for k, t in alone.items()
    }
    for key, times in fleet.items():
        assert len(times) > 1 and all(ms != alone[key][hash] for hash, ms in times.items())
    left = [path.name for path in fleet_folder(Layout(tmp_path)).iterdir()]
    assert left == [f"{document['run']}.jsonl"]  # the agent's cache dir has gone with it
    again = rocm_tui(tmp_path, "tune", "--resume")
    assert again.returncode == 0 and "1 of them tuned already" in again.stderr


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
    told = json.loads(alone.stdout)
    assert told["failed"] == told["tunings"] == []
    assert [one["reason"] for one in told["single"]] == [
        "there is nothing to choose from: Inductor offers mm"
    ]
    assert "has one choice" in alone.stderr


def test_the_entry_of_a_problem_in_heats_has_all_choices(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the best of each heat gets into the final, so that some times are those of heats."""
    [(key, known)] = kept(tuned).items()
    monkeypatch.setattr(splitting, "KEPT", 1)
    monkeypatch.setattr(splitting, "CLOSE", 1.0)
    job = TuneJob(key.op, key.inputs, key.precision, templates=True)
    parts = splitting.split(Unit("u", "mm", job, known), sorted(known, key=known.__getitem__), 2)
    code = Path("rocm_tui", "code")  # as agents share it
    shutil.copytree(tuned / code, tmp_path / "split" / code)
    with Run.begin(Layout(tmp_path / "split"), Wanted(("local:cpu",)), parts) as run:
        run.work()
    first, second, final = (
        next(iter(unit.results.values())).result for unit in run.standing.units.values()
    )
    assert first is not None and second is not None and final is not None
    assert {*first.times, *second.times} == set(known) != set(final.times)
    assert len(first.times.keys() & second.times.keys()) == 1  # the library's
    assert {choice.hash for choice in first.choices} == set(first.times)
    [times] = kept(tmp_path / "split").values()
    assert (
        times.keys() == known.keys() and {hash: times[hash] for hash in final.times} == final.times
    )
    assert min(times, key=times.__getitem__) == final.choices[0].hash
    merged = run.standing.units["u"].merged
    assert merged is not None and merged.told == len(known) - len(final.times) > 0
