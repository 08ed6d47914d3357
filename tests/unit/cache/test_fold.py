"""Folding the journal while other programs replace the cache file."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backend.cache import fold as folding
from backend.cache import journal as journals
from backend.cache.fold import CacheRestorer, RecentFolds, fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import Busy, CacheUnreadable, NotWritable
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


def test_of_too_many_tunings_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    lines = [line_of(Tuned("mm", f"[{n}]", "highest", {"c": 1.0}, now + n)) for n in range(10, 99)]
    monkeypatch.setattr(folding, "MOST_BYTES", 8 * len(lines[0]))
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    kept = RecentFolds(tmp_path, path)
    kept.path.parent.mkdir(parents=True)
    kept.add(b"".join(lines[:9]))
    assert kept.path.read_bytes() == b"".join(lines[5:9])  # half of the limit


def test_folded_lines_are_those_of_the_same_journal_or_none(tmp_path: Path) -> None:
    """A reader takes over what it missed without parsing the cache file."""
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    journal = Journal(tmp_path, path)
    lines = [line_of(Tuned("mm", f"[{n}]", "highest", {"c": 1.0}, 0.0)) for n in range(3)]
    journal.append(lines[0])
    early = journal.read()
    journal.append(lines[1])
    late = journal.read()
    fold(tmp_path, path, SYSTEM, pinned_choices)
    folded = journal.read().fold
    assert folded is not None
    assert (journal.rest(early, folded), journal.rest(late, folded)) == (lines[1], b"")
    journal.append(lines[2])
    fold(tmp_path, path, SYSTEM, pinned_choices)
    assert journal.rest(early, folded) is None, "they are kept no more"
    again = journal.read().fold
    assert again is not None and journal.rest(early, again) is None


def test_a_disk_without_locks_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, tmp_path / "cache" / "s")
    monkeypatch.setattr(Journal, "patience", 0.05)
    for code, error in ((errno.ENOLCK, NotWritable), (errno.EAGAIN, Busy), (errno.EACCES, Busy)):

        def refuse(*arguments: object, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(journals.fcntl, "lockf", refuse)
        with pytest.raises(error) as caught:
            journal.append(line_of(Tuned("mm", "[a]", "highest", {"c0": 7.0}, 0.0)))
        assert type(caught.value) is error
    assert not journal.path.exists()


def test_nothing_is_kept_in_a_folder_that_others_can_write(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    kept = RecentFolds(tmp_path, path)
    kept.path.parent.mkdir(parents=True)
    line = line_of(Tuned("mm", "[a]", "highest", {"c0": 1.0}, time.time()))
    kept.path.parent.chmod(0o777)
    kept.add(line)
    assert not kept.path.exists() and kept.lost({}) == []
    kept.path.parent.chmod(0o700)
    kept.add(line)
    assert kept.path.read_bytes() == line


def test_lines_are_kept_up_to_twice_the_cache_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "LEAST_BYTES", 10)
    path = tmp_path / "cache" / "s"
    put(path, {f"c{n}": 1.0 for n in range(100)})
    kept = RecentFolds(tmp_path, path)
    kept.path.parent.mkdir(parents=True)
    line = line_of(Tuned("mm", "[a]", "highest", {"c0": 1.0}, time.time()))
    many = 2 * path.stat().st_size // len(line)
    kept.add(line * many)
    assert kept.path.read_bytes() == line * many
    kept.add(line)
    assert kept.path.read_bytes() == line


def test_a_fold_with_nothing_to_do_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    fold(tmp_path, path, SYSTEM, pinned_choices)
    assert list(tmp_path.iterdir()) == []
    put(path, {"c0": 1.0})
    before = path.stat()
    fold(tmp_path, path, SYSTEM, pinned_choices)
    assert path.stat().st_ino == before.st_ino


def test_timings_under_a_value_that_is_no_object_are_not_folded(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    content = path.read_bytes().replace(
        b'{\n                    "c0": 1.0\n                }', b"7"
    )
    assert b'"highest": 7' in content
    path.write_bytes(content)
    journal = retuned(tmp_path, path)
    with pytest.raises(CacheUnreadable, match="is not an autotune cache; move the file away"):
        fold(tmp_path, path, SYSTEM, pinned_choices)
    assert path.read_bytes() == content and journal.read().lines


def test_a_failed_or_missing_pinned_choice_raises_no_rival(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0, "c1": math.inf})
    retuned(tmp_path, path)
    for winner in ("c1", "missing"):
        pins = {("mm", "[a]"): frozenset((winner,))}
        fold(tmp_path, path, SYSTEM, lambda cache_path, pins=pins: pins)
        assert times_in(path) == {"c0": 7.0, "c1": math.inf}
        retuned(tmp_path, path)
    pins = {("mm", "[a]"): frozenset(("c0",))}
    fold(tmp_path, path, SYSTEM, lambda cache_path: pins)
    assert times_in(path) == {"c0": 7.0, "c1": math.inf}


def test_lost_times_are_restored_once_the_lock_of_their_file_is_free(tmp_path: Path) -> None:
    paths = [tmp_path / "cache" / name for name in ("s", "t")]
    for path in paths:
        put(path, {"c0": 1.0})
        now = time.time()
        Journal(tmp_path, path).append(line_of(Tuned("mm", "[a]", "highest", {"c1": 2.0}, now)))
        fold(tmp_path, path, SYSTEM, pinned_choices)
        put(path, {"c0": 1.0})  # stock PyTorch writes the copy that it read before
    restorer = CacheRestorer(Layout(tmp_path), pinned_choices)
    with safe.locked(tmp_path, paths[0]):
        for _ in range(2):
            with pytest.raises(Busy):
                restorer.recall()
        assert [*map(times_in, paths)] == [{"c0": 1.0}, {"c0": 1.0, "c1": 2.0}]
    restorer.recall()
    assert times_in(paths[0]) == {"c0": 1.0, "c1": 2.0}


def test_a_corrupt_file_is_reported_once_by_who_restores_lost_times(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    line = line_of(Tuned("mm", "[a]", "highest", {"c1": 2.0}, time.time()))
    Journal(tmp_path, path).append(line)
    fold(tmp_path, path, SYSTEM, pinned_choices)
    path.write_text("{")
    restorer = CacheRestorer(Layout(tmp_path), pinned_choices)
    with pytest.raises(CacheUnreadable):
        restorer.recall()
    restorer.recall()


@contextlib.contextmanager
def unreadable_kept(root: Path, path: Path) -> Iterator[None]:
    """The system does not read the recent folds for a while: ELOOP in place of EIO."""
    kept = RecentFolds(root, path).path
    away = kept.rename(kept.with_name("away"))
    kept.symlink_to(kept)
    yield
    away.replace(kept)


def test_lost_times_are_restored_once_the_recent_folds_are_readable(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    put(path, {"c0": 1.0})
    journal, now = Journal(tmp_path, path), time.time()
    journal.append(line_of(Tuned("mm", "[a]", "highest", {"c1": 2.0}, now)))
    fold(tmp_path, path, SYSTEM, pinned_choices)
    put(path, {"c0": 1.0})  # stock PyTorch writes the copy that it read before
    restorer = CacheRestorer(Layout(tmp_path), pinned_choices)
    with unreadable_kept(tmp_path, path):
        for _ in range(2):
            with pytest.raises(CacheUnreadable, match="cannot read"):
                restorer.recall()
    restorer.recall()
    assert times_in(path) == {"c0": 1.0, "c1": 2.0}

    put(path, {"c0": 1.0})
    journal.append(line_of(Tuned("mm", "[a]", "highest", {"c2": 3.0}, now)))
    with unreadable_kept(tmp_path, path):
        fold(tmp_path, path, SYSTEM, pinned_choices)
        assert times_in(path) == {"c0": 1.0, "c2": 3.0} and not journal.read().lines
    restorer.recall()
    assert times_in(path) == {"c0": 1.0, "c1": 2.0, "c2": 3.0}
