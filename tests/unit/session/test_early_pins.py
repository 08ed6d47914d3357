"""Before it is known whether a pin holds, nothing is said of what is in use."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.ingest.records import Seen
from rocm_tui.render.detail import row_verdict
from rocm_tui.render.tunings import cells
from rocm_tui.session import feed as feed_module
from rocm_tui.session.feed import Feed, Inbox, Keeper, Reconciler
from rocm_tui.session.in_use import gain, in_use, lead, time_ms
from rocm_tui.session.model import Row
from tests.support.screen_lab import SYSTEM, inputs, write_cache

KEY = TuningKey("mm", inputs(8), "highest")


@contextmanager
def feeding(root: Path) -> Iterator[Feed]:
    feed = Feed([str(root)], Layout(root), lambda: None, polling=False)
    try:
        yield feed
    finally:
        feed.stop()


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)


def rows_of(feed: Feed) -> dict[str | None, Row]:
    feed.take()
    return {row.tuning.inputs_key: row for row in feed.model.rows()}


def shown(row: Row) -> dict[str, str]:
    return {key: text for key, (text, _) in cells(row, 0.0).items()}


def test_a_row_waits_for_its_pin_and_never_names_the_unpinned_winner(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 16)
    PinStore(Layout(tmp_path)).pin(SYSTEM, KEY, "mm-bb")
    with feeding(tmp_path) as feed:
        feed.watcher.start()
        until(lambda: (feed.take(), feed.model.held)[1])
        assert not rows_of(feed), "a row would say what is in use"
        feed.inbox.put_awaited(frozenset({(KEY.op, KEY.inputs)}))
        until(lambda: len(rows_of(feed)) == 2)
        row, free = (rows_of(feed)[inputs(m)] for m in (8, 16))
        assert in_use(row) is None and in_use(free) is free.tuning.choices[0]
        seen = shown(row)
        assert (seen["winner"], seen["pin"], seen["time"]) == ("…", "…", "–")
        assert (seen["gain"], seen["lead"], seen["tflops"]) == ("–", "–", "–")
        assert (time_ms(row), gain(row), lead(row)) == (None, None, None)
        assert "being read" in "".join(text for text, _ in row_verdict(row))

        Keeper(feed.layout, feed.inbox, awaited=True).reconcile(read_only=True)
        row = rows_of(feed)[KEY.inputs]
        used = in_use(row)
        assert used is not None and used.hash == "mm-bb" and row.pin_state == "active"
        assert "●" in shown(row)["pin"]
        feed.inbox.put_records([Seen("/x.jsonl#1", Tuning("bmm"))])
        until(lambda: len(rows_of(feed)) == 3)


def test_the_thread_tells_what_is_pinned_first(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    PinStore(Layout(tmp_path)).pin(SYSTEM, KEY, "mm-bb")
    said: set[str | None] = set()

    def known() -> bool:
        for row in rows_of(feed).values():
            used = in_use(row)
            said.add(used.hash if used else None)
        return bool(feed.pins and feed.model.rows())

    with feeding(tmp_path) as feed:
        feed.start()
        until(known)
    assert said <= {None, "mm-bb"} and "mm-bb" in said


def test_pins_that_cannot_be_read_or_are_gone_hold_no_row_back(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    layout = Layout(tmp_path)
    layout.pins.parent.mkdir(parents=True, exist_ok=True)
    layout.pins.write_text("{")
    with feeding(tmp_path) as feed:
        feed.start()
        until(lambda: rows_of(feed) and feed.pin_problem)
        assert in_use(rows_of(feed)[KEY.inputs]) is not None
    inbox = Inbox(lambda: None)
    layout.pins.unlink()
    Keeper(layout, inbox, awaited=True).reconcile(read_only=True)
    assert inbox.take(10)[0].pins == []


def test_a_file_system_that_fails_once_holds_no_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path, 8)
    layout = Layout(tmp_path)
    PinStore(layout).pin(SYSTEM, KEY, "mm-bb")
    exists, stamps = Path.exists, Keeper.stamps
    failing = {"exists", "stamps"}

    def gone(self: Path) -> bool:
        if self == layout.pins and "exists" in failing:
            raise OSError(errno.ESTALE, "Stale file handle")
        return exists(self)

    def stale(self: Keeper) -> tuple[object, ...]:
        if "stamps" in failing:
            raise OSError(errno.EIO, "Input/output error")
        return stamps(self)

    monkeypatch.setattr(feed_module, "_LOOK", 0.01)
    monkeypatch.setattr(feed_module, "_PAINT", 0.0)
    monkeypatch.setattr(Path, "exists", gone)
    monkeypatch.setattr(Keeper, "stamps", stale)
    with feeding(tmp_path) as feed:
        feed.start()
        until(lambda: rows_of(feed) and feed.pin_problem)
        assert feed.pin_problem is not None and "Input/output error" in feed.pin_problem.what
        failing = set()
        until(lambda: rows_of(feed) and not feed.pin_problem)
        assert [status.state for status in feed.pins] == ["active"]
        failing = {"stamps"}
        feed.reconciler.poke()
        until(lambda: rows_of(feed) and feed.pin_problem)
        assert [status.state for status in feed.pins] == ["active"], "the last that was read"


def test_stop_waits_for_states_that_are_being_reported(tmp_path: Path) -> None:
    class Slow(Inbox):
        reported = False

        def put_awaited(self, keys: frozenset[tuple[str, str]]) -> None:
            reporting.set()
            time.sleep(0.05)
            self.reported = True

    reporting = threading.Event()
    layout = Layout(tmp_path)
    layout.pins.parent.mkdir()
    layout.pins.write_text("{}")
    inbox = Slow(lambda: None)
    reconciler = Reconciler(layout, inbox)
    reconciler.stop()  # it was not started
    before = set(threading.enumerate())
    reconciler = Reconciler(layout, inbox)
    reconciler.start()
    assert reporting.wait(60.0)
    reconciler.stop()
    assert inbox.reported
    until(lambda: set(threading.enumerate()) <= before)


def test_a_changed_cache_or_pin_is_looked_at(tmp_path: Path) -> None:
    """Only what these stamps show is read again."""
    layout = Layout(tmp_path)
    keeper = Keeper(layout, Inbox(lambda: None), awaited=False)
    seen = [keeper.stamps()]
    cache = write_cache(tmp_path, 8)
    seen.append(keeper.stamps())
    cache.write_text(cache.read_text() + " ")
    seen.append(keeper.stamps())
    PinStore(layout).pin(SYSTEM, KEY, "mm-bb")
    seen.append(keeper.stamps())
    assert keeper.stamps() == seen[-1]
    assert all(before != after for before, after in pairwise(seen))
