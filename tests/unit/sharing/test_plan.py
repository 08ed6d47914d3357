"""What is said before pins of one machine are taken to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import raise_ms
from backend.model.inductor_kernel import TRITON
from backend.pins.file import new_group
from backend.pins.store import PinStore
from backend.sharing.plan import (
    MachineDifference,
    differences,
    minor,
    refused,
    steps_of,
    system_for,
    take_in,
)
from backend.sharing.share import Machine, SharedPin
from rocm_tui.actions.tables import pin_row, row_at, solution_of
from tests.support.pin_lab import GPU, KEY, make_layout, times


@pytest.mark.parametrize(
    ("there", "here", "sentence"),
    [
        ("7.1", "7.2", "hip: 7.1 there, 7.2 here; times may differ"),
        (None, "7.2", "hip: unknown there, 7.2 here; times may differ"),
        ("7.1", None, "hip: 7.1 there, unknown here; times may differ"),
    ],
)
def test_what_is_not_known_is_said(there: str | None, here: str | None, sentence: str) -> None:
    difference = MachineDifference("hip", there, here, False, "times may differ")
    assert difference.sentence == sentence
    assert difference.known == (there is not None and here is not None)


@pytest.mark.parametrize(
    ("arch", "fields", "refuses"),
    [
        ("gfx942:sramecc+:xnack-", [], False),
        ("gfx942:sramecc+:xnack+", ["arch"], False),
        ("gfx90a:sramecc+:xnack-", ["arch"], True),
    ],
)
def test_another_setting_of_an_arch_is_said_and_another_arch_refused(
    arch: str, fields: list[str], refuses: bool
) -> None:
    found = differences(GPU, replace(GPU, arch=arch))
    assert [difference.field for difference in found] == fields
    assert refused(found) == refuses


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, []),
        ({"host": "gpu8"}, []),
        ({"torch": "2.13.1"}, []),
        ({"hip": "7.1.9"}, []),
        ({"arch": "gfx90a:sramecc+:xnack-"}, ["arch!"]),
        ({"arch": "gfx942:sramecc+:xnack+"}, ["arch"]),
        ({"arch": "sm_90", "hip": None, "cuda": "13.0"}, ["runtime!"]),
        ({"arch": "AVX512", "hip": None, "device": "cpu"}, ["arch!", "device", "hip"]),
        ({"device": "AMD Instinct MI300A", "compute_units": 228}, ["device", "compute_units"]),
        ({"torch": "2.12.0+rocm7.1"}, ["torch"]),
        ({"torch": "2.13.0a0+git1234567"}, ["torch"]),
        ({"triton": "3.6.1"}, ["triton"]),
        ({"hip": "7.2.0"}, ["hip"]),
        ({"system_hash": "beef"}, ["system_hash"]),
        ({"torch": None}, ["torch"]),
    ],
)
def test_the_rule_of_each_field(change: dict[str, Any], fields: list[str]) -> None:
    found = differences(GPU, replace(GPU, **change))
    assert [d.field + "!" * d.refuses for d in found] == fields
    assert refused(found) == any("!" in field for field in fields)
    for difference in found:
        assert difference.field in difference.sentence and difference.why in difference.sentence
        assert difference.known == (None not in (difference.there, difference.here))


def test_versions() -> None:
    assert minor("2.13.0+rocm7.1") == minor("2.13.1") == minor("2.13") == "2.13"
    assert minor("2.14.0.dev20260101") == "2.14.0.dev20260101"
    assert minor("7.1.25424-4179531dcd") == "7.1"


def test_a_step_says_what_it_changes(tmp_path: Path) -> None:
    store = PinStore(make_layout(tmp_path / "cache"))
    pin = SharedPin(KEY.op, KEY.inputs, KEY.precision, "Cpp-c2", "cpp_0", Machine())
    (step,) = steps_of([pin], Machine(), store)
    assert step.action == "pin"
    assert step.detail == "2 numbers raised out of reach, 0 compiled graphs move aside"


def test_a_step_says_which_pin_it_replaces(tmp_path: Path) -> None:
    store = PinStore(make_layout(tmp_path / "cache"))
    pin = SharedPin(KEY.op, KEY.inputs, KEY.precision, "Cpp-c2", "cpp_0", Machine())
    store.pin(None, KEY, "mm-c1", label="mm")
    (step,) = steps_of([pin], Machine(), store)
    assert step.action == "replace" and step.detail.startswith("instead of mm, pinned by ")
    store.pin(None, KEY, "Cpp-c2")
    (step,) = steps_of([pin], Machine(), store)
    assert (step.action, step.detail) == ("same", "is pinned here already")


HERE = replace(GPU, system_hash="hash", host="gpu8")
PIN = SharedPin(KEY.op, KEY.inputs, KEY.precision, "Cpp-c2", "cpp_0", GPU, when=1e9, who="ann@gpu7")


def test_of_several_pins_of_one_problem_that_of_this_machine_is_taken_else_the_latest(
    tmp_path: Path,
) -> None:
    store = PinStore(make_layout(tmp_path / "cache"))
    own = replace(PIN, machine=replace(GPU, system_hash="hash"))
    early, late = replace(PIN, when=1.0), replace(PIN, when=2e9)
    for pins, taken in (((early, late), late), ((late, early), late), ((own, late), own)):
        steps = steps_of(pins, HERE, store)
        assert [step.pin for step in steps] == list(pins)
        assert [step.pin for step in steps if step.changes] == [taken]
        (other,) = (step for step in steps if step.pin is not taken)
        assert other.action == "left out" and "another pin of the same" in other.detail


@pytest.mark.parametrize(
    ("change", "action", "why"),
    [
        ({"machine": replace(GPU, arch="gfx90a")}, "refused", "another kind of machine"),
        ({"hash": "Cpp-c3"}, "refused", "failed when it was tuned"),
        ({"hash": "Cpp-c9"}, "wait", "applies once tuned"),
        ({"hash": "mm-c1"}, "pin", "2 numbers raised"),
        ({"op": "table:tunableop:x"}, "refused", "with --table"),
    ],
)
def test_what_becomes_of_a_pin(
    tmp_path: Path, change: dict[str, Any], action: str, why: str
) -> None:
    store = PinStore(make_layout(tmp_path / "cache"))
    (step,) = steps_of([replace(PIN, **change)], HERE, store)
    assert step.action == action and why in step.detail
    assert step.changes is (action != "refused")


def test_a_pin_that_is_taken_in_names_its_origin(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "cache")
    store = PinStore(layout)
    group = new_group("import")
    for note, start in (("", "imported from gpu7, pinned 2001-09-0"), ("fast", "fast (imported ")):
        take_in(store, replace(PIN, note=note, config={"BLOCK_M": "64"}), "hash", group)
        (pin,) = store.pins()
        assert pin.note.startswith(start) and "by ann@gpu7" in pin.note
        assert (pin.hash, pin.label, pin.config) == ("Cpp-c2", "cpp_0", {"BLOCK_M": "64"})
    assert times(layout)["mm-c1"] == raise_ms(1.5)
    assert [entry.group for entry in store.history()] == [group, group]
    anonymous = replace(PIN, machine=Machine(), who="")
    take_in(store, anonymous, "hash", group)
    assert store.pins()[0].note.startswith("imported from another host, pinned 2001-09-0")
    assert store.pins()[0].note.endswith(" by ?")


def test_the_cache_file_that_a_pin_goes_to() -> None:
    assert system_for(PIN, HERE) == "hash"
    assert system_for(replace(PIN, op=TRITON), HERE) == GPU.system_hash


ROWS = (
    b"Validator,PT_VERSION,2.9.0\nGemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.182\n"
)


def test_entries_go_into_the_first_table_that_has_them(tmp_path: Path) -> None:
    there, here = make_layout(tmp_path / "there"), make_layout(tmp_path / "here")
    lacking, first, second = (tmp_path / name for name in ("0.csv", "1.csv", "2.csv"))
    lacking.write_bytes(ROWS.replace(b"tn_320", b"tn_321"))
    for path in (first, second):
        path.write_bytes(ROWS)
    row = row_at(f"{first}:2")
    pin_row(row, solution_of(row, "Gemm_Rocblas_-7"), there)
    first.write_bytes(ROWS)
    (held,) = PinStore(there).pins()
    pin = SharedPin(
        held.op, held.inputs, held.precision, held.hash, held.label, Machine(), held.config
    )
    store = PinStore(here)
    (step,) = steps_of([pin], Machine(), store, [lacking])
    assert step.action == "refused" and "is not in" in step.detail and str(lacking) in step.detail
    tables = [lacking, first, second]
    (step,) = steps_of([pin], Machine(), store, tables)
    assert (step.action, step.numbers, step.table) == ("pin", 1, first)
    assert step.detail == f"1 row of {first} written"
    pin_row(row, solution_of(row, "Gemm_Rocblas_-8"), here)
    (step,) = steps_of([pin], Machine(), store, tables)
    assert (step.action, step.numbers, step.table) == ("replace", 1, first)
    assert step.detail.startswith("instead of ") and f"1 row of {first}" in step.detail
    take_in(store, pin, None, new_group("import"), first)
    (step,) = steps_of([pin], Machine(), store, tables)
    assert (step.action, step.table) == ("same", first)


def test_each_pin_of_an_entry_has_a_table_of_its_own_or_is_left_out(tmp_path: Path) -> None:
    there, here = make_layout(tmp_path / "there"), make_layout(tmp_path / "here")
    first, second = tables = [tmp_path / name for name in ("results0.csv", "results1.csv")]
    solutions = ["Gemm_Rocblas_-7", "Gemm_Rocblas_-8"]
    for path, solution in zip(tables, solutions, strict=True):
        path.write_bytes(ROWS)
        row = row_at(f"{path}:2")
        pin_row(row, solution_of(row, solution), there)
        path.write_bytes(ROWS)
    pins = [
        SharedPin(p.op, p.inputs, p.precision, p.hash, p.label, Machine(), p.config)
        for p in PinStore(there).pins()
    ]
    store = PinStore(here)
    one_table = steps_of(pins, Machine(), store, [second])
    assert [(step.action, step.table) for step in one_table] == [
        ("pin", second),
        ("left out", None),
    ]
    steps = steps_of(pins, Machine(), store, tables)
    assert [(step.action, step.table) for step in steps] == [("pin", first), ("pin", second)]
    for step in steps:
        take_in(store, step.pin, None, new_group("import"), step.table)
    for path, solution in zip(tables, solutions, strict=True):
        assert solution.encode() in path.read_bytes()
    again = steps_of(pins, Machine(), store, tables)
    assert [(step.action, step.table) for step in again] == [("same", first), ("same", second)]
