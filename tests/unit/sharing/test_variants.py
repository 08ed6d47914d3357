"""A pin that was made on one device of a box holds on all devices of another host."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.errors import ShareInvalid
from backend.model.choice import Choice
from backend.model.events import SessionEnded, TuningStarted
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.file import new_group, read_pin_file
from backend.pins.state import DeviceStatus, GraphSweeper
from backend.pins.store import PinStore
from backend.pins.undo import next_undo, undo
from backend.sharing.plan import steps_of, take_in
from backend.sharing.share import PinExport, SharedPin, parse_share, share_text
from rocm_tui.actions.share import export_text, pins_to_share
from rocm_tui.actions.sources import tunings_of_export
from tests.support.device_modules import compiled_on, write_choice
from tests.support.pin_lab import GPU, cache_file, make_layout, read, write

KEY = TuningKey("mm", "[('cuda', 'torch.float16', 4, 8, 8, 1, 0)]", "highest")
ATEN = "mm-" + "c" * 52
BLOCKS = (64, 128)
HERE = replace(GPU, system_hash="hash", host="gpu8")


def kernels(root: Path, device: int) -> tuple[str, str]:
    """The hashes of the faster and of the slower choice."""
    fast, slow = (write_choice(root, device, BLOCK_M=block) for block in BLOCKS)
    return fast, slow


def timings(root: Path, devices: Iterable[int]) -> dict[str, float]:
    times = {ATEN: 0.004}
    for index in devices:
        fast, slow = kernels(root, index)
        times |= {fast: 0.001 + index / 1e5, slow: 0.002 + index / 1e5}
    return times


def box(root: Path, *devices: int) -> Layout:
    """A host on which these devices tuned the problem."""
    compiled_on(root, *devices)
    times = timings(root, devices)
    return make_layout(root, {"mm": {KEY.inputs: {"highest": times}} if devices else {}})


def exported(root: Path, device: int = 2) -> SharedPin:
    """The pin of the slower choice, made on `device` of another host, as its export has it."""
    layout = box(root, device)
    session = Session("a", "gpu7", arch=GPU.arch or "", system_hash="hash", started=1.0)
    writer = EventWriter(layout, session)
    key = (KEY.op, KEY.inputs, KEY.precision, ((4, 8),), ((8, 1),), ("torch.float16",), "cuda")
    writer.write(TuningStarted(1, 2.0, *key, (Choice("mm", ATEN),)))
    writer.write(SessionEnded(3.0))
    writer.close()
    PinStore(layout).pin(None, KEY, kernels(root, device)[1], label="triton_mm_1")
    (pin,) = parse_share(export_text(pins_to_share(layout, [], [], None)).encode(), "file").pins
    return pin


def imported(pin: SharedPin, layout: Layout) -> PinStore:
    store = PinStore(layout)
    (step,) = steps_of([pin], HERE, store)
    assert step.changes, step.detail
    take_in(store, step.pin, "hash", new_group("import"))
    return store


def wins(layout: Layout, root: Path, device: int) -> str:
    """The choice that stock PyTorch takes on a device."""
    times = read(layout)["mm"][KEY.inputs]["highest"]
    offered = [*kernels(root, device), ATEN]
    return min((name for name in offered if name in times), key=times.__getitem__)


def without_modules(root: Path) -> None:
    for path in root.rglob("c*.py"):
        path.unlink()


def test_an_older_pin_is_exported_with_the_hashes_of_all_devices(tmp_path: Path) -> None:
    pin = exported(tmp_path)
    layout = Layout(tmp_path)
    file = read_pin_file(layout.pins)
    file.pins = [replace(record, variants={}) for record in file.pins]
    file.save()
    (again,) = pins_to_share(layout, [], [], None)
    assert again.variants == pin.variants


def test_a_comparison_has_the_pinned_kernel_once(tmp_path: Path) -> None:
    times = timings(tmp_path, [0, 1])
    (_, slow), (fast, other) = kernels(tmp_path, 1), kernels(tmp_path, 0)
    variants = {"0": other, "1": slow}
    pin = SharedPin(
        *(KEY.op, KEY.inputs, KEY.precision, slow, "triton_mm_1", GPU),
        timings={"highest": times},
        variants=variants,
    )
    (seen,) = tunings_of_export(PinExport((pin,)), "pins.json")
    hashes = [choice.hash for choice in seen.tuning.choices]
    assert fast in hashes and len(hashes) == len(times) - 1
    (own,) = [choice for choice in seen.tuning.choices if choice.hash in pin.hashes]
    assert (own.hash, own.identity, own.name) == (slow, other, "triton_mm_1")


def test_an_export_has_the_hashes_of_all_devices(tmp_path: Path) -> None:
    pin = exported(tmp_path)
    assert pin.hash == kernels(tmp_path, 2)[1]
    assert {int(index) for index in pin.variants} == set(range(8))
    assert all(name == kernels(tmp_path, int(i))[1] for i, name in pin.variants.items())
    old = json.loads(share_text(PinExport((pin,))))
    del old["pins"][0]["variants"]
    (read_back,) = parse_share(json.dumps(old).encode(), "file").pins
    assert read_back == replace(pin, variants={})


def test_it_holds_on_all_devices_of_another_host(tmp_path: Path) -> None:
    pin = exported(tmp_path / "there")
    layout = box(tmp_path / "here", 0, 1, 9)
    before = cache_file(layout).read_bytes()
    store = imported(pin, layout)
    (status,) = store.status()
    assert status.state == "active"
    assert status.devices == tuple(DeviceStatus(index, True) for index in (0, 1, 9))
    for device in (0, 1, 9):
        assert wins(layout, layout.root, device) == kernels(layout.root, device)[1]
    (record,) = read_pin_file(layout.pins).pins
    assert record.hash in {kernels(layout.root, device)[1] for device in (0, 1, 9)}
    assert [step.action for step in steps_of([pin], HERE, store)] == ["same"]
    store.unpin(KEY)
    assert cache_file(layout).read_bytes() == before


def test_without_modules_the_exported_hashes_are_known(tmp_path: Path) -> None:
    pin, layout = exported(tmp_path / "there"), box(tmp_path / "here", 0, 1)
    without_modules(layout.root)
    (status,) = imported(pin, layout).status()
    assert status.state == "active"
    for device in (0, 1):
        assert wins(layout, tmp_path / "other", device) == kernels(tmp_path / "other", device)[1]


def test_a_host_that_has_not_tuned_it_yet(tmp_path: Path) -> None:
    pin, layout = exported(tmp_path / "there"), box(tmp_path / "here")
    (step,) = steps_of([pin], HERE, PinStore(layout))
    assert step.action == "wait"
    imported(pin, layout)
    write(layout, {"mm": {KEY.inputs: {"highest": timings(layout.root, [0, 9])}}})
    compiled_on(layout.root, 0, 9)
    (status,) = PinStore(layout).reconcile()
    assert status.state == "active"
    for device in (0, 9):
        assert wins(layout, layout.root, device) == kernels(layout.root, device)[1]
    (record,) = read_pin_file(layout.pins).pins
    wanted = GraphSweeper(layout).wanted(record)
    assert record.hash == pin.hash and wanted is not None
    assert wanted.constants["BLOCK_M"] == "128", "read from the module of another device"


def test_modules_here_go_before_what_a_file_says(tmp_path: Path) -> None:
    """Whoever wrote it names a rival as the pinned kernel of device 1."""
    pin, layout = exported(tmp_path / "there", 0), box(tmp_path / "here", 0, 1)
    rival = kernels(layout.root, 1)[0]
    imported(replace(pin, variants={**pin.variants, "1": rival}), layout)
    (record,) = read_pin_file(layout.pins).pins
    assert rival not in record.hashes
    assert wins(layout, layout.root, 1) == kernels(layout.root, 1)[1]
    foreign = replace(pin, hash="triton_mm-" + "c" * 52, variants={"1": rival})
    imported(foreign, other := box(tmp_path / "other", 1))
    assert read_pin_file(other.pins).pins[0].hashes == {foreign.hash}


def test_an_unpin_is_undone_without_modules(tmp_path: Path) -> None:
    pin, layout = exported(tmp_path / "there"), box(tmp_path / "here", 0, 1)
    without_modules(layout.root)
    store = imported(pin, layout)
    (held,) = read_pin_file(layout.pins).pins
    store.unpin(KEY)
    step = next_undo(layout)
    assert step is not None
    undo(layout, step)
    (again,) = read_pin_file(layout.pins).pins
    assert again.hashes == held.hashes == pin.hashes


@pytest.mark.parametrize(
    ("variants", "why"),
    [
        ([], "`variants` is not an object"),
        ({"x": "triton_mm-c1"}, "`variants` has no device 'x'"),
        ({"-1": "triton_mm-c1"}, "`variants` has no device '-1'"),
        ({"10000": "triton_mm-c1"}, "`variants` has no device '10000'"),
        ({"١": "triton_mm-c1"}, "`variants` has no device"),
        ({"\x1b[31m": "triton_mm-c1"}, "`variants` has no device"),
        ({"0": 7}, "`variants`, 0 is not text"),
        ({"0": ""}, "`variants`, 0 is not a name"),
        ({"0": "triton_mm\x1b]52;c;x\x07-c1"}, "`variants`, 0 is not a name"),
        ({"0": "triton_mm-c1\n"}, "`variants`, 0 is not a name"),
        ({"0": "mm-c1"}, "`variants`, 0 is a hash of another template"),
        ({"0": "triton_bm-c0"}, "`variants`, 0 is a hash of another template"),
        ({"0": "triton_mm-c12"}, "`variants`, 0 is a hash of another template"),
        ({str(n): "triton_mm-c1" for n in range(1025)}, "has more than 1,024 devices"),
    ],
)
def test_hostile_variants_are_refused_with_one_line(variants: Any, why: str) -> None:
    good = SharedPin("mm", KEY.inputs, "highest", "triton_mm-c0", "triton_mm_1", GPU)
    document = json.loads(share_text(PinExport((good,))))
    document["pins"][0]["variants"] = variants
    with pytest.raises(ShareInvalid) as caught:
        parse_share(json.dumps(document).encode(), "file")
    assert why in str(caught.value) and str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
