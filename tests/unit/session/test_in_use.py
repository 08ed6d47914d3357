"""After a pin a row is about the pinned choice: its name, its time, its gain, how it stands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Output, sort_choices
from backend.model.session import Session
from backend.model.tuning import Pin, PinState, TableEntry, Tuning
from backend.pins.state import PinStatus
from rocm_tui.ingest.formats import cache_file
from rocm_tui.ingest.records import Seen, SessionSeen
from rocm_tui.json_output import builtins_of
from rocm_tui.render.detail import tuning_facts, verdict
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells, tunings_text
from rocm_tui.session.attachments import cached_choice
from rocm_tui.session.in_use import (
    device_name,
    devices_by_kernel,
    gain,
    in_use,
    label,
    lead,
    output_change,
    pinned_choice,
    taken,
    time_ms,
    used_by_all,
)
from rocm_tui.session.model import Model, Row

TUNING = Tuning(
    op="mm", shapes=((64, 64), (64, 64)), dtypes=("torch.float32",) * 2, num_choices=3,
    choices=(
        Choice(name="triton_mm_1", hash="triton-aa", ms=1.0),
        Choice(name="cpp_2", hash="cpp-bb", ms=1.25),
        Choice(name="mm", hash="mm-cc", ms=2.0),
    ),
)  # fmt: skip


def pinned(hash_: str, state: PinState = "active") -> Row:
    pin = Pin("mm", "x", "highest", hash_, label=hash_, system_hash="s", timings={})
    return Row("k", "abc", 1, TUNING, PinStatus(pin, state, ""))


def test_the_row_of_a_pin_is_about_the_pinned_choice() -> None:
    row = pinned("cpp-bb")
    shown = {key: text for key, (text, _) in cells(row, 0.0).items()}
    assert (shown["winner"], shown["time"]) == ("cpp_2", "~1.250 ms")
    assert (shown["gain"], shown["lead"]) == ("~1.60×", "~behind")
    assert "cpp_2" in tunings_text([row]) and "triton_mm_1" not in tunings_text([row])
    assert builtins_of(TuningJson.of(row))["in_use"] == "cpp-bb"
    said = "".join(text for text, _ in verdict(TUNING, in_use(row)))
    assert said.startswith(" cpp_2 is in use, triton_mm_1 would gain ~1.25×")
    assert "~1.60× ATen" in said
    facts = dict(tuning_facts(row))
    assert facts["in use"] == "cpp_2, pinned, ~1.250 ms"
    assert facts["fastest"].startswith("triton_mm_1")


def test_a_pin_that_does_not_hold_changes_nothing() -> None:
    free = replace(pinned("cpp-bb"), pin=None)
    for row in (free, pinned("cpp-bb", "orphaned"), pinned("cpp-bb", "shadowed"), pinned("gone")):
        own = in_use(row)
        assert own is TUNING.choices[0] and builtins_of(TuningJson.of(row))["in_use"] == "triton-aa"
        assert cells(row, 0.0)["lead"][0] == "~25.0 %"
        assert "in use" not in dict(tuning_facts(row))


def test_a_log_without_times_or_hashes_names_nothing_in_use() -> None:
    choices = (Choice(name="triton_mm_1"), Choice(name="mm"))
    assert in_use(Row("k", "abc", 1, Tuning(op="mm", choices=choices, state="running"))) is None


def test_what_had_no_rival_is_named() -> None:
    only = Tuning(op="mm", choices=(Choice(name="mm", hash="mm-cc"),), selected_by="only")
    heading, line = tunings_text([Row("k", "abc", 1, only)]).splitlines()
    assert "in use" in heading and "done" not in line and " mm " in line


SYSTEM, ELSEWHERE = "a" * 64, "b" * 64


def tuned_twice(aten: float, cpp: float, system: str = SYSTEM) -> list[Row]:
    """A problem whose second tuning is what the cache of `system` has, with these times; newest
    first. Another name of the C++ kernel, whose number counts the choices of one process."""

    def tuning(session: str, number: int, aten: float, cpp: float) -> Tuning:
        choices = (
            Choice(name="bmm", hash="bmm-cc", ms=aten),
            Choice(name=f"cpp_{number}", hash="cpp-bb", ms=cpp),
        )
        return Tuning(
            op="bmm", inputs_key="x", precision="highest", choices=sort_choices([*choices]),
            session=session, when=float(number), selected_by="timing", num_choices=2,
            sources=(f"/s/{session}.jsonl",),
        )  # fmt: skip

    first, second = tuning("s1", 1, 1.0, 2.0), tuning("s2", 2, aten, cpp)
    cached = [replace(choice, name=None) for choice in second.choices]
    file = f"/c/cache/{system}"
    cache = replace(
        second, choices=tuple(cached), session=None, when=None, selected_by=None, sources=(file,)
    )
    model = Model()
    model.apply([SessionSeen(Session(name, system_hash=SYSTEM)) for name in ("s1", "s2")])
    model.apply([Seen("/s/s1.jsonl#1", first), Seen("/s/s2.jsonl#1", second)])
    model.apply([Seen(f"{file}#1", cache)])
    return model.rows()


def test_what_the_cache_has_now_is_in_use_also_of_an_earlier_tuning() -> None:
    """One key has one answer: programs take what the cache gives, whoever timed it before."""
    latest, earlier = tuned_twice(3.0, 1.5)
    assert (latest.id, latest.occurrence, earlier.occurrence) == (earlier.id, 2, 1)
    assert [getattr(in_use(row), "hash", None) for row in (latest, earlier)] == ["cpp-bb"] * 2
    shown = {key: text for key, (text, _) in cells(earlier, 0.0).items()}
    assert (shown["winner"], shown["time"], shown["lead"]) == ("cpp-bb", "~2.000 ms", "unclear")
    fact = dict(tuning_facts(earlier))["in use"]
    assert fact == "cpp_1, by the cache's present times, ~2.000 ms"


def test_a_choice_that_was_not_put_up_is_not_taken_from_the_cache() -> None:
    """The cache keeps the times of all programs; this one offers two choices."""
    tuning = tuned_twice(3.0, 1.5)[0].tuning
    foreign = Choice(hash="triton-of-another-program", ms=0.1)
    present = Choice(hash="bmm-cc", ms=1.0), Choice(hash="cpp-bb", ms=2.0)
    cache = replace(tuning, choices=(foreign, *present), session=None)
    assert cached_choice(tuning, [cache], {}) == "bmm-cc"
    assert cached_choice(tuning, [replace(cache, choices=present[::-1])], {}) == "bmm-cc"
    assert cached_choice(tuning, [replace(cache, choices=(foreign, present[0]))], {}) is None


def test_a_kernel_with_two_names_in_two_processes_has_one_in_the_table() -> None:
    same = tuned_twice(3.0, 1.5)
    assert [cells(row, 0.0)["winner"][0] for row in same] == ["cpp-bb"] * 2
    other = tuned_twice(1.1, 2.0)
    assert [cells(row, 0.0)["winner"][0] for row in other] == ["bmm"] * 2


@pytest.mark.parametrize("system", [SYSTEM, ELSEWHERE])
def test_only_the_cache_of_its_own_system_decides(system: str) -> None:
    *_, earlier = tuned_twice(3.0, 1.5, system)
    own = in_use(earlier)
    assert own is not None and own.hash == ("cpp-bb" if system == SYSTEM else "bmm-cc")


def test_a_number_that_no_pin_raised_is_behind_the_others() -> None:
    """Where pins.json was lost, programs still take the choice that it pinned."""
    file = f"/c/cache/{SYSTEM}"
    inputs = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"
    timings = {"mm-cc": 1.0 * 2**40, "cpp-bb": 2.0123456789}
    document = {"cache": {"mm": {inputs: {"highest": timings}}}}
    cached = cache_file.parse(json.dumps(document).encode(), file)
    (entry,) = [record.tuning for record in cached if isinstance(record, Seen)]
    choices = (
        Choice(name="mm", hash="mm-cc", ms=1.0),
        Choice(name="cpp", hash="cpp-bb", ms=2.0123456789),
    )
    session = {"session": "s1", "when": 1.0, "selected_by": "timing"}
    tuning = replace(entry, choices=choices, sources=("/s/s1.jsonl",), **session)
    for seen in (
        [],
        [SessionSeen(Session("s1", system_hash=SYSTEM)), Seen("/s/s1.jsonl#1", tuning)],
    ):
        model = Model()
        model.apply([*seen, *cached])
        (row,) = model.rows()
        assert getattr(in_use(row), "hash", None) == "cpp-bb"
        assert {choice.hash for choice in row.tuning.choices} == {"mm-cc", "cpp-bb"}


def own(*choices: Choice, **facts: Any) -> Row:
    return Row("k", "abc", 1, Tuning("mm", choices=choices, **facts))


def pinned_to(row: Row, hash_: str, state: PinState = "active", **variants: str) -> Row:
    pin = Pin("mm", "x", "highest", hash_, "p", "s", {}, variants=variants)
    return replace(row, pin=PinStatus(pin, state, ""))


AA, BB = Choice("triton_mm_1", "triton-aa", 1.0), Choice("mm", "mm-bb", 2.0)
CC = Choice("cpp_2", "cpp-cc", 3.0)
FOREIGN, FAILED = Choice("f", "f-dd", 0.5, offered=False), Choice("g", "g-ee", failed=True)


@pytest.mark.parametrize(
    ("row", "place", "used"),
    [
        (own(AA, BB), None, AA),
        (pinned_to(own(AA, BB), "mm-bb"), 2, BB),
        (pinned_to(own(AA, BB), "mm-bb", "unproven"), 2, BB),
        (pinned_to(own(AA, BB), "mm-bb", "drifted"), 2, BB),
        (pinned_to(own(AA, BB), "mm-bb", "shadowed"), 2, AA),
        (pinned_to(own(AA, BB), "zz", **{"1": "mm-bb"}), 2, BB),
        (pinned_to(own(AA, FOREIGN), "f-dd"), None, AA),
        (pinned_to(own(AA, FAILED), "g-ee"), 2, AA),
        (replace(own(AA, BB), taken="mm-bb"), None, BB),
        (replace(own(AA, FAILED), taken="g-ee"), None, AA),
        (replace(own(AA, BB), taken="zz"), None, AA),
        (replace(pinned_to(own(AA, BB, CC), "cpp-cc"), taken="mm-bb"), 3, CC),
        (replace(own(AA, BB), awaits_pin=True), None, None),
        (own(), None, None),
    ],
)
def test_what_later_programs_take(row: Row, place: int | None, used: Choice | None) -> None:
    found = pinned_choice(row)
    assert (None if found is None else found[0]) == place and in_use(row) is used
    ms, gains = (None, None) if used is None else (used.ms, 2.0 / (used.ms or 1.0))
    assert time_ms(row) == ms
    assert gain(row) == (gains if BB in row.tuning.choices and used else None)
    assert (lead(row) is None) is (used is None or len(row.tuning.choices) < 2 or FAILED in
                                   row.tuning.choices or FOREIGN in row.tuning.choices)  # fmt: skip


UNTIMED = Choice("a", "a-1"), Choice("b", "b-2")


@pytest.mark.parametrize(
    ("tuning", "used"),
    [
        (Tuning("g", choices=UNTIMED[:1], entry=TableEntry("miopen", 1)), UNTIMED[0]),
        (Tuning("g", choices=UNTIMED, entry=TableEntry("miopen", 1)), None),
        (Tuning("g", choices=(UNTIMED[0], AA), entry=TableEntry("aiter", 1)), UNTIMED[0]),
        (Tuning("triton", choices=(AA, BB), selected="mm-bb"), BB),
        (Tuning("triton", choices=(AA, FAILED), selected="g-ee"), AA),
        (Tuning("triton", choices=(AA, BB), selected="zz"), AA),
        (Tuning("triton", choices=(AA, BB)), AA),
        (Tuning("mm", choices=(AA, BB), selected="mm-bb"), AA),
    ],
)
def test_what_a_program_takes_that_knows_of_no_pin(tuning: Tuning, used: Choice | None) -> None:
    assert taken(tuning) is used


def on_devices(*rows: Row, device: str | None = "cuda") -> Row:
    its = tuple(
        replace(row, key=f"k#@{at}", tuning=replace(row.tuning, device=device, device_index=at))
        for at, row in enumerate(rows)
    )
    return replace(its[0], key="k", devices=its)


@pytest.mark.parametrize(
    ("rows", "name", "kernels"),
    [
        ((own(AA), own(AA)), "triton_mm_1", [[0, 1]]),
        ((own(AA), own(BB)), "differs (2)", [[0], [1]]),
        ((own(AA), own(BB), own(AA)), "differs (2)", [[0, 2], [1]]),
        ((own(AA), own(replace(AA, name="triton_mm_9"))), "triton-aa", [[0, 1]]),
        ((own(AA), own(replace(BB, identity="triton-aa"))), "triton-aa", [[0, 1]]),
        ((own(replace(AA, identity="i")), own(replace(BB, identity="i"))), "triton-aa", [[0, 1]]),
        ((own(replace(AA, description="A=1")), own(Choice("x", "triton-ff", 1.0, "A=1"))),
         "triton-aa", [[0, 1]]),
        ((own(replace(AA, description="A=1")), own(Choice("x", "triton-ff", 1.0, "A=2"))),
         "differs (2)", [[0], [1]]),
        ((own(AA), own(Choice("triton_mm_1", "triton-ff", 1.0))), "differs (2)", [[0], [1]]),
        ((own(Choice("mm", None, 1.0)), own(Choice("mm", None, 2.0))), "mm", [[0, 1]]),
        ((own(), own()), "", [[0, 1]]),
        ((own(), own(AA)), "differs (2)", [[0], [1]]),
    ],
)  # fmt: skip
def test_the_kernel_of_several_devices(
    rows: tuple[Row, ...], name: str, kernels: list[list[int]]
) -> None:
    row = on_devices(*rows)
    assert used_by_all(row) == name
    found = [[device.tuning.device_index for device in its] for _, its in devices_by_kernel(row)]
    assert found == kernels
    assert device_name(row) == ("cuda:0-2" if len(rows) == 3 else "cuda:0-1")
    assert device_name(row.devices[1]) == "cuda:1" and device_name(rows[0]) == ""
    assert device_name(on_devices(own(AA), device=None).devices[0]) == "cuda:0"
    some = replace(row.devices[1], tuning=replace(rows[1].tuning, device_index=None))
    assert device_name(replace(row, devices=(row.devices[0], some))) == "cuda:0"


def test_a_kernel_that_is_called_otherwise_elsewhere_is_shown_by_its_hash() -> None:
    row = own(AA)
    assert label(row, AA) == "triton_mm_1" and label(replace(row, renamed=True), AA) == "triton-aa"
    assert label(replace(row, renamed=True), Choice("mm")) == "mm"


STEADY, OTHER, ODD = (Output(group, 3, same) for group, same in (("A", 3), ("B", 3), ("A", 2)))


@pytest.mark.parametrize(
    ("now", "then", "bits"),
    [
        (STEADY, STEADY, "same"), (STEADY, OTHER, "other"), (STEADY, ODD, "other"),
        (ODD, STEADY, "other"), (STEADY, None, "unknown"), (None, STEADY, "unknown"),
    ],
)  # fmt: skip
def test_whether_another_choice_computes_the_same_bits(
    now: Output | None, then: Output | None, bits: str
) -> None:
    found: list[Any] = [
        MeasuredChoice(c.hash or "", 1.0, 0.9, 1.1, 0.0, 9, 1.0, 1.0, 1.0, "tied", None, output)
        for c, output in ((AA, now), (BB, then))
    ]
    measured = Measurement("mm", "x", "highest", 1.0, tuple(found))
    row = own(AA, BB, CC, measured=measured)
    change = output_change(row, BB)
    assert (change.bits, change.now, change.after) == (bits, AA, then)
    same = output_change(row, AA)
    assert (same.bits, same.after) == ("other" if now is ODD else "same", now)
    assert output_change(own(Choice("mm", None, 1.0)), Choice("mm", None, 1.0)).bits == "unknown"
    assert output_change(own(), BB).now is None
