"""The numbers of a tuning under a pin: what is learned from them, held and released."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import CacheText, Numbers
from backend.cache.autotune import raise_ms as high
from backend.pins.file import PinRecord
from backend.pins.numbers import (
    came_back,
    changes_of_strays,
    changes_to_hold,
    changes_to_release,
    is_held,
    is_time,
    learn,
)

PIN = PinRecord(
    "mm", "[x]", "highest", "a-1", "a", "hash", {"highest": {"a-1": "1.50", "b-2": "0.50"}},
    raised=True,
)  # fmt: skip
INF = math.inf


def stored(highest: dict[str, float], **more: dict[str, float]) -> Numbers:
    data = json.dumps({"cache": {"mm": {"[x]": {"highest": highest, **more}}}}).encode()
    return CacheText(Path("hash"), data).find("mm", "[x]")


@pytest.mark.parametrize(
    ("numbers", "raised", "learned"),
    [
        ({"a-1": 1.5, "b-2": high(0.5)}, True, {"a-1": "1.5"}),
        ({"a-1": 2.5, "b-2": 7.0}, True, {"a-1": "2.5", "b-2": "7.0"}),
        # An older version's copy of the file has Infinity for a rival that has a time.
        ({"b-2": INF}, True, {}),
        ({"a-1": 1.5, "b-2": INF}, False, {"a-1": "1.5"}),
        # The pinned choice was measured again, and the rival failed.
        ({"a-1": 2.5, "b-2": INF}, True, {"a-1": "2.5", "b-2": "Infinity"}),
        ({"a-1": 2.5, "b-2": INF}, False, {"a-1": "2.5"}),
        # A program that is not offered the pinned choice tuned again, and the rival failed.
        (
            {"a-1": 1.5, "b-2": INF, "c-3": 4.0},
            True,
            {"a-1": "1.5", "b-2": "Infinity", "c-3": "4.0"},
        ),
        ({"a-1": 1.5, "b-2": INF, "c-3": 4.0}, False, {"a-1": "1.5", "c-3": "4.0"}),
        ({"a-1": 1.5, "b-2": INF, "c-3": high(4.0)}, True, {"a-1": "1.5", "c-3": "4.0"}),
        # The pinned choice failed beside new times of others.
        ({"a-1": INF, "b-2": 7.0}, True, {"a-1": "Infinity", "b-2": "7.0"}),
        ({"a-1": INF, "b-2": high(0.5)}, True, {}),
        ({"c-3": INF}, True, {"c-3": "Infinity"}),
        ({"c-3": high(4.0)}, True, {"c-3": "4.0"}),
    ],
)
def test_what_is_learned_from_a_file(
    numbers: dict[str, float], raised: bool, learned: dict[str, str]
) -> None:
    found = learn(replace(PIN, raised=raised), stored(numbers))
    assert found.tokens == {"highest": {**PIN.tokens["highest"], **learned}}


def test_nothing_new_leaves_the_pin_as_it_is() -> None:
    same = replace(PIN, tokens={"highest": {"a-1": "1.5", "b-2": "0.50"}})
    numbers = stored({"a-1": 1.5, "b-2": high(0.5)})
    assert learn(same, numbers) is same
    both = learn(same, stored({"a-1": 1.5}, high={"a-1": 3.0, "d-4": INF}))
    assert both.tokens == {**same.tokens, "high": {"a-1": "3.0", "d-4": "Infinity"}}


@pytest.mark.parametrize(
    ("numbers", "pinned", "changed"),
    [
        ({"a-1": 1.5, "b-2": 0.5, "c-3": INF}, "a-1", {"b-2": high(0.5)}),
        ({"a-1": 1.5, "b-2": high(0.5)}, "a-1", {}),
        ({"a-1": high(1.5), "b-2": high(0.5)}, "a-1", {"a-1": 1.5}),
        ({"a-1": INF, "b-2": high(0.5)}, "c-3", {"b-2": 0.5}),
        ({"rocm_gemm-a-1": 1.5, "b-2": high(0.5)}, "rocm_gemm-a-1", {"b-2": 0.5}),
    ],
)
def test_what_a_pin_changes(
    numbers: dict[str, float], pinned: str, changed: dict[str, float]
) -> None:
    record = replace(PIN, hash=pinned, tokens={})
    found = stored(numbers)
    record = learn(record, found)
    changes = {token: float(text) for token, text in changes_to_hold(record, found).items()}
    assert changes == {found["highest"][name]: ms for name, ms in changed.items()}


def test_a_pin_is_held_where_its_choice_has_a_time() -> None:
    found = stored({"a-1": 1.5}, high={"a-1": INF, "b-2": 1.0}, medium={"b-2": 1.0, "v-9": 2.0})
    record = learn(replace(PIN, tokens={}), found)
    assert [is_held(record, found, name) for name in found] == [True, False, False]
    variant = replace(record, variants={"1": "v-9"})
    assert [is_held(variant, found, name) for name in found] == [True, False, True]
    assert [is_time(text) for text in ("1.5", "0", "Infinity", "NaN")] == [True, True, False, False]


def test_what_a_release_gives_back() -> None:
    record = replace(PIN, tokens={"highest": {"a-1": "1.50", "b-2": "0.50", "f-6": "Infinity"}})
    found = stored(
        {"a-1": 1.5, "b-2": high(0.5), "f-6": INF, "n-7": high(4.0)}, high={"b-2": high(2.0)}
    )
    tokens = found["highest"]
    assert changes_to_release(record, found) == {
        tokens["b-2"]: "0.50", tokens["n-7"]: "4.0", found["high"]["b-2"]: "2.0",
    }  # fmt: skip
    older = stored({"a-1": 1.5, "b-2": INF, "f-6": INF, "n-7": INF})
    assert changes_to_release(record, older) == {older["highest"]["b-2"]: "0.50"}
    again = stored({"a-1": 1.25, "b-2": INF})
    assert changes_to_release(record, again) == {}
    assert list(changes_to_release(replace(record, raised=False), again).values()) == ["0.50"]
    assert changes_of_strays(found) == {
        tokens["b-2"]: "0.5", tokens["n-7"]: "4.0", found["high"]["b-2"]: "2.0",
    }  # fmt: skip
    assert changes_of_strays(older) == {}


@pytest.mark.parametrize(
    ("numbers", "back"),
    [
        ({"a-1": 1.5, "b-2": 0.5}, False),
        ({"a-1": 1.5, "b-2": high(0.5)}, True),
        ({"x": high(0.5)}, True),
        # As an older version held a pin: every rival that has a time is Infinity.
        ({"a-1": 1.5, "b-2": INF, "c-3": INF}, True),
        ({"a-1": 1.5, "b-2": INF, "c-3": 3.0}, False),
        ({"a-1": 1.5, "b-2": INF}, False),
        ({"a-1": INF, "b-2": INF, "c-3": INF}, False),
        # Tuned since: the rivals failed.
        ({"a-1": 1.25, "b-2": INF, "c-3": INF}, False),
        ({"b-2": INF, "c-3": INF}, False),
        ({}, False),
    ],
)
def test_whether_a_released_pins_numbers_came_back(numbers: dict[str, float], back: bool) -> None:
    texts = {"a-1": "1.5", "b-2": "0.5", "c-3": "3.0", "f-6": "Infinity"}
    assert came_back(replace(PIN, tokens={"highest": texts}), stored(numbers)) is back
    alone = replace(PIN, tokens={"highest": {"a-1": "1.5", "f-6": "Infinity"}})
    assert not came_back(alone, stored({"a-1": 1.5, "f-6": INF}))
