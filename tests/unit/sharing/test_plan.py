"""What is said before pins of one machine are taken to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.pins.store import PinStore
from backend.sharing.plan import MachineDifference, differences, refused, steps_of
from backend.sharing.share import Machine, SharedPin
from tests.support.pin_lab import GPU, KEY, make_layout


@pytest.mark.parametrize(
    ("there", "here", "sentence"),
    [
        ("7.1", "7.2", "hip: 7.1 there, 7.2 here; times may differ"),
        (None, "7.2", "hip: not known there, 7.2 here; times may differ"),
        ("7.1", None, "hip: 7.1 there, not known here; times may differ"),
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


def test_a_step_says_what_it_changes(tmp_path: Path) -> None:
    store = PinStore(make_layout(tmp_path / "cache"))
    pin = SharedPin(KEY.op, KEY.inputs, KEY.precision, "Cpp-c2", "cpp_0", Machine())
    (step,) = steps_of([pin], Machine(), store)
    assert step.action == "pin"
    assert step.detail == "2 numbers raised out of reach, 0 compiled graphs move aside"
