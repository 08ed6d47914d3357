"""Ranks of a job under `rocm-tui run --agree`: they choose alike, whatever becomes of one of them.

`python -m tests.ranks` starts such jobs by the dozen, each a torchrun if wanted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import RanksAsked, SessionStarted
from backend.pins.leftovers import leftovers
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.render.detail import selection_text
from rocm_tui.report.sessions import SessionRow, session_rows
from rocm_tui.session.model import Model
from tests.ranks.__main__ import choices_in, differing, environment, run
from tests.ranks.scenes import LIMIT

pytestmark = pytest.mark.torch

PATIENCE = 120.0
"""Seconds; a rank that waits for ever fails the test."""


class Stage:
    """One process in which scenes are played, each with a cache dir of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._played: dict[str, tuple[Path, str]] = {}
        ours = ["-m", "rocm_tui", "run", "--quiet", "--agree-timeout", str(PATIENCE), "--"]
        scenes = [sys.executable, "-W", "ignore", "-m", "tests.ranks.scenes"]
        self._process = subprocess.Popen(
            [sys.executable, *ours, *scenes],
            env=environment(folder / "launcher"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("w"),
            text=True,
        )

    def play(self, scene: str) -> tuple[Path, str]:
        """The cache dir, and what the ranks said; each scene is played once."""
        if scene not in self._played:
            self._played[scene] = self._play(scene)
        return self._played[scene]

    def _play(self, scene: str) -> tuple[Path, str]:
        before = len((self.folder / "stderr").read_text())
        cache = self.begin(scene)
        return cache, self.finish()[before:]

    def begin(self, scene: str) -> Path:
        """Its cache dir; the scene goes on."""
        assert self._process.stdin is not None
        cache = self.folder / scene
        self._process.stdin.write(json.dumps([scene, str(cache)]) + "\n")
        self._process.stdin.flush()
        return cache

    def finish(self) -> str:
        """All that ranks have said by the end of the scene that goes on."""
        assert self._process.stdout is not None
        line, told = self._process.stdout.readline(), (self.folder / "stderr").read_text()
        assert line and json.loads(line)[0] == "done", line + told[-3000:]
        return told

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield stage
    stage.close()


def by_rank(cache: Path) -> dict[int, str]:
    """Why each rank selected what it did, of one problem."""
    (found,) = choices_in(cache).values()
    return {rank: by for rank, (_, by) in found.items()}


def asked(cache: Path) -> dict[int | None, RanksAsked]:
    found: dict[int | None, RanksAsked] = {}
    for log in Layout(cache).sessions.glob("*.jsonl"):
        events, _ = read_log(log)
        first = events[0]
        assert isinstance(first, SessionStarted)
        told = [event for event in events if isinstance(event, RanksAsked)]
        for event in told:
            found[first.session.rank] = event
    return found


def test_ranks_that_an_agent_of_torchrun_starts_choose_alike(stage: Stage) -> None:
    cache, said = stage.play("launched")
    assert differing(cache, 2, 3) == 0 and "rank" not in said
    whys = [sorted(by for _, by in found.values()) for found in choices_in(cache).values()]
    assert whys == [["rank", "timing"]] * 3


def test_eight_ranks_choose_alike(stage: Stage) -> None:
    cache, _ = stage.play("eight")
    assert differing(cache, 8, 1) == 0
    assert sorted(by_rank(cache).values()) == ["rank"] * 7 + ["timing"]


def test_what_was_taken_is_told_with_its_times(stage: Stage) -> None:
    cache, _ = stage.play("eight")
    told, *others = asked(cache).values()
    assert len(others) == 6 and {other.hash for other in others} == {told.hash}
    hashes = {hash_ for found in choices_in(cache).values() for hash_, _ in found.values()}
    assert hashes == {told.hash} and told.reason == ""
    assert len(told.timings) == 2 and min(told.timings, key=told.timings.__getitem__) == told.hash
    texts = set()
    for log in Layout(cache).sessions.glob("*.jsonl"):
        stream = EventLog(str(log))
        for record in stream.feed(log.read_bytes()):
            tuning = getattr(record, "tuning", None)
            if tuning is not None and tuning.selected_by == "rank":
                texts.add(selection_text(tuning))
    assert texts == {f"taken from rank {told.rank}"}


def test_a_rank_that_is_killed_is_followed_by_the_one_that_waits(stage: Stage) -> None:
    cache, said = stage.play("killed")
    assert by_rank(cache) == {1: "timing"}
    assert said.count("rank 0 ended before it had chosen; this rank chooses") == 1
    assert asked(cache)[1].waited > 0.2


def test_a_rank_that_is_stopped_is_not_waited_for_longer_than_said(stage: Stage) -> None:
    """And takes what was chosen without it, once it goes on."""
    cache, said = stage.play("stopped")
    assert differing(cache, 2, 1) == 0
    assert by_rank(cache) == {0: "rank", 1: "alone"}
    assert said.count(f"waited {LIMIT} s for rank 0") == 1
    assert LIMIT <= asked(cache)[1].waited < PATIENCE


def test_a_rank_that_waits_is_shown_while_it_waits(stage: Stage) -> None:
    cache = stage.begin("waiting")
    try:
        waits = _seen(cache, lambda told: "waiting" in {row.activity.state for row in told})
        time.sleep(1.1)  # the seconds go on
        listed = _listed(cache)
    finally:
        (cache / "go").touch()
        stage.finish()
    (row,) = [row for row in waits if row.activity.state == "waiting"]
    assert (row.session.rank, row.activity.rank, row.activity.op) == (1, 0, "bmm")
    assert re.search(r"waits for rank 0's choice of bmm, [1-9][0-9]* s +1 ", listed), listed
    after = _rows(cache)
    assert {row.activity.state for row in after if row.session.rank is not None} == {"done"}


def _rows(cache: Path) -> list[SessionRow]:
    model = Model()
    model.apply(read_sources([str(Layout(cache).sessions)]))
    return session_rows(model)


def _seen(cache: Path, there: Callable[[list[SessionRow]], bool]) -> list[SessionRow]:
    end = time.monotonic() + PATIENCE
    while not there(rows := _rows(cache)):
        assert time.monotonic() < end, rows
        time.sleep(0.05)
    return rows


def _listed(cache: Path) -> str:
    command = [sys.executable, "-m", "rocm_tui", "sessions", "--cache-dir", str(cache)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_each_rank_chooses_for_what_it_has_alone(stage: Stage) -> None:
    cache, said = stage.play("other problems")
    found = choices_in(cache)
    assert [by for ranks in found.values() for _, by in ranks.values()] == ["timing"] * 2
    assert "rank" not in said


def test_ranks_that_are_not_offered_a_choice_say_so_and_agree_with_each_other(
    stage: Stage,
) -> None:
    cache, said = stage.play("other choices")
    (found,) = choices_in(cache).values()
    assert found[1][0] == found[2][0] != found[0][0]
    assert found[0][1] == "timing" and {found[1][1], found[2][1]} == {"alone", "rank"}
    assert said.count("which rank 0 chose, is not offered here") == 2
    assert all("is not offered here" in told.reason for told in asked(cache).values())


def test_ranks_that_cannot_meet_say_so_and_choose_alone(stage: Stage) -> None:
    cache, said = stage.play("no folder")
    assert by_rank(cache) == {0: "alone", 1: "alone"}
    assert said.count("ranks do not choose together") == 2


def test_the_folders_of_old_jobs_are_pruned(stage: Stage) -> None:
    cache, _ = stage.play("eight")
    found = leftovers(Layout(cache), now=4e9)
    assert "choices of a job's ranks" in {leftover.kind for leftover in found.old}


def test_ranks_on_several_hosts_choose_alike_in_the_store_of_their_agents(stage: Stage) -> None:
    cache, said = stage.play("hosts")
    one, other = (choices_in(cache / f"host-{number}") for number in range(2))
    assert len(one) == 3 and "rank" not in said
    for problem, found in one.items():
        ((hash_, by),) = found.values()
        ((other_hash, other_by),) = other[problem].values()
        assert hash_ == other_hash and sorted((by, other_by)) == ["rank", "timing"]


def test_a_rank_whose_store_is_killed_goes_on_alone_and_says_so(stage: Stage) -> None:
    cache, said = stage.play("server killed")
    found = [by_rank(path) for path in cache.glob("host-*") if choices_in(path)]
    assert found == [{1: "alone"}]
    assert said.count("ranks do not choose together: the store at") == 1, said


def test_without_the_option_nothing_is_asked(tmp_path: Path) -> None:
    run(
        [], ["-m", "tests.ranks.scenes", "--starts", "1", "2", str(tmp_path)], environment(tmp_path)
    )
    assert not Layout(tmp_path / "start-0").ranks.exists()
    assert asked(tmp_path / "start-0") == {} and len(choices_in(tmp_path / "start-0")) == 3
