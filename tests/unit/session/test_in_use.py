"""After a pin a row is about the pinned choice: its name, its time, its gain, how it stands."""

from __future__ import annotations

from dataclasses import replace

from backend.model.choice import Choice
from backend.model.tuning import Pin, PinState, Tuning
from backend.pins.state import PinStatus
from rocm_tui.json_output import builtins_of
from rocm_tui.render.detail import tuning_facts, verdict
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells, tunings_text
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row

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


def test_what_had_no_rival_is_named() -> None:
    only = Tuning(op="mm", choices=(Choice(name="mm", hash="mm-cc"),), selected_by="only")
    heading, line = tunings_text([Row("k", "abc", 1, only)]).splitlines()
    assert "in use" in heading and "done" not in line and " mm " in line
