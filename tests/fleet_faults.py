"""kill -9 of workers, agents and drivers of a fleet's run, at drawn moments:

    python -m tests.fleet_faults --moments 200 --seed 1

A story is one run of some units on local agents: the real program in real processes, whose workers
wait instead of computing. At each drawn moment a drawn process of it is killed. A driver that was
killed is followed by another one, which goes on with the run. At the end each unit is in the cache,
has one result in the record and one only, and no process is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from backend.cache.autotune import read_cache
from backend.disk.layout import Layout
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines
from rocm_tui.fleet.record import Reader, record_path
from tests.support.waiting_workers import SPLIT, log_of, split_units, waiting_python, waiting_units

AGENTS = 3
PROBLEMS = 9
TWO_HEATS = 3
"""So many of the problems are split."""
UNITS = PROBLEMS + 2 * TWO_HEATS
SECONDS = 0.4
"""That a unit takes."""
MOMENTS = 5
"""Kills of a story."""
MOST = 90.0
"""Seconds after which a story is stuck."""
SYSTEM = "0" * 64
_MARK = "FAULTS_OF_FLEET"


@dataclass
class Story:
    root: Path
    rng: random.Random
    moments: int
    kills: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    run: str = ""
    units: list[str] = field(default_factory=list)

    def play(self) -> Story:
        self.root.mkdir(parents=True)
        problems = waiting_units(PROBLEMS, SECONDS)
        heats = [part for unit in problems[:TWO_HEATS] for part in split_units(unit)]
        units = [*heats, *problems[TWO_HEATS:]]
        self.units = [unit.id for unit in units]
        with Run.begin(Layout(self.root), Wanted(("local:cpu",)), units) as run:
            self.run = run.name
        python = waiting_python(self.root)
        self.env = {**os.environ, _MARK: str(self.root)}
        self.command = [
            sys.executable, "-m", "rocm_tui", "tune", "--resume", self.run, "--no-canary",
            "--fleet", f"local:cpu:{AGENTS}", "--python", python, "--cache-dir", str(self.root),
        ]  # fmt: skip
        end = time.monotonic() + MOST
        try:
            while not self._over():
                if time.monotonic() > end:
                    self.bad.append(f"stuck: {self._states()}")
                    break
                self._drive(end)
            self._judge()
        finally:
            for process in self._processes():
                with suppress(psutil.Error):
                    process.kill()
        return self

    def _drive(self, end: float) -> None:
        """One driver, until it ends or is killed, with a kill now and then."""
        driver = subprocess.Popen(
            self.command,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        due = time.monotonic() + self.rng.uniform(0.2, 2.5)
        while driver.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
            if self.kills.total() < self.moments and time.monotonic() >= due:
                due = time.monotonic() + self.rng.uniform(0.1, 1.5)
                self._kill(driver.pid)
        if driver.poll() is None:
            driver.kill()
        _, said = driver.communicate()
        if driver.returncode not in (0, 1, -signal.SIGKILL):
            self.bad.append(f"the driver ended with {driver.returncode}: {said.decode()[-300:]}")
        if b"Traceback" in said:
            self.bad.append(said.decode()[-600:])

    def _kill(self, driver: int) -> None:
        """One of the driver, its agents and their workers."""
        there: dict[str, list[int]] = {"driver": [driver], "agent": [], "worker": []}
        for process in self._processes():
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if "rocm_tui agent" in words:
                    there["agent"].append(process.pid)
                elif "waiting_workers" in words:
                    there["worker"].append(process.pid)
        kind = self.rng.choice(["driver", "agent", "agent", "worker", "worker"])
        with suppress(ProcessLookupError, IndexError):  # there is none at this moment
            os.kill(self.rng.choice(there[kind]), signal.SIGKILL)
            self.kills[kind] += 1

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == str(self.root):
                    yield process

    def _news(self) -> list[lines.Line]:
        return [line for _, line in Reader(record_path(Layout(self.root), self.run)).news()]

    def _states(self) -> str:
        return ", ".join(f"{type(line).__name__}" for line in self._news()[-8:])

    def _over(self) -> bool:
        merged = {line.unit for line in self._news() if isinstance(line, lines.Merged)}
        return len(merged) == PROBLEMS

    def _judge(self) -> None:
        split = {f"[{n}]": set(SPLIT) for n in range(TWO_HEATS)}
        wanted = split | {f"[{n}]": {SPLIT[0]} for n in range(TWO_HEATS, PROBLEMS)}
        done = Counter(line.done.unit for line in self._news() if isinstance(line, lines.Done))
        subprocess.run(self.command, env=self.env, capture_output=True)  # it folds what is left
        entries = read_cache(Layout(self.root).autotune / SYSTEM).entries
        kept = {key.inputs: set(times) for key, times in entries.items()}
        if kept != wanted:
            self.bad.append(f"kept: {kept}")
        if done != Counter(self.units):
            self.bad.append(f"results in the record: {dict(done)}")
        end = time.monotonic() + 8.0
        while (left := list(self._processes())) and time.monotonic() < end:
            time.sleep(0.1)
        if left:
            self.bad.append(f"{len(left)} processes are left")
        ended = sum(entry["what"] == "ends" for entry in log_of(self.root))
        if ended > UNITS + self.kills.total() * 2:
            self.bad.append(f"{ended} tunings were made for {UNITS}")


def stories(folder: Path, moments: int, seed: int) -> Iterator[Story]:
    number = 0
    while moments > 0:
        number += 1
        rng = random.Random(f"{seed} {number}")
        story = Story(folder / str(number), rng, min(MOMENTS, moments)).play()
        moments -= max(1, story.kills.total())
        yield story


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(words)
    kills, bad, count = Counter[str](), 0, 0
    with tempfile.TemporaryDirectory(prefix="fleet-faults-") as folder:
        for story in stories(Path(folder), args.moments, args.seed):
            count += 1
            kills += story.kills
            bad += bool(story.bad)
            for what in story.bad:
                print(f"story {count} of seed {args.seed}: {what}")
    told = ", ".join(f"{many} of {kind}s" for kind, many in sorted(kills.items()))
    print(
        f"{kills.total()} kills ({told}) in {count} runs of {UNITS} units, "
        f"{TWO_HEATS} of {PROBLEMS} problems split: {bad} runs went wrong"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
