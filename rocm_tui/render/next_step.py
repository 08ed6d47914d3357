"""The next step for a tuning, in one line with its key, from what was seen of the tuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.model.choice import Choice, Measurement
from backend.model.inductor_kernel import is_kernel
from backend.model.tuning import Tuning
from backend.pins.state import PinStatus
from rocm_tui.harmless import plain
from rocm_tui.render.tuned_tables import tuner_name
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Situation:
    """What the screen allows on a row.

    `can` reports whether the key of this id does something on the row, `key` how that key is
    written, both by the table of keys. `chosen` is the choice that `pin` would pin. `job` is a job
    about the row that is not over. `locked` says how to leave read-only, empty where it is off.
    """

    can: Callable[[str], bool]
    key: Callable[[str], str]
    chosen: Choice | None = None
    job: str = ""
    locked: str = ""
    no_torch: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """The state of a row, and `do`: what `key`, the id of a key, does about it. Without a key `do`
    is advice that no key follows."""

    state: str
    do: str = ""
    key: str = ""


_WITH_TORCH = ("measure", "tune", "verify")
"""Keys that start a worker."""
_WRITES = (*_WITH_TORCH, "pin", "unpin")
"""Keys that read-only forbids."""


def next_step(row: Row, at: Situation) -> str:
    """Return the state of a row and what to do next: `single timings: press m to measure`.

    It names a key only where that key does something on this row.
    """
    step = _step(row, at)
    if not step.key:
        return f"{step.state}: {step.do}" if step.do else step.state
    verb = step.do or step.key
    if step.key in _WRITES and at.locked:
        return f"{step.state}, read-only: {at.locked} to {verb}"
    if step.key in _WITH_TORCH and at.no_torch:
        return f"{step.state}, no torch found: restart with --python PYTHON to {verb}"
    return f"{step.state}: press {at.key(step.key)} to {verb}" if at.can(step.key) else step.state


def next_key(row: Row, at: Situation) -> str:
    """Return the id of the key of the next step; empty where the advice names no key."""
    return _step(row, at).key


def _step(row: Row, at: Situation) -> _Step:
    tuning = row.tuning
    if at.job:
        return _Step(at.job, "cancel it", "cancel")
    if tuning.state == "running":
        return _Step("tuning is running", "its times appear here")
    if row.awaits_pin:
        return _Step("pinned", "reading whether the pin holds")
    if row.pin is not None:
        return _pinned(row.pin, at)
    if tuning.entry is not None:
        return _Step(
            f"entry of a table of {plain(tuner_name(tuning))}", "tune it with Inductor", "tune"
        )
    if tuning.measured is not None and stats.measured(tuning, stats.winner(tuning)) is not None:
        return _measured(tuning, tuning.measured, at)
    if stats.single(tuning):
        return _single(tuning)
    return _single_times(row, at)


def _pinned(pin: PinStatus, at: Situation) -> _Step:
    if pin.state == "orphaned":
        return _Step("pinned choice is missing or fails", "unpin it", "unpin")
    if pin.state == "shadowed":
        return _Step("pinned, but something else decides", "the line of the pin names it")
    if pin.state == "drifted":
        again = "read-only does not apply it again" if at.locked else "it is applied again"
        return _Step("pinned, overwritten by another process", again)
    proof = pin.proof
    if proof is None:
        doubt = ", a compiled graph may call another kernel" if pin.state == "unproven" else ""
        return _Step(f"pinned{doubt}", "verify", "verify")
    if pin.stale:
        return _Step("pinned, its verification is out of date", "verify again", "verify")
    if not proof.ok:
        return _Step("pinned, but its kernel was not called", "verify again", "verify")
    return _Step("pinned and verified", "nothing left to do")


def _measured(tuning: Tuning, measurement: Measurement, at: Situation) -> _Step:
    if len(measurement.choices) < 2:
        return _Step("measured alone", "measure it beside others", "measure")
    winner, standing = stats.winner(tuning), stats.standing(tuning)
    its = stats.measured(tuning, winner)
    if its is not None and its.verdict == "faster" and standing != "clear":
        doubt = "measured, unclear whether a choice with a single timing is as fast"
        return _Step(doubt, "measure again", "measure")
    if standing == "tied":
        return _Step("measured, tied", "a pin would gain nothing")
    if standing == "slower" and (better := stats.faster(tuning)) is not None:
        place, best = better
        over = stats.lead_over(tuning, best, winner)
        result = f"measured, #{place} is {fmt.percent(over)} faster"
    elif standing == "clear" and winner is not None:
        place, best = 1, winner
        result = f"measured, fastest by {fmt.percent(stats.lead(tuning))}"
    else:
        return _Step("measured, unclear", "measure again on a quieter machine", "measure")
    if at.chosen is not None and at.chosen.hash != best.hash:
        return _Step(result, f"go to #{place} to pin it")  # the key pins the one under the cursor
    return _Step(result, "pin", "pin")


def _single(tuning: Tuning) -> _Step:
    """Return the step for a tuning with one choice, which C++ templates can lack a reason for."""
    if tuning.device == "cpu" and tuning.op in ("mm", "addmm"):
        # What `use_cpp_gemm_template` in torch/_inductor/utils.py requires.
        return _Step("one choice", "C++ needs constant weights: set TORCHINDUCTOR_FREEZING=1")
    return _Step("one choice", "nothing to tune")


def _single_times(row: Row, at: Situation) -> _Step:
    """Return the step for a tuning whose winner has at most a single timing."""
    tuning = row.tuning
    timed = stats.ranked(tuning)
    failed = sum(choice.failed for choice in tuning.choices)
    if not timed:
        if failed:
            return _Step("failed choices, none with a time", "see why", "switch")
        if is_kernel(tuning.op):
            return _Step("no times", "rocm-tui run --measure-kernels -- CMD records them")
        return _Step("no times", "tune it again", "tune")
    if tuning.state == "cut":
        return _Step("cut off before its end", "tune it again", "tune")
    if len(timed) < 2 and stats.tried(tuning) <= failed + 1:
        if failed:
            return _Step(f"failed choices ({failed}), one left", "see why", "switch")
        return _single(tuning)
    state = "suspect timings" if row.suspect else "single timings"
    if at.can("measure"):
        return _Step(state, "measure", "measure")
    if is_kernel(tuning.op):
        return _Step(state, "rocm-tui run --measure-kernels -- CMD measures it")
    if at.can("tune"):
        return _Step(f"{state} of a log, not measurable", "tune it here", "tune")
    return _Step(f"{state} of a log", "run the program with rocm-tui run to measure it")
