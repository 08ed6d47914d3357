"""A worker that measures nothing, as a real process: what the hash of a choice begins with happens
when it is run.

`broken_python(folder)` makes an interpreter to give as `--python`. Each job that it gets becomes a
line of `folder/jobs`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from backend.wire.codec import to_json

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.processes.supervisor import supervised
from backend.worker.protocol import mark_argument
from tests.support.odd_workers import python_that_runs, say


def broken_python(folder: Path) -> str:
    return python_that_runs(__file__, folder)


def run(job: dict[str, Any]) -> dict[str, Any]:
    mark, able = mark_argument(job), [h for h in job["hashes"] if h not in job["broken"]]
    say(job, event="progress", what="begins", rounds=1, seconds_left=job["budget"] / 2)
    print("last words", file=sys.stderr, flush=True)
    for hash in able:
        if hash.startswith("compiler"):
            with mark.at("compiling", hash):
                os.abort()
        with mark.at("running", hash):
            happen(hash)
    if "outside" in job["op"]:
        os.kill(os.getpid(), signal.SIGSEGV)
    found = Measurement(
        job["op"],
        job["inputs"],
        job["precision"],
        1.0,
        tuple(MeasuredChoice(h, 1.0, 1.0, 1.0, 0.0, 9, 1.0, 1.0, 1.0, "tied") for h in able),
        tuple(Choice(h, h, failed=True, reason=why) for h, why in job["broken"].items()),
    )
    nonsense = any(hash.startswith("nonsense") for hash in able)
    return {"ok": True, "measurement": 7 if nonsense else to_json(found)}


def happen(hash: str) -> None:
    if hash.startswith("segv"):
        os.kill(os.getpid(), signal.SIGSEGV)
    elif hash.startswith("hang"):
        time.sleep(600)
    elif hash.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif hash.startswith("realtime"):
        os.kill(os.getpid(), signal.SIGRTMIN + 3)
    elif hash.startswith("slow"):
        time.sleep(0.4)


def main() -> int:
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        with (folder / "jobs").open("a") as jobs:
            jobs.write(line)
        job = json.loads(line)
        say(job, event="result", result=run(job))
    return 0


if __name__ == "__main__":
    sys.exit(supervised(main))
