"""Who chooses, of ranks on several hosts that cannot see each other's processes: real processes, a
folder that they share, and a rank that is killed where nobody sees it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.support.hosts import needs_hosts, on_host, process_with
from tests.support.places import ROOT

SILENCE = 2.0
RANK = f"""
import json, os, socket, sys, time
from pathlib import Path
from backend.processes.identity import identity
from backend.ranks.board import FolderBoard
from backend.ranks.job import Meeting
from backend.ranks.notes import Decision, Rank
from backend.ranks.turns import Lead, Turns

folder, number = Path(sys.argv[1]), int(sys.argv[2])
me = Rank(number, socket.gethostname(), identity(os.getpid()), "cpu")
turns = Turns(FolderBoard(Meeting(folder, folder)), me, 20.0, size=4, silence={SILENCE})
turns.register()
answer = turns.ask("product")
if isinstance(answer, Lead):
    end = time.monotonic() + (600 if number == 0 else 2 * {SILENCE})
    while time.monotonic() < end:  # longer than the silence: it is known to be at work
        turns.beat(answer)
        time.sleep(0.1)
    taken = turns.decide("product", Decision(me, "mm", f"choice-{{number}}", "x", time.time()))
else:
    taken = answer.decision
after = getattr(answer, "after", None)
print(json.dumps([type(answer).__name__, taken.hash, answer.waited, after and after.host]))
"""


@needs_hosts
def test_one_that_is_killed_on_another_host_is_followed_by_one_that_waits(tmp_path: Path) -> None:
    ranks = []
    for number in range(4):
        command = [sys.executable, "-c", RANK, str(tmp_path), str(number)]
        ranks.append(
            subprocess.Popen(
                on_host(f"host-{number}", command), cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
        )
    while len(list(tmp_path.glob("rank-*"))) < 4 or not (tmp_path / "product.claim-0").exists():
        time.sleep(0.02)
    time.sleep(2 * SILENCE)  # signs of life come through
    assert all(rank.poll() is None for rank in ranks)
    process_with(str(tmp_path), ranks[0]).kill()
    told = [json.loads(rank.communicate(timeout=180)[0]) for rank in ranks[1:]]
    assert ranks[0].wait(timeout=60) != 0
    (lead,) = [one for one in told if one[0] == "Lead"]
    assert {one[1] for one in told} == {lead[1]} and lead[3] == "host-0"
    assert [one[0] for one in told].count("Taken") == 2
    assert all(one[2] > 3 * SILENCE - 0.5 for one in told)
