"""What is reported of changes in folders: names, folders that go, one folder by two names."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_tui.ingest.follow.watcher import FolderEvents
from tests.support.descriptors import open_descriptors


@pytest.fixture
def events() -> Iterator[FolderEvents]:
    before = set(threading.enumerate())
    made = FolderEvents(lambda: None)
    yield made
    made.stop()
    assert set(threading.enumerate()) <= before


def until(events: FolderEvents, *paths: Path) -> set[str]:
    """Everything that was reported when all of these were."""
    reported: set[str] = set()
    end = time.monotonic() + 60
    while not reported.issuperset(map(str, paths)):
        assert time.monotonic() < end, reported
        time.sleep(0.005)
        reported |= events.take()
    return reported


def test_what_comes_changes_moves_and_goes_is_reported(
    tmp_path: Path, events: FolderEvents
) -> None:
    assert events.sync({str(tmp_path): False}) and not events.sync({str(tmp_path): False})
    assert events.covers(str(tmp_path)) and not events.covers(str(tmp_path / "inside"))
    new, bad = tmp_path / "new", tmp_path / os.fsdecode(b"\xff\n ")
    for path in (new, bad):
        path.write_text("1")
        until(events, path)
    time.sleep(0.1)
    events.take()
    new.read_text()
    time.sleep(0.1)
    assert events.take() == set()  # our own reading is no change
    new.rename(tmp_path / "newer")
    until(events, new, tmp_path / "newer")
    bad.unlink()
    until(events, bad)


def test_subfolders_that_come_later_are_watched(tmp_path: Path, events: FolderEvents) -> None:
    events.sync({str(tmp_path): True})
    assert events.covers(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "b").mkdir(parents=True)
    until(events, tmp_path / "a")
    (tmp_path / "a" / "b" / "x").touch()
    until(events, tmp_path / "a" / "b" / "x")


def test_a_folder_that_goes_is_watched_again_when_it_comes(
    tmp_path: Path, events: FolderEvents
) -> None:
    folder = tmp_path / "a"
    assert not events.sync({str(folder): True})
    folder.mkdir()
    assert events.sync({str(folder): True})
    folder.rmdir()
    until(events, folder)
    assert not events.covers(str(folder))
    folder.mkdir()
    assert events.sync({str(folder): True})
    folder.rename(tmp_path / "b")  # its watch would report what has another name now
    folder.mkdir()
    assert events.sync({str(folder): True})
    events.take()
    (tmp_path / "b" / "x").touch()
    (folder / "y").touch()
    assert until(events, folder / "y") == {str(folder / "y")}


def test_one_folder_by_two_names(tmp_path: Path, events: FolderEvents) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    events.sync({str(real): True, str(link): True})
    (real / "x").touch()
    until(events, real / "x", link / "x")
    events.sync({str(link): True})
    time.sleep(0.1)
    events.take()
    (real / "y").touch()
    assert until(events, link / "y") == {str(link / "y")}


def test_without_threads_no_folder_is_covered_and_it_is_not_tried_again(
    tmp_path: Path, events: FolderEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    wanted = {str(tmp_path / name): False for name in "ab"}
    events.sync({str(tmp_path / "a"): False})
    descriptors = open_descriptors()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not events.sync(wanted)
    assert not events.sync(wanted) and not any(map(events.covers, wanted))
    assert open_descriptors() < descriptors


def test_too_many_folders_are_not_covered(
    tmp_path: Path, events: FolderEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocm_tui.ingest.follow.watcher.MOST_FOLDERS", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
    events.sync({str(tmp_path): True})
    assert events.covers(str(tmp_path)) and not events.covers(str(tmp_path / "a"))
