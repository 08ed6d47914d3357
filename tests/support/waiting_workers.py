"""Workers that wait instead of computing, as real processes that speak the protocol.

`waiting_python(folder)` makes an interpreter to give as `--python`: what it runs is this file. It
says that it has a GPU where one is visible, and tunes an op by waiting for as long as the job's
budget. A problem has the choice `mm-1`, one that is split all of `SPLIT`. Each that begins or ends
a tuning adds a line to the file `log` of the folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.processes.supervisor import apart
from backend.worker.protocol import Answers
from rocm_tui.fleet.messages import Unit
from tests.support.odd_workers import python_that_runs

SPLIT = ("mm-1", *(f"triton-{n}" for n in range(16)))
"""The choices of a problem that is split, by their times."""


def waiting_python(folder: Path) -> str:
    return python_that_runs(__file__, folder)


def waiting_units(count: int, seconds: float) -> list[Unit]:
    from backend.wire.jobs import TuneJob  # the worker itself needs none

    jobs = [TuneJob("mm", f"[{n}]", "highest", budget=seconds) for n in range(count)]
    return [Unit(f"unit{n}", f"mm {n}", job, weight=seconds) for n, job in enumerate(jobs)]


def split_units(unit: Unit) -> list[Unit]:
    """Two heats and the final of it."""
    from rocm_tui.fleet.splitting import split

    times = {hash: 1.0 + n for n, hash in enumerate(SPLIT)}
    return split(replace(unit, known=times), SPLIT, 2)


def log_of(folder: Path) -> list[dict[str, Any]]:
    """What workers did: `what` is `begins` or `ends`, `inputs` of which unit, `pid`, `gpu`."""
    path = folder / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def pids(entries: Iterable[dict[str, Any]]) -> set[int]:
    return {entry["pid"] for entry in entries}


def _environment() -> dict[str, Any]:
    gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {"torch": "2.13.0", "gpu": gpu, "device": "waits", "system_hash": "0" * 64}


def _tune(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    told = {"inputs": job["inputs"], "pid": os.getpid()}
    _log(folder, {**told, "what": "begins", "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")})
    time.sleep(job["budget"])
    _log(folder, {**told, "what": "ends"})
    key = {"op": job["op"], "inputs": job["inputs"], "precision": "highest"}
    times = {hash: 1.0 + SPLIT.index(hash) for hash in _offered(job)}
    kept = {"system_hash": "0" * 64, "times": times, "system": {"hash": "0" * 64}}
    choices = [{"name": hash, "hash": hash, "ms": ms} for hash, ms in times.items()]
    return {"ok": True, **key, **kept, "choices": choices}


def _offered(job: dict[str, Any]) -> list[str]:
    """As a worker takes `only` and `without`."""
    if not job.get("only") and not job.get("without"):
        return [SPLIT[0]]
    left = [hash for hash in SPLIT if hash not in (job.get("without") or ())]
    return [hash for hash in left if hash in (job.get("only") or left)]


def _log(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / "log").open("a") as stream:
        stream.write(json.dumps(entry) + "\n")


def main() -> int:
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        answers = Answers(1, job["id"], job["token"])
        answers.result(_environment() if job["job"] == "environment" else _tune(job, folder))
    return 0


if __name__ == "__main__":
    sys.exit(apart(main))
