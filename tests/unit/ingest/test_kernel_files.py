"""Many small files of kernels as one source: what is withdrawn, what is left out, what is due."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.follow import kernel_files
from rocm_tui.ingest.follow.kernel_files import (
    PATIENCE,
    BestConfigs,
    FollowedFiles,
    KernelConfigs,
    best_configs_path,
)
from rocm_tui.ingest.follow.watcher import FolderEvents, Watcher
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, Unread
from tests.support.inductor_kernels import best_config, put_config, put_source, source

CONFIGS = '{"key": [1], "configs_timings": [[{"kwargs": {"B": 1}, "num_warps": 4}, [1.0, 1, 1]]]}'
Early = Callable[[list[Record]], None]


def digest(n: int) -> str:
    return chr(ord("A") + n) * 52


def put(cache: Path, n: int, text: str = CONFIGS) -> Path:
    path = cache / digest(n) / "k.autotune.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def put_best(root: Path, n: int) -> Path:
    folder = put_source(root, source(added=n), f"a{'xabcd'[n]}").parent
    return put_config(folder, best_config(), str(n) * 64)


def of_triton(folder: Path, early: Early | None = None) -> FollowedFiles:
    return KernelConfigs(str(folder), early)


def of_inductor(folder: Path, early: Early | None = None) -> FollowedFiles:
    return BestConfigs(best_configs_path(str(folder)), early)


BOTH = pytest.mark.parametrize(("of", "put_one"), [(of_triton, put), (of_inductor, put_best)])


def seen(records: list[Record]) -> list[str]:
    return [record.uid for record in records if isinstance(record, Seen)]


@BOTH
def test_a_folder_that_comes_and_goes(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path]
) -> None:
    folder = tmp_path / "cache"
    follower = of(folder)
    for _ in range(2):
        assert follower.poll(0.0) == [] and follower.state == "waiting"
    paths = [put_one(folder, n) for n in (1, 2)]
    assert len(seen(follower.poll(1.0))) == 2 and follower.state == "following"
    size = sum(path.stat().st_size for path in paths)
    assert (follower.size, follower.read, follower.problems) == (size, size, 0)
    assert follower.close() == []
    folder.rename(tmp_path / "away")
    gone = follower.poll(2.0)
    assert set(gone) == {Gone(str(path)) for path in paths} | {Gone(follower.path)}
    assert (follower.state, follower.size, follower.retry_at) == ("waiting", 0, None)
    assert follower.poll(3.0) == []
    (tmp_path / "away").rename(folder)
    assert len(seen(follower.poll(4.0))) == 2, "all of it is read anew"


@BOTH
def test_what_the_system_refuses_is_one_problem_until_it_does_not(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path]
) -> None:
    folder = tmp_path / "cache"
    folder.symlink_to(folder)
    follower = of(folder)
    (problem,) = follower.poll(0.0)
    assert isinstance(problem, Unread) and problem.source == follower.path
    assert problem.what.startswith("cannot read it: ")
    assert follower.poll(1.0) == [] and (follower.state, follower.problems) == ("unreadable", 1)
    folder.unlink()
    put_one(folder, 1)
    (folder / digest(2)).mkdir()  # Triton is timing this kernel
    gone, *records = follower.poll(2.0)
    assert gone == Gone(follower.path) and len(seen(records)) == 1
    assert (follower.state, follower.problems) == ("following", 0)
    assert follower.retry_at is not None
    folder.rename(tmp_path / "away")
    folder.symlink_to(folder)
    assert [type(record) for record in follower.poll(3.0)] == [Unread]
    assert follower.retry_at is None, "it would be looked at endlessly"
    folder.unlink()
    assert Gone(follower.path) in follower.poll(4.0) and follower.problems == 0


@BOTH
def test_what_was_read_before_a_look_failed_is_delivered(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changed, deleted = put_one(tmp_path, 1), put_one(tmp_path, 2)
    follower = of(tmp_path)
    follower.poll(0.0)
    changed.write_text(f"{changed.read_text()} ")
    deleted.unlink()
    put_one(tmp_path, 3)  # the folder must be listed again

    def failing(call: Callable[..., object]) -> Callable[..., object]:
        def fail(path: object, *args: object) -> object:
            if path == str(tmp_path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(path, *args)

        return fail

    for path in (changed, deleted):
        follower.report(path.parent.name)
    follower.look_soon()
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", failing(os.listdir))
        patch.setattr(os, "open", failing(os.open))
        records = follower.poll(1e6)
    assert [uid.rpartition("#")[0] for uid in seen(records)] == [str(changed)]
    assert Gone(str(deleted)) in records and isinstance(records[-1], Unread)
    assert len(seen(follower.poll(2e6))) == 1 and follower.problems == 0, "the new one"


@BOTH
def test_the_size_is_counted_while_another_thread_reads_more(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path]
) -> None:
    follower, path = of(tmp_path), str(put_one(tmp_path, 1))
    follower.poll(0.0)

    class Stamp(tuple[int, int, int]):
        """The other thread adds a file just when this one is looked at."""

        def __iter__(self) -> Iterator[int]:
            follower._stamps["another"] = (0, 0, 1000)
            return super().__iter__()

    follower._stamps[path] = Stamp(follower._stamps[path])  # type: ignore[assignment]
    before = follower._stamps[path][2]
    assert follower.size == before and follower.size == before + 1000


@BOTH
def test_what_is_read_is_handed_on_early(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(kernel_files, "EARLY", 2)
    for n in (1, 2, 3):
        put_one(tmp_path, n)
    early: list[list[Record]] = []
    left = of(tmp_path, early.append).poll(0.0)
    assert [len(batch) for batch in early] == [2] and len(seen(left)) == 1


@BOTH
def test_a_file_that_breaks_twice_is_said_once_and_withdrawn_when_it_is_well(
    tmp_path: Path, of: Callable[..., FollowedFiles], put_one: Callable[[Path, int], Path]
) -> None:
    path = put_one(tmp_path, 1)
    whole, folder = path.read_text(), path.parent
    follower = of(tmp_path)
    (uid,) = seen(follower.poll(0.0))

    def written(text: str, now: float) -> list[Record]:
        path.write_text(text)
        os.utime(folder)
        return follower.poll(now)

    dropped, problem = written("{", 1e6)
    assert dropped == Dropped(uid) and isinstance(problem, Unread) and problem.source == str(path)
    assert written("{", 2e6) == [] and follower.problems == 1
    gone, other = written("[]", 3e6)
    assert gone == Gone(str(path)) and isinstance(other, Unread), "for another reason"
    assert [type(record) for record in written(whole, 4e6)] == [Gone, Seen]
    assert follower.problems == 0
    written("{", 5e6)
    path.unlink()
    os.utime(folder)
    assert follower.poll(6e6) == [Gone(str(path))] and follower.problems == 0


def test_a_folder_is_looked_into_until_its_first_file_is_there(tmp_path: Path) -> None:
    folder = tmp_path / digest(1)
    (folder / "tmp.pid_1").mkdir(parents=True)
    (folder / ".lock").touch()
    follower = of_triton(tmp_path)
    assert follower.poll(0.0) == [] and follower.retry_at is not None
    assert follower.poll(PATIENCE * 0.9) == [] and follower.retry_at is not None
    assert follower.poll(PATIENCE) == [] and follower.retry_at is None, "its process has died"
    put(tmp_path, 1)
    assert len(seen(follower.poll(1e6))) == 1, "with a look at everything"
    put(tmp_path, 2, "")
    (tmp_path / digest(3)).mkdir()
    (tmp_path / digest(3) / "k.json").touch()
    follower.poll(2e6)
    assert follower.retry_at is None, "what was compiled is no tuning"


def test_names_that_are_no_folders_of_triton_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, 1)
    (tmp_path / digest(2)).write_text(CONFIGS)
    (tmp_path / "k.autotune.json").write_text(CONFIGS)
    (tmp_path / "lower" / "k").mkdir(parents=True)
    follower = of_triton(tmp_path)
    assert len(follower.poll(0.0)) == 1 and follower.retry_at is None
    follower.report(digest(2))
    assert follower.poll(0.0) == []


def test_a_changed_file_is_read_at_once_where_it_was_reported(tmp_path: Path) -> None:
    first, second = put(tmp_path, 1), put(tmp_path, 2)
    follower = of_triton(tmp_path)
    follower.poll(0.0)
    for path in (first, second):
        path.write_text(CONFIGS.replace("1.0", "2.00"))
    follower.report(first.parent.name)
    assert [uid.rpartition("#")[0] for uid in seen(follower.poll(0.0))] == [str(first)]
    follower.look_soon()
    assert [uid.rpartition("#")[0] for uid in seen(follower.poll(0.0))] == [str(second)]


def test_files_of_triton_are_looked_at_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [put(tmp_path, n) for n in range(3)]
    follower = of_triton(tmp_path)
    follower.poll(0.0)
    monkeypatch.setattr(kernel_files, "_FILES_BETWEEN", 2)
    monkeypatch.setattr(kernel_files, "_SLICE", 0.0)
    for path in paths:
        path.unlink()
    assert follower.poll(1e6) == []
    monkeypatch.setattr(kernel_files, "_SLICE", 60.0)
    assert set(follower.poll(2e6)) == {Gone(str(path)) for path in paths}


def test_best_configs_beyond_the_bound_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "MOST_FILES", 2)
    for n in (1, 2, 3):
        put_best(tmp_path, n)
    follower = of_inductor(tmp_path)
    records = follower.poll(0.0)
    (fault,) = (record for record in records if isinstance(record, Fault))
    assert fault == Fault(follower.path, "what is beyond 2 files is not read")
    assert len(seen(records)) == 2
    put_best(tmp_path, 4)
    assert follower.poll(1e6) == []


def test_only_folders_of_generated_code_have_best_configs(tmp_path: Path) -> None:
    path = put_best(tmp_path, 1)
    (tmp_path / "bb").symlink_to(path.parent)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / path.name).write_text(path.read_text())
    (path.parent / f".{path.name}").write_text("half")
    (tmp_path / "cc").write_text("no folder")
    follower = of_inductor(tmp_path)
    assert len(follower.poll(0.0)) == 1
    for folder, file, concerned in (
        ("aa", path.name, True),
        ("aa", "", True),
        ("aa", f".{path.name}", False),
        ("aa", "cabc.py", False),
        ("other", path.name, False),
    ):
        assert follower.concerns(folder, file) is concerned
    follower.report("cc")
    follower.report("gone")
    assert follower.poll(0.0) == []
    assert of_triton(tmp_path).concerns("aa", "x")


def test_files_that_cannot_be_read_are_tried_again_a_few_folders_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "_REREAD", 1)
    kernels = []
    for n in (1, 2):
        (kernel,) = put_best(tmp_path, n).parent.glob("*.py")
        kernels.append(kernel.rename(tmp_path / f"{n}.py"))
    follower = of_inductor(tmp_path)
    assert [type(record) for record in follower.poll(0.0)] == [Unread, Unread]
    for folder in (tmp_path / "aa", tmp_path / "ab"):
        os.utime(folder, (1e9, 1e9))
    follower.poll(1e6)
    for n, kernel in enumerate(kernels, start=1):
        kernel.rename(tmp_path / f"a{'xab'[n]}" / f"c{'a' * 51}.py")
        os.utime(tmp_path / f"a{'xab'[n]}", (1e9, 1e9))
    found = [len(seen(follower.poll(n * 1e7))) for n in (1, 2, 3)]
    assert sorted(found) == [0, 1, 1] and follower.problems == 0


def test_a_folder_that_is_listed_too_soon_after_a_change_is_listed_again(tmp_path: Path) -> None:
    """The clock of a file system may be coarse: another change may have the same time."""
    path = put_best(tmp_path, 1)
    follower = of_inductor(tmp_path)
    follower.poll(0.0)
    before = path.parent.stat()
    put_config(path.parent, best_config(block=512), "2" * 64)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(seen(follower.poll(1e6))) == 1


def test_a_change_that_is_reported_with_a_sweep_is_read(tmp_path: Path) -> None:
    """A sweep looks at all files of a cache only now and then, and takes no reported name."""
    path = put(tmp_path, 1)
    watcher = Watcher([str(tmp_path)], lambda batch: None)
    events = watcher._events = FolderEvents(lambda: None)
    try:
        watcher._sweep()
        (follower,) = watcher._set._tailers.values()
        assert isinstance(follower, KernelConfigs)
        follower._next_look = inf
        path.write_text(CONFIGS.replace("1.0", "2.00"))  # its time may be the same
        events._report([str(path)])  # as watchdog does, some time later
        watcher._next_sweep = 0.0
        assert len(seen(watcher._step(False))) == 1
    finally:
        events.stop()
