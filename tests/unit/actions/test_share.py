"""Pins on their way to another machine, and the files that they are written to and read from."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.errors import StoreError
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.store import PinStore
from backend.sharing.plan import ImportStep
from backend.sharing.share import Machine, SharedPin, read_share
from backend.wire.jobs import Environment
from rocm_tui.actions import share
from rocm_tui.actions.share import ImportPlan, file_to_write, plan_import
from rocm_tui.errors import NoSuchTuning, RocmTuiError, UsageError
from rocm_tui.jobs.limits import JobFailed
from tests.support.graph_log import inputs, tune
from tests.support.pin_lab import KEY, TIMES, make_layout

HERE = Environment(torch="2.13.0", device="cpu", arch="AVX2", system_hash="hash")


def shared(**more: object) -> SharedPin:
    pin = SharedPin(KEY.op, KEY.inputs, KEY.precision, "Cpp-c2", "cpp_0", Machine(arch="AVX2"))
    return replace(pin, **more)  # type: ignore[arg-type]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    more = {"highest": {"mm-1": 2.0, "tri-1": 1.0}}
    mm = {KEY.inputs: {"highest": TIMES}, inputs(8): more}
    layout = make_layout(tmp_path / "cache", {"mm": mm, "bmm": {KEY.inputs: more}})
    PinStore(layout).pin(None, KEY, "Cpp-c2", label="cpp_0", note="why", who="ann@box")
    return layout


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Pythons that were asked for their environment."""
    pythons: list[str] = []

    def run_job(job: object, *, python: str, cache_dir: Path) -> Environment:
        pythons.append(python)
        return HERE

    monkeypatch.setattr(share, "find_python", lambda given: given or "/python")
    monkeypatch.setattr(share, "run_job", run_job)
    return pythons


def test_a_pin_is_shared_with_all_that_is_known_of_it(layout: Layout, asked: list[str]) -> None:
    (pin,) = share.pins_to_share(layout, [], [], "/its/python")
    assert (pin.op, pin.inputs, pin.precision) == (KEY.op, KEY.inputs, KEY.precision)
    assert (pin.hash, pin.label, pin.note, pin.who) == ("Cpp-c2", "cpp_0", "why", "ann@box")
    assert pin.timings["highest"]["mm-c1"] == 1.5 and pin.when > 0
    assert pin.config == {} and pin.lists == () and pin.variants == {}
    assert (pin.machine.system_hash, pin.machine.arch) == ("hash", "AVX2")
    assert asked == ["/its/python"], "since no session says it"


def test_a_session_knows_the_machine_and_the_config(layout: Layout, asked: list[str]) -> None:
    writer = EventWriter(
        layout, Session("s1", host="box", arch="AVX512", system_hash="hash", torch="2.9.0")
    )
    tune(writer, 1, 8, 2.0, 1.0)
    writer.close()
    key = TuningKey("mm", inputs(8), "highest")
    PinStore(layout).unpin_all()
    report = PinStore(layout).pin("hash", key, "tri-1", config={"BLOCK_M": "16"})
    (pin,) = share.pins_to_share(layout, [report.pin.id[:5]], [], None)
    assert (pin.machine.arch, pin.machine.torch) == ("AVX512", "2.9.0") and asked == []
    assert pin.config == {"BLOCK_M": "16"}


def test_only_the_pins_that_are_named_are_shared(layout: Layout, asked: list[str]) -> None:
    (record,) = PinStore(layout).pins()
    assert len(share.pins_to_share(layout, [record.id], [], None)) == 1
    with pytest.raises(NoSuchTuning):
        share.pins_to_share(layout, ["fffffff"], [], None)
    PinStore(layout).unpin_all()
    assert share.pins_to_share(layout, [], [], None) == []


def test_without_torch_a_machine_is_described_as_far_as_it_is_known(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def refuse(given: str | None) -> str:
        calls.append(1)
        raise RocmTuiError("no torch")

    monkeypatch.setattr(share, "find_python", refuse)
    other = TuningKey("bmm", KEY.inputs, "highest")
    PinStore(layout).pin("hash", other, "mm-1")
    pins = share.pins_to_share(layout, [], [], None)
    assert [pin.machine.arch for pin in pins] == [None, None] and len(calls) == 1
    assert share.unknown_origins(pins) == {
        name: [pin.id for pin in pins] for name in ("arch", "torch")
    }
    known = replace(pins[0], machine=Machine(arch="gfx942", torch="2.13"))
    entry = replace(known, op="table:tunableop:x", machine=Machine())
    assert share.unknown_origins([known, entry]) == {}


def test_what_is_written_can_be_read(layout: Layout, asked: list[str], tmp_path: Path) -> None:
    pins = share.pins_to_share(layout, [], [], None)
    file = tmp_path / "pins.json"
    share.write_shared(file, share.export_text(pins))
    read = read_share(file)
    assert list(read.pins) == pins and "@" in read.by and read.when > 1e9


def test_a_file_is_written_behind_links_of_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    assert file_to_write(link) == target and file_to_write(tmp_path / "new") == tmp_path / "new"
    target.write_text("x")
    assert file_to_write(link) == target
    with pytest.raises(UsageError, match="not a regular file"):
        file_to_write(tmp_path)
    monkeypatch.setattr(share.os, "geteuid", lambda: 4711)
    if link.lstat().st_uid == 0:
        assert file_to_write(link) == target, "root may be trusted"
        os.chown(link, 12345, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="is a link of"):
        file_to_write(link)


def test_an_import_is_planned_for_this_machine(
    layout: Layout, asked: list[str], tmp_path: Path
) -> None:
    PinStore(layout).unpin_all()
    file = tmp_path / "pins.json"
    other = shared(op="bmm", hash="bmm-1", machine=Machine(arch="gfx942"))
    share.write_shared(file, share.export_text([shared(), other]))
    plan = plan_import(file, [], layout, "/its/python")
    assert asked == ["/its/python"] and plan.here.system_hash == "hash"
    assert not plan.fits and [step.pin.op for step in plan.changes] == ["mm"]
    assert set(plan.differences) == {Machine(arch="AVX2"), Machine(arch="gfx942")}
    assert not PinStore(layout).pins()
    id = shared().id
    one = plan_import(file, [id[:6].upper()], layout, None)
    assert one.fits and len(one.steps) == 1
    assert share.apply_import(one, layout) == 1
    (pin,) = PinStore(layout).pins()
    assert (pin.hash, pin.system_hash) == ("Cpp-c2", "hash")
    again = plan_import(file, [id], layout, None)
    assert again.changes == [] and share.apply_import(again, layout) == 0


def test_an_import_names_the_ids_that_a_file_has(
    layout: Layout, asked: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "pins.json"
    pins = [shared(inputs=f"[{n}]") for n in range(20)]
    share.write_shared(file, share.export_text(pins))
    with pytest.raises(NoSuchTuning, match="is no id") as raised:
        plan_import(file, ["zzz"], layout, None)
    assert str(raised.value).count(",") == 9, "the first ten"
    with pytest.raises(NoSuchTuning):
        plan_import(file, [""], layout, None)
    first = min(pin.id[0] for pin in pins if sum(p.id[0] == pin.id[0] for p in pins) > 1)
    with pytest.raises(NoSuchTuning, match="several ids"):
        plan_import(file, [first], layout, None)
    share.write_shared(file, share.export_text([]))
    assert plan_import(file, [], layout, None) == ImportPlan(read_share(file), Machine())
    assert asked == []
    with pytest.raises(NoSuchTuning, match="no pins"):
        plan_import(file, ["a"], layout, None)


def test_without_the_name_of_the_cache_file_nothing_is_imported(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pins.json"
    share.write_shared(file, share.export_text([shared()]))
    monkeypatch.setattr(share, "find_python", lambda given: "/python")
    monkeypatch.setattr(share, "run_job", lambda *_, **__: replace(HERE, system_hash=None))
    with pytest.raises(JobFailed, match="cache file"):
        plan_import(file, [], layout, None)


def test_an_import_that_breaks_says_how_many_were_taken_in(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def take_in(store: object, pin: SharedPin, *_: object) -> None:
        if done:
            raise StoreError("the disk is full")
        done.append(pin.op)

    monkeypatch.setattr(share, "take_in", take_in)
    steps = [ImportStep(shared(op=op), "pin", "") for op in ("mm", "bmm", "addmm")]
    plan = ImportPlan(None, Machine(system_hash="hash"), steps)  # type: ignore[arg-type]
    with pytest.raises(share.ImportCutShort, match=r"imported 1 of 3 pins.*disk is full"):
        share.apply_import(plan, layout)
