"""Which views of single sources are one tuning, and what that takes from each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.model.choice import Choice
from backend.model.inductor_kernel import PRECISION
from backend.model.tuning import Seconds, TableEntry, Tuning
from rocm_tui.session.views import (
    TuningView,
    bucket_of,
    compatible,
    group,
    is_cache,
    is_reuse,
    is_selection,
    merge_views,
    of_one_device,
    problem_of,
    times_agree,
    with_times,
)

A, B = 0.51669999, 1.14756799
HASHES = Choice(hash="mm-a", ms=A), Choice(hash="triton_mm-b", ms=B)
NAMES = Choice("mm", ms=round(A, 4)), Choice("triton_mm_1", ms=round(B, 4))
SHAPES, STRIDES = ((8, 8), (8, 8)), ((8, 1), (8, 1))
CACHE = Tuning(
    "mm", SHAPES, STRIDES, ("torch.float32",) * 2, "cuda", "highest", "[]", choices=HASHES,
    sources=("/c/cache/a",),
)  # fmt: skip
LOG = Tuning("mm", SHAPES, choices=NAMES, num_choices=2, sources=("/l/a.log",))
PROGRAM = replace(CACHE, session="s", when=5.0, selected="mm-a", selected_by="timing")


def joined(*tunings: Tuning) -> list[list[str]]:
    """The sources of each tuning that these views are."""
    views = [
        TuningView(f"{n}", tuning.sources[0], tuning, n) for n, tuning in enumerate(tunings, 1)
    ]
    return [[view.source for view in views] for views in group(views)]


def test_kinds_of_views() -> None:
    taken = replace(CACHE, selected="mm-a")
    for view, kinds in (
        (CACHE, (False, False, True)),
        (taken, (True, True, False)),
        (replace(taken, precision=None), (False, False, False)),
        (LOG, (False, False, False)),
        (PROGRAM, (False, False, False)),
        (replace(PROGRAM, selected_by="cache"), (True, False, False)),
    ):
        assert (is_reuse(view), is_selection(view), is_cache(view)) == kinds


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"inputs_key": "[1]"}, False),
        ({"session": None}, False),  # two cache files
        ({"session": "t", "inputs_key": None}, True),
        ({"rank": 1}, False),
        ({"rank": 0}, True),
        ({"shapes": ((8, 8), (8, 9))}, False),
        ({"strides": ((8, 1), (1, 8))}, False),
        ({"strides": ()}, True),
        ({"dtypes": ("torch.int8",) * 2}, False),
        ({"device": "cpu"}, False),
        ({"device_index": 1}, False),
        ({"device_index": 0}, True),
    ],
)
def test_nothing_that_two_views_have_may_differ(change: dict[str, Any], fits: bool) -> None:
    view = replace(CACHE, rank=0, device_index=0)
    other = replace(view, session="s", rank=None, device_index=None)
    assert compatible(view, replace(other, **change)) is fits
    assert compatible(replace(other, **change), view) is fits


def test_two_programs_are_never_one_tuning() -> None:
    assert not compatible(PROGRAM, replace(PROGRAM, session="t"))
    assert compatible(PROGRAM, replace(LOG, rank=3))


@pytest.mark.parametrize(
    ("choices", "agree"),
    [
        (HASHES, True),
        ((replace(HASHES[0], ms=A + 1e-7), HASHES[1]), False),
        (NAMES, True),
        ((Choice("x", ms=A), Choice("mm", ms=B)), True),
        ((Choice("x", ms=A + 1e-7),), False),
        ((Choice("x", ms=7.0),), True),
        ((replace(HASHES[0], ms=None), replace(HASHES[1], ms=None)), True),
        ((replace(HASHES[0], ms=B), replace(HASHES[1], ms=A)), False),  # of other kernels
    ],
)
def test_times_of_one_tuning_are_the_same_doubles(choices: tuple[Choice, ...], agree: bool) -> None:
    other = replace(CACHE, choices=choices)
    assert times_agree(CACHE, other) is times_agree(other, CACHE) is agree


def test_the_names_of_two_logs_have_the_same_times() -> None:
    swapped = (replace(NAMES[0], ms=NAMES[1].ms), replace(NAMES[1], ms=NAMES[0].ms))
    assert times_agree(LOG, LOG) and not times_agree(LOG, replace(LOG, choices=swapped))


def test_tables_of_two_runs_differ_in_their_durations() -> None:
    """Few times, rounded to four places, are often the same; a trace has durations of its own."""
    first = replace(LOG, seconds=Seconds(0.2563, 0.1121))
    second = replace(LOG, sources=("/l/b.log",))
    trace = replace(second, choices=(Choice("mm", ms=A),))
    for other, fits in (
        (replace(second, seconds=first.seconds), True),
        (replace(second, seconds=Seconds(0.7712, 0.1121)), False),
        (replace(second, seconds=Seconds(0.2563, 3.9034)), False),
        (second, True),
        (replace(trace, seconds=Seconds(0.25637, 0.11219)), True),
        (replace(CACHE, seconds=Seconds(0.7)), True),
    ):
        assert compatible(first, other) is compatible(other, first) is fits


def test_a_source_has_a_tuning_once_whatever_another_has() -> None:
    copy = replace(LOG, sources=("/l/copy.log",))
    assert joined(LOG, LOG, copy) == [["/l/a.log", "/l/copy.log"], ["/l/a.log"]]
    assert joined(CACHE, LOG, LOG) == [["/c/cache/a", "/l/a.log"], ["/l/a.log"]]


def test_each_view_adds_what_it_has() -> None:
    program = replace(
        PROGRAM, threads=8, rank=3, decided=1, apart="it timed another set", device_index=2,
        sources=("/s/a.jsonl",),
    )  # fmt: skip
    log = replace(
        LOG, seconds=Seconds(3.0, 2.0, 1.0), process="worker-1", call="x.mm", kernel="k",
        code="/c/k.py", options=(("padding", 1),),
        choices=(*NAMES, Choice("triton_mm_9", ms=7.0, description="BLOCK=1")),
    )  # fmt: skip
    for views in ((program, CACHE, log), (CACHE, log, program)):
        found = merge_views(views)
        assert (found.op, found.key, found.strides) == ("mm", CACHE.key, STRIDES)
        assert (found.dtypes, found.device, found.shapes) == (CACHE.dtypes, "cuda", SHAPES)
        assert (found.session, found.when, found.threads, found.rank) == ("s", 5.0, 8, 3)
        assert (found.selected, found.selected_by) == ("mm-a", "timing")
        assert (found.decided, found.apart) == (1, "it timed another set")
        assert (found.device_index, found.seconds) == (2, Seconds(3.0, 2.0, 1.0))
        assert (found.process, found.call, found.kernel) == ("worker-1", "x.mm", "k")
        assert (found.code, found.options) == ("/c/k.py", (("padding", 1),))
        assert set(found.sources) == {"/c/cache/a", "/l/a.log", "/s/a.jsonl"}
        assert [(c.name, c.hash, c.ms) for c in found.choices] == [
            ("mm", "mm-a", A),
            ("triton_mm_1", "triton_mm-b", B),
            ("triton_mm_9", None, 7.0),
        ]
        assert all(choice.offered for choice in found.choices)
        assert found.num_choices == 2, "as many as the program offered"


def test_without_a_program_the_largest_number_of_choices_counts() -> None:
    assert merge_views([LOG, replace(LOG, num_choices=34)]).num_choices == 34
    assert merge_views([CACHE, replace(LOG, num_choices=None)]).num_choices is None


def test_what_no_view_has_stays_unknown() -> None:
    found = merge_views([LOG, replace(LOG, sources=("/l/b.log",))])
    assert (found.strides, found.dtypes, found.options) == ((), (), ())
    assert (found.call, found.kernel, found.code, found.process) == ("", "", "", "")
    assert (found.key, found.session, found.when, found.selected) == (None, None, None, None)


def test_what_the_program_did_not_offer_is_no_rival() -> None:
    more = (*HASHES, Choice(hash="triton_mm-c", ms=0.1))
    found = merge_views([PROGRAM, replace(CACHE, choices=more)])
    assert {c.hash: c.offered for c in found.choices} == {
        "mm-a": True,
        "triton_mm-b": True,
        "triton_mm-c": False,
    }


def test_the_latest_use_says_which_choice_was_taken() -> None:
    earlier = replace(PROGRAM, selected="triton_mm-b", selected_by="cache", when=2.0)
    later = replace(earlier, selected_by="pin", when=9.0)
    assert merge_views([PROGRAM, earlier]).selected == "mm-a"
    found = merge_views([PROGRAM, later])
    assert (found.selected, found.selected_by, found.when) == ("triton_mm-b", "pin", 5.0)


def test_views_that_differ_in_how_it_was_called_say_neither() -> None:
    views = [replace(LOG, call=call, options=((call, 1),)) for call in ("x", "y")]
    found = merge_views(views)
    assert (found.call, found.options) == ("", ())


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (Choice("a", ms=None), Choice("b", ms=1.0), 2),
        (Choice("a", ms=1.0), Choice("b", ms=None), 2),
        (Choice("a", ms=1.0), Choice("b", ms=1.0), 1),
        (Choice("a", ms=1.00001), Choice("b", ms=1.0), 1),
        (Choice("a", ms=1.0001), Choice("b", ms=1.0), 2),
        (Choice("a", ms=2.0), Choice("a", ms=1.0), 1),
        (Choice(hash="x-1", ms=1.0), Choice(hash="x-2", ms=1.0), 2),
        (Choice(hash="x-1", ms=1.0), Choice("x", ms=2.0), 1),
        (Choice("x", ms=2.0), Choice(hash="x-1", ms=1.0), 1),
        (Choice(hash="xy-1", ms=1.0), Choice("x", ms=2.0), 2),
        (Choice("x", "x-1", 1.0), Choice("x", "x-2", 1.0), 2),
        (Choice("a", ms=1.0, shared=True), Choice("b", ms=1.0), 2),
        (Choice("a", ms=1.0), Choice("b", ms=1.0, shared=True), 2),
        (Choice("a", ms=1.0, shared=True), Choice("a", ms=3.0), 1),
    ],
)
def test_one_choice_in_two_views(first: Choice, second: Choice, count: int) -> None:
    views = [replace(LOG, choices=(choice,)) for choice in (first, second)]
    assert len(merge_views(views).choices) == count


def test_a_name_decides_between_choices_of_one_time() -> None:
    twins = Choice("a", ms=1.0), Choice("b", ms=1.0)
    seen = Choice("b", ms=1.0, description="BLOCK=1")
    found = merge_views([replace(LOG, choices=twins), replace(LOG, choices=(seen,))])
    assert [(c.name, c.description) for c in found.choices] == [("a", ""), ("b", "BLOCK=1")]
    both = replace(LOG, choices=(replace(seen, name="c"), replace(seen, name="d")))
    assert len(merge_views([replace(LOG, choices=twins[:1]), both]).choices) == 2


def test_the_time_with_more_digits_and_of_its_own_device_counts() -> None:
    def time(first: Choice, second: Choice) -> tuple[float | None, bool]:
        views = [replace(LOG, choices=(choice,)) for choice in (first, second)]
        (choice,) = merge_views(views).choices
        return choice.ms, choice.shared

    full, rounded, none = Choice("a", ms=A), Choice("a", ms=round(A, 4)), Choice("a")
    for pair in ((full, rounded), (rounded, full), (full, none), (none, full)):
        assert time(*pair) == (A, False)
    assert time(none, none) == (None, False)
    shared = Choice("a", ms=3.0, shared=True)
    assert time(shared, rounded) == time(rounded, shared) == (round(A, 4), False)
    assert time(shared, none) == (3.0, True)


def test_a_pin_s_times_replace_those_that_it_raised() -> None:
    raised = Choice(hash="a", failed=True, reason="raised"), Choice(hash="b", ms=5.0)
    unknown = Choice("c", failed=True)
    tuning = replace(CACHE, choices=(*raised, unknown))
    found = {c.hash: c for c in with_times(tuning, {"a": 1.0, "b": 2.0, "x": 3.0})}
    assert found["a"] == Choice(hash="a", ms=1.0) and found["b"].ms == 5.0
    assert found[None] == unknown
    assert with_times(tuning, {"a": float("inf")})[-1].failed
    assert [c.hash for c in with_times(tuning, {"a": 9.0})] == ["b", "a", None]


def test_only_kernels_that_differ_by_device_are_of_one_device() -> None:
    assert [c.hash for c in of_one_device(CACHE).choices] == ["triton_mm-b"]
    for choices in (HASHES[:1], HASHES[1:]):
        alone = replace(CACHE, choices=choices)
        assert of_one_device(alone) is alone
    bare = replace(CACHE, choices=(Choice(description="BLOCK_M=1"), Choice(ms=1.0)))
    assert len(of_one_device(bare).choices) == 1


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (LOG, CACHE, True),
        (LOG, replace(LOG, op="_mm"), True),
        (LOG, replace(LOG, op="bmm"), False),
        (LOG, Tuning("mm", dims=(8, 8, 8)), True),
        (LOG, Tuning("mm", dims=(8, 8, 9)), False),
        (LOG, replace(LOG, shapes=((8, 8), (8, 9))), False),
        (LOG, replace(LOG, shapes=((9, 8), (8, 8))), False),
        (replace(LOG, shapes=((8,), (8, 8), (8, 8))), LOG, True),  # the factors come last
        (replace(LOG, shapes=((8,),)), replace(LOG, shapes=((9,),)), False),
        (replace(LOG, shapes=((8,), (8,))), replace(LOG, shapes=((9,), (8,))), False),
        (replace(LOG, shapes=((8, 8), ())), replace(LOG, shapes=((9, 8), ())), False),
    ],
)
def test_views_of_one_problem(left: Tuning, right: Tuning, same: bool) -> None:
    assert (bucket_of(left) == bucket_of(right)) is same


def test_an_entry_of_a_table_is_a_problem_of_its_tuner() -> None:
    entries = [
        replace(LOG, inputs_key=key, entry=TableEntry(tuner, 1))
        for tuner, key in (("aiter", "M=1"), ("aiter", "M=2"), ("miopen", "M=1"))
    ]
    assert len({problem_of(tuning) for tuning in (*entries, LOG)}) == 4


def test_a_kernel_of_triton_is_one_problem_on_all_machines() -> None:
    kernel = Tuning("triton", inputs_key='k[8, "torch.float16"]:ABCDEFGH', precision=PRECISION)
    other = replace(kernel, inputs_key='k[8, "torch.float16"]:HGFEDCBA')
    assert problem_of(kernel) == problem_of(other) and bucket_of(kernel) != bucket_of(other)
