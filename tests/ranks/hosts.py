"""The rank that chooses is killed on another host: `python -m tests.ranks.hosts [--store]`, some 90
seconds.

Four ranks of a job, each under a `rocm-tui run --agree` of its own, on four hosts (namespaces of
this machine) with a cache dir each and one shared folder to meet in. Rank 0 claims a problem and is
killed (SIGKILL) while it times its choices. The others cannot see that; they hear nothing of it for
`SILENCE` seconds, then one of them chooses, and the rest take that. Exit code 0 if they did. With
`--store` there is no such folder: they meet in a TCPStore that this process serves, as an agent of
torchrun does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch.distributed import TCPStore

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import ChoiceSelected, RanksAsked
from backend.ranks.job import SILENCE
from tests.ranks import scenes
from tests.ranks.__main__ import environment
from tests.support.hosts import on_host, process_with

RANKS = 4
PATIENCE = 600.0


def rank(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    scenes.prepare()
    if os.environ["RANK"] == "0":
        scenes._before = lambda: hang(folder)
    scenes._compile(("x", "y"), 8)


def hang(folder: Path) -> None:
    """It has claimed the problem, and times its choices."""
    (folder / "claimed").touch()
    time.sleep(PATIENCE)


def start(number: int, folder: Path, port: int) -> subprocess.Popen[str]:
    """A rank on a host of its own; with the `port` of a store it meets the others there."""
    told = {"RANK": str(number), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": "1"}
    where = [] if port else ["--agree-dir", str(folder / "meeting")]
    if port:
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        told["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    ours = ["-m", "rocm_tui", "run", "--agree", *where, "--"]
    program = [sys.executable, "-W", "ignore", "-m", "tests.ranks.hosts", str(folder)]
    return subprocess.Popen(
        on_host(f"host-{number}", [sys.executable, *ours, *program], connected=bool(port)),
        env=environment(_home(folder, number)) | told,
        stderr=subprocess.PIPE,
        text=True,
    )


def main(stored: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="hosts-") as name:
        folder = Path(name)
        (folder / "meeting").mkdir()
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if stored else None
        port = store.port if store else 0
        runs = [start(number, folder, port) for number in range(RANKS)]
        end = time.monotonic() + PATIENCE
        while not (folder / "claimed").exists():
            assert time.monotonic() < end, "rank 0 has claimed nothing"
            time.sleep(0.1)
        time.sleep(3.0)
        process_with(str(folder), runs[0]).kill()
        killed = time.monotonic()
        said = [run.communicate(timeout=PATIENCE)[1] for run in runs]
        print(f"rank 0 was killed; the others ended {time.monotonic() - killed:.0f} s later")
        return 0 if told(folder, said) else 1


def _home(folder: Path, number: int) -> Path:
    """The cache dir of a host."""
    return folder / f"host-{number}"


def told(folder: Path, said: list[str]) -> bool:
    """Print what each rank took, and why; whether all took one choice, after the silence."""
    hashes, led, waits = set(), 0, list[float]()
    print("\n".join(line for line in said[0].splitlines() if "rank" in line))
    for number in range(1, RANKS):
        logs = [
            read_log(path)[0] for path in Layout(_home(folder, number)).sessions.glob("*.jsonl")
        ]
        (log,) = [log for log in logs if any(isinstance(event, ChoiceSelected) for event in log)]
        (taken,) = [event for event in log if isinstance(event, ChoiceSelected)]
        asked = [event for event in log if isinstance(event, RanksAsked)]
        waited = ", ".join(f"waited {event.waited:.1f} s {event.reason}" for event in asked)
        print(f"rank {number}: {taken.hash} by {taken.by}; {waited}")
        lines = said[number].splitlines()[-12:]
        print("\n".join(f"    {line}" for line in lines))
        hashes.add(taken.hash)
        led += any("ended before" in event.reason for event in asked)
        waits += [event.waited for event in asked]
    return len(hashes) == 1 and led == 1 and min(waits) > SILENCE - 10


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] != "--store":
        rank(Path(sys.argv[1]))
    else:
        sys.exit(main("--store" in sys.argv))
