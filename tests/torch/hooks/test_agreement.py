"""One rank's turns at problems that the others of its job decide too, on a board in a folder.

The other rank is played here: its notes are those that its own process would write.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.ir import ChoiceCaller

from backend.inductor.hooks import agreement
from backend.inductor.hooks.agreement import (
    BEATING,
    RankCoordinator,
    RankTurn,
    agent_store,
    screening,
    settled,
)
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.tuning_watch import TuningWatch
from backend.model.events import Event, RanksAsked
from backend.model.problem import TuningKey
from backend.ranks import job
from backend.ranks.job import (
    AGREE,
    FOLDER,
    BoardUnavailable,
    Decision,
    FolderBoard,
    FoundDecision,
    MeetingFolder,
    Rank,
    RankAgreement,
    WonClaim,
)

pytestmark = pytest.mark.torch

KEY = TuningKey("mm", "[('cpu', 'torch.float32', 4, 8, 8, 1, 0)]", "highest")
PLACE = SimpleNamespace(device=torch.device("cpu"))
"""As much of an output's layout as is read."""


class Kernel(ChoiceCaller):  # type: ignore[misc]  # torch gives it no type
    def __init__(self, name: str) -> None:
        super().__init__(name, [], None, "")

    def hash_key(self) -> str:
        return f"{self.name}-c1"


@pytest.fixture
def kernels() -> list[Kernel]:
    return [Kernel("mm"), Kernel("cpp_0"), Kernel("cpp_1")]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def tuning(events: list[Event]) -> TuningWatch:
    return TuningWatch(5, KEY, events.append)


Ranks = Callable[..., RankAgreement]


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    """A rank of the job, with its number; each is another process. Waiting takes no time."""
    seconds = 0.0

    def rest(more: float) -> None:
        nonlocal seconds
        seconds += more

    def make(number: int, limit: float = 30.0, **more: Any) -> RankAgreement:
        me = Rank(number, f"host {number}", f"process {number}", "cpu")
        board = FolderBoard(MeetingFolder(tmp_path, tmp_path))
        return RankAgreement(board, me, limit, lambda: seconds, rest, **more)

    return make


Turns = Callable[..., RankTurn]


@pytest.fixture
def turn(kernels: list[Kernel], tuning: TuningWatch) -> Turns:
    def make(turns: RankAgreement | None, choices: Sequence[Kernel] = kernels) -> RankTurn:
        return RankTurn(RankCoordinator(Recorder()), tuning, choices, ("one", "two"), turns)

    return make


def decided(by: RankAgreement, question: str, name: str, **timings: float) -> None:
    by.decide(question, Decision(by.me, "mm", f"{name}-c1", name, 1.0, timings))


def test_an_error_while_joining_is_one_of_that_tuning(
    in_a_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, stock = RankCoordinator(Recorder()), agreement._device

    def failing(layout: Any) -> str:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(agreement, "_device", failing)
    with pytest.raises(OSError, match="too many open files"):
        coordinator._joined(PLACE)
    monkeypatch.setattr(agreement, "_device", stock)
    turns = coordinator._joined(PLACE)
    assert turns is not None and coordinator._joined(PLACE) is turns


def test_the_first_to_choose_posts_its_fastest_for_the_others(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], tuning: TuningWatch, events: list[Event]
) -> None:
    ours = turn(ranks(0))
    ours.ask()
    assert ours.together and ours.choices is kernels
    timings = {kernels[0]: 2.0, kernels[1]: 1.0, kernels[2]: math.inf}
    begun = time.time()
    with ours:
        assert settled(tuning, timings) is timings
    note = ranks(1).decision("one")
    assert note is not None and note.by.rank == 0 and begun <= note.when <= time.time()
    assert (note.op, note.hash, note.name) == ("mm", "cpp_0-c1", "cpp_0")
    assert note.timings == {"mm-c1": 2.0, "cpp_0-c1": 1.0}
    assert ours.report() is None and events == []
    assert isinstance(ranks(1).ask("two"), WonClaim)  # nothing is claimed any more


def test_what_another_rank_chose_is_all_that_is_offered(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], events: list[Event]
) -> None:
    decided(ranks(1), "one", "cpp_0", **{"mm-c1": 2.0, "cpp_0-c1": 1.0})
    ours = turn(ranks(0))
    ours.ask()
    assert ours.choices == [kernels[1]]
    assert ours.report() == "rank"
    (event,) = events
    assert isinstance(event, RanksAsked) and abs(event.when - time.time()) < 60
    assert (event.n, event.rank, event.hash, event.reason) == (5, 1, "cpp_0-c1", "")
    assert event.timings == {"mm-c1": 2.0, "cpp_0-c1": 1.0} and 0 <= event.waited < 30


def test_what_this_rank_chose_before_is_as_from_a_cache(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], events: list[Event]
) -> None:
    decided(ranks(0), "one", "mm")
    ours = turn(ranks(0))
    ours.ask()
    assert ours.choices == [kernels[0]] and ours.report() == "cache" and events == []


def test_a_choice_that_is_not_offered_here_leads_to_the_problem_with_just_these(
    ranks: Ranks,
    turn: Turns,
    kernels: list[Kernel],
    events: list[Event],
    capfd: pytest.CaptureFixture[str],
) -> None:
    decided(ranks(1), "one", "triton_7")
    ours = turn(ranks(0))
    ours.ask()
    assert ours.choices is kernels and ours.report() == "alone"
    (event,) = events
    assert isinstance(event, RanksAsked) and (event.rank, event.hash) == (1, "triton_7-c1")
    assert "triton_7" in event.reason and "not offered" in event.reason
    said = capfd.readouterr().err
    assert "rank 0: mm(4x8): triton_7" in said and "may differ" in said
    with ours:
        settled(ours.tuning, {kernels[0]: 1.0})
    note = ranks(1).decision("two")
    assert note is not None and note.name == "mm"

    decided(ranks(1), "three", "triton_8")
    decided(ranks(1), "four", "cpp_1")
    other = RankTurn(RankCoordinator(Recorder()), ours.tuning, kernels, ("three", "four"), ranks(0))
    other.ask()
    assert other.choices == [kernels[2]] and other.why == "rank"


def test_that_a_choice_is_not_offered_is_recorded_once_in_a_process(
    ranks: Ranks, kernels: list[Kernel], tuning: TuningWatch, events: list[Event]
) -> None:
    decided(ranks(1), "one", "triton_7")
    coordinator = RankCoordinator(Recorder())
    for _ in range(2):
        ours = RankTurn(coordinator, tuning, kernels, ("one", "two"), ranks(0))
        ours.ask()
        ours.report()
    (event,) = events
    assert isinstance(event, RanksAsked) and event.hash == "triton_7-c1"


def test_a_rank_that_was_faster_meanwhile_is_followed(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    ours = turn(ranks(0))
    ours.ask()
    decided(ranks(1), "one", "cpp_0")
    with ours:
        assert settled(tuning, {kernels[0]: 1.0, kernels[1]: 2.0}) == {kernels[1]: 2.0}
    assert ours.report() == "rank"


def test_a_rank_whose_choice_has_no_time_here_is_followed_with_the_best_time(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    ours = turn(ranks(0))
    ours.ask()
    decided(ranks(1), "one", "cpp_0")
    with ours:
        assert settled(tuning, {kernels[0]: 1.5, kernels[2]: 3.0}) == {kernels[1]: 1.5}


def test_times_that_screen_the_choices_or_of_another_tuning_decide_nothing(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    ours, timings = turn(ranks(0)), {kernels[0]: 1.0}
    ours.ask()
    assert settled(tuning, timings) is timings
    with ours:
        other = TuningWatch(6, KEY, lambda event: None)
        assert settled(other, timings) is timings
        assert settled(tuning, {kernels[0]: math.inf}) == {kernels[0]: math.inf}
        screening()
        assert settled(tuning, timings) is timings and ranks(1).decision("one") is None
        assert settled(tuning, timings) is timings and ranks(1).decision("one") is not None
    screening()  # outside of any turn


def test_turns_within_a_turn_end_where_they_began(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    outer = turn(ranks(0))
    with outer:
        with turn(None):
            pass
        settled(tuning, {kernels[0]: 1.0})
    assert ranks(1).decision("one") is not None


def test_a_pin_is_posted_and_holds_here_whatever_another_rank_chose(
    ranks: Ranks,
    turn: Turns,
    kernels: list[Kernel],
    events: list[Event],
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours = turn(ranks(0))
    ours.put_pin(kernels[2])
    note = ranks(1).decision("one")
    assert note is not None and (note.name, note.timings) == ("cpp_1", {})
    assert ours.report() == "pin" and events == []
    other = RankTurn(RankCoordinator(Recorder()), ours.tuning, kernels, ("one", "two"), ranks(1))
    other.put_pin(kernels[2])
    assert other.report() == "pin" and events == []
    other.put_pin(kernels[0])
    assert other.report() == "pin"
    (event,) = events
    assert isinstance(event, RanksAsked) and (event.rank, event.hash) == (0, "cpp_1-c1")
    assert "pin" in event.reason and "rank 0" in capfd.readouterr().err


def test_a_rank_that_does_not_choose_in_time_is_not_waited_for(
    ranks: Ranks, turn: Turns, kernels: list[Kernel], events: list[Event]
) -> None:
    slow = ranks(1)
    assert isinstance(slow.ask("one"), WonClaim)
    ours = turn(ranks(0, 5.0, alive=lambda process: True))
    ours.ask()
    assert ours.choices is kernels and ours.report() == "alone"
    event = events[-1]
    assert isinstance(event, RanksAsked) and event.rank is None and event.hash is None
    assert "rank 1 on host 1" in event.reason and 5 <= event.waited < 6
    with ours:
        settled(ours.tuning, {kernels[0]: 1.0})
    found = slow.ask("one")
    assert isinstance(found, FoundDecision) and found.decision.name == "mm"


def test_who_follows_a_rank_that_ended_says_so(
    ranks: Ranks, turn: Turns, capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(ranks(1).ask("one"), WonClaim)
    ours = turn(ranks(0, alive=lambda process: False))
    ours.ask()
    assert ours.report() is None
    assert "rank 1 ended" in capfd.readouterr().err


def test_a_rank_shows_that_it_lives_for_as_long_as_its_turn_lasts(
    ranks: Ranks, turn: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "BEAT", 0.001)
    turns = ranks(0)
    beats: list[str] = []
    beaten = threading.Event()

    def beat(name: str) -> None:
        beats.append(name)
        if len(beats) == 3:
            beaten.set()

    turns.board.beat = beat  # type: ignore[method-assign]
    ours = turn(turns)
    ours.ask()
    with ours:
        assert beaten.wait(30), "torch compiles, and no choice is ready yet"
        (thread,) = [each for each in threading.enumerate() if each.name == BEATING]
    thread.join(60)
    assert not thread.is_alive() and set(beats) == {"one.claim-0"}


@pytest.mark.parametrize("call", ["put", "take_down"])
def test_a_board_that_is_lost_ends_the_agreement_once(
    ranks: Ranks,
    kernels: list[Kernel],
    tuning: TuningWatch,
    call: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """While this rank posts its choice, or while it takes its claim down without one."""

    def lost(*_: object) -> bool:
        raise BoardUnavailable(f"the board of {call} is gone")

    coordinator, turns = RankCoordinator(Recorder()), ranks(0)
    ours = RankTurn(coordinator, tuning, kernels, ("one", "two"), turns)
    ours.ask()
    setattr(turns.board, call, lost)
    timings = {kernels[0]: 1.0 if call == "put" else math.inf}
    with ours:
        assert settled(tuning, timings) is timings
    assert coordinator.trouble == f"the board of {call} is gone"
    assert ours.report() == ("alone" if call == "put" else None)
    said = capfd.readouterr().err
    assert said.count("is gone") == 1 and "each rank chooses alone" in said


def fail_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Fail the first time, as NFS does after a server's restart."""
    left = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))]

    def fail(*args: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return call(*args, **more)

    return fail


@pytest.mark.parametrize(("module", "name"), [(job, "open_regular"), (os, "link")])
def test_a_note_that_fails_once_ends_no_agreement(
    in_a_job: Path, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel], tuning: TuningWatch,
    ranks: Ranks, module: Any, name: str, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What another rank chose is taken though the note could not be read before timing; and the
    next tuning is one with the others."""
    coordinator = RankCoordinator(Recorder())
    turns = coordinator._joined(PLACE)
    assert turns is not None
    monkeypatch.setattr(module, name, fail_once(getattr(module, name)))
    turn = coordinator.turn(tuning, kernels, None, PLACE)
    assert turn is not None and turn.together
    other = RankAgreement(turns.board, Rank(1, "host", "process 1", turns.me.device), 5.0)
    decided(other, turn._questions[0], "cpp_1", **{"cpp_1-c1": 0.5})
    with turn:
        assert settled(tuning, {kernels[0]: 1.0, kernels[2]: 2.0}) == {kernels[2]: 2.0}
    assert "Stale" in capfd.readouterr().err
    again = coordinator.turn(tuning, kernels, None, PLACE)
    assert again is not None and (again.why, again.choices) == ("rank", kernels[2:])
    assert coordinator.trouble == ""


def test_a_rank_that_could_not_join_once_joins_with_its_next_tuning(
    in_a_job: Path, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    monkeypatch.setattr(os, "link", fail_once(os.link))
    coordinator = RankCoordinator(Recorder())
    turn = coordinator.turn(tuning, kernels, None, PLACE)
    assert turn is not None and not turn.together and turn.report() == "alone"
    turn = coordinator.turn(tuning, kernels, None, PLACE)
    assert turn is not None and turn.together and turn.report() is None


# The process in its job


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "meeting"
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", AGREE: "5", FOLDER: str(folder)}.items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_process_alone_takes_no_turns(
    in_a_job: Path, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    coordinator = RankCoordinator(Recorder())
    assert coordinator.turn(tuning, kernels, None, PLACE) is None
    monkeypatch.setenv("WORLD_SIZE", "2")  # as where its process group is created later
    turn = coordinator.turn(tuning, kernels, None, PLACE)
    assert turn is not None and turn.together


def test_a_problem_is_the_same_for_equal_inputs_precision_options_and_device(
    in_a_job: Path, kernels: list[Kernel]
) -> None:
    coordinator = RankCoordinator(Recorder())

    def why(key: TuningKey, given: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str | None:
        tuning = TuningWatch(1, key, lambda event: None, given)
        turn = coordinator.turn(tuning, kernels, None, PLACE)
        assert turn is not None
        with turn:
            settled(tuning, {kernels[0]: 1.0})
        return turn.why

    assert why(KEY) is None
    assert why(KEY) == "cache"
    assert why(TuningKey("mm", KEY.inputs, "high")) is None
    assert why(TuningKey("bmm", KEY.inputs, "highest")) is None
    assert why(TuningKey("mm", "[]", "highest")) is None
    assert why(KEY, (("beta", (2,)),)) is None
    assert why(KEY, (("beta", (2,)),)) == "cache"


def test_a_pin_is_posted_by_the_process(
    in_a_job: Path, kernels: list[Kernel], tuning: TuningWatch
) -> None:
    turn = RankCoordinator(Recorder()).turn(tuning, kernels, kernels[1], PLACE)
    assert turn is not None and turn.why == "pin"


def test_ranks_that_cannot_meet_are_alone_with_the_reason(
    in_a_job: Path,
    kernels: list[Kernel],
    tuning: TuningWatch,
    events: list[Event],
    capfd: pytest.CaptureFixture[str],
) -> None:
    in_a_job.write_text("no folder")
    coordinator = RankCoordinator(Recorder())
    for _ in range(2):
        turn = coordinator.turn(tuning, kernels, None, PLACE)
        assert turn is not None and not turn.together and turn.choices is kernels
        with turn:
            assert settled(tuning, {kernels[0]: 1.0}) == {kernels[0]: 1.0}
        assert turn.report() == "alone"
    assert str(in_a_job) in coordinator.trouble
    assert all(isinstance(e, RanksAsked) and e.reason == coordinator.trouble for e in events)
    assert capfd.readouterr().err.count("ranks do not choose together") == 1


@pytest.mark.parametrize("met", [False, True])
def test_at_its_end_a_rank_says_with_whom_it_could_not_agree(
    in_a_job: Path,
    ranks: Ranks,
    kernels: list[Kernel],
    tuning: TuningWatch,
    met: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    last: list[Callable[[], None]] = []
    recorder = Recorder()
    recorder.before_end = last.append  # type: ignore[method-assign]
    assert RankCoordinator(recorder).turn(tuning, kernels, None, PLACE) is not None
    if met:
        board = FolderBoard(MeetingFolder(in_a_job, in_a_job))
        RankAgreement(board, Rank(1, "host", "process 1", "another GPU"), 5.0).register()
    (action,) = last
    action()
    said = capfd.readouterr().err
    assert ("not all ranks have the same device" in said) is met
    assert ("rank 0 met no other rank" in said) is not met


@pytest.mark.parametrize(
    ("change", "server"),
    [
        ({}, ("box", 2345)),
        ({"TORCHELASTIC_USE_AGENT_STORE": "False"}, None),
        ({"MASTER_ADDR": ""}, None),
        ({"MASTER_PORT": "any"}, None),
        ({"MASTER_PORT": ""}, None),
    ],
)
def test_the_store_of_torchruns_agent(
    change: dict[str, str], server: tuple[str, int] | None
) -> None:
    env = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "box", "MASTER_PORT": "2345"}
    assert agent_store({**env, **change}) == server
    assert agent_store({}) is None
