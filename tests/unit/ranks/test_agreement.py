"""Who chooses: ranks on one board, with a clock that goes on only where somebody waits.

The board is a folder, and a store that a thread of this process serves.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.ranks.job import (
    GRACE,
    SILENCE,
    Board,
    BoardBusy,
    BoardUnavailable,
    Decision,
    FolderBoard,
    FoundDecision,
    MeetingFolder,
    Rank,
    RankAgreement,
    WaitTimedOut,
    WonClaim,
    problem_name,
)

PROBLEM = problem_name("mm", "8x8")
OTHER = problem_name("mm", "9x9")


class Clock:
    """What happens at which second, while somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.plans: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        return self.seconds

    def rest(self, seconds: float) -> None:
        self.seconds += seconds
        due = [plan for plan in self.plans if plan[0] <= self.seconds]
        self.plans = [plan for plan in self.plans if plan not in due]
        for _, action in due:
            action()

    def at(self, second: float, action: Callable[[], object]) -> None:
        self.plans.append((second, action))


class Job:
    """Ranks of a job, each a process that lives until it is killed, with a board of its own."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self.clock = Clock()
        self.dead: set[str] = set()
        self.far: set[str] = set()
        self.board = board

    def rank(self, number: int, limit: float = 30.0) -> RankAgreement:
        me = Rank(number, "here", f"process {number}", "cpu")
        turns = RankAgreement(self.board(), me, limit, self.clock.now, self.clock.rest, self.alive)
        turns.register()
        return turns

    def alive(self, process: str) -> bool | None:
        return None if process in self.far else process not in self.dead

    def kill(self, turns: RankAgreement) -> None:
        self.dead.add(turns.me.process)


def decision(turns: RankAgreement, hash: str) -> Decision:
    return Decision(turns.me, "mm", hash, hash, 1.0, {hash: 0.5, "other": 1e300})


def choose(turns: RankAgreement, hash: str, problem: str = PROBLEM) -> Decision:
    """Ask, be the one to choose, choose."""
    lead = turns.ask(problem)
    assert isinstance(lead, WonClaim)
    made = turns.decide(problem, decision(turns, hash))
    turns.end(lead)
    return made


@pytest.fixture
def meeting(tmp_path: Path) -> MeetingFolder:
    return MeetingFolder(tmp_path, tmp_path / "job")


@pytest.fixture(scope="module")
def server() -> Any:
    distributed = pytest.importorskip("torch.distributed")
    return distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


@pytest.fixture(params=["folder", "store"])
def job(request: pytest.FixtureRequest) -> Job:
    if request.param == "folder":
        meeting: MeetingFolder = request.getfixturevalue("meeting")
        return Job(lambda: FolderBoard(meeting))
    port, name = request.getfixturevalue("server").port, secrets.token_hex(4)
    from backend.inductor.hooks.agreement import StoreBoard

    return Job(lambda: StoreBoard("localhost", port, name))


def test_rank_0_chooses_and_the_others_take_it(job: Job) -> None:
    first, second = job.rank(0), job.rank(1)
    lead = first.ask(PROBLEM)
    assert isinstance(lead, WonClaim) and lead.waited == 0.0

    def done() -> None:
        first.decide(PROBLEM, decision(first, "fast"))
        first.end(lead)

    job.clock.at(5.0, done)
    taken = second.ask(PROBLEM)
    assert isinstance(taken, FoundDecision) and 5.0 <= taken.waited < 5.2
    assert (taken.decision.hash, taken.decision.by) == ("fast", first.me)
    assert taken.decision.timings == {"fast": 0.5, "other": 1e300}
    again = first.ask(PROBLEM)
    assert isinstance(again, FoundDecision) and again.waited == 0.0


def test_a_problem_is_left_to_rank_0_for_a_moment_that_gets_shorter(job: Job) -> None:
    job.rank(0)
    second = job.rank(1)
    waits = []
    for n in range(8):
        began = job.clock.seconds
        choose(second, "own", problem_name(str(n)))
        waits.append(job.clock.seconds - began)
    assert GRACE <= waits[0] < GRACE + 0.2 and waits == sorted(waits, reverse=True)
    assert waits[-1] < 0.2 and sum(waits) < 3 * GRACE


def test_rank_0_is_waited_for_again_once_it_comes(job: Job) -> None:
    first, second = job.rank(0), job.rank(1)
    for n in range(8):
        choose(second, "own", problem_name(str(n)))
    choose(first, "fast")
    assert isinstance(second.ask(PROBLEM), FoundDecision)
    began = job.clock.seconds
    choose(second, "own", OTHER)
    assert job.clock.seconds - began >= GRACE


def test_of_the_others_the_lowest_that_asks_is_the_first(job: Job) -> None:
    """All at once, in threads of their own, with a real clock."""
    answers: dict[int, object] = {}
    first = job.rank(0)
    job.kill(first)

    def ask(number: int) -> None:
        me = Rank(number, "", f"process {number}", "")
        turns = RankAgreement(job.board(), me, 20.0, alive=job.alive)
        start.wait()
        answer = answers[number] = turns.ask(PROBLEM)
        if isinstance(answer, WonClaim):
            turns.decide(PROBLEM, decision(turns, f"of {number}"))

    start = threading.Barrier(7)
    threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leads = [n for n, answer in answers.items() if isinstance(answer, WonClaim)]
    assert len(leads) == 1 and len(answers) == 7
    taken = {a.decision.hash for a in answers.values() if isinstance(a, FoundDecision)}
    assert taken == {f"of {leads[0]}"}


def test_who_dies_while_it_chooses_is_followed_by_one_that_waits(job: Job) -> None:
    first, second, third = (job.rank(n) for n in range(3))
    assert isinstance(first.ask(PROBLEM), WonClaim)
    job.clock.at(4.0, lambda: job.kill(first))
    lead = second.ask(PROBLEM)
    assert isinstance(lead, WonClaim) and 4.0 <= lead.waited < 4.2
    job.clock.at(6.0, lambda: second.decide(PROBLEM, decision(second, "of 1")))
    taken = third.ask(PROBLEM)
    assert isinstance(taken, FoundDecision) and taken.decision.hash == "of 1"


def test_one_of_another_host_is_given_up_when_it_shows_no_sign_of_life(job: Job) -> None:
    first, second = job.rank(0), job.rank(1, limit=10 * SILENCE)
    job.far.add(first.me.process)
    lead = first.ask(PROBLEM)
    assert isinstance(lead, WonClaim)

    def work() -> None:
        before = first.board.last_beat(lead.claim)
        while first.board.last_beat(lead.claim) == before:  # files have ticks of milliseconds
            first.beat(lead)

    for at in range(20, 200, 20):  # it is at work for three minutes
        job.clock.at(float(at), work)
    answer = second.ask(PROBLEM)
    assert isinstance(answer, WonClaim) and 180 + SILENCE <= answer.waited < 180 + SILENCE + 1


def test_nobody_waits_longer_than_the_limit_and_then_not_again(job: Job) -> None:
    first, second = job.rank(0), job.rank(1)
    assert isinstance(first.ask(PROBLEM), WonClaim)  # and it is stopped
    late = second.ask(PROBLEM)
    assert isinstance(late, WaitTimedOut) and 30.0 <= late.waited < 30.2 and late.by == first.me
    assert second.decide(PROBLEM, decision(second, "of 1")).hash == "of 1"
    stopped = job.rank(0)
    assert stopped.decide(PROBLEM, decision(stopped, "of 0")).hash == "of 1"  # it goes on
    first._held.clear()
    assert isinstance(first.ask(OTHER), WonClaim)
    late = second.ask(OTHER)
    assert isinstance(late, WaitTimedOut) and late.waited < 1.2


def test_nobody_waits_while_others_may_wait_for_it(job: Job) -> None:
    """Two that tune two problems inside of each other, the other way round."""
    first, second = job.rank(0), job.rank(1)
    assert isinstance(first.ask(PROBLEM), WonClaim) and isinstance(second.ask(OTHER), WonClaim)
    for turns, problem in ((first, OTHER), (second, PROBLEM)):
        inner = turns.ask(problem)
        assert isinstance(inner, WonClaim) and not inner.claim and inner.waited == 0.0


def test_a_turn_that_is_given_up_is_another_s(job: Job) -> None:
    first, second = job.rank(0), job.rank(1)
    lead = first.ask(PROBLEM)
    assert isinstance(lead, WonClaim)
    job.clock.at(3.0, lambda: first.end(lead))
    after = second.ask(PROBLEM)
    assert isinstance(after, WonClaim) and after.waited < 3.5
    assert isinstance(first.ask(OTHER), WonClaim)  # it holds nothing any more


def test_a_rank_that_was_started_again_is_known_by_its_new_process(job: Job) -> None:
    job.rank(0)
    again = RankAgreement(job.board(), Rank(0, "here", "process 10", "cpu"), 1.0)
    again.register()
    assert again.rank(0) == again.me
    assert job.rank(1).met(8) == [again.me]


@pytest.mark.parametrize("note", [b" ", b"{", b"[]", b'{"by": 3}', b"\xff" * 100])
def test_a_damaged_note_is_no_decision(job: Job, note: bytes) -> None:
    turns = job.rank(0)
    turns.board.put(PROBLEM, note)
    with pytest.raises(BoardUnavailable, match="damaged"):
        turns.ask(PROBLEM)


def test_of_many_that_put_a_note_at_once_one_is_the_first(job: Job) -> None:
    """Even where all put the same."""
    won: list[bool] = []

    def put() -> None:
        board = job.board()
        start.wait()
        won.append(board.put("note", b"same"))

    start = threading.Barrier(8)
    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]
    board = job.board()
    assert board.read("note") == b"same" and not board.put("note", b"other")
    board.take_down("note")
    assert board.read("note") is None and board.put("note", b"\xff\0") and job.board().read("note")


@pytest.fixture
def closed(meeting: MeetingFolder) -> Iterator[MeetingFolder]:
    FolderBoard(meeting)
    meeting.path.chmod(0o777)  # others may write there
    yield meeting
    meeting.path.chmod(0o700)


def test_a_folder_that_others_can_write_is_refused(closed: MeetingFolder) -> None:
    with pytest.raises(BoardUnavailable, match="every user can write there"):
        FolderBoard(closed)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardUnavailable, match="file"):
        FolderBoard(MeetingFolder(tmp_path / "file", tmp_path / "file" / "job"))


class Counted:
    """A board that counts what it is asked."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        return getattr(self.board, name)


@pytest.mark.parametrize(("size", "least", "most"), [(2, 50, 70), (1000, 2_500, 3_500)])
def test_looks_get_rarer_as_a_job_gets_larger(job: Job, size: int, least: int, most: int) -> None:
    first, second = job.rank(0), job.rank(1, limit=50.0)
    job.far.add(first.me.process)
    lead = first.ask(PROBLEM)
    assert isinstance(lead, WonClaim)
    for second_ in range(1, 50):
        job.clock.at(float(second_), lambda: first.beat(lead))
    counted = Counted(second.board)
    second.board, second.size = counted, size
    late = second.ask(PROBLEM)
    assert isinstance(late, WaitTimedOut) and 50.0 <= late.waited < 50.2
    assert least < counted.asked * size / late.waited < most  # requests a second, of all ranks


def test_who_is_waited_for_is_told_where_it_changes(job: Job) -> None:
    first, second = job.rank(0), job.rank(1)
    lead = first.ask(PROBLEM)
    assert isinstance(lead, WonClaim)
    job.clock.at(5.0, lambda: job.kill(first))
    told: list[int | None] = []
    assert isinstance(second.ask(PROBLEM, told.append), WonClaim) and told == [0, None]
    told.clear()
    assert isinstance(job.rank(0).ask(OTHER, told.append), WonClaim) and told == []


def test_a_read_that_fails_once_leaves_no_claim_that_nobody_ends(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 takes over from a rank that died, and cannot read of whom."""
    first, second, third = job.rank(0), job.rank(1), job.rank(2)
    assert isinstance(first.ask(PROBLEM), WonClaim)
    job.kill(first)
    left = [BoardBusy("once")]
    before = RankAgreement._before

    def failing(turns: RankAgreement, problem: str, number: int) -> Rank | None:
        if number and left:
            raise left.pop()
        return before(turns, problem, number)

    monkeypatch.setattr(RankAgreement, "_before", failing)
    with pytest.raises(BoardBusy):
        second.ask(PROBLEM)
    assert isinstance(third.ask(OTHER), WonClaim)
    assert isinstance(second.ask(OTHER), WaitTimedOut), "it waits for others again"
    assert isinstance(second.ask(PROBLEM), WonClaim)
