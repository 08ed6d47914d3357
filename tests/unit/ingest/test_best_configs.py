"""Inductor's best configs as one source: which kernel each is about, what changes, what is none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.model.tuning import Tuning
from rocm_tui.ingest.follow import kernel_files
from rocm_tui.ingest.follow.kernel_files import BestConfigs, best_configs_path
from rocm_tui.ingest.follow.sources import SourceSet, read_sources
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, Unread
from rocm_tui.session import stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Model
from tests.support.inductor_kernels import (
    best_config,
    put_compiled,
    put_config,
    put_source,
    source,
)

REDUCTION = (
    source("triton_red_fused_sum_7")
    .replace("triton_heuristics.pointwise", "triton_heuristics.reduction")
    .replace("XBLOCK : tl.constexpr", "XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr")
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "fxgraph").mkdir()
    return tmp_path


def tunings(records: list[Record]) -> list[Tuning]:
    return [record.tuning for record in records if isinstance(record, Seen)]


def test_a_cache_dir_tells_of_its_kernels(root: Path) -> None:
    kernel = put_source(root, source())
    file = put_config(kernel.parent, best_config())
    (tuning,) = tunings(read_sources([str(root)]))
    assert tuning.op == "pointwise" and tuning.device == "cuda"
    assert (stats.sizes_text(tuning), stats.dtype_of(tuning)) == (
        "triton_poi_fused_add 4096",
        "f32",
    )
    (choice,) = tuning.choices
    assert (choice.label, choice.ms) == ("XBLOCK=256 w4 s1", None)
    assert tuning.seconds.benchmark == 0.105 and tuning.sources == (str(file),)
    assert not stats.single(tuning) and stats.winner(tuning) is None
    model = Model()
    model.apply(read_sources([str(root)]))
    (row,) = model.rows()
    assert in_use(row) == choice


def test_two_kernels_of_a_folder_are_told_apart(root: Path) -> None:
    """By the constants, by what Triton compiled, else by what is left."""
    first = put_source(root, source(), "ab")
    second = put_source(root, source(added=2.0), "ab")
    put_source(root, REDUCTION, "ab")
    digests = "A" * 52, "B" * 52
    put_compiled(root, digests[0], first)
    put_config(first.parent, best_config(triton_cache_hash=digests[0]), "1" * 64)
    put_config(first.parent, best_config(triton_cache_hash=digests[1]), "2" * 64)
    put_config(first.parent, best_config(R0_BLOCK=8), "3" * 64)
    records = read_sources([str(root)])
    assert [tuning.op for tuning in tunings(records)] == ["pointwise", "pointwise", "reduction"]
    known = {tuning.sources[0][-70]: tuning.inputs_key for tuning in tunings(records)}
    assert len(set(known.values())) == 3
    second.unlink()
    (records_left,) = [tunings(read_sources([str(root)]))]
    assert records_left[0].inputs_key in known.values()


def test_options_of_the_compiler_are_no_arguments_of_a_kernel(root: Path) -> None:
    """Coordinate descent tries them on AMD GPUs."""
    put_source(root, REDUCTION, "ab")
    kernel = put_source(root, source(), "ab")
    put_config(kernel.parent, best_config(waves_per_eu=2))
    (tuning,) = tunings(read_sources([str(root)]))
    assert tuning.op == "pointwise"
    assert tuning.choices[0].label == "XBLOCK=256 waves_per_eu=2 w4 s1"


def test_what_cannot_be_told_apart_is_said(root: Path) -> None:
    kernels = put_source(root, source(), "ab"), put_source(root, source(added=2.0), "ab")
    folder = kernels[0].parent
    put_config(folder, best_config())
    (problem,) = (r for r in read_sources([str(root)]) if isinstance(r, Unread))
    assert "any of 2 kernels in its folder" in problem.what
    for kernel, letter in zip(kernels, "AB", strict=True):  # others are about both already
        put_compiled(root, letter * 52, kernel)
        put_config(folder, best_config(triton_cache_hash=letter * 52), letter.lower() * 64)
    (problem,) = (r for r in read_sources([str(root)]) if isinstance(r, Unread))
    assert "any of 2 kernels in its folder" in problem.what


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"num_warps": 4, "num_stages": true, "configs_hash": ""}',
        json.dumps(best_config(block=[1] * 100)),  # type: ignore[arg-type]
        json.dumps(best_config(**{f"A{n}": n for n in range(200)})),
        "[" * 60_000,
        "\0" * 100_000,
    ],
    ids=lambda text: text[:20].strip("\0"),
)
def test_garbage_is_one_line_and_hides_nothing(root: Path, text: str) -> None:
    folder = put_source(root, source()).parent
    put_config(folder, best_config(), "1" * 64)
    bad = put_config(folder, text, "2" * 64)
    records = read_sources([str(root)])
    assert len(tunings(records)) == 1
    (problem,) = (record for record in records if isinstance(record, Unread))
    assert problem.source == str(bad) and problem.what.isprintable() and len(problem.what) < 400


def test_a_file_that_is_too_long_says_how_long_it_is(root: Path) -> None:
    put_config(put_source(root, source()).parent, best_config(**{"X" * 100_000: 1}))
    (problem,) = (r for r in read_sources([str(root)]) if isinstance(r, Unread))
    assert "has 97 KiB, more than 64; move it away" in problem.what


def test_a_pipe_a_link_and_escapes_are_harmless(root: Path) -> None:
    kernel = put_source(root, source())
    os.mkfifo(kernel.parent / f"{'2' * 64}.best_config")
    put_config(kernel.parent, best_config(XBLOCK="\x1b[2J\u202e" * 50))
    (tuning,) = tunings(read_sources([str(root)]))
    assert tuning.choices[0].label.isprintable() and len(tuning.choices[0].label) < 200
    kernel.rename(root / "away.py")
    kernel.symlink_to(root / "away.py")
    assert tunings(read_sources([str(root)])) == []


def test_what_changes_is_told_and_nothing_else(root: Path) -> None:
    follower = BestConfigs(best_configs_path(str(root)))
    assert follower.poll(0.0) == [] and follower.retry_at is not None
    folder = put_source(root, source()).parent
    file = put_config(folder, best_config())
    assert follower.poll(follower.retry_at / 2) == []  # not yet due
    assert len(tunings(follower.poll(1e3))) == 1
    assert follower.poll(2e3) == []
    file.write_text(json.dumps(best_config(block=512)))
    os.utime(folder)
    (seen,) = tunings(follower.poll(3e3))
    assert seen.choices[0].label == "XBLOCK=512 w4 s1"
    file.write_text("{}")
    assert [type(record) for record in follower.poll(4e3)] == [Dropped, Unread]
    file.unlink()
    assert follower.poll(5e3) == [Gone(str(file))] and follower.problems == 0
    put_config(folder, best_config())
    assert len(tunings(follower.poll(6e3))) == 1
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert follower.poll(7e3) == [Gone(str(file))]


def test_a_source_without_a_file_is_not_listed(root: Path) -> None:
    sources = SourceSet([str(root)])
    sources.find()
    sources.look()
    assert [status.path for status in sources.statuses(None)] == [str(root)]
    put_config(put_source(root, source()).parent, best_config())
    later = SourceSet([str(root)])
    later.find()
    assert len(tunings(later.look())) == 1
    listed = {status.path: status for status in later.statuses(None)}
    assert listed[best_configs_path(str(root))].watched_by == "polling"


@pytest.fixture
def told(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], None]]:
    """A watcher that looks at all folders once; what came later is known if the system told."""
    put_config(put_source(root, source(), "ab").parent, best_config(), "1" * 64)
    monkeypatch.setattr(kernel_files, "FOLDERS_PAUSE", 1e6)
    records: list[Record] = []
    watcher = Watcher([str(root)], records.extend)
    watcher.start()

    def until(labels: list[str]) -> None:
        end = time.monotonic() + 60
        while sorted(t.choices[0].label for t in tunings(records)) != labels:
            assert time.monotonic() < end, records
            time.sleep(0.01)

    until(["XBLOCK=256 w4 s1"])
    listed = best_configs_path(str(root))
    while {s.path: s.watched_by for s in watcher.sources()}[listed] != "inotify":
        time.sleep(0.01)
    yield until
    watcher.stop()


def test_the_system_tells_of_a_file(root: Path, told: Callable[[list[str]], None]) -> None:
    """In a folder that was there, and in one that comes with it."""
    put_config(root / "ab", best_config(block=512), "2" * 64)
    told(["XBLOCK=256 w4 s1", "XBLOCK=512 w4 s1"])
    put_config(put_source(root, source(added=2.0), "cd").parent, best_config(block=1024))
    told(["XBLOCK=1024 w4 s1", "XBLOCK=256 w4 s1", "XBLOCK=512 w4 s1"])
    put_config(root / "cd", best_config(block=64), "2" * 64)
    told(["XBLOCK=1024 w4 s1", "XBLOCK=256 w4 s1", "XBLOCK=512 w4 s1", "XBLOCK=64 w4 s1"])


def test_a_file_that_comes_before_its_kernel_is_read_then(root: Path) -> None:
    """As where a cache dir is copied."""
    file = put_config(put_source(root, source(), "ab").parent, best_config())
    kernel = next(file.parent.glob("*.py"))
    kernel.rename(root / "later.py")
    follower = BestConfigs(best_configs_path(str(root)))
    assert [type(record) for record in follower.poll(0.0)] == [Unread]
    assert follower.poll(1e6) == [] and follower.problems == 1  # said once
    (root / "later.py").rename(kernel)
    assert [type(record) for record in follower.poll(2e6)] == [Gone, Seen]
    assert follower.problems == 0


def test_reading_much_is_no_reason_to_rest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all that was read has been handed on before the look ended."""
    monkeypatch.setattr(kernel_files, "EARLY", 1)
    put_config(put_source(root, source(), "ab").parent, best_config())
    early: list[Record] = []
    follower = BestConfigs(best_configs_path(str(root)), early.extend)
    assert follower.poll(0.0) == [] and len(tunings(early)) == 1
    assert follower.retry_at == kernel_files.FOLDERS_PAUSE


def test_a_file_that_comes_before_what_triton_compiled_is_read_then(root: Path) -> None:
    first = put_source(root, source(), "ab")
    put_source(root, source(added=2.0), "ab")
    (root / "triton" / "0").mkdir(parents=True)
    put_config(first.parent, best_config(triton_cache_hash="A" * 52))
    follower = BestConfigs(best_configs_path(str(root)))
    assert [type(record) for record in follower.poll(0.0)] == [Unread]
    for file in first.parent, *first.parent.iterdir(), root / "triton" / "0":
        os.utime(file, (1e9, 1e9))  # long ago: nothing changes there any more
    assert all(follower.poll(n * 1e6) == [] for n in range(1, 4))
    put_compiled(root, "A" * 52, first)
    assert [type(record) for record in follower.poll(5e6)] == [Gone, Seen]
    assert follower.problems == 0
