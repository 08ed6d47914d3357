"""What is old below the cache dir, and that nothing else is removed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend.disk.layout import Layout
from backend.errors import UnsafePath
from backend.model.events import ChoiceSelected
from backend.pins.file import read_pin_file
from backend.pins.leftovers import leftovers, remove
from backend.pins.state import GraphSweeper
from backend.pins.store import PinStore
from backend.wire.events import encode
from rocm_tui.actions.doctor import leftover_checks
from rocm_tui.cli.entry import main
from tests.support.pin_lab import KEY, cache_file, make_layout
from tests.support.subgraphs import decompose_k

DAY = 86400.0


def put(path: Path, days: float, text: str = "x" * 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    when = time.time() - days * DAY
    os.utime(path, (when, when))
    return path


def kinds(layout: Layout, days: float = 30) -> dict[str, int]:
    found = leftovers(layout, time.time(), days)
    counts: dict[str, int] = {}
    for leftover in found.old:
        counts[leftover.kind] = counts.get(leftover.kind, 0) + 1
    return counts


def test_doctor_notes_what_is_old(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    put(layout.sessions / "host-1-2-b.jsonl", 20)
    assert list(leftover_checks(layout)) == []
    put(layout.sessions / "host-1-1-a.jsonl", 40)
    (check,) = leftover_checks(layout)
    assert (check.name, check.verdict) == ("old files", "note")
    assert check.value == "1 cut off, or not used for 30 days, 100 B"
    prune = f"rocm-tui prune --yes --cache-dir {layout.root}"
    assert check.advice == f"`{prune}` removes them"


def test_only_what_is_old_is_listed_and_removed(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    cached = cache_file(layout).read_bytes()
    old = [
        put(layout.sessions / "host-1-1-a.jsonl", 40),
        put(layout.home / "failed" / "mm.log", 40),
        put(layout.graphs / "abc1234.py", 40),
        put(layout.graphs / "abc1234.improve.json", 40),
        put(layout.trials / "fxgraph" / "aa" / "graph", 40),
        put(layout.home / "code" / "ab" / "abcd.so", 40),
        put(layout.home / "code" / "ab" / "abcd.json", 40),
        put(layout.triton / "module.py", 40),
        put(layout.evicted / "0123456789abcdef" / "fxgraph" / "x", 40),
        put(layout.home / "fleet" / "r1.jsonl", 40),
        put(layout.home / "fleet" / "r1.control", 40),
        put(layout.home / "fleet" / "r1" / "gpu0-7" / "cache" / "x", 40),
    ]
    young = [
        put(layout.sessions / "host-1-2-b.jsonl", 20, '{"graph": "fff1234"}'),
        put(layout.graphs / "fff1234.py", 40),  # a younger session tells of it
        put(layout.graphs / "accepted.json", 40),
        put(layout.home / "fleet" / "r2.jsonl", 20),
        put(layout.home / "tunableop" / "t1" / "results0.csv", 20),
        put(layout.home / "locks" / "pins.json.lock", 40, ""),
        put(layout.home / "code" / "ab" / "abcd.lock", 40, ""),
        put(layout.home / "code" / "cd" / "cdef.so", 20),
        put(layout.home / "code" / "cd" / "cdef.json", 40),  # goes with the library
    ]
    assert kinds(layout) == {
        "session": 1, "log of a failed worker": 1, "captured graph": 1, "trial cache": 1,
        "compiled kernel": 1, "Triton module": 1, "graphs of a forgotten pin": 1,
        "record of a fleet's run": 1, "cache dir of a fleet's agents": 1,
    }  # fmt: skip
    assert main(["prune", "--cache-dir", str(tmp_path)]) == 0
    assert all(path.exists() for path in old), "without --yes nothing is removed"
    assert main(["prune", "--yes", "--cache-dir", str(tmp_path)]) == 0
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)
    assert cache_file(layout).read_bytes() == cached
    assert kinds(layout) == {}


def test_what_a_pin_needs_stays(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    (record,) = read_pin_file(layout.pins).pins
    aside = put(GraphSweeper(layout).folder(record) / "fxgraph" / "x", 400)
    told = put(layout.sessions / "a.jsonl", 400, json.dumps({"choices": ["Cpp-c2"]}))
    assert kinds(layout) == {}
    store.unpin(KEY)
    assert kinds(layout) == {"session": 1}
    assert aside.exists() and told.exists()


def test_a_session_of_a_pin_on_another_gpu_and_of_a_subgraph_stays(tmp_path: Path) -> None:
    subgraph = decompose_k(4)
    assert "\n" in subgraph
    layout = make_layout(tmp_path, {"mm": {KEY.inputs: {"highest": {subgraph: 1.0}}}})
    for name, hash in (("a", "there"), ("b", subgraph)):
        event = ChoiceSelected(1, 1.0, hash, "timing", None, None)
        put(layout.sessions / f"{name}.jsonl", 400, encode(event))
    assert kinds(layout) == {"session": 2}
    PinStore(layout).pin("hash", KEY, subgraph, variants={"1": "there"}, wait=True)
    assert kinds(layout) == {}


def test_graphs_of_a_pin_that_returned_meanwhile_are_not_removed(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    file = read_pin_file(layout.pins)
    aside = put(GraphSweeper(layout).folder(file.pins[0]) / "fxgraph" / "x", 40)
    store.unpin(KEY)
    file = read_pin_file(layout.pins)
    file.released.clear()
    file.save()
    (old,) = leftovers(layout, time.time()).old
    assert old.kind == "graphs of a forgotten pin"
    store.pin(None, KEY, "Cpp-c2")
    assert not remove(layout, old, time.time()) and aside.exists()


def test_an_older_versions_unpacked_bundle_is_removed(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    unpacked = put(layout.home / "arriving" / "fxgraph" / "x", 40)
    (leftover,) = leftovers(layout, time.time()).old
    assert leftover.kind == "bundle that an older version unpacked"
    assert remove(layout, leftover, time.time()) and not unpacked.parent.parent.exists()


def test_a_log_that_is_written_stays(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    path = put(layout.sessions / "a.jsonl", 400)
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert kinds(layout) == {}
    assert kinds(layout) == {"session": 1}


def test_a_library_that_was_loaded_yesterday_is_used(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    path = put(layout.home / "code" / "ab" / "abcd.so", 400)
    os.utime(path, (time.time() - DAY, time.time() - 400 * DAY))
    assert kinds(layout) == {}


def test_what_was_used_meanwhile_is_not_removed(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    path = put(layout.home / "failed" / "mm.log", 40)
    (found,) = leftovers(layout, time.time()).old
    path.write_text("again")
    assert not remove(layout, found, time.time())
    assert path.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "cache")
    outside = put(tmp_path / "outside" / "file", 400)
    layout.trials.mkdir(parents=True)
    (layout.trials / "link").symlink_to(outside.parent)
    (layout.home / "failed").symlink_to(outside.parent)
    now = time.time() + 40 * DAY
    (tree,) = [o for o in leftovers(layout, now).old if o.kind == "trial cache"]
    assert tree.size == 0
    assert remove(layout, tree, now)
    assert outside.exists() and not layout.trials.exists()
    (log,) = [o for o in leftovers(layout, now).old if o.kind == "log of a failed worker"]
    with pytest.raises(UnsafePath):
        remove(layout, log, now)
    assert outside.exists()


def test_pins_that_cannot_be_read_keep_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = make_layout(tmp_path)
    path = put(layout.home / "failed" / "mm.log", 40)
    layout.pins.write_text("{")
    assert main(["prune", "--yes", "--json", "--cache-dir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["leftovers"] == [] and "pins cannot be read" in told["kept"][0]
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "file"), [("read_bytes", "log"), ("lstat", "log"), ("iterdir", "sessions")]
)
def test_a_session_that_cannot_be_read_keeps_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    layout = make_layout(tmp_path)
    graph = put(layout.graphs / "abc1234.py", 40)
    search = put(layout.graphs / "abc1234.improve.json", 40)
    log = put(layout.sessions / "host-1-1-a.jsonl", 0, '{"graph": "abc1234"}')
    put(layout.home / "failed" / "mm.log", 40)
    broken = log if file == "log" else layout.sessions
    real = getattr(Path, name)

    def fail(path: Path) -> object:
        if path == broken:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return real(path)

    assert kinds(layout) == {"log of a failed worker": 1}
    monkeypatch.setattr(Path, name, fail)
    unread = leftovers(layout, time.time())
    assert unread.old == () and f"cannot read {broken}: Stale file handle" in unread.kept[0]
    assert main(["prune", "--yes", "--cache-dir", str(tmp_path)]) == 0
    assert graph.exists() and search.exists()


@pytest.mark.parametrize("days", ["-1", "nan", "inf"])
def test_days_are_a_number(tmp_path: Path, days: str) -> None:
    assert main(["prune", "--older-than", days, "--cache-dir", str(tmp_path)]) == 2


def test_nothing_is_listed_in_a_folder_that_is_not_ours_alone(tmp_path: Path) -> None:
    layout, elsewhere = make_layout(tmp_path / "cache"), Layout(tmp_path / "elsewhere")
    put(elsewhere.sessions / "host-1-1-a.jsonl", 40)
    layout.home.symlink_to(elsewhere.home)
    with pytest.raises(UnsafePath):
        leftovers(layout, time.time())


def test_sizes_and_ages_are_those_of_all_files_of_a_group(tmp_path: Path) -> None:
    layout, now = make_layout(tmp_path), time.time()
    put(layout.graphs / "abc1234.py", 50, "x" * 10)
    put(layout.graphs / "abc1234.improve.json", 40, "x" * 20)
    put(layout.trials / "a" / "b", 60, "x" * 30)
    put(layout.trials / "c", 35, "x" * 40)
    put(layout.ranks / "job" / "choices.json", 70, "x" * 50)
    (layout.graphs / "empty").mkdir()
    old = leftovers(layout, now).old
    days = [round((now - each.used) / DAY) for each in old]
    assert [(each.kind, each.size) for each in old] == [
        ("choices of a job's ranks", 50), ("captured graph", 30), ("trial cache", 70),
    ]  # fmt: skip
    assert days == [70, 40, 35], "the longest unused first"
    assert leftovers(layout, now).size == 150
    assert [path.name for path in old[1].files] == ["abc1234.improve.json", "abc1234.py"]


@pytest.mark.parametrize(("age", "is_old"), [(30.001, True), (29.999, False)])
def test_files_are_old_after_thirty_days(tmp_path: Path, age: float, is_old: bool) -> None:
    layout, now = make_layout(tmp_path), time.time()
    put(layout.home / "failed" / "mm.log", age)
    put(layout.sessions / "host-1-1-a.jsonl", age)
    assert len(leftovers(layout, now).old) == 2 * is_old
    for each in leftovers(layout, now, 29.9).old:
        assert remove(layout, each, now) is is_old
    assert len(leftovers(layout, now, 29.9).old) == 2 * (not is_old)


def test_reading_is_a_use_of_what_programs_read_alone(tmp_path: Path) -> None:
    layout, now = make_layout(tmp_path), time.time()
    for path in (
        layout.home / "code" / "ab" / "abcd.so", layout.triton / "module.py",
        layout.trials / "a", layout.home / "failed" / "mm.log",
    ):  # fmt: skip
        put(path, 40)
        os.utime(path, (now, now - 40 * DAY))
    assert kinds(layout) == {"log of a failed worker": 1}


def test_where_reads_are_not_recorded_compiled_kernels_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = make_layout(tmp_path)
    put(layout.home / "code" / "ab" / "abcd.so", 400)
    put(layout.triton / "module.py", 400)
    put(layout.home / "failed" / "mm.log", 400)
    assert not leftovers(layout, time.time()).kept and len(kinds(layout)) == 3
    unread = SimpleNamespace(f_flag=os.ST_NOATIME)
    monkeypatch.setattr(os, "statvfs", lambda folder: unread)
    (line,) = leftovers(layout, time.time()).kept
    assert line.startswith("compiled kernels: ") and kinds(layout) == {"log of a failed worker": 1}


def test_only_what_an_older_version_named_so_is_a_bundle(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    put(layout.home / "another" / "x", 400)
    put(layout.graphs / "abc.txt", 400)
    put(layout.home / "tunableop" / "t1" / "results0.csv", 400)
    assert kinds(layout) == {"folder of TunableOp's tuning": 1}
