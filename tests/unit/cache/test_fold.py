"""Folding the journal while other programs replace the cache file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.cache.fold import fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.pins.held import pinned_choices

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
