"""Two ranks of a real job choose differently; `agree` says so, pins one choice, and then they do
not. What torchrun tells its processes is told here by hand."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.model.events import ChoiceSelected
from rocm_tui.cli.entry import main
from tests.support.hooked import BMM, launch_program, sessions

pytestmark = pytest.mark.torch


def rank(cache: Path, number: int) -> None:
    """Without a warm graph: the other rank's would be taken, with the choice in it."""
    env = {"RANK": str(number), "WORLD_SIZE": "2", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
    launch_program(BMM, cache, "--quiet", env=env)


def turn_round(cache: Path) -> None:
    """Let the slower choice be the faster one, as another tuning may find."""
    (path,) = (cache / "cache").glob("[!.]*")
    document = json.loads(path.read_text())
    (by_inputs,) = document["cache"].values()
    (by_precision,) = by_inputs.values()
    (times,) = by_precision.values()
    times.update(zip(times, reversed(list(times.values())), strict=True))
    path.write_text(json.dumps(document))


def selected(cache: Path) -> list[str]:
    found = [event for log in sessions(cache) for event in log]
    return [event.hash for event in found if isinstance(event, ChoiceSelected)]


def test_two_ranks_that_differ_are_made_to_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, file = tmp_path / "cache", tmp_path / "pins.json"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    rank(cache, 0)
    turn_round(cache)
    rank(cache, 1)
    assert len(set(selected(cache))) == 2
    assert main(["agree", "--ranks", "2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["compared"], told["differ"], told["missing"]) == (1, 1, [])
    (problem,) = told["problems"]
    by_rank = {
        taken["rank"]: (group["hash"], taken["selected_by"])
        for group in problem["groups"]
        for taken in group["taken"]
    }
    assert by_rank == {0: (selected(cache)[0], "timing"), 1: (selected(cache)[1], "cache")}

    assert main(["agree", "--pin"]) == 1
    out, err = capsys.readouterr()
    assert "would pin" in out and "nothing was changed" in err
    words = ["--measure", "--budget", "1", "--pin", "--yes", "-o", str(file)]
    assert main(["agree", *words]) == 0
    out, err = capsys.readouterr()
    assert "measured: cold caches, " in out, err
    assert f"rocm-tui import {file} --yes" in out
    (pin,) = json.loads(file.read_text())["pins"]
    assert pin["note"].startswith("agreed over 2 ranks: ")
    assert main(["agree"]) == 1
    assert "pinned since" in capsys.readouterr().out

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: rank(cache, number), range(2)))
    assert main(["agree", "--ranks", "2"]) == 0
    assert "1 of 1 problem agrees" in capsys.readouterr().out
    assert selected(cache)[2:] == [pin["hash"]] * 2
    assert main(["agree", "--ranks", "3"]) == 1
