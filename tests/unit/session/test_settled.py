"""When all that was there at the start counts as taken in."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import Seen
from rocm_tui.session.feed import Feed
from rocm_tui.session.inbox import Batch


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
        feed._settle()
        return taken

    monkeypatch.setattr(feed.inbox, "take", then_the_rest)
    first = feed.take()
    assert (first.settled, first.held) == (False, 1)
    monkeypatch.setattr(feed.inbox, "take", take)
    second = feed.take()
    assert (second.settled, second.held) == (True, 2)
