"""Pins, measurements and entries of tables: which tuning each belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.model.choice import Caches, Choice, MeasuredChoice, Measurement
from backend.model.session import Session
from backend.model.tuning import Pin, Proof, TableEntry, Tuning
from backend.pins.state import PinStatus
from rocm_tui.ingest.records import MeasurementSeen
from rocm_tui.session.attachments import (
    MOST_BESIDE,
    Measurements,
    Pins,
    Tables,
    cached_choice,
    counting,
    product_of,
    with_torch,
)
from rocm_tui.session.views import TuningView, problem_of

CHOICES = Choice("mm", "mm-a", 1.0), Choice("cpp_1", "cpp-b", 2.0)
CACHE = Tuning(
    "mm", ((8, 4), (4, 2)), ((4, 1), (2, 1)), ("torch.float16",) * 2, "cuda", "highest", "[]",
    choices=CHOICES, sources=("/c/cache/aa",),
)  # fmt: skip
SESSIONS = {"s": Session("s", system_hash="aa"), "t": Session("t", system_hash="bb")}
PROGRAM = replace(CACHE, session="s", sources=("/s.jsonl",))
STATUS = PinStatus(
    Pin("mm", "[]", "highest", "cpp-b", "cpp_1", "aa", {"highest": {}}), "active", ""
)


def pins_of(*statuses: PinStatus) -> Pins:
    pins = Pins(SESSIONS)
    pins.put(statuses)
    return pins


def test_a_pin_is_that_of_the_system_that_tuned() -> None:
    other = replace(STATUS, pin=replace(STATUS.pin, system_hash="bb"))
    pins = pins_of(STATUS, other)
    assert pins.of(CACHE) is pins.of(PROGRAM) is STATUS
    assert pins.of(replace(PROGRAM, session="t")) is other
    assert pins.of(replace(CACHE, sources=("/l/a.log",))) is STATUS, "of an unknown system"
    assert pins.of(replace(CACHE, sources=("/c/cache/cc",))) is None
    assert pins.of(replace(CACHE, inputs_key=None)) is pins.of(replace(CACHE, op="bmm")) is None
    assert Pins(SESSIONS).of(CACHE) is None
    kernel = replace(STATUS, pin=replace(STATUS.pin, op="pointwise"))
    assert pins_of(kernel).of(replace(PROGRAM, op="pointwise", session="t")) is kernel


def test_only_pins_that_changed_are_reported_and_those_that_were_awaited() -> None:
    pins = Pins(SESSIONS)
    assert pins.put([STATUS]) == {("mm", "[]")}
    assert pins.put([STATUS]) == set()
    assert pins.put([replace(STATUS, state="drifted")]) == {("mm", "[]")}
    pins.await_(frozenset({("mm", "[]")}))
    assert pins.awaits(CACHE) and not pins.awaits(replace(CACHE, op="bmm"))
    assert not pins.awaits(replace(CACHE, inputs_key=None))
    assert pins.put([replace(STATUS, state="drifted")]) == {("mm", "[]")}
    assert not pins.awaits(CACHE)
    assert pins.put([]) == {("mm", "[]")} and pins.of(CACHE) is None


def test_a_pinned_cache_shows_the_times_that_were_measured() -> None:
    held = replace(CACHE, choices=(replace(CHOICES[0], ms=None, failed=True), CHOICES[1]))
    pin = replace(STATUS.pin, timings={"highest": {"mm-a": 1.0, "cpp-b": 9.0}})
    pins = pins_of(replace(STATUS, pin=pin))

    def times(tuning: Tuning, pins: Pins) -> list[float | None]:
        shown = pins.unmasked(TuningView("u", "/c", tuning, 1))
        return [choice.ms for choice in shown.tuning.choices]

    assert times(held, pins) == [1.0, 2.0]
    for tuning in (replace(held, session="s"), replace(held, precision=None)):
        assert None in times(tuning, pins), "a program's own times"
    assert None in times(held, Pins(SESSIONS)) and None in times(replace(held, op="bmm"), pins)
    high = replace(STATUS, pin=replace(STATUS.pin, timings={"high": {"mm-a": 1.0}}))
    assert None in times(held, pins_of(high))


@pytest.mark.parametrize(
    ("session", "proof", "stale"),
    [
        ({}, {}, True),
        ({"torch": "2.12"}, {}, False),
        ({"torch": ""}, {}, False),
        ({"system_hash": "bb"}, {}, False),
        ({"started": 5.0}, {}, False),
        ({}, {"torch": ""}, False),
    ],
)
def test_a_proof_is_stale_once_another_torch_ran_on_its_system(
    session: dict[str, Any], proof: dict[str, Any], stale: bool
) -> None:
    proved = replace(STATUS, proof=replace(Proof(5.0, True, "verify", "2.12"), **proof))
    ran = replace(Session("s", torch="2.13", started=6.0, system_hash="aa"), **session)
    (found,) = with_torch([proved], {"t": Session("t", system_hash="aa"), "s": ran})
    assert bool(found.stale) is stale and ("2.13" in found.stale) is stale
    again = replace(proved, stale="the times are others")
    assert with_torch([again, STATUS], {"s": ran}) == (again, STATUS)


@pytest.mark.parametrize(
    ("tuning", "cache", "taken"),
    [
        ({}, {}, "cpp-b"),
        ({}, {"choices": CHOICES}, None),
        ({"choices": ()}, {}, None),
        ({"precision": None}, {}, None),
        ({"state": "running"}, {}, None),
        ({"rank": 0}, {}, None),
        ({"op": "pointwise"}, {"op": "pointwise"}, None),
        ({}, {"precision": "high"}, None),
        ({}, {"sources": ("/c/cache/bb",)}, None),
        ({"sources": ("/l/a.log",), "session": None}, {}, "cpp-b"),
        ({"device_index": 0}, {"device_index": 1}, None),
        ({"device_index": 1}, {"device_index": 1}, "cpp-b"),
        ({"device_index": 1}, {}, "cpp-b"),
        ({}, {"device_index": 1}, "cpp-b"),
        ({"choices": (*CHOICES, Choice("x", "x-c", 3.0, offered=False))}, {}, "cpp-b"),
        ({"choices": (*CHOICES, Choice("x", "x-c", 3.0))}, {}, None),  # it would be timed
    ],
)
def test_the_choice_that_the_cache_gives_now(
    tuning: dict[str, Any], cache: dict[str, Any], taken: str | None
) -> None:
    now = (replace(CHOICES[0], ms=3.0), CHOICES[1])
    cached = replace(CACHE, **{"choices": now, **cache})
    assert cached_choice(replace(PROGRAM, **tuning), [cached], SESSIONS) == taken
    assert cached_choice(replace(PROGRAM, **tuning), [cached, cached], SESSIONS) is None


def test_a_cache_without_any_time_gives_no_choice() -> None:
    untimed = replace(CACHE, choices=tuple(replace(choice, ms=None) for choice in CHOICES))
    assert cached_choice(PROGRAM, [untimed], SESSIONS) is None


def measurement(when: float = 1.0, caches: Caches = "hot", **changes: Any) -> Measurement:
    choice = MeasuredChoice("cpp-b", 1.0, 1.0, 1.0, 0.0, 9, 1.0, 1.0, 1.0, "faster")
    found = Measurement("mm", "[]", "highest", when, (choice,), caches=caches, system_hash="aa")
    return replace(found, **changes)


def test_measurements_of_a_tuning_are_latest_first_and_once() -> None:
    known = Measurements()
    for when, source in ((1.0, "a"), (3.0, "a"), (2.0, "b"), (2.0, "c")):
        assert known.add(MeasurementSeen(source, measurement(when))) == {("mm", "[]")}
    assert known.add(MeasurementSeen("a", measurement(1.0))) == set(), "it says the same"
    assert [found.when for found in known.of(CACHE, {})] == [3.0, 2.0, 1.0]
    assert known.attach(CACHE, {}).measured == measurement(3.0)
    assert known.forget("x") == set() and known.forget("a") == {("mm", "[]")}
    assert [found.when for found in known.of(CACHE, {})] == [2.0]
    assert known.attach(replace(CACHE, op="bmm"), {}).measured is None
    assert known.of(replace(CACHE, inputs_key=None), {}) == ()


@pytest.mark.parametrize(
    ("tuning", "change", "belongs"),
    [
        (CACHE, {}, True),
        (CACHE, {"precision": "high"}, False),
        (CACHE, {"system_hash": "bb"}, False),
        (CACHE, {"system_hash": None}, True),
        (replace(CACHE, sources=()), {"system_hash": "bb"}, True),
        (replace(PROGRAM, session="t"), {}, False),
        (replace(CACHE, choices=CHOICES[:1]), {}, False),
        (replace(CACHE, choices=(Choice("cpp_1"),)), {}, False),
    ],
)
def test_a_measurement_is_of_the_choices_and_the_system_of_a_tuning(
    tuning: Tuning, change: dict[str, Any], belongs: bool
) -> None:
    known = Measurements()
    known.add(MeasurementSeen("a", measurement(**change)))
    assert bool(known.of(tuning, SESSIONS)) is belongs
    assert (known.attach(tuning, SESSIONS) is tuning) is not belongs


@pytest.mark.parametrize(
    ("device", "kinds", "counts"),
    [
        ("cuda", ["hot", "cold", "hot"], 1),
        ("cuda", ["hot", "hot"], 2),
        ("cpu", ["hot", "cold", "hot"], 2),
        ("cpu", ["cold", "hot"], 1),
        ("cuda", [], 0),
    ],
)
def test_hot_and_cold_measurements_do_not_count_together(
    device: str, kinds: list[Caches], counts: int
) -> None:
    found = [measurement(9.0 - n, kind) for n, kind in enumerate(kinds)]
    assert len(counting(replace(CACHE, device=device), found)) == counts


BIAS = replace(
    CACHE, op="addmm", shapes=((8, 2), *CACHE.shapes), strides=((0, 1), *CACHE.strides),
    dtypes=("torch.float16",) * 3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (CACHE, replace(CACHE, op="_mm"), True),
        (CACHE, replace(CACHE, op="bmm"), False),
        (CACHE, replace(CACHE, precision="high"), True),  # of half precision it says nothing
        (CACHE, replace(CACHE, dtypes=("torch.bfloat16",) * 2), False),
        (CACHE, replace(CACHE, strides=((4, 1), (1, 4))), False),
        (BIAS, replace(BIAS, shapes=((2,), *CACHE.shapes), strides=((1,), *CACHE.strides)), True),
        (BIAS, replace(BIAS, strides=((2, 1), *CACHE.strides)), False),
        (
            replace(CACHE, shapes=((1, 4), (4, 2))),
            replace(CACHE, shapes=((1, 4), (4, 2)), strides=((9, 1), (2, 1))),
            True,
        ),
    ],
)
def test_a_product_has_one_key_whoever_names_it(left: Tuning, right: Tuning, same: bool) -> None:
    assert product_of(left) is not None
    assert (product_of(left) == product_of(right)) is same


def test_products_of_float32_have_a_precision() -> None:
    single = replace(CACHE, dtypes=("torch.float32",) * 2)
    assert product_of(single) == product_of(replace(single, precision=None))
    assert product_of(single) != product_of(replace(single, precision="high"))
    behind = replace(CACHE, dtypes=("torch.float16", "torch.float16", "torch.float32"))
    assert product_of(behind) == product_of(replace(behind, precision="high"))


def test_a_problem_without_sizes_or_strides_is_no_product() -> None:
    assert product_of(replace(CACHE, shapes=())) is None
    assert product_of(replace(CACHE, strides=CACHE.strides[:1])) is None


def test_a_bias_of_a_convolution_does_not_count() -> None:
    shapes, strides = ((1, 8, 16, 16), (8, 8, 3, 3)), ((2048, 256, 16, 1), (72, 9, 3, 1))
    layer = Tuning("convolution", shapes, strides, ("torch.float16",) * 2)
    biased = Tuning("convolution", (*shapes, (8,)), (*strides, (1,)), ("torch.float16",) * 3)
    assert product_of(layer) == product_of(biased)


def entry(line: int, ms: float | None, **changes: Any) -> Tuning:
    choices = () if ms is None and line > 90 else (Choice("solution", None, ms),)
    return replace(CACHE, entry=TableEntry("tunableop", line), choices=choices, **changes)


def test_entries_beside_a_tuning_are_fastest_first_then_as_in_their_file() -> None:
    tables = Tables()
    assert not tables and tables.of(CACHE) == ()
    entries = [entry(3, 2.0), entry(91, None), entry(5, None), entry(4, None), entry(6, 1.0)]
    for each in entries:
        assert tables.add(each) == (problem_of(CACHE),)
    assert tables and [each.entry.line for each in tables.of(CACHE) if each.entry] == [
        6,
        3,
        4,
        5,
        91,
    ]
    assert tables.of(replace(CACHE, shapes=((8, 4), (4, 3)))) == ()
    assert tables.of(replace(CACHE, strides=())) == ()
    for each in entries[:-1]:
        assert tables.remove(each) == (problem_of(CACHE),)
    assert tables.of(CACHE) == (entries[-1],)
    tables.remove(entries[-1])
    assert not tables
    assert tables.add(replace(entry(1, 1.0), strides=())) == () and not tables


def test_no_more_entries_than_fit_are_beside_a_tuning() -> None:
    tables = Tables()
    for line in range(MOST_BESIDE + 3):
        tables.add(entry(line, float(line)))
    assert [each.choices[0].ms for each in tables.of(CACHE)] == [*map(float, range(MOST_BESIDE))]


def test_what_the_hash_of_a_choice_says_was_given_too() -> None:
    shapes, strides = ((1, 8, 16, 16), (8, 8, 3, 3)), ((2048, 256, 16, 1), (72, 9, 3, 1))
    layer = Tuning("convolution", shapes, strides, ("torch.float16",) * 2)
    padded, tables = replace(layer, options=(("padding", (1, 1)),)), Tables()
    tables.add(padded)
    for padding, beside in (("(1, 1)", (padded,)), ("(2, 2)", ())):
        choices = Choice("triton_conv"), Choice(hash=f"convolution-padding={padding}-c1")
        assert tables.of(replace(layer, choices=choices)) == beside
    assert tables.of(replace(padded, options=(("padding", (2, 2)),))) == ()
    assert tables.of(layer) == (padded,), "as far as is known"
