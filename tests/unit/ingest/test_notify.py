"""What the system tells of changes in folders: names, folders that go, one folder by two names."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_tui.ingest.follow.notify import Notifier


@pytest.fixture
def notifier() -> Iterator[Notifier]:
    made = Notifier()
    yield made
    made.stop()
    assert made.folders == frozenset() and made.descriptor == -1


def test_what_comes_changes_moves_and_goes_is_told(tmp_path: Path, notifier: Notifier) -> None:
    assert notifier.sync([str(tmp_path)]) and not notifier.sync([str(tmp_path)])
    assert notifier.take() == set()
    new, bad = tmp_path / "new", tmp_path / os.fsdecode(b"\xff\n ")
    for path in (new, bad):
        path.write_text("1")
        assert select.select([notifier.descriptor], [], [], 5)[0]
        assert notifier.take() == {str(path)}
    new.read_text()
    assert notifier.take() == set()
    new.rename(tmp_path / "newer")
    assert notifier.take() == {str(new), str(tmp_path / "newer")}
    bad.unlink()
    assert notifier.take() == {str(bad)}
    (tmp_path / ("x" * 255)).mkdir()
    assert notifier.take() == {str(tmp_path / ("x" * 255))}


def test_a_folder_that_goes_is_watched_again_when_it_comes(
    tmp_path: Path, notifier: Notifier
) -> None:
    folder = tmp_path / "a"
    assert not notifier.sync([str(folder)])
    folder.mkdir()
    notifier.sync([str(folder)])
    folder.rmdir()
    assert notifier.take() == {str(folder)} and notifier.folders == frozenset()
    folder.mkdir()
    assert notifier.sync([str(folder)])
    folder.rename(tmp_path / "b")  # its watch would tell of what is called otherwise now
    folder.mkdir()
    notifier.sync([str(folder)])
    notifier.take()
    (tmp_path / "b" / "x").touch()
    (folder / "y").touch()
    assert notifier.take() == {str(folder / "y")}


def test_one_folder_by_two_names(tmp_path: Path, notifier: Notifier) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    notifier.sync([str(real), str(link)])
    (real / "x").touch()
    assert notifier.take() == {str(real / "x"), str(link / "x")}
    notifier.sync([str(link)])
    (real / "y").touch()
    assert notifier.take() == {str(link / "y")}


def test_more_than_the_system_keeps_is_told_as_such(tmp_path: Path, notifier: Notifier) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 1 << 16:
        pytest.skip("this system keeps too many")
    files = tmp_path / "a", tmp_path / "b"
    for file in files:
        file.touch()
    notifier.sync([str(tmp_path)])
    for n in range(most + 2):
        os.utime(files[n % 2])  # the same event twice is kept once
    assert notifier.take() is None
    os.utime(files[0])
    assert notifier.take() == {str(files[0])}
