"""The pins that a hooked process finds: of its cache dir, and of the person's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.inductor.hooks import pins as hooks_pins
from backend.inductor.hooks.environment import CacheDirs
from backend.inductor.hooks.pins import PinLookup
from backend.model.inductor_kernel import InductorKernel
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from tests.support.pin_lab import KEY, make_layout
from tests.support.store_disks import no_descriptors


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """The person's cache dir, with a pin."""
    layout = make_layout(tmp_path / "home")
    PinStore(layout).pin(None, KEY, "Cpp-c2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(layout.root))
    monkeypatch.setattr(hooks_pins, "home", CacheDirs(layout.root))
    return layout


def test_a_pin_holds_for_its_system_and_each_precision_that_was_tuned(layout: Layout) -> None:
    lookup = PinLookup()
    found = lookup.find(KEY, "hash")
    assert found is not None and found.hash == "Cpp-c2"
    assert lookup.find(TuningKey(KEY.op, KEY.inputs, "high"), "hash") == found
    assert lookup.find(TuningKey(KEY.op, KEY.inputs, "medium"), "hash") is None
    assert lookup.find(TuningKey("bmm", KEY.inputs, KEY.precision), "hash") is None
    assert lookup.find(TuningKey(KEY.op, "[]", KEY.precision), "hash") is None
    assert lookup.find(KEY, "another system") is None
    assert lookup.of_kernels() == []


def test_the_file_is_read_again_where_it_has_changed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reads: list[Path] = []
    real = PinStore.pins
    monkeypatch.setattr(PinStore, "pins", lambda self: reads.append(self.layout.root) or real(self))
    lookup = PinLookup()
    for _ in range(3):
        assert lookup.find(KEY, "hash") is not None
    assert reads == [layout.root]
    PinStore(layout).unpin_all()
    assert lookup.find(KEY, "hash") is None and lookup.find(KEY, "hash") is None
    assert len(reads) == 2
    layout.pins.write_text("no JSON")
    assert lookup.find(KEY, "hash") is None
    assert "pins are not honoured" in capfd.readouterr().err
    layout.pins.unlink()
    assert lookup.find(KEY, "hash") is None


def test_pins_that_could_not_be_read_once_hold_afterwards(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    lookup = PinLookup()
    with no_descriptors():
        assert lookup.find(KEY, "hash") is None and lookup.find(KEY, "hash") is None
    assert capfd.readouterr().err.count("pins are not honoured") == 1
    assert lookup.find(KEY, "hash") is not None


def test_in_a_temporary_cache_dir_the_persons_own_pins_hold_too(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = CacheDirs(layout.root)
    home.cache_clear()
    monkeypatch.setattr(hooks_pins, "home", home)
    fresh = make_layout(tmp_path / "fresh")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(fresh.root))
    lookup = PinLookup()
    found = lookup.find(KEY, "hash")
    assert found is not None and found.hash == "Cpp-c2"
    PinStore(fresh).pin(None, KEY, "mm-c1")
    found = lookup.find(KEY, "hash")
    assert found is not None and found.hash == "mm-c1"


def test_a_forked_child_finds_pins_whoever_held_the_lock(layout: Layout) -> None:
    lookup = PinLookup()
    with lookup._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if lookup.find(KEY, "hash") is not None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_kernel_that_inductor_launches_is_pinned_by_its_key(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pin(op: str, inputs: str) -> Pin:
        return Pin(op, inputs, "", "triton_config-1", "c", "all.best_config", {})

    kernel = InductorKernel("triton_poi_0", "pointwise", (), "", "gelu[1]:AAAA")
    pins = [pin("mm", kernel.inputs), pin("pointwise", "gelu[2]:AAAA"), pin("reduction", "x")]
    monkeypatch.setattr(PinStore, "pins", lambda self: pins)
    lookup = PinLookup()
    assert lookup.find_kernel(kernel) is None
    assert [found.op for found in lookup.of_kernels()] == ["pointwise", "reduction"]
    pins.append(pin("pointwise", kernel.inputs))
    assert PinLookup().find_kernel(kernel) == pins[-1]
