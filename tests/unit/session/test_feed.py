"""What reaches a screen from the threads that read: how much at once, and which pins are kept."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.problem import TuningKey
from backend.model.session import Fault, Session
from backend.model.tuning import Pin, Proof, Tuning
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from rocm_tui.ingest.records import STDIN, Record, Seen, SessionSeen
from rocm_tui.session import feed as feed_module
from rocm_tui.session.feed import Feed, Inbox, Keeper, Reconciler
from tests.support.descriptors import open_descriptors
from tests.support.log_lab import MM
from tests.support.screen_lab import SYSTEM, inputs, write_cache

KEY = TuningKey("mm", inputs(8), "highest")
STATUS = PinStatus(Pin(KEY.op, KEY.inputs, "highest", "mm-bb", "mm", SYSTEM, {}), "active")


def seen(*names: str) -> list[Record]:
    return [Seen(f"/a.jsonl#{name}", Tuning(name)) for name in names]


def feed_of(root: Path) -> Feed:
    return Feed([str(root)], Layout(root), lambda: None, polling=True)


def drift(root: Path) -> bytes:
    """Pin what is not the fastest; another process writes its old copy over it."""
    path = write_cache(root, 8)
    old = path.read_bytes()
    PinStore(Layout(root)).pin(SYSTEM, KEY, "mm-bb")
    path.write_bytes(old)
    return old


def states(inbox: Inbox, problem: Fault | None = None) -> list[str] | None:
    """What came of pins, and that this problem came with it."""
    batch, _ = inbox.take(1)
    assert batch.pin_problem == problem
    return None if batch.pins is None else [status.state for status in batch.pins]


def test_an_inbox_rings_once_until_it_is_empty() -> None:
    rung: list[int] = []
    inbox = Inbox(lambda: rung.append(1))
    first = seen("a", "b", "c", "d")
    inbox.put_records(first[:3])
    inbox.put_awaited(frozenset({("mm", "x")}))
    inbox.put_pins([STATUS], [STATUS], Fault("p", "why"))
    inbox.put_pins([], [STATUS])
    assert len(rung) == 1
    batch, more = inbox.take(2)
    assert (batch.records, more) == (first[:2], True)
    assert batch.awaited == {("mm", "x")} and batch.pins == [] and batch.pin_problem is None
    assert batch.drifted == [STATUS, STATUS]
    inbox.put_records(first[3:])
    assert len(rung) == 1, "who took knows that there is more"
    batch, more = inbox.take(2)
    assert (batch.records, more) == (first[2:], False)
    assert (batch.awaited, batch.pins, batch.drifted) == (None, None, [])
    for put in (lambda: inbox.put_awaited(frozenset()), lambda: inbox.put_pins([])):
        count = len(rung)
        put()
        assert len(rung) == count + 1
        inbox.take(1)


def test_a_keeper_repairs_what_drifted_or_only_says_so(tmp_path: Path) -> None:
    old = drift(tmp_path)
    path = Layout(tmp_path).autotune / SYSTEM
    inbox = Inbox(lambda: None)
    keeper = Keeper(Layout(tmp_path), inbox, awaited=False)
    keeper.reconcile(read_only=True)
    batch, _ = inbox.take(1)
    assert [status.state for status in batch.pins or ()] == ["drifted"] and not batch.drifted
    assert path.read_bytes() == old
    keeper.reconcile(read_only=True)
    assert inbox.take(1)[0].pins is None, "nothing is new"
    keeper.reconcile(read_only=False)
    batch, _ = inbox.take(1)
    assert [status.state for status in batch.pins or ()] == ["active"]
    assert [status.pin.drifts for status in batch.drifted] == [1] and path.read_bytes() != old
    keeper.reconcile(read_only=False)
    batch, _ = inbox.take(1)
    assert not batch.drifted, "that it drifted was said"
    keeper.reconcile(read_only=False)
    assert inbox.take(1)[0].pins is None

    path.write_bytes(old)
    keeper.reconcile(read_only=False)
    (again,) = inbox.take(1)[0].drifted
    assert again.pin.drifts == 2


def test_a_keeper_tells_why_it_cannot_and_that_it_can_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drift(tmp_path)
    inbox = Inbox(lambda: None)
    keeper = Keeper(Layout(tmp_path), inbox, awaited=False)
    keeper.reconcile(read_only=False)
    assert states(inbox) == ["active"]

    def fail(*_: object) -> list[PinStatus]:
        raise StoreError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(PinStore, "reconcile", fail)
        keeper.reconcile(read_only=False)
        problem = Fault(str(Layout(tmp_path).pins), "no space")
        assert states(inbox, problem) == ["active"], "they can be read all the same"
        patch.setattr(PinStore, "status", fail)
        keeper.reconcile(read_only=False)
        assert states(inbox, problem) == []
    keeper.reconcile(read_only=False)
    assert states(inbox) == ["active"]


def test_no_pins_are_told_if_they_are_waited_for_or_were_there(tmp_path: Path) -> None:
    inbox = Inbox(lambda: None)
    for awaited, told in ((False, None), (True, [])):
        keeper = Keeper(Layout(tmp_path), inbox, awaited=awaited)
        keeper.reconcile(read_only=False)
        assert inbox.take(1)[0].pins == told
        keeper.reconcile(read_only=False)
        assert inbox.take(1)[0].pins is None


@pytest.mark.parametrize("read_only", [False, True])
def test_a_reconciler_repairs_unless_it_is_told_not_to(tmp_path: Path, read_only: bool) -> None:
    drift(tmp_path)
    inbox = Inbox(lambda: None)
    reconciler = Reconciler(Layout(tmp_path), inbox)
    if read_only:
        reconciler.read_only = True
    reconciler.poke()
    reconciler.start()
    try:
        end = time.monotonic() + 60
        while (pins := inbox.take(1)[0].pins) is None:
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        reconciler.stop()
    assert [status.state for status in pins] == ["drifted" if read_only else "active"]


def test_a_poke_just_after_a_reconciler_looked_for_one_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drift(tmp_path)
    monkeypatch.setattr(feed_module, "_LOOK", 0.01)
    monkeypatch.setattr(feed_module, "_RECONCILE", 1e9)
    monkeypatch.setattr(feed_module, "_SHARE", 1e-15)
    inbox = Inbox(lambda: None)
    reconciler = Reconciler(Layout(tmp_path), inbox)
    reconciler.read_only = True

    class Poked(threading.Event):
        """The person turns read-only off when the first states have come, just after a look."""

        def is_set(self) -> bool:
            before = super().is_set()
            if not before and inbox._batch.pins:
                reconciler.read_only = False
                reconciler.poke()
            return before

    reconciler._wake = Poked()
    reconciler.start()
    try:
        end = time.monotonic() + 60
        while not (pins := inbox._batch.pins) or pins[0].state != "active":
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        reconciler.stop()


def test_nothing_is_taken_into_rows_before_it_is_known_what_is_pinned(tmp_path: Path) -> None:
    pins = Layout(tmp_path).pins
    pins.parent.mkdir(parents=True)
    pins.write_text("{}")
    for known in ("awaited", "pins"):
        feed = feed_of(tmp_path)
        feed.inbox.put_settled()
        feed.inbox.put_records(seen("mm"))
        state = feed.take()
        assert (state.more, state.settled, state.held, list(state.drifted)) == (False, False, 0, [])
        if known == "awaited":
            feed.inbox.put_awaited(frozenset())
        else:
            feed.inbox.put_pins([STATUS], [STATUS], Fault("p", "why"))
        state = feed.take()
        assert (state.more, state.settled, state.held) == (False, True, 1)
        assert feed.read and feed.reconciler._wake.is_set(), "now the states of pins are read"
        assert len(feed.model.rows()) == 1
    assert (feed.pins, feed.drifts, feed.pin_problem) == ((STATUS,), 1, Fault("p", "why"))
    feed.inbox.put_pins([], [STATUS])
    assert list(feed.take().drifted) == [STATUS]
    assert (feed.pins, feed.drifts, feed.pin_problem) == ((), 2, None)


def test_without_pins_none_are_waited_for(tmp_path: Path) -> None:
    feed = feed_of(tmp_path)
    feed.inbox.put_records(seen("mm"))
    assert not feed.take().settled and not feed.read
    feed.inbox.put_settled()
    assert feed.take().settled and feed.read and not feed.reconciler._wake.is_set()
    feed.inbox.put_records(seen("bmm"))
    feed._rested = time.monotonic() + 100
    assert not feed.take().settled and feed.read, "what was there at the start is read"


def test_a_proof_is_stale_as_soon_as_another_torch_was_seen(tmp_path: Path) -> None:
    feed = feed_of(tmp_path)
    feed.inbox.put_pins([replace(STATUS, proof=Proof(9.0, True, "verify", "2.9"))])
    feed.take()
    assert not feed.pins[0].stale
    one = Session("s", "h", 1, system_hash=SYSTEM, started=10.0, torch="2.10")
    feed.inbox.put_records([SessionSeen(one)])
    feed.take()
    assert "2.10" in feed.pins[0].stale


def test_what_comes_later_than_the_start_has_that_time(tmp_path: Path) -> None:
    for ago, dated in ((0.0, False), (2.0, True)):
        feed = feed_of(tmp_path)
        feed._started = time.monotonic() - ago
        feed.inbox.put_records(seen("mm"))
        begun = time.time()
        feed.take()
        (row,) = feed.model.rows()
        assert (row.seen is not None and row.seen >= begun) if dated else row.seen is None


def test_a_log_of_a_job_is_read_once_and_not_where_all_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class Told:
        def __init__(self, paths: list[str], *_: object, **__: object) -> None:
            self.paths = paths

        def start(self) -> None:
            said.append(f"start {' '.join(self.paths)}")

        def stop(self) -> None:
            said.append(f"stop {' '.join(self.paths)}")

        def finish(self) -> None:
            said.append(f"finish {' '.join(self.paths)}")

    monkeypatch.setattr(feed_module, "Watcher", Told)
    monkeypatch.chdir(tmp_path)
    root, away = tmp_path / "cache", "/elsewhere"
    for watched, log, follows in (
        ([STDIN], f"{away}/a.log", True),
        (["x/a.log"], f"{tmp_path}/x/a.log", False),
        (["x"], f"{tmp_path}/x/a.log", False),
        (["y"], f"{tmp_path}/x/a.log", True),
        ([str(root)], f"{away}/a.log", False),
        ([str(tmp_path)], f"{tmp_path}/x/a.log", True),
    ):
        feed = Feed(watched, Layout(root), lambda: None, polling=True)
        said.clear()
        feed.follow(log, 1)
        feed.follow(log, 1)
        assert said == ([f"start {log}"] if follows else []), watched
    feed.leave(2)
    feed.leave(1)
    assert said[1:] == [f"finish {log}"]
    said.clear()
    for job, worker in ((3, "a"), (3, "b"), (4, "b"), (3, "c")):
        feed.follow(f"{away}/{worker}.log", job)
    feed.leave(3)
    assert said[3:] == [f"finish {away}/a.log", f"finish {away}/c.log"], "the job 4 writes the b"
    feed.leave(4)
    assert said[5:] == [f"finish {away}/b.log"]
    feed.follow(log, 5)
    said.clear()
    feed.stop()
    assert said[0] == f"stop {log}" and len(said) == 2


@pytest.mark.parametrize("lacking", ["os.pipe", "threading.Thread.start"])
def test_a_log_is_followed_once_there_are_threads_and_descriptors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    feed = Feed([STDIN], Layout(tmp_path), lambda: None, polling=True)
    log = tmp_path / "a.log"
    log.write_text(MM)

    def fail(*_: object) -> None:
        raise (OSError if lacking == "os.pipe" else RuntimeError)("no more")

    descriptors = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(lacking, fail)
        feed.follow(str(log), 1)
    assert open_descriptors() == descriptors
    feed.follow(str(log), 1)
    try:
        end = time.monotonic() + 60
        while not feed.model.held:
            assert time.monotonic() < end
            feed.take()
    finally:
        feed.stop()


def test_a_drift_of_one_of_two_systems_is_reported_once(tmp_path: Path) -> None:
    old = drift(tmp_path)
    layout = Layout(tmp_path)
    layout.cache_file("other").write_bytes(old)
    PinStore(layout).pin("other", KEY, "mm-bb")
    inbox = Inbox(lambda: None)
    keeper = Keeper(layout, inbox, awaited=False)
    reported = []
    for _ in range(3):
        keeper.reconcile(read_only=False)
        batch, _ = inbox.take(1)
        reported.append([status.pin.system_hash for status in batch.drifted])
    assert reported == [[SYSTEM], [], []]
