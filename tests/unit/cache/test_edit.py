"""Byte-surgical edits of a cache file, whatever its formatting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cache.autotune import (
    CacheText,
    Token,
    is_raised,
    lower,
    measured_ms,
    measured_text,
    merge_missing,
    raised_text,
)
from backend.cache.autotune import raise_ms as high
from backend.errors import CacheUnreadable
from backend.model.choice import MOST_MS
from backend.pins.file import PinRecord
from backend.pins.numbers import changes_to_hold, changes_to_release, edited, learn

FILE = Path("cache/hash")

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
space = st.text(" \t\n\r", max_size=3)
numbers = st.one_of(
    st.floats(0, 1e6).map(repr),
    st.sampled_from(
        ["Infinity", "NaN", "-Infinity", "1E3", "0.50", "-0.0", "7", "1e999", "1e-400"]
    ),
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """JSON text of `value` in any formatting; a str in `value` is the text of a number."""
    if isinstance(value, str):
        return value
    members = []
    for name, inner in value:
        key = json.dumps(name, ensure_ascii=draw(st.booleans()))
        gap = draw(space)
        members.append(f"{draw(space)}{key}{gap}:{draw(space)}{draw(written(inner))}{draw(space)}")
    return "{" + (",".join(members) or draw(space)) + "}"


timings = st.lists(st.tuples(names, numbers), max_size=4)
precisions = st.lists(st.tuples(st.sampled_from(["highest", "high"]), timings), max_size=3)


@st.composite
def caches(draw: st.DrawFn, present: bool = False) -> tuple[bytes, str, str]:
    """A file with duplicates and odd spelling, and an (op, inputs) that is mostly in it."""
    op, inputs = draw(names), draw(names)
    keyed = st.lists(st.tuples(st.sampled_from([inputs, "[]"]), precisions), max_size=3)
    entries = draw(st.lists(st.tuples(st.sampled_from([op, "mm"]), keyed), max_size=3))
    if present:
        some = draw(st.lists(st.tuples(names, numbers), min_size=1, max_size=4))
        last = [*draw(precisions), ("medium", some)]
        entries.append((op, [*draw(keyed), (inputs, last)]))
    document = [("system", [("n", "1")]), ("cache", entries), ("x", "2")]
    text = draw(space) + draw(written(document)) + draw(space)
    return text.encode(), op, inputs


def record(op: str, inputs: str, choice: str) -> PinRecord:
    return PinRecord(op, inputs, "highest", choice, choice, "hash", {})


@given(caches())
def test_it_finds_what_json_finds(case: tuple[bytes, str, str]) -> None:
    data, op, inputs = case
    found = CacheText(FILE, data).find(op, inputs)
    expected = json.loads(data)["cache"].get(op, {}).get(inputs, {})
    assert found.keys() == expected.keys()
    for precision, times in expected.items():
        assert repr({n: t.value for n, t in found[precision].items()}) == repr(
            {n: float(v) for n, v in times.items()}
        )
        for token in found[precision].values():
            assert data.decode()[token.start : token.end] == token.text


@given(caches(present=True), st.data())
def test_only_the_numbers_in_question_change_and_come_back(
    case: tuple[bytes, str, str], data: st.DataObject
) -> None:
    content, op, inputs = case
    text = CacheText(FILE, content)
    found = text.find(op, inputs)
    choices = sorted({name for numbers in found.values() for name in numbers})
    choice = data.draw(st.sampled_from(choices))
    pinned = learn(record(op, inputs, choice), found)
    after = edited(text, [changes_to_hold(pinned, found)])
    before_times, after_times = json.loads(content), json.loads(after)
    for precision, times in before_times["cache"][op][inputs].items():
        now = after_times["cache"][op][inputs][precision]
        if choice in times and math.isfinite(times[choice]):
            assert now[choice] == times[choice]
            for name in times.keys() - {choice}:
                assert now[name] == high(times[name]) > abs(times[choice])
        else:
            assert repr(now) == repr(times)
    before_times["cache"][op][inputs] = after_times["cache"][op][inputs] = None
    assert repr(before_times) == repr(after_times)

    held = CacheText(FILE, after)
    again = held.find(op, inputs)
    assert learn(pinned, again) is pinned and not changes_to_hold(pinned, again)
    assert edited(held, [changes_to_release(pinned, again)]) == content


def test_pins_taken_back_in_any_order_leave_the_very_bytes() -> None:
    content = (
        b'{"cache":{ "mm":{"[1]":{"highest":{"a":1.0,"b" : 2.50,"c":Infinity}},\n'
        b'"[2]":{"highest":{"a":3,"b":0.1e1}}}}}'
    )
    first, second = record("mm", "[1]", "b"), record("mm", "[2]", "a")
    state = content
    pins = []
    for pin in (first, second):
        text = CacheText(FILE, state)
        found = text.find(pin.op, pin.inputs)
        pin = learn(pin, found)
        state = edited(text, [changes_to_hold(pin, found)])
        pins.append(pin)
    assert b'"a":1099511627776.0,"b" : 2.50,"c":Infinity' in state
    for pin in pins:
        text = CacheText(FILE, state)
        state = edited(text, [changes_to_release(pin, text.find(pin.op, pin.inputs))])
    assert state == content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"cache": {"mm": {"[]": {}}}} x',
        b"[]",
        b'{"cache": {"mm": 01}}',
        b"\xff",
        b'\xef\xbb\xbf{"cache": {}}',
        b"[" * 100_000,
        b'{"cache": {1: 2}}',
        b'{"cache": {"mm"}}',
    ],
)
def test_text_that_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(CacheUnreadable):
        CacheText(FILE, data).find("mm", "[]")


@pytest.mark.parametrize(
    "data",
    [
        b'{"cache": 1}',
        b'{"cache": {"mm": []}}',
        b"{}",
        b'{"cache": {"mm": {"[]": {"highest": {"a": "x"}}}}}',
    ],
)
def test_json_of_another_shape_holds_no_numbers(data: bytes) -> None:
    assert not any(CacheText(FILE, data).find("mm", "[]").values())


def test_merging_keeps_the_newer_number_and_every_entry() -> None:
    newer = b'{"system": {"n": 1}, "cache": {"mm": {"k": {"highest": {"a": 1, "b": Infinity}}}}}'
    older = b'{"cache": {"mm": {"k": {"highest": {"a": 9, "c": 3}, "high": {}}}, "bmm": {}}}'
    merged = json.loads(merge_missing(FILE, newer, older))
    assert merged == {
        "system": {"n": 1},
        "cache": {
            "mm": {"k": {"highest": {"a": 1, "b": math.inf, "c": 3}, "high": {}}},
            "bmm": {},
        },
    }
    assert merge_missing(FILE, newer, b'{"cache": {"mm": {}}}') is newer


def test_a_token_is_replaced_by_place_not_by_text() -> None:
    text = CacheText(FILE, b'{"cache": {"mm": {"2": {"2": {"2": 2, "3": 2}}}}}')
    token = text.find("mm", "2")["2"]["3"]
    assert isinstance(token, Token)
    assert text.replace({token: "Infinity"}).endswith(b'{"2": 2, "3": Infinity}}}}}')


def test_numbers_are_raised_out_of_reach_and_lowered_to_what_they_were() -> None:
    factor, limit, highest = 2.0**40, 1e7, 2.0**1000
    assert limit == MOST_MS
    for ms, raised in (
        (1.5, 1.5 * factor), (1, factor), (0.0, limit), (-1.0, limit), (limit, limit),
        (1e12, 1e12), (math.inf, math.inf), (math.nan, highest),
    ):  # fmt: skip
        assert high(ms) == raised and measured_ms(high(1.5)) == 1.5
    for number, is_high in (
        (limit, True), (limit - 1, False), (1.7e308, True), (math.inf, False), (math.nan, False),
        (int(limit), True), (True, False), ("1e12", False), (None, False), (-1e12, False),
    ):  # fmt: skip
        assert is_raised(number) is is_high
    assert measured_ms(1.5) == 1.5 and measured_ms(math.inf) == math.inf
    assert (raised_text("1.50"), measured_text(raised_text("1.5"))) == (repr(1.5 * factor), "1.5")
    for text in ("Infinity", "1e12"):
        assert raised_text(text) == text
    assert measured_text("2.50") == "2.50" and measured_text("Infinity") == "Infinity"


def test_only_numbers_of_former_pins_are_lowered() -> None:
    raised = {"a": 2.0, "b": high(1.0), "c": math.inf}
    cache = {"mm": {"[x]": {"highest": {**raised}}, "[y]": {"highest": {**raised}}}}
    before = json.dumps(cache)
    assert not lower(cache, ()) and not lower(cache, {("bmm", "[x]")})
    assert json.dumps(cache) == before
    assert lower(cache, {("mm", "[x]")})
    assert cache["mm"]["[x]"]["highest"] == {"a": 2.0, "b": 1.0, "c": math.inf}
    assert cache["mm"]["[y]"]["highest"] == raised
    assert not lower(cache, {("mm", "[x]")}), "they are low already"


def test_which_entries_have_raised_numbers() -> None:
    times = {"a": 2.0, "b": high(1.0)}
    cache = {
        "mm": {"[x]": {"highest": {"a": 2.0}, "high": times, "medium": times}, "[y]": {"h": {}}},
        "bmm": {"[x]": {"highest": times}, "odd": []},
    }
    data = json.dumps({"cache": cache}).encode()
    assert CacheText(FILE, data).raised() == [("mm", "[x]"), ("bmm", "[x]")]
    assert CacheText(FILE, b'{"cache": {}}').raised() == []
    with pytest.raises(CacheUnreadable, match=f"{FILE} is not JSON"):
        CacheText(FILE, b"{").raised()


@pytest.mark.parametrize(
    ("older", "merged"),
    [
        (b"{}", None),
        (b'{"cache": {"mm": {"k": 7}}}', None),
        (b'{"cache": {"mm": {"k": {"highest": {"a": 9}}}}}', None),
        (b'{"cache": {"mm": {"l": {}, "k": {"highest": {"a": 9}}}}}', {"l": {}}),
    ],
)
def test_content_that_lacks_nothing_stays_byte_by_byte(
    older: bytes, merged: dict[str, object] | None
) -> None:
    newer = b'{"cache": {"mm": {"k": {"highest": {"a": 1}}}}}'
    found = merge_missing(FILE, newer, older)
    if merged is None:
        assert found is newer
    else:
        assert json.loads(found)["cache"]["mm"] == {"k": {"highest": {"a": 1}}, **merged}
    assert json.loads(merge_missing(FILE, b"{}", newer)) == json.loads(newer)
    with pytest.raises(CacheUnreadable):
        merge_missing(FILE, b'{"cache": 1}', newer)
