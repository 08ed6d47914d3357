"""Methods of torch's that our classes replace: who calls one gets ours, which gets theirs."""

from __future__ import annotations

from typing import Any

import pytest

from backend.inductor import guard
from backend.inductor.guard import Entrance, Stock


class Theirs:
    """As torch has it: a method, one of the class, and an object that is called."""

    def lookup(self, number: int) -> list[Any]:
        return ["stock", number]

    @classmethod
    def benchmark(cls, number: int) -> list[Any]:
        return [cls.__name__, number]

    def __call__(self, number: int, *, more: int = 0) -> list[Any]:
        return ["called", number, more]


class Ours(Theirs):
    lookup = Entrance("_lookup")
    benchmark = Entrance("_benchmark")
    __call__ = Entrance("_call")

    def _lookup(self, stock: Stock, number: int) -> list[Any]:
        return [*stock(number + 1), "ours"]

    @staticmethod
    def _benchmark(stock: Stock, number: int) -> list[Any]:
        return [*stock(number + 1), "ours"]

    def _call(self, stock: Stock, number: int, *, more: int = 0) -> list[Any]:
        return [*stock(number, more=more + 1), "ours"]


class Further(Ours):
    """One that replaces it again, as the selector with templates does."""

    __call__ = Entrance("_further")

    def _further(self, stock: Stock, number: int, **options: int) -> list[Any]:
        return [*stock(number, **options), "further"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_aside", None)
    monkeypatch.setattr(guard, "_said", set())


def test_ours_is_called_and_gets_the_stock_method() -> None:
    assert Ours().lookup(1) == ["stock", 2, "ours"]
    assert Ours()(1, more=2) == ["called", 1, 3, "ours"]


def test_a_method_of_the_class_is_one_with_an_object_and_without() -> None:
    assert Ours.benchmark(1) == ["Ours", 2, "ours"] == Ours().benchmark(1)
    assert Further.benchmark(1) == ["Further", 2, "ours"]


def test_a_class_below_may_replace_it_again() -> None:
    assert Further()(1, more=2) == ["called", 1, 3, "ours", "further"]
    assert super(Further, Further()).__call__(1) == ["called", 1, 1, "ours"]


def test_where_ours_fails_the_stock_method_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Ours, stock: Stock, number: int) -> list[Any]:
        raise KeyError(number)

    monkeypatch.setattr(Ours, "_lookup", broken)
    assert Ours().lookup(1) == ["stock", 1]
    assert "step aside" in capsys.readouterr().err
    assert Ours()(1) == ["called", 1, 0]  # from now on all of them
