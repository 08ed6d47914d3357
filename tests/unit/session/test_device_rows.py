"""A problem that several devices of a box tuned is one row that opens into its devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.errors import NoSuchChoice
from rocm_tui.ingest import devices
from rocm_tui.ingest.formats.cache_file import parse
from rocm_tui.ingest.records import MeasurementSeen, Record, Seen
from rocm_tui.session import stats
from rocm_tui.session.find import find_device_choice
from rocm_tui.session.grouping import Arrangement, arrange, differing
from rocm_tui.session.in_use import (
    device_name,
    devices_by_kernel,
    in_use,
    kernel_identity,
    pinned_choice,
    used_by_all,
)
from rocm_tui.session.model import Model, Row
from rocm_tui.session.query.fields import FieldValues, Known
from rocm_tui.session.query.grammar import parse as query
from rocm_tui.session.query.match import predicate
from rocm_tui.session.views import compatible
from tests.support.device_modules import ATEN, MM, SYSTEM, write_box

ALIKE = {0: (0.010, 0.012), 1: (0.011, 0.013)}
APART = {0: (0.010, 0.012), 1: (0.013, 0.011)}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    devices._hashes_of.cache_clear()


def records(root: Path) -> list[Record]:
    path = root / "cache" / SYSTEM
    return parse(path.read_bytes(), str(path))


def model_of(*told: Record) -> Model:
    model = Model()
    model.apply(told)
    return model


def only(model: Model) -> Row:
    (row,) = model.listed()
    return row


def log(base: Tuning, aten: float) -> Seen:
    """What stderr says of a cache's tuning whose program timed ATen itself."""
    choices = [
        Choice("mm" if c.hash == ATEN else f"triton_mm_{n}", None, round(c.ms or 0.0, 4))
        for n, c in enumerate(base.choices)
    ]
    choices = [replace(c, ms=aten) if c.name == "mm" else c for c in choices]
    told = Tuning(
        "mm", base.shapes, base.strides, base.dtypes, choices=tuple(choices), num_choices=3,
        rank=base.device_index, sources=("train.log",),
    )  # fmt: skip
    return Seen(f"train.log#{base.device_index}", told)


def test_one_row_opens_into_its_devices(tmp_path: Path) -> None:
    write_box(tmp_path, APART)
    model = model_of(*records(tmp_path))
    row = only(model)
    assert [device_name(device) for device in row.devices] == ["cuda:0", "cuda:1"]
    assert device_name(row) == "cuda:0-1" and row.tuning is row.devices[0].tuning
    assert model.rows() == list(row.devices)
    assert all(model.row(shown.key) == shown for shown in (row, *row.devices))
    assert [r.is_device for r in (row, *row.devices)] == [False, True, True]
    assert arrange([row], Arrangement()) == [row]
    opened = Arrangement().with_devices(row.key)
    assert arrange([row], opened) == [row, *row.devices]
    assert arrange([row], opened.with_devices(row.key)) == [row]
    assert row.id not in row.aliases and {id_ for d in row.devices for id_ in d.ids} == {*row.ids}


def test_devices_differ_by_kernel_and_not_by_hash(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, ALIKE)
    row = only(model_of(*records(tmp_path)))
    assert [choice.hash for choice, _ in devices_by_kernel(row) if choice] == [hashes[0][0]]
    assert [len(its) for _, its in devices_by_kernel(row)] == [2]
    write_box(tmp_path, APART)
    row = only(model_of(*records(tmp_path)))
    assert used_by_all(row) == "differs (2)"
    used = [in_use(device) for device in row.devices]
    assert [choice.hash for choice in used if choice] == [hashes[0][0], hashes[1][1]]


def test_no_device_lends_its_name_to_all(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, ALIKE)
    told = records(tmp_path)
    views = [record.tuning for record in told if isinstance(record, Seen)]
    first = log(views[0], 0.02)
    assert used_by_all(only(model_of(*told))) == hashes[0][0][:18]
    assert used_by_all(only(model_of(*told, first))) == hashes[0][0][:18]
    assert used_by_all(only(model_of(*told, first, log(views[1], 0.02)))) == "triton_mm_0"


def test_no_verdict_goes_across_devices(tmp_path: Path) -> None:
    """The winner of one device is slower than both choices of the other."""
    write_box(tmp_path, {0: (0.010, 0.011), 1: (0.030, 0.024)}, aten=0.036)
    slow = only(model_of(*records(tmp_path))).devices[1]
    best = stats.winner(slow.tuning)
    assert best is not None and best.ms == 0.024
    assert stats.lead(slow.tuning) == pytest.approx(0.25)
    assert stats.gain(slow.tuning) == pytest.approx(1.5)


def test_one_device_is_a_row_as_before(tmp_path: Path) -> None:
    write_box(tmp_path, {1: ALIKE[1]})
    row = only(model_of(*records(tmp_path)))
    assert row.devices == () and not device_name(row) and differing([row]) == ()


def test_a_log_fits_the_device_whose_times_it_has(tmp_path: Path) -> None:
    """Its time of ATen is its own; the cache has that of the device which tuned last."""
    write_box(tmp_path, APART, aten=0.0201234)
    told = records(tmp_path)
    views = [record.tuning for record in told if isinstance(record, Seen)]
    row = only(model_of(*told, log(views[1], 0.025), log(views[0], 0.018)))
    assert [len(device.tuning.sources) for device in row.devices] == [2, 2]
    assert [device.tuning.rank for device in row.devices] == [0, 1]
    for device, own in zip(row.devices, (0.018, 0.025), strict=True):
        aten = next(choice for choice in device.tuning.choices if choice.hash == ATEN)
        assert aten.ms == own and not aten.shared and aten.name == "mm"
        assert len(device.tuning.choices) == 3


def test_a_time_of_another_device_is_no_sign_of_a_choice(tmp_path: Path) -> None:
    """The cache's time of ATen is that of the fastest Triton choice on this device."""
    write_box(tmp_path, APART, aten=0.011)
    told = records(tmp_path)
    views = [record.tuning for record in told if isinstance(record, Seen)]
    row = only(model_of(*told, log(views[1], 0.03)))
    names = {choice.name: choice.ms for choice in row.devices[1].tuning.choices}
    assert names == {"triton_mm_0": 0.011, "triton_mm_2": 0.013, "mm": 0.03}


def test_views_of_other_devices_are_never_one_tuning(tmp_path: Path) -> None:
    write_box(tmp_path, ALIKE)
    first, second = (r.tuning for r in records(tmp_path) if isinstance(r, Seen))
    session = replace(first, session="s", sources=("s.jsonl",))
    assert compatible(session, first) and not compatible(session, second)
    assert compatible(replace(session, device_index=None), second)


def test_sessions_of_ranks_are_one_row_without_a_cache(tmp_path: Path) -> None:
    write_box(tmp_path, ALIKE)
    views = [r.tuning for r in records(tmp_path) if isinstance(r, Seen)]
    told = [
        Seen(f"{n}.jsonl#1", replace(v, session=f"s{n}", rank=n, when=5.0 + n, sources=(f"{n}",)))
        for n, v in enumerate(views)
    ]
    row = only(model_of(*told))
    assert [device.tuning.session for device in row.devices] == ["s0", "s1"]
    assert row.asked == ("s0", "s1") and row.when == 6.0
    again = replace(
        told[0], uid="9.jsonl#1", tuning=replace(told[0].tuning, session="s9", when=9.0)
    )
    latest, older = model_of(*told, again).listed()
    assert [device.tuning.session for device in latest.devices] == ["s9", "s1"]
    assert (latest.occurrence, older.occurrence) == (2, 1)
    assert older.tuning.session == "s0" and not older.devices


def test_a_measurement_is_of_the_device_whose_kernels_it_has(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, ALIKE)
    timed = [
        MeasuredChoice(name, 1.0, 0.9, 1.1, 0.0, 9, 1.0, 1.0, 1.0, "tied", None, None)
        for name in (hashes[1][0], ATEN)
    ]
    seen = MeasurementSeen("m", Measurement("mm", MM, "highest", 1.8e9, tuple(timed)))
    row = only(model_of(*records(tmp_path), seen))
    assert [device.tuning.measured is None for device in row.devices] == [True, False]


def test_each_device_shows_its_own_name_of_the_pinned_choice(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, APART)
    store = PinStore(Layout(tmp_path))
    row = only(model_of(*records(tmp_path)))
    assert row.tuning.key is not None
    store.pin(None, row.tuning.key, hashes[1][0])
    model = model_of(*records(tmp_path))
    model.set_pins(store.status())
    row = only(model)
    pinned = [pinned_choice(device) for device in row.devices]
    assert [found[1].hash for found in pinned if found] == [hashes[0][0], hashes[1][0]]
    assert [in_use(device) for device in row.devices] == [found[1] for found in pinned if found]
    assert len(devices_by_kernel(row)) == 1


def test_a_choice_is_found_on_each_device(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, APART)
    row = only(model_of(*records(tmp_path)))
    assert find_device_choice(row, "#1")[1].hash == hashes[0][0]
    device, choice = find_device_choice(row, hashes[1][1])
    assert device is row.devices[1] and choice.hash == hashes[1][1]
    with pytest.raises(NoSuchChoice):
        find_device_choice(row, "triton_mm-zzz")


def test_what_a_kernel_is_called_on_every_device() -> None:
    same = Choice("triton_mm_1", "triton_mm-caa", 1.0, "BLOCK_M=16")
    other = Choice("triton_mm_9", "triton_mm-cbb", 1.0, "BLOCK_M=16")
    assert (
        kernel_identity(same)
        == kernel_identity(other)
        != kernel_identity(replace(other, description="BLOCK_M=32"))
    )
    assert kernel_identity(Choice("mm", ATEN)) == ATEN and kernel_identity(Choice("mm")) == "mm"
    assert kernel_identity(replace(same, identity="triton_mm-c0")) == "triton_mm-c0"


def test_the_column_of_devices_is_there_where_a_row_has_several(tmp_path: Path) -> None:
    write_box(tmp_path, ALIKE)
    assert "devices" in differing(model_of(*records(tmp_path)).listed())


def test_a_row_is_found_by_the_source_of_any_of_its_devices(tmp_path: Path) -> None:
    write_box(tmp_path, APART)
    told = [record for record in records(tmp_path) if isinstance(record, Seen)]
    others = [
        replace(record, tuning=replace(record.tuning, sources=(f"/{at}/of-{at}.log",)))
        for at, record in enumerate(told)
    ]
    row = only(model_of(*others))
    facts = FieldValues(Known())
    for name, passes in (("of-0.log", True), ("of-1.log", True), ("of-2.log", False)):
        assert predicate(query(f"source:{name}"), facts)(row) is passes
