"""Which session a person means by the beginning of a name, and what is said where none is."""

from __future__ import annotations

import pytest

from backend.model.session import Session
from rocm_tui.session.graphs import program_name
from rocm_tui.session.sessions import (
    NoSuchSession,
    find_sessions,
    names,
    required_sessions,
    script,
    short_names,
)

SESSIONS = [
    Session("1f00", host="vm", pid=5163, started=1700000000.5),
    Session("2e00", host="a b", pid=7, started=1700000001.0),
    Session("vm-90-1700000000-ab-91", host="vm", pid=91, rank=0, started=1700000002.0),
    Session("vm-90-1700000000-ab-92", host="vm", pid=92, rank=1, started=1700000002.0),
]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("1f", ["1f00"]),
        ("vm-5163", ["1f00"]),
        ("vm-51", ["1f00"]),
        ("vm-5163-170", ["1f00"]),
        ("vm-5163-1700000000-0a1b2c3d.jsonl", ["1f00"]),
        ("a_b", ["2e00"]),
        ("vm-91", ["vm-90-1700000000-ab-91"]),
        ("vm-90-17", ["vm-90-1700000000-ab-91", "vm-90-1700000000-ab-92"]),  # a run: its ranks
        ("vm-6", []),
        ("", []),
    ],
)
def test_the_beginning_of_an_id_or_of_a_logs_name(words: str, ids: list[str]) -> None:
    assert find_sessions(SESSIONS, words) == ids


def test_a_run_whose_launcher_has_a_log_is_all_of_its_processes() -> None:
    run = "vm-90-1700000000-ab"
    launcher = Session(f"{run}-90", host="vm", pid=90, started=1700000000.0)
    assert find_sessions([launcher, *SESSIONS], run) == [f"{run}-{pid}" for pid in (90, 91, 92)]
    assert find_sessions([launcher, *SESSIONS], "vm-90") == [f"{run}-90"]


def test_sessions_of_no_one_run_are_not_taken_together() -> None:
    with pytest.raises(NoSuchSession, match=r"'vm' begins 3 sessions: vm-91, vm-92, vm-5163"):
        find_sessions(SESSIONS, "vm")


def test_a_whole_pid_goes_before_the_beginning_of_another() -> None:
    more = [*SESSIONS, Session("3d00", host="vm", pid=51, started=1700000003.0)]
    assert find_sessions(more, "vm-51") == ["3d00"]


def test_a_pid_that_came_twice_is_named_with_its_start() -> None:
    again = Session("4c00", host="vm", pid=5163, started=1700009000.0)
    called = names([*SESSIONS, again])
    assert called["4c00"] == "vm-5163-1700009000" and called["2e00"] == "a_b-7"
    with pytest.raises(NoSuchSession, match="vm-5163-1700009000, vm-5163-1700000000"):
        find_sessions([*SESSIONS, again], "vm-5163")
    assert find_sessions([*SESSIONS, again], called["4c00"]) == ["4c00"]


def test_what_is_nearly_a_name_is_proposed() -> None:
    with pytest.raises(NoSuchSession, match="did you mean 'vm-5163'"):
        required_sessions(SESSIONS, "vm-5136", "/cache")


def test_names_of_sources_are_as_short_as_keeps_them_apart() -> None:
    logs = [f"/runs/{run}/rank{rank}/train.log" for run in "ab" for rank in (0, 1)]
    sessions = ["my-node-47-1795370265-9cec4875", "my-node-47-1795370265-9cec4875-48"]
    names = short_names([*logs, *sessions, "/runs/b/other.log"])
    assert [names[log] for log in logs][:2] == ["a/rank0/train.log", "a/rank1/train.log"]
    assert [names[session] for session in sessions] == ["my-node-47", "my-node-48"]
    assert names["/runs/b/other.log"] == "other.log"
    again = [sessions[0], sessions[0].replace("9cec", "0cec")]
    assert list(short_names(again).values()) == again, "one pid, twice"
    assert short_names(["", "/"]) == {"": "", "/": "/"}


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("/usr/bin/python3", "/home/me/train.py", "--steps=3", "data.py"), "train.py"),
        (("/usr/bin/python3", "-m", "pkg.train", "other.py"), "pkg.train"),
        (("/opt/bin/vllm", "serve", "model"), "vllm"),
        ((), ""),
    ],
)
def test_the_name_of_a_program(argv: tuple[str, ...], name: str) -> None:
    assert script(Session("1f00", argv=argv)) == name


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("/usr/bin/python3", "/home/me/train.py"), "train.py pid 7"),
        (("/opt/bin/vllm", "serve"), "vllm pid 7"),
        ((), "program pid 7"),
    ],
)
def test_the_name_of_a_program_that_called_a_graph(argv: tuple[str, ...], name: str) -> None:
    assert program_name("s", {"s": Session("s", pid=7, argv=argv)}) == name
