"""A dataclass whose methods are compiled late is as any other."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from rocm_tui.late_methods import compile_when_called

pytestmark = pytest.mark.skipif(
    not hasattr(dataclasses, "_create_fn"), reason="this Python compiles each class at once"
)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the methods that were compiled since."""
    names: list[str] = []
    make: Any = vars(dataclasses)["_create_fn"]
    make = getattr(make, "args", [make])[0]  # the program's main may have run in this process

    def counted(name: str, *source: Any, **context: Any) -> Any:
        names.append(name)
        return make(name, *source, **context)

    monkeypatch.setattr(dataclasses, "_create_fn", counted)
    compile_when_called()
    return names


def _classes() -> tuple[type[Any], type[Any]]:
    @dataclass(frozen=True, slots=True, order=True)
    class Size:
        """Of a tensor."""

        rows: int
        columns: int = 4
        names: list[str] = field(default_factory=list, compare=False)

    @dataclass(frozen=True, slots=True)
    class Strided(Size):
        """And how it lies."""

        stride: int = 1

        def __post_init__(self) -> None:
            if self.stride < 0:
                raise ValueError("stride")

    return Size, Strided


def test_nothing_is_compiled_before_it_is_called(compiled: list[str]) -> None:
    size, strided = _classes()
    assert compiled == []
    size(3)
    size(4)
    strided(5)
    assert compiled == ["__init__", "__init__"]
    assert size(1) == size(1)
    assert compiled[2:] == ["__eq__"]
    assert size.__init__.__code__.co_varnames[:3] == ("self", "rows", "columns")


def test_it_behaves_as_any_other(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    size, strided = _classes()
    one = size(3)
    assert repr(one).endswith("Size(rows=3, columns=4, names=[])")
    assert repr(strided(1, stride=2)).endswith("Strided(rows=1, columns=4, names=[], stride=2)")
    assert one == size(3, names=["m"]) != size(4)
    assert one != strided(3)
    assert sorted([size(9), size(2)]) == [size(2), size(9)]
    assert {size(3): 1}[one] == 1
    assert replace(one, columns=7) == size(3, 7)
    assert copy.copy(one) == one
    with pytest.raises(FrozenInstanceError, match="rows"):
        one.rows = 5
    with pytest.raises(FrozenInstanceError, match="rows"):
        del one.rows
    with pytest.raises(TypeError, match="rows"):
        size()
    with pytest.raises(ValueError, match="stride"):
        strided(1, stride=-1)
    size.__qualname__ = "Size"
    monkeypatch.setattr(sys.modules[__name__], "Size", size, raising=False)
    assert pickle.loads(pickle.dumps(one)) == one


def test_twice_is_once(compiled: list[str]) -> None:
    compile_when_called()
    size, _ = _classes()
    assert size(1) == size(1)
    assert compiled == ["__init__", "__eq__"]
