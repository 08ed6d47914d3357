"""Like is compared with like: the same choice, or the winners of the same offered set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.comparison import compare, may_be_slower, of_sessions, regressions, same_offer
from rocm_tui.compare.types import Comparison, Pair, TuningSet
from rocm_tui.ingest.records import Seen
from rocm_tui.json_output import builtins_of
from rocm_tui.render.compare import ComparisonJson, markdown, text
from rocm_tui.session.model import Model
from tests.support.compare_lab import log, measurement, part, tuning
from tests.support.report_lab import compare as run

ALONE = {"bmm": 1.0}
BOTH = {"bmm": 1.0, "triton_a": 0.51}


def only(comparison: Comparison) -> Pair:
    (pair,) = comparison.common
    return pair


def in_turn(*tunings: Mapping[str, float | None]) -> list[Tuning]:
    """Tunings of one problem, one after the other."""
    return [
        tuning(1, times, when=float(at), session=f"s{at}", source=f"/c/s{at}.jsonl")
        for at, times in enumerate(tunings)
    ]


def test_a_kernel_that_never_changed_is_not_slower_where_one_side_tuned_more_than_the_other() -> (
    None
):
    """A program tuned with ATen alone, then with Triton: their median is no kernel's time."""
    mixed, later = part(*in_turn(ALONE, BOTH)), part(*in_turn(BOTH))
    for a, b in ((mixed, later), (later, mixed)):
        pair = only(compare(a, b))
        assert pair.verdict == "tied" and pair.alike and pair.ratio == 1.0
        assert pair.a.choice.name == pair.b.choice.name == "triton_a"
        assert regressions(compare(a, b), 10) == ()
    swapped = part(*in_turn(BOTH, ALONE))  # the latest of B are what is alike
    pair = only(compare(swapped, later))
    assert (pair.a.choice.name, pair.verdict) == ("triton_a", "tied")


def test_sets_that_have_nothing_alike_are_unclear_and_it_is_said_why() -> None:
    found = compare(part(*in_turn(BOTH)), part(*in_turn(ALONE)))
    pair = only(found)
    assert (pair.verdict, pair.alike) == ("unclear", False)
    assert pair.reason == "other choices were put up: triton_a was not offered in B"
    for printed in (text(found), markdown(found)):
        assert pair.reason in printed and "1.96" not in printed and "+490" not in printed
        assert "nothing comparable" in printed
    (told,) = json.loads(json.dumps(builtins_of(ComparisonJson.of(found))))["common"]
    assert (told["verdict"], told["alike"], told["reason"]) == ("unclear", False, pair.reason)
    assert regressions(found, 10) == ()


def test_what_is_not_alike_is_in_no_sum_and_below_the_rest() -> None:
    a = part(tuning(1, BOTH), tuning(2, {"bmm": 2.0}))
    found = compare(a, part(tuning(1, {"bmm": 9.0}), tuning(2, {"bmm": 2.0})))
    assert [pair.alike for pair in found.common] == [True, False]
    assert (found.totals.a_ms, found.totals.b_ms) == (2.0, 2.0)
    assert "without 1 of 2 that are unclear" in text(found)


def test_the_winners_of_one_offered_set_are_compared() -> None:
    pair = only(compare(part(*in_turn(BOTH)), part(*in_turn({"bmm": 1.0, "triton_a": 1.3}))))
    assert (pair.verdict, pair.alike, pair.same_choice) == ("slower", True, False)
    failed = {"bmm": 1.0, "triton_a": None}  # it was put up, and cannot be used any more
    assert only(compare(part(*in_turn(BOTH)), part(*in_turn(failed)))).verdict == "slower"
    more = {"bmm": 1.0, "triton_a": 1.3, "triton_b": 2.0}  # both could have taken either
    assert only(compare(part(*in_turn(BOTH)), part(*in_turn(more)))).verdict == "slower"


def test_the_time_of_a_choice_is_the_median_of_all_tunings_that_timed_it() -> None:
    a = part(*in_turn({"bmm": 1.2, "triton_a": 1.0}, BOTH, {"bmm": 0.5, "triton_a": 0.7}))
    pair = only(compare(a, part(*in_turn({"bmm": 1.0, "triton_a": 3.0}))))
    assert (pair.a.choice.name, pair.a.ms, pair.a.basis) == ("bmm", 1.0, "median")
    assert pair.verdict == "tied"


def hashed(**hashes: str) -> Tuning:
    choices = tuple(Choice(name=n, hash=f"{n}-{h}", ms=1.0) for n, h in hashes.items())
    return Tuning("bmm", choices=choices)


@pytest.mark.parametrize(
    ("one", "two", "torch", "same"),
    [
        (hashed(bmm="a", triton="b"), hashed(bmm="a", triton="b"), False, True),
        (hashed(bmm="a", triton="b"), hashed(bmm="a", triton="c"), False, False),
        (hashed(bmm="a", triton_x="b"), hashed(bmm="a", triton_x="c"), True, True),
        (hashed(bmm="a", triton_x="b"), hashed(bmm="a"), True, False),
        (log(1, BOTH), log(1, BOTH), False, True),
        (log(1, BOTH), log(1, ALONE), False, False),
        (log(1, BOTH), tuning(1, {"bmm": 1.0, "triton_a": 2.0}), False, True),
        (replace(log(1, ALONE), num_choices=12), replace(log(1, BOTH), num_choices=12), 0, True),
        (replace(log(1, ALONE), num_choices=12), replace(log(1, BOTH), num_choices=13), 0, False),
        (replace(log(1, ALONE), num_choices=12), log(1, BOTH), False, False),
    ],
)
def test_the_same_offered_set_as_far_as_both_tell(
    one: Tuning, two: Tuning, torch: bool, same: bool
) -> None:
    assert same_offer(one, two, bool(torch)) == same


def test_a_kernel_has_another_hash_in_another_version_of_torch() -> None:
    def side(hash_: str, torch: str, ms: float) -> TuningSet:
        choices = (Choice("triton_bmm_1", hash_, ms), Choice("bmm", "bmm-0123456789abcdef", 4.0))
        one = replace(tuning(1, {}), choices=choices)
        return part(one, sessions=[Session("s", torch=torch)])

    then = side("triton_bmm-aa", "2.9", 1.0)
    assert only(compare(then, side("triton_bmm-bb", "2.10", 1.5))).verdict == "slower"
    assert not only(compare(then, side("triton_bmm-bb", "2.9", 1.5))).alike


def test_measurements_are_compared_like_with_like_too() -> None:
    a = part(*in_turn(BOTH), measured=[measurement(1, BOTH, when=n) for n in range(3)])
    b = part(
        *in_turn(ALONE), measured=[measurement(1, {"bmm": 1.0}, when=n + 9.0) for n in range(3)]
    )
    pair = only(compare(a, b))
    assert (pair.verdict, pair.alike) == ("unclear", False)
    again = part(
        *in_turn(ALONE, BOTH),
        measured=[measurement(1, {"bmm": 1.0, "triton_a": 0.7}, when=n + 9.0) for n in range(3)],
    )
    pair = only(compare(b, again))
    assert (pair.b.choice.name, pair.b.basis, pair.verdict) == ("bmm", "measured", "tied")


def test_one_and_the_same_tuning_gets_no_line() -> None:
    """As where a session took from the cache what an earlier one had tuned."""
    model = Model()
    first = tuning(1, BOTH, session="a")
    took = replace(first, session="b", when=2.0, selected_by="cache", choices=first.choices)
    took = replace(took, choices=tuple(replace(c, ms=None) for c in took.choices))
    model.apply([Seen("/a#1", first), Seen("/b#1", took)])
    found = compare(of_sessions("a", {"a"}, model), of_sessions("b", {"b"}, model))
    assert len(found.common) == 1 and found.common[0].same_tuning
    assert "B timed nothing: it took the one tuning from the cache" in text(found)
    assert "triton_a" not in text(found) and "2.0 s in B" not in text(found)
    assert "triton_a" not in markdown(found)
    assert builtins_of(ComparisonJson.of(found))["common"][0]["same_tuning"]
    anew = compare(part(first), part(replace(first, when=3.0)))
    assert not anew.common[0].same_tuning and "triton_a" in text(anew)


TABLE = """AUTOTUNE bmm(8x64x32, 8x32x96)
{rows}SingleProcess AUTOTUNE benchmarking takes 1.5 seconds and 0.5 seconds precompiling for {n} choices
"""  # noqa: E501
ATEN = TABLE.format(rows="  bmm 1.0000 ms 100.0%\n", n=1)
TRITON = TABLE.format(
    rows="  triton_bmm_1 0.5100 ms 100.0% BLOCK_M=16, num_warps=4\n  bmm 1.0000 ms 51.0%\n", n=2
)


def test_the_command_does_not_fail_for_what_never_changed(tmp_path: Path) -> None:
    then, now, aten = (tmp_path / f"{name}.log" for name in ("then", "now", "aten"))
    then.write_text(TRITON)
    now.write_text(ATEN + TRITON)
    aten.write_text(ATEN)
    for other, verdict in ((now, "tied"), (aten, "unclear")):
        words = [str(then), str(other), "--fail-on-regression", "10", "--json"]
        done = run(*words, cache=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["common"][0]["verdict"] == verdict


def test_a_total_does_not_contradict_the_verdicts_of_its_rows() -> None:
    """Calls that waited on a busy CPU took 300 times as long: unclear, so in no total."""
    calm = [log(1, {"cpp_a": 0.0351, "bmm": 0.1095}), log(2, {"cpp_a": 0.019, "bmm": 0.0584})]
    busy = [log(1, {"cpp_a": 10.993, "bmm": 15.998}), log(2, {"cpp_a": 9.22, "bmm": 16.003})]
    found = compare(part(*calm), part(*busy))
    assert {pair.verdict for pair in found.common} == {"unclear"}
    assert (found.totals.a_ms, found.totals.b_ms) == (0.0, 0.0)
    for printed in (text(found), markdown(found)):
        assert "every verdict is unclear: no total" in printed
        assert "nothing" not in printed and "(+" not in printed and "+10.9" not in printed
    assert may_be_slower(found, 10) == 2 and regressions(found, 10) == ()
    mixed = compare(
        part(calm[0], log(3, BOTH)), part(busy[0], log(3, {"bmm": 1.0, "triton_a": 2.0}))
    )
    assert mixed.totals.a_ms == 0.51 and mixed.totals.b_ms == 1.0
    assert "without 1 of 2 that are unclear" in text(mixed) and "gained" not in text(mixed)
