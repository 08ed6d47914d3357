"""An agent with workers that wait, and the program that it is: cancelled, killed, left alone."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from rocm_tui.fleet.agent import Agent
from rocm_tui.fleet.local import agent_command, local_devices
from rocm_tui.fleet.messages import Cancel, Done, Hello, Offer, ToDriver, line_of, message_of
from rocm_tui.fleet.opening import agents_here
from rocm_tui.fleet.protocol import NoFleet, Site
from rocm_tui.jobs.limits import Limits
from tests.support.waiting_workers import log_of, pids, waiting_python, waiting_units

PATIENCE = 120.0
Said = queue.Queue[ToDriver]


@contextmanager
def working(folder: Path) -> Iterator[tuple[Agent, Said]]:
    said: Said = queue.Queue()
    agent = Agent("a", "cpu", waiting_python(folder), folder / "scratch", said.put)
    agent.start()
    try:
        assert isinstance(said.get(timeout=PATIENCE), Hello)
        yield agent, said
    finally:
        agent.end()


def done(said: Said) -> Done:
    while not isinstance(message := said.get(timeout=PATIENCE), Done):
        pass
    return message


def begun(folder: Path, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while sum(entry["what"] == "begins" for entry in log_of(folder)) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_lease_that_is_cancelled_ends_at_once_and_the_next_one_is_done(tmp_path: Path) -> None:
    (long, short) = waiting_units(1, 600) + waiting_units(2, 0.05)[1:]
    with working(tmp_path) as (agent, said):
        agent.take(Offer("1", long))
        agent.take(Offer("2", short))
        begun(tmp_path, 1)
        agent.take(Cancel("1"))
        message = done(said)
    assert (message.lease, message.reason) == ("2", "") and message.result is not None
    assert message.facts.system_hash == "0" * 64 and message.seconds < 300


def test_a_worker_that_is_killed_fails_its_unit_and_no_more(tmp_path: Path) -> None:
    (long, short) = waiting_units(1, 600) + waiting_units(2, 0.05)[1:]
    with working(tmp_path) as (agent, said):
        agent.take(Offer("1", long))
        agent.take(Offer("2", short))
        begun(tmp_path, 1)
        for pid in pids(log_of(tmp_path)):
            os.kill(pid, signal.SIGKILL)
        first, second = done(said), done(said)
    assert "SIGKILL" in first.reason and not first.own and first.result is None
    assert second.result is not None


def test_the_program_ends_with_its_stdin_and_leaves_nothing(tmp_path: Path) -> None:
    python = waiting_python(tmp_path)
    words = ["agent", "--device", "cpu", "--name", "x", "--run", "r", "--python", python]
    program = subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(tmp_path / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None and program.stdout is not None
    hello = message_of(program.stdout.readline())
    assert isinstance(hello, Hello) and hello.agent == "x"
    assert [path.name for path in (tmp_path / "cache/rocm_tui/fleet/r").iterdir()]
    program.stdin.write(b"no message\n" + line_of(Offer("1", waiting_units(1, 600)[0])))
    program.stdin.flush()
    begun(tmp_path, 1)
    [worker] = pids(log_of(tmp_path))
    program.stdin.close()
    assert program.wait(PATIENCE) == 0
    program.stdout.close()
    assert not psutil.pid_exists(worker) and not list((tmp_path / "cache/rocm_tui/fleet").iterdir())


def test_local_agents_share_the_memory_of_the_machine() -> None:
    alone, shared = Limits.of_this_machine(), Limits.of_this_machine(4)
    assert alone.memory is not None and alone.of is not None
    assert shared.memory == int(alone.of * 0.8 / 4)
    command = agent_command(["rocm-tui"], "a", "0", Site(None, "r"), 4)
    assert command[command.index("--share") + 1] == "4"
    assert "--share" not in agent_command(["rocm-tui"], "a", "0", Site(None, "r"))
    assert agents_here(["local:cpu:3", "ray:auto", "local:cpu:2", "ray"]) == 5


def test_which_devices_local_means() -> None:
    assert local_devices("", 2) == {"0": "0", "1": "1"}
    assert local_devices("1", 2) == {"0": "0"}
    assert local_devices("", 0) == {"cpu0": "cpu"}
    assert local_devices("2", 0) == local_devices("cpu:2", 8) == {"cpu0": "cpu", "cpu1": "cpu"}
    for words, gpus in (("3", 2), ("x", 1), ("0", 0), ("cpu:1:1", 0)):
        try:
            local_devices(words, gpus)
        except NoFleet as error:
            assert f"local:{words}" in str(error)
        else:
            raise AssertionError(words)
