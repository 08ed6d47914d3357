"""Triton's cache as one source: found, read, followed, and what is no such file."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import pytest

from backend.cache.configs import TunedKernel, parse
from backend.errors import CacheUnreadable
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.follow import kernel_files
from rocm_tui.ingest.follow.kernel_files import KernelConfigs
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, Unread
from rocm_tui.session import stats
from rocm_tui.session.grouping import Arrangement, arrange
from rocm_tui.session.model import Model

CONFIG = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None}


def digest(n: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    text = "".join(letters[(n >> shift) & 31] for shift in range(0, 40, 5))
    return text.ljust(52, "Q")


def content(best: float = 1.0, size: int = 1024) -> str:
    pairs = [[{"kwargs": {"BLOCK": b}, **CONFIG}, [best * b] * 3] for b in (1, 2)]
    return json.dumps({"key": [size, "torch.float16"], "configs_timings": pairs})


def put(cache: Path, n: int, text: str, name: str = "k.autotune.json") -> Path:
    path = cache / digest(n) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tunings(records: list[Record]) -> list[Tuning]:
    return [record.tuning for record in records if isinstance(record, Seen)]


def test_one_source_tells_of_every_kernel(tmp_path: Path) -> None:
    put(tmp_path, 1, content())
    put(tmp_path, 2, content(size=2048), "other_kernel.autotune.json")
    put(tmp_path, 3, "{}", "k.json")  # what was compiled
    (tmp_path / "__pycache__").mkdir()
    first, second = tunings(read_sources([str(tmp_path)]))
    assert first.inputs_key == f'k[1024, "torch.float16"]:{digest(1)[:8]}'
    assert second.inputs_key == f'other_kernel[2048, "torch.float16"]:{digest(2)[:8]}'
    assert first.dtypes == ("torch.float16",) and first.key is not None
    assert stats.sizes_text(first) == "k 1024" and stats.dtype_of(first) == "f16"
    assert [choice.label for choice in first.choices] == ["BLOCK=1 w4 s3", "BLOCK=2 w4 s3"]


def test_inductors_cache_dir_has_those_of_its_devices(tmp_path: Path) -> None:
    (tmp_path / "fxgraph").mkdir()
    put(tmp_path / "triton" / "0", 1, content())
    put(tmp_path / "triton" / "0", 2, "{}", "k.json")
    assert len(tunings(read_sources([str(tmp_path)]))) == 1


def test_a_file_by_itself_is_read_and_cannot_be_pinned(tmp_path: Path) -> None:
    path = tmp_path / "k.autotune.json"
    path.write_text(content())
    (tuning,) = tunings(read_sources([str(path)]))
    assert tuning.inputs_key == 'k[1024, "torch.float16"]' and tuning.key is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"key": 1, "configs_timings": []}', "\0" * 100, "[" * 9999],
    ids=["empty", "open", "list", "key", "zeros", "deep"],
)
def test_garbage_is_one_line_and_hides_nothing(tmp_path: Path, text: str) -> None:
    bad = put(tmp_path, 1, text)
    put(tmp_path, 2, content())
    records = read_sources([str(tmp_path)])
    assert len(tunings(records)) == 1
    (problem,) = (record for record in records if isinstance(record, Unread))
    assert problem.source == str(bad) and problem.what.isprintable() and len(problem.what) < 400


def test_a_broken_file_that_is_named_itself_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "k.autotune.json"
    path.write_text('{"key": 1, "configs_timings": []} \x1b[2J')
    (problem,) = read_sources([str(path)])
    assert isinstance(problem, Unread) and problem.source == str(path)
    assert problem.what.isprintable() and str(path.name) in problem.what


def test_a_pipe_or_too_much_is_not_read(tmp_path: Path) -> None:
    (tmp_path / digest(1)).mkdir()
    os.mkfifo(tmp_path / digest(1) / "k.autotune.json")
    big = put(tmp_path, 2, "")
    with big.open("wb") as file:
        file.truncate(9 << 20)
    problems = [r for r in read_sources([str(tmp_path)]) if isinstance(r, Unread)]
    assert len(problems) == 2


def test_what_changes_is_told_and_nothing_else(tmp_path: Path) -> None:
    follower = KernelConfigs(str(tmp_path))
    first = put(tmp_path, 1, content())
    assert len(tunings(follower.poll(0.0))) == 1 and follower.retry_at is None
    assert follower.poll(1e4) == []
    (tmp_path / digest(2)).mkdir()  # a kernel is being timed
    assert follower.poll(2e4) == [] and follower.retry_at is not None
    put(tmp_path, 2, content(size=7))
    (seen,) = tunings(follower.poll(follower.retry_at))
    assert seen.inputs_key and seen.inputs_key.startswith("k[7,") and follower.retry_at is None
    first.write_text(content(best=3.0))
    (seen,) = tunings(follower.poll(3e4))
    assert seen.choices[0].ms == 3.0
    first.write_text("{}")
    assert [type(record) for record in follower.poll(4e4)] == [Dropped, Unread]
    assert follower.problems == 1
    first.write_text(content())
    assert [type(record) for record in follower.poll(5e4)] == [Gone, Seen]
    first.unlink()
    assert follower.poll(6e4) == [Gone(str(first))] and follower.problems == 0
    put(tmp_path, 1, content())
    assert len(tunings(follower.poll(7e4))) == 1


def test_a_file_that_changes_is_the_only_one_read(tmp_path: Path) -> None:
    for n in range(20):
        put(tmp_path, n, content())
    given: list[int] = []
    follower = KernelConfigs(str(tmp_path), lambda records: given.append(len(records)))
    assert len(follower.poll(0.0)) == 20 and follower.size > 20 * 100 and given == []
    put(tmp_path, 20, content(size=9))
    follower.report(digest(20))
    (seen,) = tunings(follower.poll(0.0))  # not listed again so soon
    assert seen.inputs_key and seen.inputs_key.startswith("k[9,")
    put(tmp_path, 21, content())
    assert follower.poll(0.0) == []
    (tmp_path / digest(22)).mkdir()
    follower.report(digest(22))
    follower.report("no name of Triton's")
    assert follower.poll(0.0) == []
    shutil.rmtree(tmp_path / digest(3))
    follower.report(digest(3))
    (gone,) = follower.poll(0.0)
    assert isinstance(gone, Gone) and gone.source.startswith(str(tmp_path / digest(3)))
    put(tmp_path, 3, content())
    assert len(tunings(follower.poll(1e4))) == 2  # all names are listed now and then


def test_a_folder_that_comes_again_is_read_again(tmp_path: Path) -> None:
    path = put(tmp_path, 1, content())
    follower = KernelConfigs(str(tmp_path))
    assert len(tunings(follower.poll(0.0))) == 1
    shutil.rmtree(path.parent)
    assert follower.poll(1e4) == [Gone(str(path))]
    put(tmp_path, 1, content(size=7))
    (seen,) = tunings(follower.poll(2e4))
    assert seen.inputs_key and seen.inputs_key.startswith("k[7,")


def test_a_reported_folder_of_another_name_is_not_read(tmp_path: Path) -> None:
    follower = KernelConfigs(str(tmp_path))
    follower.poll(0.0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "k.autotune.json").write_text(content())
    follower.report("mine")
    assert follower.poll(1e4) == []


def test_a_file_that_vanishes_as_it_is_found_ends_nothing(tmp_path: Path) -> None:
    lost = put(tmp_path, 1, content())
    lost.unlink()
    lost.symlink_to("nowhere")
    put(tmp_path, 2, content())
    follower = KernelConfigs(str(tmp_path))
    assert len(tunings(follower.poll(0.0))) == 1
    shutil.rmtree(lost.parent)
    follower.report(lost.parent.name)
    assert follower.poll(0.0) == []


def test_folders_beyond_the_bound_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "MOST_FOLDERS", 3)
    for n in range(5):
        put(tmp_path, n, content())
    follower = KernelConfigs(str(tmp_path))
    records = follower.poll(0.0)
    (fault,) = (record for record in records if isinstance(record, Fault))
    assert len(tunings(records)) == 3 and fault.what == "what is beyond 3 folders is not read"
    put(tmp_path, 6, content())
    assert follower.poll(1e4) == []


@pytest.mark.parametrize("end", ["]]]}", "]]] }", "], 1]]}", ', "x"]]]}', ']]], "a": 1}'])
def test_what_triton_spaces_otherwise_is_the_same(tmp_path: Path, end: str) -> None:
    """The short way of reading, and the long one."""
    text = '{"key": [8, "]], ["], "configs_timings": [[{"kwargs": {"A": 1}, "num_warps": 4}, '
    text += '[0.5, 0.25, 0.75]], [{"kwargs": {"A": "]], [{"}, "num_warps": 2}, [Infinity, 1, 2'
    path = tmp_path / "k.autotune.json"
    kernels = []
    for each in (text + end, " " + text + end):
        try:
            kernels.append(parse(path, each.encode()))
        except CacheUnreadable as error:
            kernels.append(str(error))
    assert kernels[0] == kernels[1]
    if end in ("]]]}", "]]] }"):
        assert isinstance(kernels[0], TunedKernel)
        assert [config.ms for config in kernels[0].configs] == [0.5, math.inf]


def test_settings_that_are_no_numbers_are_named_as_they_are(tmp_path: Path) -> None:
    kwargs = {"BLOCK": 1, "MODE": "fast", "EVEN": True, "SCALE": None}
    pairs = [[{"kwargs": kwargs, **CONFIG}, [1.0, 0.5, 1.5]]]
    put(tmp_path, 1, json.dumps({"key": [1], "configs_timings": pairs}))
    (tuning,) = tunings(read_sources([str(tmp_path)]))
    (choice,) = tuning.choices
    assert choice.label == "BLOCK=1 MODE=fast EVEN=true w4 s3"


def test_choices_that_failed_and_odd_percentiles(tmp_path: Path) -> None:
    """Failed configs, one that stands there twice and odd percentiles among them."""
    pairs = [
        [{"kwargs": {"BLOCK": 1}, **CONFIG}, [4.0, 3.0, 5.0]],
        [{"kwargs": {"BLOCK": 2}, **CONFIG}, [math.inf] * 3],
        [{"kwargs": {"BLOCK": 3}, **CONFIG}, [2.0, 1.0, math.nan]],
        [{"kwargs": {"BLOCK": 1}, **CONFIG}, [1.0, 0.5, 1.5]],
    ]
    for n in range(4):
        put(tmp_path, n, json.dumps({"key": [n], "configs_timings": pairs[: 4 - n]}))
    here = read_sources([str(tmp_path)])
    there: list[Record] = pickle.loads(pickle.dumps(here))
    for records in (here, there):
        model = Model()
        model.apply(records)
        rows = sorted(model.rows(), key=lambda row: row.tuning.inputs_key or "")
        assert len(arrange(rows, Arrangement())) == 4
        best, *others = rows[0].tuning.choices
        assert (best.label, best.ms, best.quantiles) == ("BLOCK=1 w4 s3", 1.0, (0.5, 1.5))
        assert [(c.ms, c.failed, c.quantiles) for c in others] == [
            (2.0, False, None),
            (None, True, None),
        ]
        assert [len(row.tuning.choices) for row in rows] == [3, 3, 2, 1]
        assert stats.single(rows[3].tuning) and not stats.single(rows[2].tuning)


def test_a_kernel_that_is_timed_while_we_watch_appears(tmp_path: Path) -> None:
    put(tmp_path, 1, content())
    seen: list[str] = []
    came = threading.Condition()

    def sink(records: list[Record]) -> None:
        with came:
            seen.extend(tuning.inputs_key or "" for tuning in tunings(records))
            came.notify_all()

    def wait_for(start: str) -> None:
        with came:
            assert came.wait_for(lambda: any(key.startswith(start) for key in seen), 60)

    watcher = Watcher([str(tmp_path)], sink)
    watcher.start()
    try:
        wait_for("k[")
        time.sleep(0.5)
        folder = tmp_path / digest(2)
        folder.mkdir()
        time.sleep(0.5)  # the configs are timed
        (folder / "tmp.pid_1").mkdir()
        (folder / "tmp.pid_1" / "k.autotune.json").write_text(content(size=9))
        (folder / "tmp.pid_1" / "k.autotune.json").rename(folder / "k.autotune.json")
        wait_for("k[9,")
    finally:
        watcher.stop()


@pytest.mark.parametrize(("high", "standing"), [(1.2, "unclear"), (1.04, "ahead")])
def test_overlapping_quantiles_make_a_lead_unclear(
    tmp_path: Path, high: float, standing: str
) -> None:
    times = [[1.0, 0.9, high], [1.1, 1.05, 1.3]]
    pairs = [[{"kwargs": {"BLOCK": n}, **CONFIG}, ms] for n, ms in enumerate(times)]
    put(tmp_path, 1, json.dumps({"key": [], "configs_timings": pairs}))
    (tuning,) = tunings(read_sources([str(tmp_path)]))
    assert stats.standing(tuning) == standing


def test_kernels_of_one_name_stay_apart(tmp_path: Path) -> None:
    for n in range(3):
        put(tmp_path, n, content(best=1.0 + n))
    model = Model()
    model.apply(read_sources([str(tmp_path)]))
    assert len({row.id for row in model.rows()}) == 3


def test_a_new_folder_costs_no_look_at_the_other_empty_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(200):
        (tmp_path / digest(n)).mkdir()
    follower = KernelConfigs(str(tmp_path))
    follower.poll(0.0)
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(str(path)) or listdir(path))
    for n in range(200, 210):
        (tmp_path / digest(n)).mkdir()
        follower.report(digest(n))
        assert follower.poll(n * 1e-6) == []
    others = {str(tmp_path / digest(n)) for n in range(200)}
    assert others.isdisjoint(listed) and str(tmp_path / digest(209)) in listed
    put(tmp_path, 7, content())
    (seen,) = tunings(follower.poll(follower.retry_at))
    assert seen.inputs_key and seen.inputs_key.endswith(digest(7)[:8])
