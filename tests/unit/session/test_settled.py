"""When all that was there at the start counts as taken in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import Seen
from rocm_tui.session import feed as feed_module
from rocm_tui.session.feed import Batch, Feed


def test_what_comes_with_the_end_is_of_the_next_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads says that this is all just after the screen looked for more."""
    feed = Feed([str(tmp_path)], Layout(tmp_path), lambda: None, polling=True)
    feed.inbox.put_records([Seen("/a.jsonl#1", Tuning("mm"))])
    take = feed.inbox.take

    def then_the_rest(most: int) -> tuple[Batch, bool]:
        taken = take(most)
        feed.inbox.put_records([Seen("/a.jsonl#2", Tuning("bmm"))])
        feed.inbox.put_settled()
        return taken

    monkeypatch.setattr(feed.inbox, "take", then_the_rest)
    first = feed.take()
    assert (first.settled, first.held) == (False, 1)
    monkeypatch.setattr(feed.inbox, "take", take)
    second = feed.take()
    assert (second.settled, second.held) == (True, 2)


def test_the_end_that_comes_just_before_the_records_are_taken_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rings no more, as the screen was woken and did not look yet."""
    rung: list[int] = []
    feed = Feed([str(tmp_path)], Layout(tmp_path), lambda: rung.append(1), polling=True)
    feed.inbox.put_records([])
    take = feed.inbox.take

    def after_the_end(most: int) -> tuple[Batch, bool]:
        feed.watcher._settled()
        return take(most)

    monkeypatch.setattr(feed.inbox, "take", after_the_end)
    state = feed.take()
    assert rung == [1] and (state.more, state.settled) == (False, True)


def test_rows_that_rest_are_waited_for(tmp_path: Path) -> None:
    feed = Feed([str(tmp_path)], Layout(tmp_path), lambda: None, polling=True)
    feed._rested = math.inf
    feed.inbox.put_records([Seen("/a.jsonl#1", Tuning("mm"))])
    state = feed.take()
    assert (state.more, state.settled, state.held) == (True, False, 1)


def test_rows_rest_but_not_once_all_that_was_there_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_BITE", 1)
    feed = Feed([str(tmp_path)], Layout(tmp_path), lambda: None, polling=True)

    def rows_after(op: str = "") -> int:
        """How many rows there are after a take, while rows rest for making them took long."""
        feed._rested = math.inf
        feed.inbox.put_records([Seen(f"/a.jsonl#{op}", Tuning(op))] if op else [])
        feed.take()
        return len(feed.model.rows())

    assert rows_after("mm") == 0, "more may come of what was there at the start"
    feed.inbox.put_records([Seen("/a.jsonl#1", Tuning("bmm"))])
    feed.inbox.put_settled()
    assert rows_after("addmm") == 0, "there is more in the inbox"
    assert rows_after() == 3, "nothing more is waited for"
    assert rows_after("baddbmm") == 3, "it came later"
    feed._rested = 0.0
    feed.take()
    assert len(feed.model.rows()) == 4
