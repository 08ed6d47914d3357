"""Subfolders: which are read, which not and why, what that costs, and new ones while we watch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.model.session import Fault
from rocm_tui.cli.entry import main
from rocm_tui.ingest.follow import tree, watcher
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.follow.tree import PathKind, Walker, path_kinds
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import Record, Seen, SourceStatus
from tests.support.log_lab import BMM, MM
from tests.support.screen_lab import write_cache


def put(path: Path, text: str = MM) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(root: Path) -> list[str]:
    return [os.path.relpath(member.path, root) for member in Walker().walk(str(root)).members]


def test_the_logs_of_all_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        put(tmp_path / "run1" / "attempt_0" / str(rank) / "stderr.log", MM if rank else BMM)
    assert main(["ls", str(tmp_path), "--cache-dir", str(tmp_path / "none")]) == 0
    shown = capsys.readouterr()
    assert " bmm " in shown.out and " mm " in shown.out and shown.err == ""


def test_what_is_not_read_and_why(tmp_path: Path) -> None:
    outside = put(tmp_path / "outside" / "x.log")
    root = tmp_path / "root"
    put(root / "a" / "b.log")
    for name in (".git", "node_modules"):
        put(root / name / "c.log")
    (root / "loop").symlink_to(root)
    (root / "away").symlink_to(outside.parent)
    (root / "a" / "away.log").symlink_to(outside)
    (root / "a" / "near.log").symlink_to(root / "a" / "b.log")
    (root / "top.log").symlink_to(outside)  # in the folder that was named, as ever
    put(root.joinpath(*"1234567") / "deep.log")
    found = Walker().walk(str(root))
    assert names(root) == ["a/b.log", "a/near.log", "top.log"]
    assert found.words == (
        "8 folders, 3 files; not read: 1 folder more than 6 levels below, 2 links to folders, "
        "1 link to files outside, 2 hidden or installed folders"
    )
    (problem,) = [r for r in read_sources([str(root)]) if isinstance(r, Fault)]
    assert problem.source == str(root) and "1 folder more than 6 levels below" in problem.what


def test_of_a_cache_dir_its_times_and_sessions_alone(tmp_path: Path) -> None:
    cache = tmp_path / "job" / "cache_of_it"
    write_cache(cache, 16)
    put(cache / "fxgraph" / "ab" / "x.log")
    put(cache / "c7" / "c7x.json")
    put(cache / "rocm_tui" / "sessions" / "h-1-2-3.jsonl", "")
    put(cache / "rocm_tui" / "failed" / "x.log")
    inside = names(tmp_path)
    assert [name.split("/")[2] for name in inside] == ["cache", "rocm_tui"]
    assert names(cache) == [name.removeprefix("job/cache_of_it/") for name in inside]


def test_a_big_tree_is_cheap_and_says_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(60):
        (tmp_path / "data" / str(n) / "x").mkdir(parents=True)
    put(tmp_path / "a" / "b.log")
    monkeypatch.setattr(tree, "FOLDERS", 40)
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(tree.os, "scandir", lambda path: listed.append(path) or scandir(path))
    old = time.time() - 10
    for folder, _, _ in os.walk(tmp_path):
        os.utime(folder, (old, old))
    walker = Walker()
    found = walker.walk(str(tmp_path))
    listed[:] = [path for path in listed if path.startswith(str(tmp_path))]
    assert found.bounds == ("what is beyond 40 folders",)
    assert len(found.folders) == 40 and [m.path[-5:] for m in found.members] == ["b.log"]
    listed.clear()
    assert walker.walk(str(tmp_path)) == found and listed == []  # nothing changed since
    put(tmp_path / "a" / "c.log")
    assert len(walker.walk(str(tmp_path)).members) == 2 and listed == [str(tmp_path / "a")]


def wait_for(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("watched", [watcher.MOST_FOLDERS, 5])
def test_new_subfolders_while_we_watch(
    tmp_path: Path, watched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the system is asked to watch: the others are looked at now and then."""
    monkeypatch.setattr("rocm_tui.ingest.follow.watcher.MOST_FOLDERS", watched)
    folders = 20
    for n in range(folders):
        put(tmp_path / "old" / f"{n:03}" / "rank.log", "step 1\n")
    seen: list[Record] = []
    watcher = Watcher([str(tmp_path)], seen.extend)
    watcher.start()
    try:

        def statuses() -> list[SourceStatus]:
            return [s for s in watcher.sources() if s.format != "folder" and s.read]

        wait_for(lambda: len(statuses()) == folders)
        log = put(tmp_path / "run2" / "rank0" / "err.log")
        wait_for(lambda: any(isinstance(r, Seen) and r.uid.startswith(str(log)) for r in seen))
        last = tmp_path / "old" / f"{folders - 1:03}" / "rank.log"
        with last.open("a") as stream:
            stream.write(BMM)
        wait_for(lambda: any(isinstance(r, Seen) and r.uid.startswith(str(last)) for r in seen))
        (folder,) = [status for status in watcher.sources() if status.format == "folder"]
        assert folder.words == f"{folders + 4} folders, {folders + 1} files"
    finally:
        watcher.stop()


def test_a_search_that_takes_long_is_not_made_for_each_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[float] = []
    walk = Walker.walk

    def slow(walker: Walker, root: str) -> tree.Tree:
        searches.append(time.monotonic())
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return walk(walker, root)

    monkeypatch.setattr(Walker, "walk", slow)
    seen: list[Record] = []
    watched = Watcher([str(tmp_path)], seen.extend, settled=lambda: searches.append(0.0))
    watched.start()
    try:
        wait_for(lambda: 0.0 in searches)
        time.sleep(0.5)
        begun, before = time.monotonic(), len(searches)
        for n in range(100):
            put(tmp_path / f"{n}.log")
            time.sleep(0.01)
        wait_for(lambda: len({r.uid for r in seen if isinstance(r, Seen)}) >= 100)
        passed = time.monotonic() - begun
        assert len(searches) - before <= 10 + passed / 0.2 + 3 * passed / watcher.SWEEP
    finally:
        watched.stop()


def test_what_a_path_turns_out_to_be(tmp_path: Path) -> None:
    log = put(tmp_path / "runs" / "x.log")
    folder, gone = str(tmp_path / "runs"), str(tmp_path / "gone")
    assert path_kinds([folder, str(log), gone, folder], folder) == [
        PathKind(folder, "folder", 1, cache=True),
        PathKind(str(log), "file", 1),
        PathKind(gone, "missing"),
    ]


def test_a_link_to_itself_is_reported_by_its_reader(tmp_path: Path) -> None:
    put(tmp_path / "a.log")
    (tmp_path / "own.log").symlink_to(tmp_path / "own.log")
    (fault,) = [r for r in read_sources([str(tmp_path)]) if isinstance(r, Fault)]
    assert fault.source.endswith("own.log") and "cannot read" in fault.what
