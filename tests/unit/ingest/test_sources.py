"""Which files are sources, which changes concern them, and what is read once to its end."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import time
from pathlib import Path

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.follow import sources as sources_module
from rocm_tui.ingest.follow import tree
from rocm_tui.ingest.follow.kernel_files import BestConfigs, KernelConfigs, best_configs_path
from rocm_tui.ingest.follow.sources import (
    SourceSet,
    Stdin,
    follower,
    members_of,
    read_sources,
)
from rocm_tui.ingest.follow.tailer import HALF_WRITTEN, Tailer
from rocm_tui.ingest.follow.tree import SourceFile, Tree
from rocm_tui.ingest.records import STDIN, Gone, Record, Seen, Unread
from tests.support.format_lab import KEY, cache_text
from tests.support.inductor_kernels import best_config, put_config, put_source, source
from tests.support.log_lab import BMM, MM
from tests.support.watch_lab import HASH

DIGEST = "A" * 52
CONFIGS = '{"key": [1], "configs_timings": [[{"kwargs": {"B": 1}, "num_warps": 4}, [1.0, 1, 1]]]}'


def put(path: Path, text: str = MM) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def ops(records: list[Record]) -> list[str]:
    return list({r.uid: r.tuning.op for r in records if isinstance(r, Seen)}.values())


def faults(records: list[Record]) -> list[tuple[str, str]]:
    return [(r.source, r.what) for r in records if isinstance(r, Fault)]


def looked_at(*paths: Path) -> SourceSet:
    """Sources that were found and read."""
    found = SourceSet([*map(str, paths)])
    found.find()
    found.look()
    return found


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system refuse to list a folder, as it does for others than root."""
    scandir = os.scandir

    def denied(path: str) -> object:
        if path == str(folder):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(tree.os, "scandir", denied)


def test_what_is_not_there_or_cannot_be_listed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, folder = str(tmp_path / "gone.log"), tmp_path / "closed"
    folder.mkdir()
    refuse(monkeypatch, folder)
    log = str(put(tmp_path / "a.log"))
    records = read_sources([gone, str(folder), log, log])
    assert faults(records) == [
        (gone, "no such file or folder"),
        (str(folder), "cannot read it: Permission denied"),
    ]
    assert all(isinstance(record, Unread) for record in records[:2])
    assert ops(records) == ["mm"], "each path once"


def test_a_folder_says_what_was_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.log")
    put(tmp_path / "b" / "b.log")
    assert faults(read_sources([str(tmp_path)])) == []
    monkeypatch.setattr(tree, "FOLDERS", 1)
    ((where, what),) = faults(read_sources([str(tmp_path)]))
    assert where == str(tmp_path) and "1 folders" in what and "name what" in what


def test_a_cache_dir_has_the_best_configs_as_one_source(tmp_path: Path) -> None:
    caches = frozenset(str(tmp_path / name) for name in "ba")
    log = SourceFile("/x.log")
    found = members_of(Tree((str(tmp_path),), caches, (log,)))
    assert [member.path for member in found] == [
        "/x.log", *(best_configs_path(str(tmp_path / name)) for name in "ab"),
    ]  # fmt: skip


def test_what_follows_a_source(tmp_path: Path) -> None:
    configs = KernelConfigs.format
    assert isinstance(follower(SourceFile(best_configs_path("/c"), "best config")), BestConfigs)
    assert isinstance(follower(SourceFile(str(tmp_path), configs)), KernelConfigs)
    for path, format in ((tmp_path / "k.autotune.json", configs), (tmp_path, "")):
        assert isinstance(follower(SourceFile(str(path), format)), Tailer)


def test_changes_that_concern_a_folder(tmp_path: Path) -> None:
    log = put(tmp_path / "a.log")
    below = put(tmp_path / "run" / "b.log")
    (tmp_path / ".git").mkdir()
    found = looked_at(tmp_path)
    for path, matters, known in (
        (log, True, True),
        (below, True, True),
        (tmp_path, True, False),
        (tmp_path / "c.log", True, False),
        (tmp_path / "run" / "c.log", True, False),
        (tmp_path / "away" / "c.log", False, False),
        (tmp_path / "notes.md", False, False),
        (tmp_path / "cache", True, False),
        (tmp_path / "rocm_tui" / "sessions", True, False),
        (tmp_path / "late", False, False),
        (tmp_path / ".git", False, False),
    ):
        assert (found.matters(str(path)), found.is_known(str(path))) == (matters, known), path
    (tmp_path / "late").mkdir()
    assert found.matters(str(tmp_path / "late"))
    (tmp_path / ".git" / "hooks").mkdir()
    assert not found.matters(str(tmp_path / ".git" / "hooks")), "nothing is looked for in there"
    assert found.folders == {str(tmp_path): True}


def test_a_file_that_is_to_come_is_awaited_where_its_folder_will_be(tmp_path: Path) -> None:
    late = tmp_path / "not" / "yet" / "a.log"
    found = looked_at(late)
    assert found.folders == {str(tmp_path): False}
    assert found.matters(str(tmp_path / "not")) and not found.matters(str(tmp_path / "other"))
    put(late)
    found.find()
    assert found.folders == {str(late.parent): False} and ops(found.look()) == ["mm"]


def test_a_link_is_watched_where_it_leads(tmp_path: Path) -> None:
    real, link = put(tmp_path / "real" / "run1.log"), tmp_path / "latest.log"
    link.symlink_to(real)
    found = looked_at(link)
    assert found.folders == {str(tmp_path): False, str(real.parent): False}
    assert found.matters(str(real)) and found.is_known(str(real))
    with real.open("a") as log:
        log.write(BMM)
    assert ops(found.look([str(real)])) == ["bmm"]
    assert found.uncovered(lambda folder: folder == str(tmp_path)) == {str(link)}


def test_sources_that_cannot_be_watched_are_polled(tmp_path: Path) -> None:
    log, below = put(tmp_path / "a.log"), put(tmp_path / "run" / "b.log")
    found = looked_at(tmp_path)
    assert found.uncovered(lambda _: True) == frozenset()
    every = {str(tmp_path), str(log), str(below)}
    assert found.uncovered(lambda _: False) == every
    assert found.uncovered(lambda folder: folder == str(tmp_path)) == {str(below)}
    assert found.known == every - {str(tmp_path)}
    for uncovered, by in ((None, ["polling"] * 3), (frozenset(), ["inotify"] * 3)):
        statuses = found.statuses(uncovered)
        assert [status.path for status in statuses] == [str(tmp_path), str(log), str(below)]
        assert [status.watched_by for status in statuses] == by
    (folder, *_) = statuses
    assert (folder.format, folder.state, folder.words) == (
        "folder",
        "following",
        "2 folders, 2 files",
    )
    assert [status.read for status in statuses] == [0, len(MM), len(MM)]


def test_a_folder_that_cannot_be_listed_is_said_once_and_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SourceSet([str(tmp_path)])
    with monkeypatch.context() as patch:
        refuse(patch, tmp_path)
        assert faults(found.find()) == [(str(tmp_path), "cannot read it: Permission denied")]
        assert found.find() == []
        (status,) = found.statuses(None)
        assert (status.state, status.problems) == ("unreadable", 1)
    assert found.find() == [Gone(str(tmp_path))]
    (status,) = found.statuses(None)
    assert (status.state, status.problems) == ("following", 0)


def test_the_state_of_a_folder_is_given_while_another_thread_looks_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    put(folder / "a.log")
    found = looked_at(folder)

    class Between(dict[str, Fault]):
        """The folder is deleted, and looked for, just before this is asked about it."""

        def __contains__(self, path: object) -> bool:
            (folder / "a.log").unlink()
            folder.rmdir()
            found.find()
            return super().__contains__(path)

    found._unlistable = Between()
    assert next(status.path for status in found.statuses(None)) == str(folder)


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    log = put(tmp_path / "a.log")
    found = SourceSet([str(tmp_path), str(log)])
    found.find()
    assert ops(found.look()) == ["mm"] and found.look() == []


def test_a_link_may_come_before_the_file_to_which_it_leads(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").symlink_to(tmp_path / "job.log")
    long_ago = time.time() - 60
    os.utime(tmp_path / "logs", (long_ago, long_ago))  # its list of names is kept
    found = SourceSet([str(tmp_path / "logs")])
    found.find()
    assert found.look() == []
    put(tmp_path / "job.log")
    found.find()
    assert ops(found.look()) == ["mm"]


def test_files_that_go_take_what_they_said_along(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a.log"), put(tmp_path / "b.log", BMM)
    found = looked_at(tmp_path)
    first.unlink()
    assert found.find() == [Gone(str(first), anew=True)] and found.known == {str(second)}
    second.unlink()
    assert found.look([str(second)]) == [Gone(str(second), anew=True)]
    assert not found.known and not found.is_known(str(second))
    put(second)
    assert found.matters(str(second))
    alone = looked_at(first)
    put(first)
    assert ops(alone.look()) == ["mm"]
    first.unlink()
    assert alone.look([str(first)]) == [Gone(str(first), anew=True)]
    assert alone.known == {str(first)}, "it was named: it may come again"


def test_what_is_read_is_handed_on_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "EARLY", 2)
    for name in "abc":
        put(tmp_path / f"{name}.log", MM + BMM)
    early: list[list[Record]] = []
    found = SourceSet([str(tmp_path)], early.append)
    found.find()
    left = found.look()
    assert sorted(ops([record for batch in early for record in batch] + left)) == (
        ["bmm"] * 3 + ["mm"] * 3
    )
    assert len(early) > 1 and ops(left) == []


def test_a_document_rests_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "REST", 1e9)
    path = tmp_path / "cache" / HASH
    path.parent.mkdir()
    path.write_bytes(cache_text({"mm": {KEY: {"highest": {"a": 1.0}}}}))
    log = put(tmp_path / "logs" / "a.log")
    found = looked_at(path, log)
    path.write_bytes(cache_text({"bmm": {KEY: {"highest": {"a": 1.0}}}}))
    with log.open("a") as stream:
        stream.write(BMM)
    assert ops(found.look([str(path), str(log)])) == ["bmm"]
    due = found.retry_at
    assert due is not None and due < time.monotonic() + 60, "that of the log"
    later = looked_at(path)
    path.write_bytes(cache_text({}))
    assert later.retry_at is None and later.look() == []
    assert later.retry_at is not None and later.retry_at > time.monotonic()


def test_a_broken_document_that_is_due_rests_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "REST", 1e9)
    path = put(tmp_path / "cache" / HASH, "{")
    found = looked_at(path)
    due = time.monotonic() + HALF_WRITTEN
    assert found.retry_at is not None and found.retry_at > due


def test_a_change_in_a_cache_of_kernels_is_looked_at_alone(tmp_path: Path) -> None:
    put(tmp_path / DIGEST / "k.autotune.json", CONFIGS)
    found = looked_at(tmp_path)
    (status,) = found.statuses(None)
    assert status.path == str(tmp_path) and status.format == KernelConfigs.format
    new = tmp_path / ("B" * 52)
    assert found.matters(str(new)) and found.is_known(str(new / "k.autotune.json"))
    put(new / "k.autotune.json", CONFIGS)
    assert ops(found.look([str(new)])) == ["triton"]
    put(tmp_path / ("C" * 52) / "k.autotune.json", CONFIGS)
    found.look_soon()
    assert ops(found.look([str(tmp_path)])) == ["triton"]


def test_the_best_configs_of_a_cache_dir_are_followed(tmp_path: Path) -> None:
    (tmp_path / "fxgraph").mkdir()
    kernel = put_source(tmp_path, source(), "ab")
    put_config(kernel.parent, best_config(), "1" * 64)
    found = looked_at(tmp_path)
    name = best_configs_path(str(tmp_path))
    assert name in {status.path for status in found.statuses(None)}
    assert found.uncovered(lambda _: False) >= {name}
    config = put_config(kernel.parent, best_config(block=512), "2" * 64)
    for path, concerned in (
        (config, True),
        (kernel.parent, True),
        (kernel, False),
        (config.with_name(f".{config.name}"), False),
        (tmp_path / "rocm_tui" / config.name, False),
    ):
        assert found.is_known(str(path)) is concerned, path
    assert ops(found.look([str(config)])) == ["pointwise"]


def stdin_of(data: bytes) -> tuple[Stdin, list[Record]]:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    stdin = Stdin(reader)
    records = stdin.read_all()
    os.close(reader)
    return stdin, records


@pytest.mark.parametrize(
    ("data", "found", "said"),
    [
        (MM.encode(), ["mm"], []),
        (MM.rstrip("\n").encode(), ["mm"], []),
        (cache_text({"bmm": {KEY: {"highest": {"a": 1.0}}}}), ["bmm"], []),
        (b"hello", [], []),
        (b"", [], []),
        (b"\x7fELF\x02\x01\0\0", [], ["not a text file; nothing was read from it"]),
        (gzip.compress(MM.encode()), ["mm"], []),
        (MM.encode("utf-16"), ["mm"], []),
        (
            gzip.compress(MM.encode())
            + gzip.compress(random.Random(0).randbytes(8192))[:-8]
            + b"8" * 8,
            ["mm"],
            ["damaged gzip data: only what is before it was read"],
        ),
        (
            gzip.compress(cache_text({"bmm": {KEY: {"highest": {"a": 1.0}}}})),
            [],
            ["autotune cache in gzip, which is not read: unpack it first"],
        ),
    ],
    ids=[
        *("log", "torn", "cache", "text", "nothing", "binary"),
        *("gzip", "UTF-16", "damaged", "packed cache"),
    ],
)
def test_standard_input(data: bytes, found: list[str], said: list[str]) -> None:
    stdin, records = stdin_of(data)
    assert ops(records) == found and faults(records) == [(STDIN, what) for what in said]
    status = stdin.status()
    assert (status.read, status.size, status.problems) == (len(data), len(data), len(said))
    assert not stdin.open


def test_a_document_from_standard_input_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "MAX_WHOLE", 1 << 10)
    stdin, records = stdin_of(cache_text({"x" * 2000: {}}))
    assert not stdin.open and [what for _, what in faults(records)] == [
        "more than 0 MiB of autotune cache"
    ]
    _, records = stdin_of(cache_text({"bmm": {KEY: {"highest": {"a": 1.0}}}}))
    assert ops(records) == ["bmm"]


def test_standard_input_that_is_not_read_is_refused_before_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"\x7fELF\x02\x01\0\0")
    stdin = Stdin(reader)
    assert [what for _, what in faults(stdin.read())] == [
        "not a text file; nothing was read from it"
    ]
    assert not stdin.open
    os.close(reader)
    os.close(writer)


def test_a_line_without_an_end_is_the_same_in_a_file_and_on_standard_input(tmp_path: Path) -> None:
    """A notebook that was written without indentation is one line."""
    text = json.dumps({"cells": [{"outputs": [{"text": MM}]}]})
    path = put(tmp_path / "a.log", text)
    for records in (read_sources([str(path)]), stdin_of(text.encode())[1]):
        assert ops(records) == ["mm"]


def test_standard_input_without_data_or_that_was_closed() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    stdin = Stdin(reader)
    assert stdin.read() == [] and stdin.open
    os.close(reader)
    os.close(writer)
    ((where, what),) = faults(stdin.read())
    assert where == STDIN and what.startswith("cannot read it: ") and not stdin.open
    assert stdin.status().problems == 1
