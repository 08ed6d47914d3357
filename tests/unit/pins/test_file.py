"""`pins.json` as a stranger, another version or a careless hand may leave it."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk import exchange
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, NotWritable, PinRefused
from backend.model.problem import TuningKey
from backend.pins import store as pins
from backend.pins.file import (
    PinFile,
    PinRecord,
    default_who,
    find_record,
    new_group,
    put_back,
    read_pin_file,
    remove_record,
)
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from tests.support.pin_lab import KEY, cache_file, make_layout, times

DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = make_layout(tmp_path / "inductor")
    PinStore(layout).pin(None, KEY, "Cpp-c2", note="n")
    return layout


@pytest.mark.parametrize("part", ["pins", "history"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("when", 10**400),
        ("when", float("nan")),
        ("when", 1e300),
        ("when", True),
        ("who", ["ann"]),
        ("note", None),
        ("extra", float("inf")),
        ("extra", DEEP),
    ],
)
def test_wrong_fields_are_one_clear_line(
    layout: Layout, part: str, name: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(layout, part, name, value)
    before = layout.pins.read_bytes(), cache_file(layout).read_bytes()
    for words in (["pins", "--history"], ["pins", "--history", "--json"], ["unpin", "--all"]):
        assert main([*words, "--cache-dir", str(layout.root)]) == 1
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1 and "move the file away" in captured.err, captured
        assert captured.out.count("\n") == int("--json" in words)
    assert (layout.pins.read_bytes(), cache_file(layout).read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", {"highest": {"mm-c1": 1.5}}),
        ("tokens", {"highest": {"mm-c1": "1_0"}}),  # Python reads it, JSON does not
        ("tokens", {"highest": {"mm-c1": "inf"}}),
        ("tokens", {"highest": {"mm-c1": " 1"}}),
        ("tokens", {"highest": {"mm-c1": "\u0661"}}),
        ("drifts", "3"),
        ("drifts", -1),
        ("files", {"../x.best_config": {"original": "", "written": ""}}),
        ("variants", {"10000": "mm-c1"}),
        ("variants", {"x": "mm-c1"}),
        ("variants", {"0": "\x1b"}),
        ("op", "a\nb"),
        ("drifts", True),
        ("pending", "no"),
        ("device", 1.5),
        ("config", ["BLOCK_M"]),
        ("config", {"BLOCK_M": 64}),
        ("op", "\ud800"),
        ("hash", "\x1b[31m"),
        ("system_hash", ""),
        ("system_hash", "a\0b"),
        ("system_hash", "h" * 300),
    ],
)
def test_a_pin_that_could_spoil_the_cache_is_refused(
    layout: Layout, name: str, value: object
) -> None:
    spoil(layout, "pins", name, value)
    before = cache_file(layout).read_bytes()
    for attempt in (PinStore.reconcile, PinStore.status, PinStore.unpin_all):
        with pytest.raises(CacheUnreadable, match="move the file away"):
            attempt(PinStore(layout))
    assert cache_file(layout).read_bytes() == before


def test_every_number_of_a_cache_file_can_be_restored(tmp_path: Path) -> None:
    texts = {"a-1": "0", "b-2": "-0.5", "c-3": "1E+3", "d-4": "2e-07", "e-5": "NaN", "f-6": "12"}
    layout = make_layout(tmp_path / "inductor", {"mm": {KEY.inputs: {"highest": {}}}})
    inner = ", ".join(f'"{name}": {text}' for name, text in texts.items())
    data = (
        cache_file(layout)
        .read_bytes()
        .replace(b'"highest": {}', b'"highest": {%b}' % inner.encode())
    )
    cache_file(layout).write_bytes(data)
    PinStore(layout).pin(None, KEY, "c-3")
    held = times(layout)
    assert all(1e7 <= held[name] < 1e302 for name in held if name != "c-3") and len(held) == 6
    assert held["a-1"] <= held["d-4"] < held["f-6"] < held["e-5"]
    PinStore(layout).unpin(KEY)
    assert cache_file(layout).read_bytes() == data


def test_unknown_fields_of_the_history_are_kept(layout: Layout) -> None:
    spoil(layout, "history", "mood", [1])
    PinStore(layout).unpin(KEY)
    first, *_ = json.loads(layout.pins.read_bytes())["history"]
    assert first["mood"] == [1]
    assert read_pin_file(layout.pins).history[0].unknown == {"mood": [1]}


def test_pins_of_a_later_version_are_left_alone_and_unknown_fields_kept(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    document = json.loads(layout.pins.read_text())
    document["colour"] = "red"
    document["pins"][0]["mood"] = [1]
    layout.pins.write_text(json.dumps(document))
    store.pin(None, KEY, "mm-c1")
    document = json.loads(layout.pins.read_text())
    assert document["colour"] == "red" and document["pins"][0]["mood"] == [1]
    document["version"] = 2
    layout.pins.write_text(json.dumps(document))
    with pytest.raises(CacheUnreadable, match="update"):
        store.unpin(KEY)


def test_hostile_pins_are_refused(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    good = json.loads(layout.pins.read_text())
    for name, value in (
        ("system_hash", "../../etc/passwd"),
        ("tokens", {"highest": {"mm-c1": '1}, "x": {'}}),
        ("tokens", [1]),
        ("op", None),
        ("when", "now"),
    ):
        bad = json.loads(json.dumps(good))
        bad["pins"][0][name] = value
        layout.pins.write_text(json.dumps(bad))
        with pytest.raises(CacheUnreadable):
            PinStore(layout).reconcile()


def test_a_choice_whose_name_could_not_be_read_back_is_not_pinned(tmp_path: Path) -> None:
    times = {"mm-c1": 1.5, "bad\x1b-c2": 2.5}
    layout = make_layout(tmp_path / "inductor", {"mm": {KEY.inputs: {"highest": times}}})
    with pytest.raises(PinRefused, match="not a name"):
        PinStore(layout).pin(None, KEY, "bad\x1b-c2")
    assert not layout.pins.exists()


def spoil(layout: Layout, part: str, name: str, value: object) -> None:
    document = json.loads(layout.pins.read_bytes())
    document[part][0][name] = value
    layout.pins.write_text(json.dumps(document))


def test_an_unpin_that_lost_every_race_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"a-1": 1.5, "b-2": 2.25, "c-3": 3.5}
    layout = make_layout(tmp_path / "inductor", {"mm": {KEY.inputs: {"highest": times}}})
    before = cache_file(layout).read_bytes()
    PinStore(layout).pin(None, KEY, "b-2")
    held = cache_file(layout).read_bytes()
    # One was timed again meanwhile, so the file does not look like an old copy of ours.
    cache_file(layout).write_bytes(re.sub(b'"a-1": [0-9.]+', b'"a-1": 9.5', held))
    with monkeypatch.context() as others:
        others.setattr(exchange, "ROUNDS", 0)  # others write faster than we can
        assert PinStore(layout).unpin(KEY).numbers == 0
    PinStore(layout).reconcile()
    assert cache_file(layout).read_bytes() == before.replace(b'"a-1": 1.5', b'"a-1": 9.5')
    assert [entry.what for entry in PinStore(layout).history()] == ["pin", "unpin"]


def test_what_would_be_too_big_to_read_is_refused(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import of 60 MB made a file of which `unpin` only said that it was too big."""
    store = PinStore(layout)
    monkeypatch.setattr(pins, "MAX_PIN_BYTES", 20_000)
    for n in range(400):
        try:
            store.pin("s", TuningKey("mm", f"[{n} {'x' * 300}]", "highest"), "c", wait=True)
        except NotWritable as error:
            assert "unpin some" in str(error)
            break
    assert 20 < n < 60
    assert layout.pins.stat().st_size <= 20_000 and len(store.pins()) == n + 1
    assert len(store.history()) < n  # the oldest went first
    assert len(store.unpin_all()) == n + 1 and not store.pins()


def record(inputs: str = "[x]", **fields: Any) -> PinRecord:
    return PinRecord("mm", inputs, "highest", "mm-c1", "mm", "hash", {}, **fields)


def test_a_history_that_is_too_long_loses_its_older_half(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins.json")
    for n in range(3):
        file.note("pin", record(), "ann", float(n), "x" * 1000)
    file.save(2000)
    (entry,) = read_pin_file(file.path).history
    assert entry.when == 2.0, "the latest one stays"
    file.note("pin", record(), "ann", 3.0, "x" * 1000)
    file.pins = [record(f"[{n}]", note="x" * 1000) for n in range(2)]
    with pytest.raises(NotWritable, match="unpin some"):
        file.save(2000)
    assert [each.when for each in read_pin_file(file.path).history] == [2.0]


def test_only_what_a_version_writes_is_kept_of_released_pins_and_history(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins.json")
    file.released = [record(f"[{n}]") for n in range(201)]
    for n in range(5_001):
        file.note("pin", record(), "ann", float(n))
    file.save()
    kept = read_pin_file(file.path)
    assert [each.inputs for each in kept.released] == [f"[{n}]" for n in range(1, 201)]
    assert [each.when for each in kept.history] == [float(n) for n in range(1, 5_001)]


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    PinFile(tmp_path / "pins.json", [record()]).save()
    file = read_pin_file(tmp_path / "pins.json")
    before = file.path.stat()
    file.save()
    assert file.path.stat().st_ino == before.st_ino
    file.put(record(note="n"))
    file.save()
    assert read_pin_file(file.path).pins == [record(note="n")]


def test_which_released_pins_are_watched(tmp_path: Path) -> None:
    day, now = 86_400.0, time.time()
    file = PinFile(tmp_path / "pins.json", [record("[pinned]")])
    file.released = [
        record("[young]", released=now - day + 60),
        record("[old]", released=now - day - 60),
        record("[pending]", released=1.0, pending=True),
        record("[pinned]", released=now, pending=True),
    ]
    assert [each.inputs for each in file.watched()] == ["[young]", "[pending]"]


def test_drifts_within_a_minute_are_one_entry(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins.json")
    for what, each, when in (
        ("drift", record(), 0.0),
        ("drift", record(), 59.0),
        ("drift", record(), 119.0),
        ("drift", record("[y]"), 120.0),
        ("drift", replace(record("[y]"), hash="mm-c2"), 121.0),
        ("verify", record("[y]"), 122.0),
        ("verify", record("[y]"), 123.0),
        ("drift", record("[y]"), 124.0),
    ):
        file.note(what, each, "ann", when)
    times = [59.0, 119.0, 120.0, 121.0, 122.0, 123.0, 124.0]
    assert [entry.when for entry in file.history] == times


def test_an_entry_has_what_is_noted_and_can_be_removed(tmp_path: Path) -> None:
    file, group = PinFile(tmp_path / "pins.json"), new_group("import")
    each = record(config={"BLOCK_M": "64"})
    first = file.note("pin", each, "ann", 1.0, "a note", 0.5, group)
    second = file.note("pin", each, "ann", 1.0, "a note", 0.5, group)
    file.save()
    (entry, _) = read_pin_file(file.path).history
    assert entry == first == second and entry.key == TuningKey("mm", "[x]", "highest")
    assert (entry.who, entry.note, entry.undoes, entry.group) == ("ann", "a note", 0.5, group)
    assert (entry.system_hash, entry.config, entry.hash) == ("hash", {"BLOCK_M": "64"}, "mm-c1")
    file.remove_entry(second)
    assert len(file.history) == 1 and file.history[0] is first


def test_records_are_those_of_one_file_op_and_inputs(tmp_path: Path) -> None:
    other, ours = replace(record(), system_hash="other"), record()
    records = [other, ours, record("[y]")]
    key = TuningKey("mm", "[x]", "in any precision")
    assert find_record(records, "hash", key) is ours
    assert find_record(records, "third", key) is None
    changed = record(note="n")
    assert put_back(records, changed) and records == [other, changed, record("[y]")]
    assert not put_back(records, record("[z]")) and len(records) == 3
    remove_record(records, ours)
    assert records == [other, record("[y]")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files", {"ab/x.best_config": {"original": "", "written": ""}}),
        ("variants", {"0": "mm-c1", "9999": "mm-c2"}),
        ("drifts", 0),
        ("system_hash", "h" * 200),
    ],
)
def test_what_a_pin_may_hold(layout: Layout, name: str, value: object) -> None:
    spoil(layout, "pins", name, value)
    assert len(PinStore(layout).pins()) == 1


def test_who_is_a_user_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    host = os.uname().nodename
    assert default_who() == f"{pwd.getpwuid(os.getuid()).pw_name}@{host}"
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert default_who() == f"54321@{host}"
