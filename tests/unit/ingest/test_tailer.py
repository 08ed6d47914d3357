"""One file that is followed: what is said once, what is withdrawn, what its bytes may be."""

from __future__ import annotations

import errno
import gzip
import json
import os
import time
from pathlib import Path

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.follow import tailer as tailer_module
from rocm_tui.ingest.follow.tailer import HALF_WRITTEN, QUIET, Tailer, decoder_of
from rocm_tui.ingest.formats.reader import SILENCE
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, Unread
from tests.support.descriptors import open_descriptors
from tests.support.format_lab import KEY, cache_text
from tests.support.log_lab import BMM, MM


def ops(records: list[Record]) -> list[str]:
    return list({r.uid: r.tuning.op for r in records if isinstance(r, Seen)}.values())


def states(records: list[Record]) -> list[str]:
    return [record.tuning.state for record in records if isinstance(record, Seen)]


def faults(records: list[Record]) -> list[str]:
    return [record.what for record in records if isinstance(record, Fault)]


def test_a_file_that_comes_late_and_goes_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tailer = Tailer(str(path))
    for _ in range(2):
        assert tailer.poll() == [] and tailer.state == "waiting" and tailer.size == 0
    path.write_text(MM)
    assert ops(tailer.poll()) == ["mm"] and tailer.state == "following"
    path.unlink()
    assert tailer.poll() == [Gone(str(path), anew=True)] and tailer.poll() == []
    assert (tailer.state, tailer.size, tailer.read) == ("waiting", 0, 0)
    path.write_text("")
    assert tailer.poll() == [] and tailer.format == "empty"
    path.unlink()
    assert tailer.poll() == [], "it had said nothing"
    (tmp_path / "file").touch()
    assert Tailer(str(tmp_path / "file" / "a.log")).poll() == []


def test_what_the_system_refuses_is_one_problem_until_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.symlink_to(path)
    tailer = Tailer(str(path))
    (problem,) = tailer.poll()
    assert isinstance(problem, Unread) and problem.source == str(path)
    assert problem.what.startswith("cannot read it: ")
    assert tailer.poll() == [] and (tailer.state, tailer.problems) == ("unreadable", 1)
    path.unlink()
    path.write_text(MM)
    gone, *records = tailer.poll()
    assert gone == Gone(str(path)) and ops(records) == ["mm"] and tailer.problems == 0
    path.unlink()
    path.symlink_to(path)
    assert len(tailer.poll()) == 1
    path.unlink()
    assert tailer.poll() == [Gone(str(path), anew=True)] and tailer.state == "waiting"


@pytest.mark.parametrize("text", [MM, '{"cache": {'])
def test_what_the_system_refuses_is_not_due_before_the_next_look_at_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    tailer = Tailer(str(path))
    tailer.poll(0.0)
    assert tailer.retry_at is not None

    def stale(_: Path) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stale)
        for now in (tailer.retry_at, tailer.retry_at + 10.0):
            tailer.poll(now)
            assert tailer.state == "unreadable" and tailer.retry_at is None
    tailer.poll(20.0)
    assert tailer.state == "following" and tailer.retry_at is not None


def test_a_document_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer_module, "MAX_WHOLE", 1 << 20)
    path = tmp_path / "a.json"
    path.write_bytes(cache_text({"mm": {KEY: {"highest": {"a": 1.0}}}}).ljust(1 << 20))
    tailer = Tailer(str(path))
    assert ops(tailer.poll()) == ["mm"]
    with path.open("a") as stream:
        stream.write(" ")
    assert faults(tailer.poll()) == ["cannot read it: more than 1 MiB"]


def test_a_file_that_is_no_source_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\x7fELF\x02\x01\0\0")
    tailer = Tailer(str(path))
    assert len(faults(tailer.poll())) == 1 and tailer.state == "not read"
    with path.open("ab") as stream:
        stream.write(b"\0" * 9)
    assert tailer.poll() == [] and tailer.problems == 1, "it is said once"
    path.write_text(MM)
    for wanted, state in ((frozenset({"mm log"}), "not read"), (frozenset(), "following")):
        tailer = Tailer(str(path), wanted=wanted)
        assert (ops(tailer.poll()) == ["mm"]) is (state == "following") and tailer.state == state
    path.write_text("[")
    tailer = Tailer(str(path), wanted=frozenset({"mm log"}))
    assert tailer.poll() == [] and tailer.state == "following", "more may come"


def test_a_long_log_is_handed_on_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer_module, "_PIECE", len(MM))
    path = tmp_path / "a.log"
    path.write_text(MM + BMM + "AUTOTUNE mm(1x2, 2x\n" * 2 + MM)
    early: list[Record] = []
    tailer = Tailer(str(path), early=early.extend)
    left = tailer.poll()
    assert ops(early)[:2] == ["mm", "bmm"] and sorted(ops(early + left)) == ["bmm", "mm", "mm"]
    assert tailer.problems == len(faults(early + left)) > 0
    assert tailer.read == tailer.size == path.stat().st_size
    whole = Tailer(str(path))
    assert sorted(ops(whole.poll())) == ["bmm", "mm", "mm"] and whole.problems == tailer.problems
    path.write_text(BMM)
    del early[:]
    assert ops(early + tailer.poll() + tailer.close()) == ["bmm"] and Gone(str(path), True) in early


def test_problems_of_a_document_go_when_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    entry = {"(1, 2, 3)": [{"type": "cublas", "time": 1.0}], "kernel_type": "mm"}
    other = {**entry, "kernel_type": "bmm"}

    def written(*entries: object) -> list[Record]:
        path.write_text(json.dumps(entries))
        return tailer.poll()

    tailer = Tailer(str(path))
    assert [type(record) for record in written(entry, 7)] == [Seen, Fault]
    assert [type(record) for record in written(entry, 7, 8)] == [Fault] and tailer.problems == 2
    assert ops(written(entry, 7, 8, other)) == ["bmm"]
    assert [type(record) for record in written(entry, 7, 8)] == [Dropped]
    assert [type(record) for record in written(entry)] == [Gone, Seen] and tailer.problems == 0
    assert written(entry, *()) == [] and tailer.rewritten


def test_a_document_that_stays_half_written_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"cache": {')
    tailer = Tailer(str(path))
    assert tailer.poll(10.0) == [] and tailer.retry_at == 10.0 + HALF_WRITTEN
    assert tailer.poll(10.0 + HALF_WRITTEN / 2) == []
    (problem,) = tailer.poll(10.0 + HALF_WRITTEN)
    assert isinstance(problem, Unread) and tailer.retry_at is None
    assert tailer.poll(99.0) == [] and tailer.problems == 1
    at_once = Tailer(str(path))
    assert at_once.poll() == [] and len(faults(at_once.close())) == 1
    assert at_once.close() == [] and Tailer(str(path)).close() == []


def test_a_log_is_looked_at_once_more_when_it_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM.rpartition("SingleProcess")[0])
    tailer = Tailer(str(path))
    tailer.poll(10.0)
    assert tailer.retry_at == 10.0 + QUIET and not tailer.rewritten
    assert tailer.poll(10.0 + QUIET / 2) == []
    (cut,) = tailer.poll(10.0 + QUIET)
    assert isinstance(cut, Seen) and cut.tuning.state == "cut" and tailer.retry_at is None


TRIED = "Autotuning kernel f with config BLOCK_M: {}, num_warps: 4, num_ctas: 1, num_stages: 2\n"
SELECTED = (
    "Triton autotuning for function f finished after 0.41s; best config selected: BLOCK_M: 32, "
    "num_warps: 4, num_ctas: 1, num_stages: 2;\n"
)
STATS = json.dumps(json.dumps({"num_choices": 1, "best_kernel": "mm", "best_time": 1.0}))
TRACED = f"""V1120 10:10:29.070000 6512 a.py:1] {{"chromium_event": {{}}, "has_payload": "x"}}
\t{{
\t"name": "mm_template_autotuning", "ts": 1, "ph": "B",
\t"args": {{"autotune_choices_stats": {STATS}}}
\t}}
"""


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (TRIED.format(16) + TRIED.format(32), SELECTED),
        (TRACED, TRACED.replace('"B"', '"E"')),
    ],
    ids=["Triton", "trace"],
)
def test_a_tuning_without_an_end_is_cut_after_a_long_silence(
    tmp_path: Path, begin: str, end: str
) -> None:
    """One that is compiled for a minute writes nothing and goes on; a dead process never does."""
    path = tmp_path / "a.log"
    path.write_text(begin)
    tailer = Tailer(str(path))
    assert states(tailer.poll(10.0))[-1] == "running" and states(tailer.poll(12.0)) == []
    assert tailer.retry_at is not None, "it is looked at again"
    long_ago = time.time() - SILENCE - 1
    os.utime(path, (long_ago, long_ago))
    seen = [state for now in (14.0, 16.0, 18.0) for state in states(tailer.poll(now))]
    assert seen == ["cut"] and tailer.retry_at is None
    with path.open("a") as stream:
        stream.write(end)
    assert states(tailer.poll(20.0)) == ["done"]


@pytest.mark.parametrize("same", ["head", "end"])
def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path, same: str) -> None:
    """It has grown, and its beginning or what was its end are as before."""
    path = tmp_path / "a.log"
    path.write_text("x" * 100 + "\n" + MM)
    tailer = Tailer(str(path))
    tailer.poll()
    other = path.read_text()
    other = other.replace("bfloat16", "float16").ljust(len(other)) if same == "head" else (
        "y" * 100 + other[100:]
    )  # fmt: skip
    with path.open("r+") as stream:
        stream.write(other + BMM)
    gone, *records = tailer.poll()
    assert gone == Gone(str(path), anew=True) and ops(records)[-1] == "bmm"
    with path.open("a") as stream:
        stream.write(MM)
    assert not any(isinstance(record, Gone) for record in tailer.poll()), "it has grown"


def text_of(data: bytes, piece: int = 1 << 20) -> bytes:
    decoder = decoder_of(data)
    assert decoder is not None
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    return b"".join(text for each in pieces for text in decoder.feed(each))


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_members_of_a_compressed_file_follow_each_other(piece: int) -> None:
    members = gzip.compress(b"one\n") + gzip.compress(b"two\n")
    assert text_of(members, piece) == b"one\ntwo\n"
    assert text_of(members + b"\0" * 512, piece) == b"one\ntwo\n", "what fills a tape is no member"
    assert piece == 3 or text_of(members + b"\x1f\x8c" + b"x" * 30) == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (gzip.compress(b"x", mtime=0), "gzip"),
        (b"\xff\xfea\0", "utf-16-le"),
        (b"\xfe\xff\0a", "utf-16-be"),
        ("epoch 1\n".encode("utf-16-le"), "utf-16-le"),
        ("epoch 1\n".encode("utf-16-be"), "utf-16-be"),
        ("epoch 1".encode("utf-16-le"), ""),  # too short to be sure
        ("日志日志日志日志abc".encode("utf-16-le"), ""),
        (b"\xff\xfe\0\0a\0\0\0" * 8, ""),  # UTF-32
        (b"\0" * 64, ""),
        (b"epoch 1\n" * 8, ""),
        (b"\x1f\x8b\x07" + b"x" * 30, ""),
        (b"", ""),
    ],
)
def test_the_encoding_of_a_file(head: bytes, what: str) -> None:
    decoder = decoder_of(head)
    assert (decoder.what if decoder else "") == what


def test_a_hole_of_one_byte_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for nuls, read in ((1, ["mm"]), (2, ["mm"]), (1 << 21, ["mm"])):
        path.write_bytes(b"\0" * nuls + MM.encode())
        tailer = Tailer(str(path))
        assert ops(tailer.poll() + tailer.close()) == read
        assert tailer.read == path.stat().st_size


def test_an_error_without_words_is_named_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise TimeoutError

    path = tmp_path / "a.log"
    path.write_text(MM)
    monkeypatch.setattr(tailer_module.os, "open", fails)
    assert faults(Tailer(str(path)).poll()) == ["cannot read it: TimeoutError"]


def test_no_file_stays_open(tmp_path: Path) -> None:
    log, document = tmp_path / "a.log", tmp_path / "a.json"
    tailers = [Tailer(str(log)), Tailer(str(document))]
    before = open_descriptors()
    for n in range(3):
        log.write_text(MM * (n + 1))
        document.write_bytes(cache_text({"mm": {KEY: {"highest": {"a": 1.0 + n}}}}))
        assert all(tailer.poll() for tailer in tailers)
    log.write_bytes(b"\x7fELF\x02\x01\0\0")
    tailers[0].poll()
    assert open_descriptors() == before
