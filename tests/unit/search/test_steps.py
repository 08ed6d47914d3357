"""What a search tries, in which order, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from statistics import NormalDist

import pytest

from backend.model.graph import RETUNED, Arm, CompileOption, Trial
from rocm_tui.search.steps import (
    CONFIRMING,
    LOOKS,
    MOST_FAILURES,
    RESERVE,
    SCREENING,
    best_arm,
    finished,
    next_step,
    search_status,
)
from rocm_tui.search.types import MeasureStep, Search, TrialStep, Try
from tests.support.search_lab import (
    Bench,
    additive,
    advance,
    options_subject,
    run,
    search_of,
    subject,
)

LONG = 600.0


def hashes(arm: Arm) -> set[str]:
    return {change.identity for change in arm}


def trial_step(search: Search) -> TrialStep:
    step = next_step(search, LONG, LONG)
    assert isinstance(step, TrialStep)
    return step


def kinds(search: Search) -> list[str]:
    return [attempt.kind for attempt in search.tries]


def test_the_heaviest_tuning_comes_first_with_all_its_candidates() -> None:
    step = trial_step(search_of())
    assert (step.kind, step.turn, step.subject) == ("screen", 1, 0)
    assert [hashes(arm) for arm in step.arms] == [
        set(),
        {"triton-0a"},
        {"triton-0b"},
        {"triton-0c"},
    ]
    assert not step.fresh


def test_what_is_kept_is_the_next_baseline() -> None:
    bench = Bench(additive({"triton-0b": -0.05}), noise=0.001)
    step = trial_step(advance(search_of(), bench))
    assert step.subject == 1
    assert hashes(step.arms[0]) == {"triton-0b"}
    assert all("triton-0b" in hashes(arm) for arm in step.arms)


def test_what_was_not_measured_alone_is_measured_first() -> None:
    search = replace(search_of(2), subjects=(subject(0), subject(1, ready=False)))
    bench = Bench(additive({}))
    search = advance(search, bench)
    step = next_step(search, LONG, LONG)
    assert isinstance(step, MeasureStep)
    assert step.subject == 1
    assert trial_step(advance(search, bench)).subject == 1


def test_what_cannot_be_tried_is_left_out() -> None:
    subjects = (replace(subject(0), unfit="no time"), subject(1, 0), subject(2))
    assert trial_step(replace(search_of(), subjects=subjects)).subject == 2


def test_without_anything_faster_there_is_one_sweep_and_no_confirmation() -> None:
    search = run(search_of(), Bench(additive({"triton-1a": 0.05}), noise=0.001))
    assert kinds(search) == ["screen"] * 4
    assert finished(search)
    assert search_status(search).sure is None


def test_a_choice_whose_outputs_differ_is_not_kept() -> None:
    bench = Bench(additive({"triton-0a": -0.3}), noise=0.001, wrong=frozenset({"triton-0a"}))
    assert search_status(run(search_of(1), bench)).kept == ()


def test_the_end_is_pruned_and_confirmed_in_new_processes() -> None:
    effects = {"triton-0a": -0.05, "triton-1b": -0.05}
    search = search_of(2)
    bench = Bench(additive(effects), noise=0.001)
    while trial_step(search).kind == "screen":
        search = advance(search, bench)
    prune = trial_step(search)
    assert [hashes(arm) for arm in prune.arms] == [set(effects), {"triton-1b"}, {"triton-0a"}]
    search = advance(search, bench)
    confirm = trial_step(search)
    assert (confirm.kind, confirm.fresh) == ("confirm", True)
    assert [hashes(arm) for arm in confirm.arms] == [set(), set(effects)]
    search = run(search, bench)
    assert kinds(search)[-LOOKS[0] :] == ["confirm"] * LOOKS[0]
    gain = search_status(search).sure
    assert gain is not None
    assert hashes(gain.arm) == set(effects)
    assert 0.88 < gain.low < gain.ratio < gain.high < 0.93


def test_an_unclear_confirmation_goes_on_to_its_second_look() -> None:
    bench = Bench(additive({"triton-0a": -0.006}), "4", noise=0.0012)
    search = run(search_of(1, 1), bench)
    first = advance(search_of(1, 1), Bench(additive({"triton-0a": -0.05}), noise=0.001))
    noisy = run(first, Bench(additive({}), noise=0.02))
    assert kinds(noisy).count("confirm") == LOOKS[1]
    assert search_status(noisy).sure is None
    assert finished(noisy)
    assert finished(search)


def test_what_is_faster_only_beside_another_is_found_in_the_second_sweep() -> None:
    def effect(arm: Arm) -> float:
        together = {"triton-0a", "triton-1a"} <= hashes(arm)
        return (-0.03 if "triton-1a" in hashes(arm) else 0.0) + (-0.03 if together else 0.0)

    search = run(search_of(2, 2), Bench(effect, noise=0.001))
    gain = search_status(search).sure
    assert gain is not None
    assert hashes(gain.arm) == {"triton-0a", "triton-1a"}
    assert max(attempt.turn for attempt in search.tries if attempt.kind == "screen") == 2


def test_a_second_sweep_leaves_out_what_was_clearly_slower() -> None:
    bench = Bench(additive({"triton-0a": 0.1, "triton-1a": -0.05}), noise=0.001)
    search = advance(advance(search_of(2), bench), bench)
    step = trial_step(search)
    assert (step.turn, step.subject) == (2, 0)
    assert all("triton-0a" not in hashes(arm) for arm in step.arms)


def test_what_another_one_makes_idle_is_dropped() -> None:
    def effect(arm: Arm) -> float:
        return -0.05 if hashes(arm) & {"triton-0a", "triton-1a"} else 0.0

    def lucky(arm: Arm) -> float:
        return effect(arm) - (0.03 if "triton-1a" in hashes(arm) else 0.0)

    search = advance(search_of(2, 1), Bench(effect, noise=0.001))
    search = advance(search, Bench(lucky, noise=0.001))
    assert len(search_status(search).kept) == 2
    search = run(search, Bench(effect, noise=0.001))
    gain = search_status(search).sure
    assert gain is not None
    assert len(gain.arm) == 1


def test_a_broken_trial_is_made_again_choice_by_choice() -> None:
    bench = Bench(additive({"triton-0c": -0.05}), noise=0.001, broken=frozenset({"triton-0a"}))
    search = run(search_of(2), bench)
    sizes = [len(attempt.arms) - 1 for attempt in search.tries if attempt.kind == "screen"]
    assert sizes[:4] == [3, 1, 1, 1]
    assert [bool(attempt.failed) for attempt in search.tries[:4]] == [True, True, False, False]
    errors = [attempt.error for attempt in search.tries[1:4]]
    assert sum(errors) < search.tries[0].error
    gain = search_status(search).sure
    assert gain is not None
    assert hashes(gain.arm) == {"triton-0c"}


def test_if_everything_breaks_it_stops_and_says_why() -> None:
    every = frozenset(f"triton-{n}{letter}" for n in range(4) for letter in "abc")
    search = run(search_of(), Bench(additive({}), broken=every))
    assert len(search.tries) == 3
    assert "SIGSEGV" in search_status(search).stopped


def test_time_for_the_end_is_kept_back() -> None:
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    search = advance(search_of(), bench)
    step = next_step(search, RESERVE * LONG - 1, LONG)
    assert isinstance(step, TrialStep)
    assert step.kind == "confirm"
    assert next_step(search, 0, LONG) is None
    assert next_step(search_of(), RESERVE * LONG - 1, LONG) is None


def test_where_compiling_takes_long_more_time_is_kept_back() -> None:
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    search = advance(search_of(), bench)
    slow = replace(search, tries=(replace(search.tries[0], seconds=120.0),))
    for tried, kind in ((search, "screen"), (slow, "confirm")):
        step = next_step(tried, 0.5 * LONG, LONG)
        assert isinstance(step, TrialStep)
        assert step.kind == kind


def test_more_budget_goes_on_where_it_ended_and_confirms_again() -> None:
    bench = Bench(additive({"triton-0a": -0.05, "triton-3a": -0.05}), noise=0.001)
    search = advance(search_of(), bench)
    while (after := advance(search, bench, left=RESERVE * LONG - 1)) is not search:
        search = after
    first = search_status(search).sure
    assert first is not None
    assert hashes(first.arm) == {"triton-0a"}
    assert not finished(search)
    search = run(search, bench)
    second = search_status(search).sure
    assert second is not None
    assert hashes(second.arm) == {"triton-0a", "triton-3a"}
    turns = [attempt.turn for attempt in search.tries if attempt.kind == "confirm"]
    assert turns == [1] * LOOKS[0] + [2] * LOOKS[0]
    errors = {attempt.turn: attempt.error for attempt in search.tries if attempt.kind == "confirm"}
    assert errors[2] == pytest.approx(errors[1] / 2)


def test_a_confirmation_that_was_cut_off_goes_on() -> None:
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    search = advance(search_of(1), bench)
    for _ in range(3):
        search = advance(search, bench)
    assert not search_status(search).settled
    search = run(search, bench)
    assert kinds(search).count("confirm") == LOOKS[0]


def test_a_confirmation_whose_outputs_differ_proposes_nothing_and_ends() -> None:
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    search = advance(search_of(1), bench)
    worse = replace(bench, wrong=frozenset({"triton-0a"}))
    search = run(search, worse)
    assert kinds(search).count("confirm") == 1
    assert search_status(search).sure is None


MEMORY = "out of memory"


def test_a_process_that_times_nothing_is_no_result_of_a_confirmation() -> None:
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    begun = advance(search_of(1), bench)
    search = advance(begun, replace(bench, failing={"triton-0a": MEMORY}))
    assert search.tries[-1].trial is not None and not search_status(search).settled
    assert trial_step(search).processes == LOOKS[0]
    search = run(search, bench)
    assert kinds(search).count("confirm") == 1 + LOOKS[0]
    assert search_status(search).sure is not None
    failing = run(begun, replace(bench, failing={"triton-0a": MEMORY}))
    assert kinds(failing).count("confirm") == MOST_FAILURES
    assert search_status(failing).stopped == MEMORY
    assert not search_status(failing).settled


def test_one_process_with_a_wrong_result_ends_a_confirmation() -> None:
    """A worker says so of outputs that it cannot even compare."""
    bench = Bench(additive({"triton-0a": -0.05}), noise=0.001)
    search = advance(advance(search_of(1), bench), bench)
    odd = "wrong result: output 0 is not finite at other places"
    search = run(advance(search, replace(bench, failing={"triton-0a": odd})), bench)
    assert kinds(search).count("confirm") == 2
    now = search_status(search)
    assert (now.settled, now.gain, now.sure, now.stopped) == (True, None, None, "")


def test_pruning_that_failed_is_made_again() -> None:
    bench = Bench(additive({"triton-0a": -0.05, "triton-1a": -0.05}), noise=0.001)
    search = advance(advance(search_of(2, 1), bench), bench)
    assert trial_step(search).kind == "prune"
    failed = advance(search, replace(bench, broken=frozenset({"triton-0a"})))
    assert failed.tries[-1].failed and not search_status(failed).pruned
    assert trial_step(failed).kind == "prune"
    assert search_status(advance(failed, bench)).pruned


@pytest.mark.parametrize("seed", range(20))
def test_any_prefix_of_tries_goes_on_to_the_same_end(seed: int) -> None:
    """What a killed search has left is all that there is to know."""
    effects = {"triton-0a": -0.02, "triton-1c": -0.01, "triton-2b": 0.01}
    bench = Bench(additive(effects), f"prefix {seed}")
    search = run(search_of(), bench)
    cut = replace(search, tries=search.tries[: seed % len(search.tries)])
    step = next_step(cut, LONG, LONG)
    assert isinstance(step, TrialStep)
    made = search.tries[len(cut.tries)]
    assert (step.kind, step.turn, step.subject, step.arms, step.error) == (
        made.kind,
        made.turn,
        made.subject,
        made.arms,
        made.error,
    )


COMBO = CompileOption("combo_kernels", "True")
POINTWISE = CompileOption("max_autotune_pointwise", "True")
UNFUSED = CompileOption("epilogue_fusion", "False")


def test_options_that_help_are_kept_together_and_with_choices() -> None:
    """Each is tried alone, the best is kept, and the others are tried again beside it."""
    effects = {COMBO.label: -0.04, POINTWISE.label: -0.06, UNFUSED.label: 0.2, "triton-1b": -0.05}
    subjects = (options_subject(COMBO, POINTWISE, UNFUSED), subject(1))
    search = replace(search_of(0), subjects=subjects)
    assert [hashes(arm) for arm in trial_step(search).arms] == [
        set(),
        {COMBO.label},
        {POINTWISE.label},
        {UNFUSED.label},
    ]
    search = run(search, Bench(additive(effects), noise=0.001))
    sure = search_status(search).sure
    assert sure is not None and hashes(sure.arm) == {COMBO.label, POINTWISE.label, "triton-1b"}
    assert sure.arm[:2].count(POINTWISE) == 1 and COMBO in sure.arm


def test_options_are_tried_beside_the_first_even_if_no_choice_is_kept() -> None:
    effects = {COMBO.label: -0.04, POINTWISE.label: -0.06}
    search = replace(search_of(0), subjects=(options_subject(COMBO, POINTWISE, UNFUSED),))
    sure = search_status(run(search, Bench(additive(effects), noise=0.001))).sure
    assert sure is not None and hashes(sure.arm) == {COMBO.label, POINTWISE.label}


def test_an_option_that_is_no_faster_than_a_new_tuning_is_not_kept() -> None:
    arms = ((), (COMBO,), (UNFUSED,))
    step = TrialStep("screen", 1, 0, arms, 0.01, 10.0)
    bench = Bench(additive({COMBO.label: -0.3, UNFUSED.label: -0.1}), noise=0.001)
    first, combo, fusion = bench.trial(step).arms
    fusion, combo = replace(fusion, retuned=True), replace(combo, retuned=True)

    def best(tuned_again: float) -> Arm | None:
        control = replace(fusion, swaps=(RETUNED,), retuned=False)
        low, high = tuned_again - 0.01, tuned_again + 0.01
        control = replace(control, ratio=tuned_again, ratio_low=low, ratio_high=high)
        trial = Trial("b3f21aa", 0.0, (first, combo, fusion, control))
        return best_arm(Try("screen", 1, arms, 0.01, trial=trial))

    assert best(0.9) == (COMBO,)
    assert best(0.74) is None
    assert best(1.2) == (COMBO,)


def test_an_option_whose_outputs_differ_or_that_breaks_the_worker_is_not_kept() -> None:
    effects = {COMBO.label: -0.3, POINTWISE.label: -0.3}
    search = replace(search_of(0), subjects=(options_subject(COMBO, POINTWISE, UNFUSED),))
    bench = Bench(additive(effects), noise=0.001, wrong={COMBO.label}, broken={POINTWISE.label})
    assert search_status(run(search, bench)).kept == ()


SEARCHES = 300


def most_of(searches: int, error: float) -> int:
    """The number of errors that so many searches exceed with a probability of 0.1 %."""
    return int(NormalDist(searches * error, sqrt(searches * error * (1 - error))).inv_cdf(0.999))


def test_equal_options_are_kept_and_confirmed_no_more_often_than_the_stated_error() -> None:
    """Both guards err, but each within its part of the error; a proposal must pass both."""
    options = tuple(CompileOption(f"option_{number}", "True") for number in range(20))
    begun = replace(search_of(0), subjects=(options_subject(*options),))
    kept_one = advance(begun, Bench(additive({options[0].label: -0.1}), noise=0.001))
    assert search_status(kept_one).kept == (options[0],)
    kept, confirmed, proposed = 0, 0, 0
    for number in range(SEARCHES):
        bench = Bench(additive({}), f"options {number}", noise=0.02)
        search = run(begun, bench)
        kept += bool(search_status(replace(search, tries=search.tries[:1])).kept)
        proposed += search_status(search).sure is not None
        confirmed += search_status(run(kept_one, bench)).sure is not None
    # The first sweep and the first confirmation get half, of which a half is for `slower`.
    assert 0 < kept <= most_of(SEARCHES, SCREENING / 4)
    assert confirmed <= most_of(SEARCHES, CONFIRMING / 4)
    assert proposed == 0
