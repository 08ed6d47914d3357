"""Undo goes back through the pins and unpins of one person, step by step, over days."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.errors import PinRefused
from backend.pins.store import PinStore
from backend.pins.undo import next_undo, undo
from rocm_tui.cli.entry import main
from tests.support.pin_lab import KEY, cache_file, make_layout


def test_steps_back_to_the_very_bytes_and_says_what_it_undid(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    before = cache_file(layout).read_bytes()
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2", note="first", config={"BLOCK_M": "64"})
    store.pin(None, KEY, "mm-c1", note="second")
    store.unpin(KEY)

    def step() -> tuple[str, str | None]:
        found = next_undo(layout)
        assert found is not None
        undo(layout, found)
        again = found.steps[0].again
        return found.entry.what, again.hash if again else None

    def pins() -> list[tuple[str, str]]:
        return [(pin.hash, pin.note) for pin in PinStore(layout).pins()]

    assert step() == ("unpin", "mm-c1") and pins() == [("mm-c1", "second")]
    assert step() == ("repin", "Cpp-c2") and pins() == [("Cpp-c2", "first")]
    assert json.loads(layout.pins.read_text())["pins"][0]["config"] == {"BLOCK_M": "64"}
    assert step() == ("pin", None) and pins() == []
    assert next_undo(layout) is None
    assert cache_file(layout).read_bytes() == before
    what = [(entry.what, bool(entry.undoes)) for entry in store.history()]
    assert what == [
        ("pin", False), ("repin", False), ("unpin", False),
        ("pin", True), ("repin", True), ("unpin", True),
    ]  # fmt: skip


def test_of_others_nothing_is_undone(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1", who="me@box")
    assert next_undo(layout, "me@another") is not None  # the same person, on another host
    stale = next_undo(layout, "me@box")
    store.pin(None, KEY, "Cpp-c2", who="you@box")
    assert next_undo(layout, "me@box") is None, "another one's pin has taken its place"
    assert stale is not None
    with pytest.raises(PinRefused, match="changed since"):
        undo(layout, stale, "me@box")
    assert [pin.hash for pin in store.pins()] == ["Cpp-c2"]


def test_a_history_that_tells_no_file_is_undone_too(tmp_path: Path) -> None:
    """As older versions wrote it."""
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1", label="mm")
    store.unpin(KEY)
    document = json.loads(layout.pins.read_text())
    for entry in document["history"]:
        for name in ("system_hash", "config", "undoes"):
            del entry[name]
    layout.pins.write_text(json.dumps(document))
    found = next_undo(layout)
    assert found is not None and found.steps[0].system_hash == cache_file(layout).name
    undo(layout, found)
    assert [(pin.hash, pin.label) for pin in store.pins()] == [("mm-c1", "mm")]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = make_layout(tmp_path)
    where = ["--cache-dir", str(tmp_path)]
    assert main(["undo", *where]) == 1
    assert "nothing is left to undo" in capsys.readouterr().err
    PinStore(layout).pin(None, KEY, "mm-c1", label="mm")
    assert main(["undo", "--dry-run", "--json", *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["undone"]["what"], told["pinned_again"]) == (KEY.id, "pin", None)
    assert PinStore(layout).pins()
    assert main(["undo", *where]) == 0
    assert capsys.readouterr().out.startswith("Undid: pin mm → mm (")
    assert not PinStore(layout).pins()
    assert main(["undo", *where]) == 1


def test_an_unpin_is_undone_although_the_cache_was_cleared(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1")
    store.unpin(KEY)
    cache_file(layout).unlink()
    found = next_undo(layout)
    assert found is not None and (found.group, found.left) == (None, 0)
    undo(layout, found)
    assert [(pin.hash, pin.system_hash) for pin in store.pins()] == [("mm-c1", "hash")]


def test_pins_of_one_problem_in_two_files_are_undone_each_in_its_own(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    (layout.autotune / "second").write_bytes(cache_file(layout).read_bytes())
    store = PinStore(layout)
    store.pin("hash", KEY, "mm-c1")
    store.pin("second", KEY, "Cpp-c2")
    store.pin("second", KEY, "mm-c1")

    def step() -> dict[str, str]:
        found = next_undo(layout)
        assert found is not None
        undo(layout, found)
        return {pin.system_hash: pin.hash for pin in store.pins()}

    assert step() == {"hash": "mm-c1", "second": "Cpp-c2"}
    store.pin("hash", KEY, "Cpp-c2")
    assert step() == {"hash": "mm-c1", "second": "Cpp-c2"}
    assert step() == {"hash": "mm-c1"}
    store.unpin(KEY, "hash")
    assert step() == {"hash": "mm-c1"}
    assert step() == {} and next_undo(layout) is None


def test_notes_and_proofs_are_no_steps(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    store = PinStore(layout)
    pin = store.pin(None, KEY, "mm-c1").pin
    store.keep_proof(pin, ok=True, by="verify")
    store.annotate(pin, "a note")
    found = next_undo(layout)
    assert found is not None and found.entry.what == "pin"
    store.unpin(KEY, who="you@box")
    assert next_undo(layout, "me@box") is None
