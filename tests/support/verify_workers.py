"""A worker that verifies nothing, as a real process: what the hash of a choice begins with happens.

`verifying_python(folder)` makes an interpreter to give as `--python`. Each process becomes a line
of `folder/started`, each job one of `folder/jobs`: the mode and the hash. A job on a GPU is one of
`folder/gpus`, its index; where there is a file `folder/other_on_INDEX`, another choice is called.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.processes.supervisor import supervised
from tests.support.odd_workers import python_that_runs, say


def verifying_python(folder: Path) -> str:
    return python_that_runs(__file__, folder)


def result(hash: str, mode: int) -> dict[str, Any]:
    usual = {"ok": True, "kernel": f"{hash}_0", "reason": "", "conclusive": True, "modes": 3}
    if hash.startswith("mode"):
        fits = hash.startswith(f"mode{mode}")
        return {**usual, "ok": fits, "conclusive": fits, "reason": f"not in mode {mode}"}
    if hash.startswith("convolution"):
        return {**usual, "ok": False, "rebuilt": False, "reason": "convolution cannot be rebuilt"}
    if hash.startswith("spent"):
        return {**usual, "ok": False, "spent": True, "reason": "it does not compile"}
    return usual


def main() -> int:
    folder = Path(sys.argv[1])
    with (folder / "started").open("a") as started:
        started.write(f"{os.getpid()}\n")
    if (folder / "broken").exists():
        sys.exit("no torch here")
    for line in sys.stdin:
        job = json.loads(line)
        with (folder / "jobs").open("a") as jobs:
            jobs.write(f"{job['mode']} {job['hash']}\n")
        say(job, event="progress", what="compiling")
        if job["hash"].startswith("segv"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if job["hash"].startswith(("hang", "slow")):
            time.sleep(600 if job["hash"].startswith("hang") else 0.5)
        answer = result(job["hash"], job["mode"])
        if (gpu := job.get("gpu")) is not None:
            with (folder / "gpus").open("a") as gpus:
                gpus.write(f"{gpu}\n")
            if (folder / f"other_on_{gpu}").exists():
                reason = "the generated code calls triton_mm_9"
                answer |= {"ok": False, "hash": "triton_mm-c9", "reason": reason}
        say(job, event="result", result=answer)
    return 0


if __name__ == "__main__":
    sys.exit(supervised(main))
