"""A fleet on a Ray cluster of this machine: `python -m tests.fleet_ray [--kills N [--split]]`.

Units wait instead of computing, all else is real. Without `--kills`: three nodes with eight logical
GPUs each, and how much faster 8 and 24 agents are than one. With it, on three nodes with two each:
workers, agents, actors, nodes and drivers are killed (SIGKILL) at N drawn moments, drivers go on
from their record, and in the end each unit has to be in the record once, and in the cache. With
`--split` every other problem is two heats and a final; its entry has to have the choices of both.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from rocm_tui import say
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines
from rocm_tui.fleet.messages import Hello, ToAgent, ToDriver, Unit
from rocm_tui.fleet.protocol import Fleet
from rocm_tui.fleet.record import Reader
from tests.support.places import ROOT
from tests.support.ray_lab import (
    add_node,
    agents_of,
    hear,
    new_run,
    ray_cluster,
    waiting_fleet,
    workers_of,
)
from tests.support.waiting_workers import SPLIT, log_of, split_units, waiting_units

WANTED = Wanted(fleet=("ray",), canary=False)


class Part:
    """Some agents of a fleet, which goes on when this ends."""

    def __init__(self, fleet: Fleet, hellos: Sequence[Hello]) -> None:
        self._fleet = fleet
        self._hellos: list[ToDriver] = list(hellos)
        self.agents: Collection[str] = [hello.agent for hello in hellos]

    def offer(self, agent: str, message: ToAgent) -> None:
        self._fleet.offer(agent, message)

    def results(self, timeout: float) -> Sequence[ToDriver]:
        hellos, self._hellos = self._hellos, []
        said = hellos or self._fleet.results(timeout)
        return [message for message in said if message.agent in self.agents]

    def stop(self) -> None:
        """The next part has the same agents."""


def rate(fleet: Fleet, hellos: Sequence[Hello], folder: Path, each: int, seconds: float) -> float:
    """Units in a second, of `each` for each agent."""
    units = waiting_units(each * len(hellos), seconds)
    with Run.begin(Layout(folder / f"cache{len(hellos)}"), WANTED, units) as run:
        begin = time.monotonic()
        run.work(Part(fleet, hellos))
        took = time.monotonic() - begin
        counts = run.standing.counts()
    assert counts.merged == len(units), counts
    return len(units) / took


def throughput(each: int, seconds: float) -> None:
    with folder() as place, ray_cluster(3, 8) as cluster:
        begin = time.monotonic()
        fleet = waiting_fleet(cluster.address, place, new_run())
        try:
            said = hear(fleet, 300, Hello, 24)
            hellos = [message for message in said if isinstance(message, Hello)]
            say.out(f"24 agents on 3 nodes are ready after {time.monotonic() - begin:.0f} s")
            rate(fleet, hellos, place / "warm", 1, 0.05)  # each starts a worker
            one = rate(fleet, hellos[:1], place, each, seconds)
            say.out(f" 1 agent : {one:6.2f} units/s, each waits {seconds:g} s")
            for many in (8, 24):
                units = rate(fleet, hellos[:many], place, each, seconds)
                say.out(f"{many:2} agents: {units:6.2f} units/s, {units / one:.1f} x")
        finally:
            fleet.stop()


# Kills.

TARGETS = ("worker", "agent", "actor", "node", "driver")
WEIGHTS = (8, 6, 8, 1, 2)


class Campaign:
    """Drivers, one after the other, on a cluster whose parts are killed."""

    def __init__(self, cluster: Any, place: Path, draw: random.Random) -> None:
        self._cluster = cluster
        self._place = place
        self._draw = draw
        self.killed: collections.Counter[str] = collections.Counter()
        self.drivers = 0
        self._driver: subprocess.Popen[bytes] | None = None

    def run(self, kills: int, units: Sequence[Unit]) -> None:
        """Kill so often while they work, then let them end."""
        start_units(self._place, units)
        while not finished(self._place):
            driver = self._start()
            while driver.poll() is None:
                if sum(self.killed.values()) < kills:
                    time.sleep(self._draw.uniform(0.0, 2.0))
                    self._kill(self._draw.choices(TARGETS, WEIGHTS)[0])
                else:
                    time.sleep(0.2)
            self._driver = None

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.drivers += 1
        words = [sys.executable, "-m", "tests.fleet_ray", "--drive", self._cluster.address]
        self._driver = subprocess.Popen(
            [*words, str(self._place)], cwd=ROOT, stdout=2, start_new_session=True
        )
        return self._driver

    def _kill(self, target: str) -> None:
        done = False
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            done = bool(getattr(self, f"_kill_{target}")())
        self.killed[target] += done
        say.err(f"killed so far: {dict(self.killed)}")

    def _kill_worker(self) -> bool:
        return self._one(workers_of(self._place))

    def _kill_agent(self) -> bool:
        return self._one(list(agents_of(run_of(self._place)).values()))

    def _kill_actor(self) -> bool:
        return self._one([agent.parent() for agent in agents_of(run_of(self._place)).values()])

    def _kill_node(self) -> bool:
        """Not the head, which is where the driver is; another one takes its place."""
        node = self._draw.choice(sorted(self._cluster.worker_nodes, key=id))
        node.kill_raylet()
        self._cluster.remove_node(node)
        for _ in range(5):  # on a busy machine Ray gives up a node that is slow to start
            with contextlib.suppress(Exception):
                add_node(self._cluster, 2)
                break
        return True

    def _kill_driver(self) -> bool:
        assert self._driver is not None
        self._driver.kill()
        self._driver.wait()
        return True

    def _one(self, processes: list[Any]) -> bool:
        if processes:
            self._draw.choice(processes).kill()
        return bool(processes)


def start_units(place: Path, units: Sequence[Unit]) -> None:
    with Run.begin(Layout(place / "cache"), WANTED, units) as run:
        (place / "run").write_text(run.name)


def units_of(problems: Sequence[Unit], splits: bool) -> list[Unit]:
    """With `splits` every other problem is two heats and a final."""
    return [
        part
        for n, unit in enumerate(problems)
        for part in (split_units(unit) if splits and n % 2 else [unit])
    ]


def incomplete(place: Path, problems: Sequence[Unit], splits: bool) -> int:
    """How many problems do not have all their choices in the cache file."""
    ((file,), _) = read_caches(Layout(place / "cache"))
    found = {key.inputs: set(times) for key, times in file.entries.items()}
    wanted = [set(SPLIT) if splits and n % 2 else {SPLIT[0]} for n in range(len(problems))]
    return sum(found.get(p.job.inputs or "") != w for p, w in zip(problems, wanted, strict=True))


def run_of(place: Path) -> str:
    return (place / "run").read_text()


def drive(address: str, place: Path) -> None:
    """A driver of the run there, until it ends or is killed."""
    with Run.resume(Layout(place / "cache"), WANTED, run_of(place)) as run:
        run.work(waiting_fleet(address, place, run.name), tell=say.err)


def record(place: Path) -> list[lines.Line]:
    path = Layout(place / "cache").home / "fleet" / f"{run_of(place)}.jsonl"
    return [line for _, line in Reader(path).news()]


def merged(place: Path) -> collections.Counter[str]:
    return collections.Counter(
        each.unit for each in record(place) if isinstance(each, lines.Merged)
    )


def finished(place: Path) -> bool:
    begun = [line for line in record(place) if isinstance(line, lines.Begun)]
    return len(merged(place)) == sum(not unit.part_of for unit in begun[0].units)


def kills(count: int, seed: int, splits: bool) -> bool:
    """Whether nothing was lost, nothing is there twice, and no process was left."""
    problems = waiting_units((3 if splits else 6) * count + 20, 0.4)
    units = units_of(problems, splits)
    with folder() as place, ray_cluster(1, 2) as cluster:
        for _ in range(2):
            add_node(cluster, 2)
        begin = time.monotonic()
        campaign = Campaign(cluster, place, random.Random(seed))
        try:
            campaign.run(count, units)
        finally:
            campaign.stop()
        took = time.monotonic() - begin
        said = [line.done.unit for line in record(place) if isinstance(line, lines.Done)]
        done = collections.Counter(said)
        ended = collections.Counter(e["inputs"] for e in log_of(place) if e["what"] == "ends")
        again = sum(n - 1 for n in ended.values())
        time.sleep(1.0)
        left = len(agents_of(run_of(place))) + len(workers_of(place))
        lost, twice = len(units) - len(done), sum(n - 1 for n in done.values())
        bad = incomplete(place, problems, splits)
        twice += sum(n - 1 for n in merged(place).values())
        told = ", ".join(f"{target} {n}" for target, n in sorted(campaign.killed.items()))
        say.out(f"seed {seed}: {sum(campaign.killed.values())} kills ({told}) in {took:.0f} s")
        parts = f"{len(problems)} problems of {len(units)} units, {campaign.drivers} drivers"
        say.out(f"{parts}: {lost} lost, {twice} recorded twice, {bad} entries lack choices,")
        say.out(f"{again} waited for again since their result was killed on its way, {left} left")
    return not (lost or twice or bad or left)


# Real tunings.

BMMS = (("2x32x16", "2x16x24"), ("2x48x16", "2x16x24"))


def tunings() -> bool:
    """Whether two products, tuned by `tune --fleet` on two nodes without a GPU, leave the cache
    file that one worker leaves, but for the times."""
    with folder() as place, ray_cluster(2, 0) as cluster:
        alone, fleet = place / "alone", place / "fleet"
        fleet.mkdir()
        for shapes in BMMS:
            rocm_tui(alone, "tune", "bmm", *shapes, "--dtype", "f32")
        where = f"ray:{cluster.address}?cpus=1"
        rocm_tui(fleet, "tune", "--all", "--from", str(alone), "--fleet", where)
        same = kept(alone) == kept(fleet)
        entries = sum(len(choices) for choices in kept(fleet)[1].values())
        say.out(f"{len(BMMS)} products, {entries} choices: {'the same' if same else 'others'}")
    return same and entries >= 2 * len(BMMS)


def rocm_tui(root: Path, *words: str) -> None:
    command = [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(root)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def kept(root: Path) -> tuple[str, dict[TuningKey, set[str]]]:
    ((file,), _) = read_caches(Layout(root))
    return file.system_hash, {key: set(times) for key, times in file.entries.items()}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fleet-ray-") as name:
        yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet_ray", description=__doc__)
    parser.add_argument("--kills", type=int, metavar="N", help="kill at so many drawn moments")
    parser.add_argument("--tune", action="store_true", help="two real products, on the CPU")
    parser.add_argument("--split", action="store_true", help="with --kills: heats and finals, too")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--each", type=int, default=8, help="units for an agent (default: 8)")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a unit waits (default: 2)")
    parser.add_argument("--drive", nargs=2, metavar=("ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(args.drive[0], Path(args.drive[1]))
    elif args.tune:
        return 0 if tunings() else 1
    elif args.kills:
        return 0 if kills(args.kills, args.seed, args.split) else 1
    else:
        throughput(args.each, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
