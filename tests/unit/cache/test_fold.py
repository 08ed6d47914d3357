"""Folding the journal while other programs replace the cache file."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backend.cache import fold as folding
from backend.cache import journal as journals
from backend.cache.fold import RecentFolds, fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.pins.holders import pinned_choices

SYSTEM = {"hash": "s"}


def put(path: Path, times: Mapping[str, float]) -> None:
    """Write the file as stock PyTorch does: a temporary file and a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cache = {"mm": {"[a]": {"highest": dict(times)}}}
    path.with_name(".new").write_text(json.dumps({"system": SYSTEM, "cache": cache}, indent=4))
    path.with_name(".new").replace(path)


def times_in(path: Path) -> dict[str, float]:
    times: dict[str, float] = json.loads(path.read_bytes())["cache"]["mm"]["[a]"]["highest"]
    return times


def retuned(root: Path, path: Path) -> Journal:
    """A journal with a newer time of a choice that the file has already."""
    journal = Journal(root, path)
    journal.append(line_of(Tuned("mm", "[a]", "highest", {"c0": 7.0}, 0.0)))
    return journal


def test_new_times_stay_in_the_journal_while_others_write_faster(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    journal = retuned(tmp_path, path)
    writes = 0

    def written_meanwhile(cache_path: Path) -> Mapping[tuple[str, str], Any]:
        """Is called between reading the file and replacing it: another program writes just then."""
        nonlocal writes
        writes += 1
        put(path, {"c0": 1.0, f"theirs{writes}": 1.0})
        return pinned_choices(cache_path)

    fold(tmp_path, path, SYSTEM, written_meanwhile)
    assert writes > 1 and times_in(path) == {"c0": 1.0, f"theirs{writes}": 1.0}
    assert journal.read().lines

    fold(tmp_path, path, SYSTEM, pinned_choices)  # nobody else writes now
    assert times_in(path) == {"c0": 7.0, f"theirs{writes}": 1.0}
    assert not journal.read().lines


def test_times_that_the_file_has_already_leave_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 7.0})
    journal = retuned(tmp_path, path)
    before = path.read_bytes()
    fold(tmp_path, path, SYSTEM, pinned_choices)
    assert path.read_bytes() == before and not journal.read().lines


def test_what_is_added_while_the_journal_is_replaced_is_in_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    journal = retuned(tmp_path, path)
    line = line_of(Tuned("mm", "[b]", "highest", {"c0": 1.0}, 0.0))
    adding = threading.Thread(target=journal.append, args=(line,))
    write = journals.safe.write_temporary

    def write_slowly(temporary: Path, *args: Any, **kwargs: Any) -> None:
        """The content of the new journal is known now; another thread has a line to add."""
        write(temporary, *args, **kwargs)
        if adding.ident is None and temporary.name.startswith(f".{journal.path.name}"):
            adding.start()
            adding.join(0.3)

    monkeypatch.setattr(journals.safe, "write_temporary", write_slowly)
    fold(tmp_path, path, SYSTEM, pinned_choices)
    adding.join(60)
    assert journal.read().lines == line


def test_lines_that_are_too_many_at_once_are_shortened_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of a cache file has no more than one line a tuning beyond its limit."""
    monkeypatch.setattr(folding, "LEAST_BYTES", 2000)
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    kept = RecentFolds(tmp_path, path)
    kept.path.parent.mkdir(parents=True)
    now = time.time()
    lines = [line_of(Tuned("mm", "[a]", "highest", {"c0": float(n)}, now)) for n in range(1, 100)]
    kept.add(b"".join(lines))
    assert kept.path.read_bytes() == lines[-1]
