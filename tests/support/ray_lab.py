"""Ray clusters on this machine: nodes that believe to have GPUs, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rocm_tui.fleet.messages import ToDriver
from rocm_tui.fleet.protocol import Fleet, Site
from rocm_tui.fleet.ray.fleet import RayFleet, RayPlace, node_command
from tests.support.waiting_workers import waiting_python

OBJECTS = 80 << 20


@contextlib.contextmanager
def ray_cluster(nodes: int, gpus: int) -> Iterator[Any]:
    """So many nodes with so many logical GPUs each, as a `ray.cluster_utils.Cluster`."""
    from ray.cluster_utils import Cluster  # heavy

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets: a path has to be short
    with _variable("RAY_TMPDIR", folder):
        cluster = Cluster()
        try:
            for number in range(nodes):
                add_node(cluster, gpus, head=number == 0)
            yield cluster
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster: Any, gpus: int, head: bool = False) -> Any:
    words = {"include_dashboard": False, "include_log_monitor": False} if head else {}
    Path(os.environ["RAY_TMPDIR"], "ray").mkdir(exist_ok=True)
    return cluster.add_node(num_cpus=0, num_gpus=gpus, object_store_memory=OBJECTS, **words)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def hear(fleet: Fleet, seconds: float, kind: type[Any], count: int) -> list[ToDriver]:
    """All that is said until so many of a kind were."""
    end, said = time.monotonic() + seconds, []
    while sum(isinstance(message, kind) for message in said) < count:
        assert time.monotonic() < end, f"only {said}"
        said.extend(fleet.results(0.5))
    return said


@dataclass(frozen=True)
class Lab:
    """A fleet of agents whose workers wait, on a cluster. `folder` is where these say what they do,
    `run` what is in the command lines of all its agents."""

    cluster: Any
    fleet: RayFleet
    folder: Path
    run: str

    def agents(self) -> dict[str, psutil.Process]:
        return agents_of(self.run)


def agents_of(run: str) -> dict[str, psutil.Process]:
    """The processes of agents by their names."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if run in words and "agent" in words:
            found[words[words.index("--name") + 1]] = process
    return found


def workers_of(folder: Path) -> list[psutil.Process]:
    """All that look like its workers, whoever is their parent."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in (process.info["cmdline"] or [])
        and "waiting_workers" in str(process.info["cmdline"])
    ]


def new_run() -> str:
    return f"run-{secrets.token_hex(4)}"


def waiting_fleet(address: str, folder: Path, run: str) -> RayFleet:
    site = Site(folder, run, waiting_python(folder))
    return RayFleet(RayPlace(address, 0), node_command(site))


@contextlib.contextmanager
def ray_lab(cluster: Any, folder: Path) -> Iterator[Lab]:
    run = new_run()
    fleet = waiting_fleet(cluster.address, folder, run)
    try:
        yield Lab(cluster, fleet, folder, run)
    finally:
        fleet.stop()


def wait_until(condition: Callable[[], object], seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
