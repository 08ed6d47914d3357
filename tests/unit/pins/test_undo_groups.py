"""What one command pinned or released is undone as one: all of it, or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.safe import lock_of
from backend.errors import PinRefused, UnsafePath
from backend.model.problem import TuningKey
from backend.pins.file import new_group
from backend.pins.store import PinStore
from backend.pins.undo import Undo, next_undo, undo
from rocm_tui.cli.entry import main
from tests.support.pin_lab import KEY, TIMES, cache_file, make_layout

KEYS = [
    replace(KEY, inputs=f"[('cpu', 'torch.float32', {rows}, 8, 8, 1, 0)]") for rows in (4, 16, 64)
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    entries = {key.inputs: {"highest": TIMES} for key in KEYS}
    return make_layout(tmp_path, {"mm": entries})


def _pin_all(layout: Layout, command: str = "agree --pin", hash_: str = "mm-c1") -> None:
    group = new_group(command)
    for key in KEYS:
        PinStore(layout).pin(None, key, hash_, label=hash_[:2], group=group)


def _found(layout: Layout) -> Undo:
    found = next_undo(layout)
    assert found is not None
    return found


def _pins(layout: Layout) -> dict[str, str]:
    return {pin.inputs: pin.hash for pin in PinStore(layout).pins()}


def _each(hash_: str, keys: list[TuningKey] = KEYS) -> Mapping[str, str]:
    return dict.fromkeys((key.inputs for key in keys), hash_)


def test_a_command_is_one_step_among_others(layout: Layout) -> None:
    before = cache_file(layout).read_bytes()
    store = PinStore(layout)
    store.pin(None, KEYS[1], "Cpp-c2", note="by hand")
    _pin_all(layout)
    store.unpin_all(group=new_group("unpin --all"))
    released = _found(layout)
    assert [step.again.hash for step in released.steps if step.again] == ["mm-c1"] * 3
    undo(layout, released)
    assert _pins(layout) == _each("mm-c1") and {s.state for s in store.status()} == {"active"}

    made = _found(layout)
    assert made.group and made.group.command == "agree --pin" and len(made.steps) == 3
    assert [bool(step.again) for step in made.steps] == [False, True, False]
    assert len(undo(layout, made)) == 3
    assert _pins(layout) == _each("Cpp-c2", KEYS[1:2]) and store.pins()[0].note == "by hand"

    undo(layout, _found(layout))
    assert next_undo(layout) is None and cache_file(layout).read_bytes() == before


def test_what_somebody_has_changed_since_is_left_alone(layout: Layout) -> None:
    _pin_all(layout)
    stale = _found(layout)
    PinStore(layout).pin(None, KEYS[0], "Cpp-c2", who="you@box")
    with pytest.raises(PinRefused, match="nothing was undone"):
        undo(layout, stale)
    found = _found(layout)
    assert (len(found.steps), found.left) == (2, 1)
    undo(layout, found)
    assert _pins(layout) == _each("Cpp-c2", KEYS[:1]) and next_undo(layout) is None


def test_all_or_nothing(layout: Layout) -> None:
    """The lock of the second cache file cannot be had once the first one is written."""
    second = layout.autotune / "second"
    second.write_bytes(cache_file(layout).read_bytes())
    group = new_group("import")
    PinStore(layout).pin("second", KEYS[0], "Cpp-c2", group=group)
    PinStore(layout).pin("hash", KEYS[1], "Cpp-c2", group=group)
    held = [path.read_bytes() for path in (cache_file(layout), second)]
    history = PinStore(layout).history()
    lock = lock_of(layout.root, second)
    lock.unlink()
    lock.mkdir()
    with pytest.raises(UnsafePath):
        undo(layout, _found(layout))
    assert [path.read_bytes() for path in (cache_file(layout), second)] == held
    assert PinStore(layout).history() == history and len(_pins(layout)) == 2
    assert not json.loads(layout.pins.read_text())["released"]
    lock.rmdir()
    assert {status.state for status in PinStore(layout).reconcile()} == {"active"}
    undo(layout, _found(layout))
    assert not _pins(layout)


def test_what_is_undone_was_killed_in_the_middle(layout: Layout) -> None:
    """All was wanted before anything was changed: what comes next ends it."""
    before = cache_file(layout).read_bytes()
    _pin_all(layout)
    found = _found(layout)
    child = os.fork()
    if not child:
        import backend.pins.holders as holders

        holders.PinHolders.agree = lambda *words, **more: os._exit(9)  # type: ignore[method-assign]
        undo(layout, found)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert cache_file(layout).read_bytes() != before
    assert PinStore(layout).reconcile() == []
    assert next_undo(layout) is None and cache_file(layout).read_bytes() == before


def test_an_older_program_undoes_them_one_by_one(layout: Layout) -> None:
    """It writes back what it does not know; what it undid is not undone again."""
    _pin_all(layout)
    document = json.loads(layout.pins.read_text())
    assert [entry["group"]["command"] for entry in document["history"]] == ["agree --pin"] * 3
    last = document["history"][-1]
    PinStore(layout).unpin(KEYS[2], undoes=last["when"])
    found = _found(layout)
    assert (len(found.steps), found.left) == (2, 0)


def test_it_is_said_before_it_is_done(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--cache-dir", str(layout.root)]
    _pin_all(layout)
    assert main(["undo", "--dry-run", *where]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("Would undo: 3 steps of `agree --pin` (")
    assert len(told) == 4 and told[1].split()[1:] == ["mm", "mm"] and len(_pins(layout)) == 3
    assert main(["undo", "--json", *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["left"], len(told["steps"])) == ("agree --pin", 0, 3)
    assert told["undone"]["inputs_key"] == KEYS[2].inputs and not _pins(layout)
    assert main(["pins", "--history", *where]) == 0
    assert capsys.readouterr().out.count("(agree --pin)") == 6
