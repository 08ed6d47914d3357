"""A fleet behind ssh: real agents through a server of our own, whose workers wait instead of
computing. What is killed comes again, and nothing is left behind."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.errors import UsageError
from rocm_tui.fleet import lines
from rocm_tui.fleet import ssh as fleet_ssh
from rocm_tui.fleet.messages import Done, Gone, Hello, Offer, ToDriver
from rocm_tui.fleet.opening import open_fleet
from rocm_tui.fleet.protocol import Fleet, NoFleet, NotAFleet, Site
from rocm_tui.fleet.record import Reader, record_path
from rocm_tui.fleet.ssh import devices_of
from tests.support.ended import ended
from tests.support.ssh_lab import Server, far_processes, needs_sshd, script, serving, wait_for
from tests.support.waiting_workers import log_of, waiting_python, waiting_units

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("fleet") / "ssh") as running:
        yield running


@pytest.fixture
def far(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache dir there, where workers tell what they do."""
    monkeypatch.setenv("ROCM_TUI_SSH", server.env)
    monkeypatch.setattr(fleet_ssh, "AGAIN", (0.2,) * 9)
    folder = tmp_path / "far"
    folder.mkdir()
    return folder


def opened(server: Server, far: Path, devices: str, command: object = None) -> Fleet:
    words = {"devices": devices, "python": waiting_python(far)}
    return open_fleet([server.address(far, command, **words)], Site(Path("/none"), "run"))


def hear(fleet: Fleet, kind: type, count: int = 1, seconds: float = 120) -> list[ToDriver]:
    """All that is said until so many of a kind were."""
    end, said = time.monotonic() + seconds, list[ToDriver]()
    while sum(isinstance(message, kind) for message in said) < count:
        assert time.monotonic() < end, f"only {said}"
        said += fleet.results(0.2)
    return said


def at_work(fleet: Fleet, far: Path, count: int = 1) -> psutil.Process:
    """The worker that began the last of so many tunings. Who is waited for hears from us."""

    def begun() -> bool:
        fleet.results(0.02)
        return len(log_of(far)) >= count and log_of(far)[-1]["what"] == "begins"

    wait_for(begun)
    return psutil.Process(log_of(far)[-1]["pid"])


def far_agents(far: Path) -> list[psutil.Process]:
    return [p for p in far_processes(far) if "agent" in p.cmdline() and p.name() != "ssh"]


def nothing_left(far: Path) -> bool:
    running = [p for p in psutil.process_iter(["cmdline"]) if str(far) in str(p.info["cmdline"])]
    return not running


def test_two_devices_of_a_host_and_their_end(server: Server, far: Path) -> None:
    fleet = opened(server, far, "0-1")
    try:
        assert set(fleet.agents) == {"loop:0", "loop:1"}
        said = hear(fleet, Hello, 2)
        assert {each.agent for each in said} == {"loop:0", "loop:1"}
        for name, unit in zip(fleet.agents, waiting_units(2, 0.3), strict=True):
            fleet.offer(name, Offer(f"lease of {unit.id}", unit))
        done = [each for each in hear(fleet, Done, 2) if isinstance(each, Done)]
        assert {each.unit for each in done if each.result} == {"unit0", "unit1"}
        assert {e["gpu"] for e in log_of(far) if e["what"] == "begins"} == {"0", "1"}
        fleet.offer("loop:0", Offer("unfinished", waiting_units(1, 600)[0]))
        at_work(fleet, far, 5)
    finally:
        fleet.stop()
    wait_for(lambda: nothing_left(far))
    assert not list((far / "rocm_tui" / "fleet").glob("*/*"))


def test_what_is_killed_comes_again(server: Server, far: Path) -> None:
    fleet = opened(server, far, "cpu")
    try:
        hear(fleet, Hello)
        for number, what in enumerate(("ssh", "session", "agent")):
            fleet.offer("loop:cpu", Offer("lost", waiting_units(1, 600)[0]))
            worker, (agent,) = at_work(fleet, far, 3 * number + 1), far_agents(far)
            victims = {
                "ssh": [p for p in far_processes(far) if p.name() == "ssh"],
                "session": server.sessions(),
                "agent": [agent],
            }
            for victim in victims[what]:
                victim.kill()
            said = hear(fleet, Hello)
            (gone,) = [message for message in said if isinstance(message, Gone)]
            assert gone.agent == "loop:cpu" and gone.returns and gone.reason.isprintable()
            wait_for(lambda: ended(worker) and ended(agent))  # noqa: B023
            fleet.offer("loop:cpu", Offer("again", waiting_units(1, 0.05)[0]))
            (done,) = [message for message in hear(fleet, Done) if isinstance(message, Done)]
            assert done.lease == "again" and done.result, what
    finally:
        fleet.stop()
    wait_for(lambda: nothing_left(far))


def test_a_slow_link_goes_on_and_a_cut_one_ends_what_is_there(
    server: Server, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped ssh is a network that passes nothing on, and tells neither side so."""
    monkeypatch.setattr(fleet_ssh, "SILENCE", 5.0)
    monkeypatch.setattr(fleet_ssh, "KEEP", 0.3)
    fleet = opened(server, far, "cpu")
    try:
        hear(fleet, Hello)
        (link,) = [p for p in far_processes(far) if p.name() == "ssh"]
        link.send_signal(signal.SIGSTOP)
        (short,), (long,) = waiting_units(1, 0.1), waiting_units(1, 600)
        fleet.offer("loop:cpu", Offer("slow", short))
        time.sleep(0.5)
        link.send_signal(signal.SIGCONT)
        (done,) = [message for message in hear(fleet, Done) if isinstance(message, Done)]
        assert done.lease == "slow" and done.result
        fleet.offer("loop:cpu", Offer("cut", long))
        worker, (agent,) = at_work(fleet, far, 3), far_agents(far)
        link.send_signal(signal.SIGSTOP)
        wait_for(lambda: ended(worker) and ended(agent))
        link.send_signal(signal.SIGCONT)
        assert any(isinstance(message, Gone) for message in hear(fleet, Hello))
    finally:
        fleet.stop()
    wait_for(lambda: nothing_left(far))


def test_a_run_whose_connections_drop(server: Server, far: Path, tmp_path: Path) -> None:
    """At drawn moments an ssh or the server's part of one is killed: nothing is lost, nothing has
    two results, nothing is stuck."""
    rng, kills, due = random.Random(1), Counter[str](), [time.monotonic() + 0.5]
    units = waiting_units(6, 0.3)
    layout = Layout(tmp_path / "here")

    def drop() -> None:
        if time.monotonic() < due[0] or kills.total() >= 4:
            return
        due[0] = time.monotonic() + rng.uniform(0.2, 0.8)
        kind = rng.choice(("ssh", "session"))
        there = [p for p in far_processes(far) if p.name() == "ssh"]
        there = there if kind == "ssh" else server.sessions()
        for victim in rng.sample(there, min(1, len(there))):
            with suppress(psutil.Error):
                victim.kill()
                kills[kind] += 1

    with Run.begin(layout, Wanted(("ssh",), canary=False), units) as run:
        run.work(opened(server, far, "0-2"), look=drop)
    news = [line for _, line in Reader(record_path(layout, run.name)).news()]
    results = Counter(line.done.unit for line in news if isinstance(line, lines.Done))
    assert results == Counter(unit.id for unit in units) and kills.total() >= 2, kills
    assert {line.unit for line in news if isinstance(line, lines.Merged)} == set(results)
    wait_for(lambda: nothing_left(far))


def test_a_host_names_its_devices(
    server: Server, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what a login prints; here it has a CPU."""
    chatter = f'echo Welcome to device 7; exec {server.folder}/rocm-tui "$@"'
    chatty = script(far / "chatty", chatter)
    address = server.address(far, chatty, python=waiting_python(far))
    fleet = open_fleet([address], Site(None, "run"))
    try:
        assert list(fleet.agents) == ["loop:cpu"]
    finally:
        fleet.stop()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/nowhere/rocm-tui", "no /nowhere/rocm-tui there: install it"),
        ("cat /dev/zero", "what answers there is not rocm-tui"),
        ("false", "exit code 1"),
    ],
)
def test_a_host_without_rocm_tui(server: Server, far: Path, command: str, says: str) -> None:
    rogue = script(far / "rogue", command) if " " in command else command
    with pytest.raises(NoFleet, match=says) as caught:
        open_fleet([server.address(far, rogue)], Site(None, "run"))
    assert str(caught.value).isprintable()


def test_words_that_are_no_fleet() -> None:
    assert devices_of("0,2-4") == ["0", "2", "3", "4"]
    for text in ("", "x", "3-1", "0,0", "0-999", "-1", "0;1"):
        with pytest.raises(NotAFleet):
            devices_of(text)
    for words in ("ssh://-oProxyCommand=x", "ssh://b?port=1", "ssh://"):
        with pytest.raises(UsageError):
            open_fleet([words], Site(None, "run"))
