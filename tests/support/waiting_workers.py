"""Workers that wait instead of computing, as real processes that speak the protocol.

`waiting_python(folder)` makes an interpreter to give as `--python`: what it runs is this file. It
says that it has a GPU where one is visible, and tunes an op by waiting for as long as the job's
budget; the times of the key `[7]` are 7 ms and 107 ms, and go into the cache as those of a real
worker. Each that begins or ends a tuning adds a line to the file `log` of the folder.

A file `dies-7` in the folder lets the first worker that begins with that key kill itself, and
removes it; `slow-3` lets the workers that see the GPU 3 prefer the other choice.
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

from backend.cache.fold import fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout, cache_dir
from backend.pins.holders import pinned_choices
from backend.processes import tree
from backend.processes.supervisor import supervised
from backend.wire.jobs import TuneJob
from backend.worker.protocol import EventSender
from tests.support.odd_workers import python_that_runs

SYSTEM = "0" * 64


def waiting_python(folder: Path) -> str:
    return python_that_runs(__file__, folder)


def waiting_job(number: int, seconds: float) -> TuneJob:
    return TuneJob("mm", f"[{number}]", "highest", budget=seconds)


def times_of(inputs: str) -> dict[str, float]:
    number = float(inputs.strip("[]"))
    return {"mm-1": number, "mm-2": number + 100}


def log_of(folder: Path) -> list[dict[str, Any]]:
    """What workers did: `what` is `begins` or `ends`, `inputs` of which problem, `pid` and when
    it `started`, `gpu`."""
    path = folder / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ended(folder: Path) -> list[str]:
    """The keys of all tunings that have ended."""
    return [entry["inputs"] for entry in log_of(folder) if entry["what"] == "ends"]


def alive(folder: Path) -> set[int]:
    """The ids of the workers in the log that run. A number that the system gave to another process
    since is none of them."""
    return {entry["pid"] for entry in log_of(folder) if entry["started"] == _started(entry["pid"])}


def _started(pid: int) -> int | None:
    process = tree.read(pid)
    return None if process is None else process.started


def _environment(folder: Path) -> dict[str, Any]:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    units = 80 if (folder / f"unlike-{gpu}").exists() else 304
    units = int(os.environ.get("WAITING_COMPUTE_UNITS", units))
    return {
        "torch": "2.13.0",
        "gpu": bool(gpu),
        "device": "waits",
        "arch": "gfx942" if gpu else None,
        "compute_units": units if gpu else None,
        "system_hash": SYSTEM,
    }


def _tune(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    threads = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS")
    entry = {"inputs": job["inputs"], "gpu": gpu, "threads": threads}
    entry |= {"pid": os.getpid(), "started": _started(os.getpid())}
    _log(folder, {**entry, "what": "begins"})
    dies = folder / f"dies-{job['inputs'].strip('[]')}"
    if dies.exists():
        dies.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(job["budget"])
    times = times_of(job["inputs"])
    if (folder / f"slow-{gpu}").exists():
        times = {"mm-1": 900.0, "mm-2": 800.0}
    layout = Layout(cache_dir())
    path = layout.autotune / SYSTEM
    tuned = Tuned("mm", job["inputs"], "highest", times, time.time())
    Journal(layout.root, path).append(line_of(tuned))
    fold(layout.root, path, {"hash": SYSTEM}, pinned_choices)
    _log(folder, {**entry, "what": "ends"})
    choices = [{"name": hash, "hash": hash, "ms": ms} for hash, ms in times.items()]
    key = {"op": "mm", "inputs": job["inputs"], "precision": "highest", "system_hash": SYSTEM}
    ranked = sorted(choices, key=lambda choice: choice["ms"])
    return {"ok": True, **key, "times": times, "system": {"hash": SYSTEM}, "choices": ranked}


def _log(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / "log").open("a") as stream:
        stream.write(json.dumps(entry) + "\n")


def main() -> int:
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        answers = EventSender(1, job["id"], job["token"])
        is_tune = job["job"] == "tune"
        answers.result(_tune(job, folder) if is_tune else _environment(folder))
    return 0


if __name__ == "__main__":
    sys.exit(supervised(main))
