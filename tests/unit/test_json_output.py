"""The JSON of commands: its types describe themselves, and one encoder writes them strictly."""

from __future__ import annotations

import json
import pkgutil
import tracemalloc
from collections import Counter
from importlib import import_module
from math import inf, nan
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
from msgspec import UNSET, UnsetType, field

from rocm_tui import cli
from rocm_tui.json_output import JsonObject, builtins_of, encode, fill, kinds_below


def test_every_type_has_a_schema_and_a_name_of_its_own() -> None:
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        import_module(module.name)
    kinds = [kind for kind in kinds_below(JsonObject) if kind.__module__.startswith("rocm_tui.")]
    for kind in kinds:
        assert msgspec.json.schema(kind)["$defs"][kind.__name__]["type"] == "object"
    assert len(kinds) > 80 and Counter(kind.__name__ for kind in kinds).most_common(1)[0][1] == 1


class PlantedJson(JsonObject):
    name: str
    ms: float | None
    origin: str = field(name="from")
    more: int | UnsetType = UNSET


class Source:
    name = "mm"
    ms = nan


def test_fields_come_from_values_then_from_the_first_source_that_has_them() -> None:
    planted = fill(PlantedJson, Source(), PlantedJson("bmm", 1.0, "b"), origin="c")
    assert (planted.name, planted.origin, planted.more) == ("mm", "c", UNSET)
    with pytest.raises(TypeError):
        fill(PlantedJson, Source())


def test_it_is_strict_ascii_json() -> None:
    value = {
        "planted": PlantedJson("µ\x7f\ud800", inf, "x"),
        "path": Path("/a"),
        "mapping": MappingProxyType({"a": -inf}),
        "tuple": (1, True, None),
    }
    text = encode(value)
    assert text.isascii() and text.isprintable()
    assert (
        json.loads(text)
        == builtins_of(value)
        == {
            "planted": {"name": "µ\x7f\ud800", "ms": None, "from": "x"},
            "path": "/a",
            "mapping": {"a": None},
            "tuple": [1, True, None],
        }
    )
    assert "\n" in encode(value, indent=2)


class ManyJson(JsonObject):
    planted: list[PlantedJson]
    more: int | UnsetType = UNSET


def test_a_long_document_takes_no_more_memory_than_three_of_its_text() -> None:
    many = ManyJson([PlantedJson(f"{at:0100}", 1.0, "x") for at in range(20_000)])
    tracemalloc.start()
    try:
        text = encode(many)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert json.loads(text) == builtins_of(many)
    assert peak < 3 * len(text)
