"""A fleet on a real Ray cluster of this machine, whose nodes believe to have GPUs; its agents are
the real ones, and their workers wait instead of computing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocm_tui.fleet.messages import Cancel, Done, Gone, Hello, Offer
from tests.support.ended import ended
from tests.support.places import ROOT
from tests.support.ray_lab import (
    Lab,
    add_node,
    agents_of,
    hear,
    new_run,
    ray_cluster,
    ray_lab,
    wait_until,
    workers_of,
)
from tests.support.waiting_workers import log_of, waiting_units

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1, 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lab(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with ray_lab(cluster, tmp_path_factory.mktemp("lab")) as lab:
        yield lab
    assert not lab.agents() and not workers_of(lab.folder)


@pytest.fixture(scope="module")
def names(lab: Lab) -> list[str]:
    said = hear(lab.fleet, 180, Hello, 2)
    assert sorted(said_by(said)) == sorted(lab.fleet.agents)
    return sorted(said_by(said))


def share_of(agent: psutil.Process) -> str:
    """By how many its command line says that the memory is shared."""
    words = agent.cmdline()
    return words[words.index("--share") + 1]


def said_by(messages: list[object]) -> list[str]:
    return [message.agent for message in messages if isinstance(message, Hello | Gone | Done)]


def test_a_driver_that_is_killed_takes_all_along(cluster: Any, tmp_path: Path) -> None:
    """Before the others: it has both GPUs."""
    run = new_run()
    words = [sys.executable, "-m", "tests.support.ray_driver", cluster.address, tmp_path, run]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == b"at work\n"
        assert len(agents_of(run)) == 2 and len(workers_of(tmp_path)) >= 2
        driver.kill()
    wait_until(lambda: not agents_of(run) and not workers_of(tmp_path))


def test_two_gpus_tune_at_once_each_its_own(lab: Lab, names: list[str]) -> None:
    for name, unit in zip(names, waiting_units(2, 600), strict=True):
        lab.fleet.offer(name, Offer(f"long {unit.id}", unit))
    wait_until(lambda: len(log_of(lab.folder)) == 2)
    assert {(e["what"], e["gpu"]) for e in log_of(lab.folder)} == {("begins", "0"), ("begins", "1")}
    for name, unit in zip(names, waiting_units(2, 0.05), strict=True):
        lab.fleet.offer(name, Cancel(f"long {unit.id}"))
        lab.fleet.offer(name, Offer(f"short {unit.id}", unit))
    done = [each for each in hear(lab.fleet, 180, Done, 2) if isinstance(each, Done)]
    assert {each.unit for each in done if each.result} == {"unit0", "unit1"}


def test_a_killed_worker_ends_a_unit_and_not_its_agent(lab: Lab, names: list[str]) -> None:
    (unit,) = waiting_units(1, 600)
    count = len(log_of(lab.folder))
    lab.fleet.offer(names[0], Offer("doomed", unit))
    wait_until(lambda: len(log_of(lab.folder)) > count)
    before = lab.agents()[names[0]].pid
    os.kill(log_of(lab.folder)[-1]["pid"], signal.SIGKILL)
    said = hear(lab.fleet, 180, Done, 1)
    (done,) = [message for message in said if isinstance(message, Done)]
    assert "somebody killed it" in done.reason and not any(isinstance(m, Gone) for m in said)
    assert lab.agents()[names[0]].pid == before


@pytest.mark.parametrize("what", ["agent", "actor"])
def test_what_is_killed_is_gone_and_comes_again(lab: Lab, names: list[str], what: str) -> None:
    (unit,) = waiting_units(1, 600)
    count = len(log_of(lab.folder))
    lab.fleet.offer(names[0], Offer(f"lost with its {what}", unit))
    wait_until(lambda: len(log_of(lab.folder)) > count)
    worker = psutil.Process(log_of(lab.folder)[-1]["pid"])
    agent = lab.agents()[names[0]]
    (agent if what == "agent" else agent.parent()).kill()
    said = hear(lab.fleet, 180, Hello, 1)
    (gone,) = [message for message in said if isinstance(message, Gone)]
    assert (gone.agent, gone.returns) == (names[0], True)
    (hello,) = [message for message in said if isinstance(message, Hello)]
    assert hello.agent == names[0]
    wait_until(lambda: ended(worker) and ended(agent))


def test_a_node_that_joins_works_and_one_that_dies_is_gone(lab: Lab, names: list[str]) -> None:
    node = add_node(lab.cluster, 1)
    (hello,) = [each for each in hear(lab.fleet, 180, Hello, 1) if isinstance(each, Hello)]
    assert hello.agent not in names
    shares = {name: share_of(agent) for name, agent in lab.agents().items()}
    assert shares == {**dict.fromkeys(names, "2"), hello.agent: "3"}  # all on this machine
    assert set(lab.fleet.agents) == {*names, hello.agent}
    node.kill_raylet()
    said = hear(lab.fleet, 180, Gone, 1)
    (gone,) = [message for message in said if isinstance(message, Gone)]
    assert gone.agent == hello.agent
    wait_until(lambda: hello.agent not in lab.agents())
