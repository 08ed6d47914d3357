"""`pins.json` as a stranger, another version or a careless hand may leave it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backend.disk import exchange
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, NotWritable, PinRefused
from backend.model.problem import TuningKey
from backend.pins import store as pins
from backend.pins.file import read_pin_file
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
        assert not captured.out
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


def test_a_choice_whose_name_could_not_be_read_back_is_not_pinned(tmp_path: Path) -> None:
    times = {"mm-c1": 1.5, "bad\x1b-c2": 2.5}
    layout = make_layout(tmp_path / "inductor", {"mm": {KEY.inputs: {"highest": times}}})
    with pytest.raises(PinRefused, match="no name"):
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
