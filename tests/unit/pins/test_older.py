"""Pins that an older version made, which wrote `Infinity` for the rivals: migrated, and given back.

`tests/older` holds what that version wrote: the cache file before, the file that it made of it, and
its `pins.json`.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import PinRefused
from backend.model.problem import TuningKey
from backend.pins.file import read_pin_file
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from tests.support.pin_lab import measured
from tests.support.places import ROOT
from tests.support.terminal_lab import raised_numbers

OLDER = ROOT / "tests" / "support" / "older"
BEFORE = (OLDER / "before.json").read_bytes()
HELD = (OLDER / "held.json").read_bytes()
RAISED = {"bmm-c1": 0.0625 * 2**40, "CppMicroGemmFP32Vec-c2": 0.5696}
RAISED |= {"CppMicroGemmFP32Vec-c3": inf, "CppMicroGemmFP32Vec-c4": 0.1 * 2**40}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "inductor")
    layout.autotune.mkdir(parents=True)
    layout.home.mkdir(mode=0o700)
    cache_file(layout).write_bytes(HELD)
    layout.pins.write_bytes((OLDER / "pins.json").read_bytes())
    return layout


def cache_file(layout: Layout) -> Path:
    return layout.autotune / "5ys"


def key_of(layout: Layout) -> TuningKey:
    (pin,) = PinStore(layout).pins()
    return pin.key


def numbers(content: bytes) -> dict[str, float]:
    (found,) = json.loads(content)["cache"]["bmm"].values()
    times: dict[str, float] = found["highest"]
    return times


def test_it_says_so_and_is_migrated_without_a_drift(layout: Layout) -> None:
    store = PinStore(layout)
    (status,) = store.status()
    assert status.state == "drifted" and "older version" in status.detail
    (status,) = store.reconcile()
    assert status.state == "active" and status.pin.drifts == 0
    assert numbers(cache_file(layout).read_bytes()) == RAISED
    assert [entry.what for entry in store.history()] == ["pin", "migrate"]
    after = cache_file(layout).read_bytes(), layout.pins.read_bytes()
    assert [s.detail for s in PinStore(layout).reconcile()] == [""]
    assert (cache_file(layout).read_bytes(), layout.pins.read_bytes()) == after


@pytest.mark.parametrize("migrated", [False, True])
def test_unpin_gives_the_very_bytes_back(layout: Layout, migrated: bool) -> None:
    if migrated:
        PinStore(layout).reconcile()
    PinStore(layout).unpin(key_of(layout))
    assert cache_file(layout).read_bytes() == BEFORE


def test_pinning_another_choice_migrates_too(layout: Layout) -> None:
    store, key = PinStore(layout), key_of(layout)
    assert measured(store, key) == numbers(BEFORE)
    store.pin(None, key, "CppMicroGemmFP32Vec-c4")
    high = {name: ms * 2**40 for name, ms in numbers(BEFORE).items()}
    assert numbers(cache_file(layout).read_bytes()) == {**high, "CppMicroGemmFP32Vec-c4": 0.1}
    store.unpin(key)
    assert cache_file(layout).read_bytes() == BEFORE


def test_run_migrates_before_the_program_starts(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"print(open({str(cache_file(layout))!r}).read())"
    words = ["run", "--cache-dir", str(layout.root), "--", "python3", "-c", program]
    assert main(words) == 0
    assert numbers(capfd.readouterr().out.encode()) == RAISED


def test_a_released_pin_whose_infinity_comes_back(layout: Layout) -> None:
    """A stock process had read the file while the older version held the pin."""
    store = PinStore(layout)
    store.unpin(key_of(layout))
    cache_file(layout).write_bytes(HELD)
    store.reconcile()
    assert cache_file(layout).read_bytes() == BEFORE


def test_raised_numbers_outlive_what_is_known_of_their_pin(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old copy of the cache comes back after days, or the pins file is removed."""
    store, key = PinStore(layout), key_of(layout)
    store.reconcile()
    held = cache_file(layout).read_bytes()
    store.unpin(key)
    file = read_pin_file(layout.pins)
    assert len(file.released) == 1
    file.released = []
    file.save()
    cache_file(layout).write_bytes(held)
    store.reconcile()
    assert cache_file(layout).read_bytes() == BEFORE

    cache_file(layout).write_bytes(held)
    layout.pins.unlink()
    assert raised_numbers(cache_file(layout))
    assert main(["pins", "--reconcile", "--cache-dir", str(layout.root)]) == 0
    assert "nothing is pinned" in capsys.readouterr().out
    assert cache_file(layout).read_bytes() == BEFORE


def test_a_number_that_no_pin_raised_is_lowered_by_explicit_request_only(layout: Layout) -> None:
    """1e12 would become 0.9 ms, the fastest of its problem."""
    store, path = PinStore(layout), cache_file(layout)
    store.reconcile()
    document = json.loads(path.read_bytes())
    document["cache"]["other"] = {"[x]": {"highest": {"slow": 2.0, "odd": 1e12}}}
    path.write_text(json.dumps(document))
    store.reconcile()
    assert json.loads(path.read_bytes()) == document
    PinStore(layout).reconcile(thorough=True)
    lowered = json.loads(path.read_bytes())["cache"]["other"]["[x]"]["highest"]
    assert lowered == {"slow": 2.0, "odd": 1e12 / 2**40}


def test_a_problem_with_a_number_that_no_pin_raised_cannot_be_pinned(layout: Layout) -> None:
    """Its pin would be a record by which the number counts as raised."""
    path, key = cache_file(layout), TuningKey("other", "[x]", "highest")
    document = json.loads(path.read_bytes())
    document["cache"]["other"] = {"[x]": {"highest": {"slow": 2.0, "odd": 1e12}}}
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    with pytest.raises(PinRefused, match="of odd is not the milliseconds"):
        PinStore(layout).pin(None, key, "slow")
    assert path.read_bytes() == before


def test_pins_one_after_the_other_leave_no_number_behind(layout: Layout) -> None:
    """Pin, unpin, pin another, unpin; then stock writes the copy that it read in between."""
    store, key = PinStore(layout), key_of(layout)
    store.unpin(key)
    copies = []
    for choice in ("CppMicroGemmFP32Vec-c4", "bmm-c1"):
        store.pin(None, key, choice)
        copies.append(cache_file(layout).read_bytes())
        store.unpin(key)
    for copy in copies:
        cache_file(layout).write_bytes(copy)
        store.reconcile()
        assert cache_file(layout).read_bytes() == BEFORE
        store.pin(None, key, "CppMicroGemmFP32Vec-c2")
        store.unpin(key)
        assert cache_file(layout).read_bytes() == BEFORE
