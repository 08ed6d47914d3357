"""The next step of a row: a line for each state, and no key that does nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.inductor_kernel import TRITON
from backend.model.tuning import Pin, PinState, Proof, TableEntry, Tuning
from backend.pins.state import PinStatus
from rocm_tui.render.next_step import Situation, next_step
from rocm_tui.session.model import Row
from tests.support.measured_rows import BEATEN, TIED, UNCLEAR, WON, row, told

KEYS = {"measure": "m", "pin": "p", "unpin": "u", "verify": "v", "tune": "t", "cancel": "x"}
KEYS["switch"] = "tab"


def at(*dead: str, chosen: Choice | None = None, **rest: object) -> Situation:
    """A screen on which all keys but the `dead` do something."""
    return Situation(lambda id: id not in dead, KEYS.__getitem__, chosen, **rest)  # type: ignore[arg-type]


def tuned(*choices: Choice, op: str = "mm", **rest: object) -> Row:
    shown = Tuning(op, ((8, 8), (8, 8)), choices=choices, **rest)  # type: ignore[arg-type]
    return Row("k", "abc", 1, shown)


ATEN, TRITON_MM = Choice("mm", "mm-aa", 1.0), Choice("triton_mm_0", "triton_mm-bb", 1.2)
FAILED = Choice("triton_mm_1", "triton_mm-cc", None, failed=True)
SINGLE = tuned(ATEN, TRITON_MM)
ONE = tuned(replace(ATEN, ms=None), num_choices=1)
ENTRY = tuned(ATEN, entry=TableEntry("tunableop", 7))
FASTEST = BEATEN.tuning.choices[2]


def pinned(state: PinState, proof: bool | None = None, stale: str = "") -> Row:
    pin = Pin("mm", "key", "highest", "mm-aa", "mm", "4" * 64, {})
    seen = None if proof is None else Proof(1.8e9, proof, "verify")
    return replace(SINGLE, pin=PinStatus(pin, state, proof=seen, stale=stale))


STATES = {
    "single timings": (SINGLE, "single timings: press m to measure"),
    "suspect": (replace(SINGLE, suspect="8 ms"), "suspect timings: press m to measure"),
    "fastest": (WON, "measured, fastest by 3.0 %: press p to pin"),
    "beaten": (BEATEN, "measured, #3 is 3.1 % faster: press p to pin"),
    "tied": (TIED, "measured, tied: a pin would gain nothing"),
    "unclear": (UNCLEAR, "measured, unclear: press m to measure again on a quieter machine"),
    "measured alone": (
        row(told("mm-aten", 1.0, "faster")),
        "measured alone: press m to measure it beside others",
    ),
    "the winner was not measured": (
        row(told("triton_mm-aa", 1.0, "tied"), told("triton_mm-bb", 1.001, "tied")),
        "single timings: press m to measure",
    ),
    "pinned": (pinned("active"), "pinned: press v to verify"),
    "unproven": (
        pinned("unproven"),
        "pinned, a compiled graph may call another kernel: press v to verify",
    ),
    "verified": (pinned("active", True), "pinned and verified: nothing left to do"),
    "stale": (
        pinned("active", True, "times changed"),
        "pinned, its verification is out of date: press v to verify again",
    ),
    "not called": (
        pinned("active", False),
        "pinned, but its kernel was not called: press v to verify again",
    ),
    "drifted": (pinned("drifted"), "pinned, overwritten by another process: it is applied again"),
    "orphaned": (pinned("orphaned"), "pinned choice is missing or fails: press u to unpin it"),
    "shadowed": (
        pinned("shadowed"),
        "pinned, but something else decides: the line of the pin names it",
    ),
    "pin not read": (
        replace(SINGLE, awaits_pin=True),
        "pinned: reading whether the pin holds",
    ),
    "one choice": (ONE, "one choice: nothing to tune"),
    "one choice on a CPU": (
        tuned(replace(ATEN, ms=None), num_choices=1, device="cpu"),
        "one choice: C++ needs constant weights: set TORCHINDUCTOR_FREEZING=1",
    ),
    "one timed choice": (tuned(ATEN), "one choice: nothing to tune"),
    "all failed": (tuned(FAILED), "failed choices, none with a time: press tab to see why"),
    "one is left": (tuned(ATEN, FAILED), "failed choices (1), one left: press tab to see why"),
    "running": (tuned(ATEN, state="running"), "tuning is running: its times appear here"),
    "cut": (
        tuned(ATEN, TRITON_MM, state="cut"),
        "cut off before its end: press t to tune it again",
    ),
    "no choice": (tuned(), "no times: press t to tune it again"),
    "kernel": (
        tuned(op=TRITON),
        "no times: rocm-tui run --measure-kernels -- CMD records them",
    ),
    "entry": (ENTRY, "entry of a table of TunableOp: press t to tune it with Inductor"),
}


@pytest.mark.parametrize("name", STATES)
def test_each_state_has_its_next_step(name: str) -> None:
    shown, step = STATES[name]
    assert next_step(shown, at()) == step
    assert len(step) < 77  # one line at 80 columns


@pytest.mark.parametrize("name", STATES)
def test_a_key_that_does_nothing_is_not_advised(name: str) -> None:
    assert "press" not in next_step(STATES[name][0], at(*KEYS))


@pytest.mark.parametrize("name", STATES)
def test_read_only_and_a_missing_torch_are_named_before_a_key(name: str) -> None:
    shown, step = STATES[name]
    locked = next_step(shown, at(locked="turn it off (ctrl+r)"))
    writes = any(f"press {key} " in step for key in "mpvtu")
    assert ("read-only: turn it off (ctrl+r) to " in locked) == writes
    no_torch = next_step(shown, at(no_torch=True))
    works = any(f"press {key} " in step for key in "mvt")
    assert ("no torch found: restart with --python PYTHON to " in no_torch) == works


def test_read_only_applies_no_drifted_pin_again() -> None:
    step = next_step(pinned("drifted"), at(locked="turn it off"))
    assert step.endswith("read-only does not apply it again")


def test_the_choice_under_the_cursor_is_what_the_key_pins() -> None:
    assert "press p" in next_step(BEATEN, at(chosen=FASTEST))
    other = next_step(BEATEN, at(chosen=BEATEN.tuning.choices[0]))
    assert other == "measured, #3 is 3.1 % faster: go to #3 to pin it"


def test_a_choice_with_a_single_timing_may_be_as_fast_as_the_measured_best() -> None:
    near = replace(BEATEN.tuning.choices[2], ms=2.0)
    choices = (*WON.tuning.choices[:2], near)
    shown = replace(WON, tuning=replace(WON.tuning, choices=choices))
    doubt = "measured, unclear whether a choice with a single timing is as fast: "
    assert next_step(shown, at()) == doubt + "press m to measure again"


def test_a_log_says_how_its_times_could_be_measured() -> None:
    assert next_step(SINGLE, at("measure")).endswith("not measurable: press t to tune it here")
    assert "rocm-tui run" in next_step(SINGLE, at("measure", "tune"))


def test_a_job_about_the_row_comes_first() -> None:
    step = next_step(WON, at(job="measure is running"))
    assert step == "measure is running: press x to cancel it"
