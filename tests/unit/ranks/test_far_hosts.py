"""Who chooses, of ranks on several hosts that cannot see each other's processes: real processes, a
folder that they share, and a rank that is killed where nobody sees it. The test sets their clock,
so that a busy machine makes no rank silent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.hosts import needs_hosts, on_host, process_with
from tests.support.places import ROOT

SILENCE = 1.5
"""Seconds of the clock, which goes on by one second at a time."""
PATIENCE = 120.0
RANK = f"""
import json, os, socket, sys, time
from pathlib import Path
from backend.processes.tree import identity
from backend.ranks.job import FolderBoard
from backend.ranks.job import MeetingFolder
from backend.ranks.job import Decision, Rank
from backend.ranks.job import WonClaim, RankAgreement

folder, clock, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
looks = 0

def now():
    return float((clock / "now").read_text())

def rest(seconds):  # the test reads how often this rank has looked at the board, or beaten
    global looks
    looks += 1
    (clock / f"new-{{number}}").write_text(str(looks))
    (clock / f"new-{{number}}").replace(clock / f"looks-{{number}}")
    time.sleep(0.01)

me = Rank(number, socket.gethostname(), identity(os.getpid()), "cpu")
board = FolderBoard(MeetingFolder(folder, folder))
turns = RankAgreement(board, me, 100.0, now, rest, size=4, silence={SILENCE})
turns.register()
answer = turns.ask("product")
if isinstance(answer, WonClaim):
    (clock / f"lead-{{number}}").touch()
    while not (clock / f"decide-{{number}}").exists():
        turns.beat(answer)
        rest(0.0)
    taken = turns.decide("product", Decision(me, "mm", f"choice-{{number}}", "x", time.time()))
else:
    taken = answer.decision
after = getattr(answer, "after", None)
print(json.dumps([type(answer).__name__, taken.hash, answer.waited, after and after.host]))
"""


class Clock:
    """The clock of all ranks, which waits until each of them has seen its time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.set(0)

    def set(self, seconds: int) -> None:
        (self.folder / "new").write_text(str(seconds))
        (self.folder / "new").replace(self.folder / "now")
        self.seconds = seconds

    def pass_seconds(self, seconds: int, ranks: Collection[int]) -> None:
        """Each of `ranks` beats, and then looks at the board, before the next second."""
        for _ in range(seconds):
            self.set(self.seconds + 1)
            for _ in range(2):  # a beat, and a look that began after it
                self.let_look(ranks)

    def leads(self) -> set[int]:
        """The ranks whose turn it was."""
        return {int(path.name.partition("-")[2]) for path in self.folder.glob("lead-*")}

    def let_look(self, ranks: Collection[int]) -> None:
        """Wait until each of `ranks` has begun and ended a look, or a beat."""
        before = {rank: self._looks(rank) for rank in ranks}
        end = time.monotonic() + PATIENCE
        while any(self._looks(rank) < looks + 2 for rank, looks in before.items()):
            assert time.monotonic() < end, before
            time.sleep(0.01)

    def _looks(self, rank: int) -> int:
        path = self.folder / f"looks-{rank}"
        return int(path.read_text()) if path.exists() else 0


@needs_hosts
def test_one_that_is_killed_on_another_host_is_followed_by_one_that_waits(tmp_path: Path) -> None:
    folder, clock = tmp_path / "board", Clock(tmp_path / "clock")
    folder.mkdir()
    words = [sys.executable, "-c", RANK, str(folder), str(clock.folder)]
    commands = [on_host(f"host-{number}", [*words, str(number)]) for number in range(4)]
    with ExitStack() as stack:
        ranks = []
        for command in commands:
            rank = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(rank.kill)
            ranks.append(rank)
        answers, lead = play(folder, clock, ranks)
    kind, choice, waited, after = answers.pop(lead - 1)
    assert (kind, choice, after) == ("WonClaim", f"choice-{lead}", "host-0")
    assert waited >= 5.0  # it may have begun a look just before the sixth second
    assert [tuple(answer[:3]) for answer in answers] == [
        ("FoundDecision", f"choice-{lead}", 10.0)
    ] * 2


def play(folder: Path, clock: Clock, ranks: list[subprocess.Popen[str]]) -> tuple[list[Any], int]:
    """Return what ranks 1 to 3 print, and which of them leads after rank 0 is killed."""
    clock.let_look(range(4))
    clock.pass_seconds(4, range(4))  # longer than the silence: rank 0 is known to be at work
    assert clock.leads() == {0}
    process_with(str(folder), ranks[0]).kill()
    assert ranks[0].wait(timeout=60) != 0
    clock.pass_seconds(2, (1, 2, 3))
    (lead,) = clock.leads() - {0}
    clock.pass_seconds(4, (1, 2, 3))
    assert clock.leads() == {0, lead}
    (clock.folder / f"decide-{lead}").touch()
    return [json.loads(rank.communicate(timeout=180)[0]) for rank in ranks[1:]], lead
