"""A worker that takes more than it may is ended: real processes that know no torch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from backend.disk.layout import Layout
from backend.processes import memory
from backend.processes.shared import SharedMark
from rocm_tui.errors import UsageError
from rocm_tui.jobs.limits import (
    NOISE,
    Clock,
    JobTimeout,
    Limits,
    TooMuch,
    check_seconds,
    gib,
    memory_of_machine,
    seconds_given,
)
from rocm_tui.jobs.run import run_watched
from tests.support.odd_workers import Odd, odd_python


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(seconds=30.0, processes=1), r"^it ran \d+ processes at once and was ended"),
        (Limits(seconds=30.0, memory=1 << 20, of=4 << 30), r"^it used .* of 4.* and was ended"),
    ],
    ids=["processes", "memory"],
)
def test_a_worker_that_takes_too_much_is_ended(
    tmp_path: Path, limits: Limits, message: str
) -> None:
    before = psutil.Process().children(recursive=True)
    with pytest.raises(TooMuch, match=message):
        run_watched(
            Odd("hang"),
            python=odd_python(tmp_path),
            layout=Layout(tmp_path / "cache"),
            env=os.environ,
            limits=limits,
            on_progress=lambda progress: None,
        )
    assert psutil.Process().children(recursive=True) == before


@pytest.mark.parametrize("seconds", [0.001, "2.5", 90, "1e8"])
def test_a_time_that_a_job_may_take(seconds: float | str) -> None:
    assert check_seconds(seconds, "the budget") == float(seconds)
    assert seconds_given(seconds, "the budget") == float(seconds)
    assert seconds_given(None, "the budget") is None


class Watched:
    """A clock whose time, output and noise are set by hand; its process is this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
        self.now, self.printed, self.noise = 100.0, 5, 0
        times = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("rocm_tui.jobs.limits.time", times)
        monkeypatch.setattr("backend.processes.shared.time", times)
        self.mark = SharedMark()
        self.clock = Clock(limits, self.mark, lambda: self.printed, lambda: self.noise)

    def work(self, seconds: float) -> None:
        """Let time pass, with looks in between, except at its end."""
        end = self.now + seconds
        while end - self.now > 2.0:
            self.now += 2.0
            assert self.look() == ""
        self.now = end

    def look(self) -> str:
        try:
            self.clock.look(os.getpid())
        except (JobTimeout, TooMuch) as error:
            return str(error)
        return ""


NONE = Limits(None, None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("limits", "silent", "said"),
    [
        (replace(NONE, seconds=10.0), 9.9, ""),
        (replace(NONE, seconds=10.0), 10.0, "no result within 10 s"),
        (replace(NONE, silence=3.0), 2.9, ""),
        (replace(NONE, silence=3.0), 3.0, "said nothing for 3 s"),
        (NONE, 1e4, ""),
    ],
)
def test_a_worker_has_a_deadline_and_must_not_be_silent(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, silent: float, said: str
) -> None:
    watched = Watched(monkeypatch, limits)
    watched.work(silent)
    assert said in watched.look() and bool(watched.look()) == bool(said)


def test_a_word_of_the_worker_ends_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, replace(NONE, silence=3.0, seconds=5.0))
    for _ in range(2):
        watched.now += 2.0
        watched.clock.heard()
        assert watched.look() == ""
    watched.now += 1.0
    assert "within 5 s" in watched.look()


def test_the_next_look_is_soon_and_not_after_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, replace(NONE, seconds=10.0, silence=4.0))
    assert watched.clock.wait == 0.0
    watched.look()
    assert watched.clock.wait == pytest.approx(0.25)
    watched.work(3.9)
    watched.look()
    assert watched.clock.wait == pytest.approx(0.1)
    watched.now += 1.0
    assert watched.clock.wait == 0.0


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (replace(NONE, silence=4.0), "said nothing for 4 s"),
        (replace(NONE, stuck=4.0), "it ran for 4 s without an end"),
    ],
)
def test_time_in_which_all_was_frozen_does_not_count(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, said: str
) -> None:
    watched = Watched(monkeypatch, limits)
    os.pwrite(watched.mark.descriptor, b"running 5 triton_mm_17", 0)
    assert watched.look() == ""
    watched.work(2.0)
    assert watched.look() == ""
    watched.now += 3600.0
    assert watched.look() == ""
    watched.work(1.9)
    assert watched.look() == ""
    watched.now += 0.25
    assert said in watched.look()


@pytest.mark.parametrize(
    ("printed", "noise", "said"),
    [
        (5 + (3 << 20), 0, ""),
        (6 + (3 << 20), 0, "it printed 3 MiB"),
        (5, NOISE, ""),
        (5, NOISE + 1, "no event"),
    ],
)
def test_a_worker_may_print_only_so_much(
    monkeypatch: pytest.MonkeyPatch, printed: int, noise: int, said: str
) -> None:
    """What it printed before the job does not count."""
    watched = Watched(monkeypatch, replace(NONE, output=3 << 20))
    watched.printed, watched.noise = printed, noise
    found = watched.look()
    assert said in found and bool(found) == bool(said)
    watched.printed = 1 << 40
    assert watched.look() == "", "it was looked at just now"


def test_memory_and_processes_are_counted_unless_there_is_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Watched(monkeypatch, NONE).look() == ""
    assert Watched(monkeypatch, replace(NONE, processes=500, memory=1 << 50)).look() == ""
    assert Watched(monkeypatch, replace(NONE, processes=0)).look().startswith("it ran ")
    said = Watched(monkeypatch, replace(NONE, memory=1 << 10)).look()
    assert said.startswith("it used ") and said.endswith(" of 0.0 GiB and was ended")


def test_each_of_several_workers_has_its_part_of_the_memory() -> None:
    one, four = Limits.of_this_machine(), Limits.of_this_machine(4)
    assert one.of == four.of == memory_of_machine()
    assert one.memory is not None and four.memory is not None and one.of is not None
    assert one.memory == pytest.approx(0.8 * one.of, abs=2)
    assert four.memory == pytest.approx(one.memory / 4, abs=2)
    assert one.seconds is None and one.silence is not None and one.stuck is not None


def test_bytes_are_written_in_gib() -> None:
    assert gib(3 << 29) == "1.5 GiB"


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "soon", ""])
def test_what_is_no_time_of_a_job_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match="the budget"):
        seconds_given(text, "the budget")


def test_a_container_has_room_for_what_it_does_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of files count as room, in both versions of cgroups."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    (tmp_path / "memory").mkdir()
    for name, text in {
        "memory.max": "1000",
        "memory.current": "700",
        "memory.stat": "anon 400\nactive_file 100\ninactive_file 200\n",
        "memory/memory.limit_in_bytes": "2000",
        "memory/memory.usage_in_bytes": "1500",
        "memory/memory.stat": "inactive_file 9\ntotal_inactive_file 100\n",
    }.items():
        (tmp_path / name).write_text(text)
    room = set(memory.cgroup_room())
    assert room and room <= {600}
