"""What several logs say of one process, and which words name a program or a session."""

from __future__ import annotations

from typing import Any

import pytest

from backend.model.session import Activity, Session
from rocm_tui.ingest.records import ActivitySeen
from rocm_tui.session.sessions import (
    WORKER,
    NoSuchSession,
    Processes,
    find_sessions,
    fuller,
    required_sessions,
    run_of,
    script,
    short_names,
)

TORCH, BARE = Session("a", torch="2.9", started=5.0), Session("a", host="vm", started=3.0)


@pytest.mark.parametrize(
    ("before", "new", "torch", "started"),
    [
        (None, BARE, "", 3.0),
        (TORCH, BARE, "2.9", 3.0),
        (BARE, TORCH, "2.9", 3.0),
        (TORCH, Session("a", torch="2.10", started=9.0), "2.10", 5.0),
        (BARE, Session("a", started=0.0), "", 3.0),
        (Session("a"), Session("a"), "", 0.0),
    ],
)
def test_two_logs_of_a_session_are_one(
    before: Session | None, new: Session, torch: str, started: float
) -> None:
    whole = fuller(before, new)
    assert (whole.torch, whole.started) == (torch, started)


def activity(state: Any, last: Any = None, **facts: Any) -> Activity:
    return Activity(state, last or state, **facts)


TUNING = activity("tuning", since=3.0, op="mm")
STARTING = activity("starting", since=9.0)
DIED = activity("died", "running", status=-6, ended=8.0)


@pytest.mark.parametrize(
    ("several", "joined"),
    [
        ([TUNING], TUNING),
        ([STARTING, TUNING], TUNING),
        ([TUNING, STARTING], TUNING),
        ([activity("importing", since=9.0), TUNING], TUNING),
        ([activity("running", since=2.0), TUNING], TUNING),
        ([activity("running"), TUNING], TUNING),
        ([activity("done", since=2.0), TUNING], activity("done", since=2.0)),
        ([TUNING, DIED], DIED),
        (
            [
                activity("unknown", "tuning", since=3.0, op="mm", ended=7.0),
                activity("died", "starting", status=1, ended=8.0),
            ],
            activity("died", "tuning", since=3.0, op="mm", ended=7.0, status=1),
        ),
        (
            [
                activity("unknown", "tuning", since=3.0),
                activity("died", "starting", status=1, ended=8.0),
            ],
            activity("died", "tuning", since=3.0, ended=8.0, status=1),
        ),
    ],
)
def test_what_several_logs_say_of_a_process(several: list[Activity], joined: Activity) -> None:
    processes = Processes({"a": TORCH})
    for at, each in enumerate(several):
        processes.add(ActivitySeen(f"/{9 - at}", "a", each))
    (process,) = processes.all()
    assert process.activity == joined
    assert process.logs == tuple(sorted(f"/{9 - at}" for at in range(len(several))))


def test_the_processes_of_a_model() -> None:
    sessions = {
        "a": Session("a", torch="2.9", started=5.0),
        "b": Session("b", torch="2.9", started=7.0),
        "c": Session("c", torch="2.9", started=7.0),
    }
    processes = Processes(sessions)
    assert processes.all() == () and processes.latest is None and processes.live == []
    ended = activity("done")
    for name, what in (("a", TUNING), ("b", ended), ("c", ended), ("x", TUNING)):
        processes.add(ActivitySeen(f"/{name}", name, what))
    assert [p.session.id for p in processes.all()] == ["b", "c", "a"]
    assert processes.latest is not None and processes.latest.session.id == "b"
    assert [p.session.id for p in processes.live] == ["a", "x"]
    processes.add(ActivitySeen("/a", "a", ended))
    assert [p.session.id for p in processes.live] == ["x"]
    processes.add(ActivitySeen("/a2", "a", TUNING))
    processes.forget("/a")
    assert [p.logs for p in processes.live] == [("/a2",), ("/x",)]
    processes.forget("/a2")
    assert [p.session.id for p in processes.all()] == ["b", "c"]


@pytest.mark.parametrize(
    ("torch", "other", "state", "shown"),
    [
        ("", "2.9", "starting", "running"), ("", "2.9", "done", "done"),
        ("", "", "starting", "starting"), ("2.8", "2.9", "starting", "starting"),
    ],
)  # fmt: skip
def test_what_starts_the_programs_of_a_run_runs(
    torch: str, other: str, state: str, shown: str
) -> None:
    """It never loads torch itself."""
    first = Session("vm-1-170-ab-1", pid=1, torch=torch, started=9.0)
    second = Session("vm-1-170-ab-2", pid=2, torch=other, started=8.0)
    alone = Session("vm-7-170-cd-7", pid=7, started=7.0)
    sessions = {session.id: session for session in (first, second, alone)}
    processes = Processes(sessions)
    for session, what in ((first, state), (second, "tuning"), (alone, "starting")):
        processes.add(ActivitySeen("/x", session.id, activity(what)))
    own, other_, lone = processes.all()
    assert (own.activity.state, lone.activity.state) == (shown, "starting")
    assert own.activity.last_state == shown and other_.activity.state == "tuning"
    assert own.starter is not bool(torch) and own.run == other_.run == "vm-1-170-ab"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("/a/train.py", "x.py"), "train.py"),
        (("python", "-m", "pkg.run", "x.py"), "pkg.run"),
        (("python", "-m"), "python"),
        (("-m", "pkg.run"), "-m"),
        (("/bin/python", "x"), "python"),
        ((), ""),
        (("python", "/x/rocm_tui_worker.py"), WORKER),
        (("python", "-m", "backend.worker"), WORKER),
    ],
)
def test_what_a_person_calls_a_program(argv: tuple[str, ...], name: str) -> None:
    assert script(Session("s", argv=argv)) == name


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        (["/l/a/train.log"], ["train.log"]),
        (["/l/a/train.log", "/l/b/train.log"], ["a/train.log", "b/train.log"]),
        (["/l/a/x/train.log", "/l/b/x/train.log", "/z"], ["a/x/train.log", "b/x/train.log", "z"]),
        (["vm-7-1700000000-ab"], ["vm-7"]),
        (["vm-7-1700000000-ab-9"], ["vm-9"]),
        (["my-vm-7-1700000000-ab"], ["my-vm-7"]),
        (["vm-7-170000000-ab", "vm-7-170000000-cd"], ["vm-7-170000000-ab", "vm-7-170000000-cd"]),
        (["vm-7-17000000-ab"], ["vm-7-17000000-ab"]),
        (["vm-x-1700000000-ab"], ["vm-x-1700000000-ab"]),
        (["a/vm-7-1700000000-ab"], ["vm-7-1700000000-ab"]),
        (["a/"], ["a/"]),
        (["/".join(f"{n}" for n in (top, *range(12))) for top in "xy"], ["/".join(
            f"{n}" for n in range(1, 12))] * 2),
    ],
)  # fmt: skip
def test_the_shortest_names_of_sources(sources: list[str], shown: list[str]) -> None:
    assert list(short_names(sources).values()) == shown


def test_a_host_is_called_as_its_log_is() -> None:
    odd = [
        Session("1", host=".ä b", pid=7),
        Session("2", host="x" * 80, pid=8),
        Session("3", pid=9),
    ]
    assert find_sessions(odd, "__b-7") == ["1"] and find_sessions(odd, "host-9") == ["3"]
    assert find_sessions(odd, f"{'x' * 64}-8") == ["2"] and find_sessions(odd, "x" * 65) == []


def test_who_is_meant_is_named_but_not_everybody() -> None:
    many = [Session(f"i{n}", host="vm", pid=50 + n, started=n + 1.0) for n in range(6)]
    with pytest.raises(
        NoSuchSession, match="6 sessions: vm-55, vm-54, vm-53, vm-52, vm-51, 1 more"
    ):
        find_sessions(many, "vm-5")
    with pytest.raises(NoSuchSession) as raised:
        find_sessions(many[:5], "vm-5")
    assert "more" not in str(raised.value)
    assert required_sessions(many, "vm-55.jsonl", "/c") == ["i5"]
    with pytest.raises(NoSuchSession, match=r"no session of /c .*did you mean 'vm-5\d'"):
        required_sessions(many, "vn-55", "/c")
    assert run_of(Session("vm-1-170-ab-1", pid=2)) == ""
    assert run_of(Session("vm-1-170-ab.0123abcd-2", pid=2)) == "vm-1-170-ab"
