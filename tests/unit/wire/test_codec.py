"""The codec: what its docstring promises, one promise a test."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.wire.codec import WireError, dumps, loads, read, to_json

Even = Annotated[int, lambda number: "is odd" if number % 2 else ""]


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    ms: float = 1.5
    seen: bool = field(default=True, metadata={"derived": True})
    size: str = field(
        default="small",
        metadata={"missing": lambda told: "large" if told.get("large") is True else "small"},
    )


@dataclass(frozen=True, slots=True)
class Tree:
    leaves: tuple[Leaf, ...]
    sizes: tuple[int, ...] = ()
    pair: tuple[int, str] | None = None
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    kind: Literal["oak", "elm"] = "oak"
    even: Even = 0
    exact: int | float = 0.0
    label: str | None = None
    unknown: dict[str, Any] = field(default_factory=dict, metadata={"kept": True})


LEAF = {"name": "a", "ms": 2.0}


def test_what_is_written_is_read() -> None:
    times = {"highest": {"a": 0.5, "b": math.inf}}
    tree = Tree((Leaf("a", -math.inf),), (1, 2), (3, "x"), times, "elm", 2, 7, "l", {"new": [1]})
    line = dumps(to_json(tree))
    json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert read(Tree, loads(line)) == tree and "seen" not in line


def test_members_that_are_missing_or_new() -> None:
    tree = read(Tree, {"leaves": [{**LEAF, "colour": "red", "seen": False}], "new": {"a": 1}})
    assert tree == Tree((Leaf("a", 2.0),), unknown={"new": {"a": 1}})
    assert to_json(tree)["new"] == {"a": 1}
    assert read(Leaf, {"name": "a"}) == read(Leaf, {"name": "a", "large": 1}) == Leaf("a")
    assert read(Leaf, {"name": "a", "large": True}) == Leaf("a", size="large")
    assert read(Leaf, {"name": "a", "large": True, "size": "small"}) == Leaf("a")
    with pytest.raises(WireError, match="`name` is not text: None"):
        read(Leaf, {})


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"leaves": [LEAF, {"name": 3}]}, "leave 2: `name` is not text: 3"),
        ({"leaves": [LEAF, []]}, "leave 2 is not a JSON object"),
        ({"leaves": {}}, "`leaves` is not a list"),
        ({"sizes": [1, True]}, "`sizes` is not a list of whole numbers"),
        ({"pair": [1]}, "`pair` is not a list of 2"),
        ({"times": {"highest": {"a": "1"}}}, "`times`, highest, a is not a number: '1'"),
        ({"kind": "ash"}, "`kind` is none of elm, oak: 'ash'"),
        ({"even": 3}, "`even` is odd"),
        ({"even": 1 << 64}, "`even` is not a whole number"),
        ({"exact": 10**400}, "`exact` is not a number"),
        ({"label": "a", "deep": json.loads("[" * 60 + "]" * 60)}, "`deep` is nested too deep"),
        ({"odd": math.inf}, "`odd` is nested too deep, or no JSON"),
    ],
)
def test_anything_else_is_one_line_that_says_where(members: dict[str, Any], words: str) -> None:
    with pytest.raises(WireError) as caught:
        read(Tree, {"leaves": [], **members})
    assert str(caught.value).startswith(words) and str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["", "{}x", "[" * 100_000, '{"a": NaN}', b"\xff", "1" * 5000])
def test_what_is_no_strict_json(text: str | bytes) -> None:
    with pytest.raises(WireError, match="it is not strict JSON"):
        loads(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["leaves", "sizes", "pair", "times", "kind", "even", "exact", "x"]), JSON)
def test_any_value_anywhere_is_read_or_refused(name: str, value: Any) -> None:
    try:
        tree = read(Tree, {"leaves": [LEAF], name: value})
    except WireError as error:
        assert str(error).isprintable()
    else:
        again = read(Tree, loads(dumps(to_json(tree))))
        assert repr(again) == repr(tree)
