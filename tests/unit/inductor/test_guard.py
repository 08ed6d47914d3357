"""What the boundary between our code and torch's lets through, and what it does not."""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend.inductor import guard
from backend.inductor.guard import Stock, beside, quietly, shielded


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_aside", None)
    monkeypatch.setattr(guard, "_listeners", [])
    monkeypatch.setattr(guard, "_failed", set())
    monkeypatch.setattr(guard, "_said", set())


def stepped_aside() -> bool:
    return guard._aside is not None


class Called:
    """A method of torch that counts its calls, and raises what it was given."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> str:
        self.calls.append(args)
        if self.error is not None:
            raise self.error
        return "stock"


def test_ours_failing_before_the_stock_method_leaves_it_to_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ours(stock: Stock, number: int) -> str:
        raise KeyError("no such\nthing")

    method = Called()
    assert beside(method, ours, 1) == "stock" and method.calls == [(1,)]
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "KeyError" in line and "step aside" in line
    assert beside(method, ours, 2) == "stock" and method.calls == [(1,), (2,)]
    assert capsys.readouterr().err == ""  # said once


def test_ours_failing_after_it_does_not_call_it_again() -> None:
    def ours(stock: Stock, number: int) -> str:
        assert stock(number + 1) == "stock"
        raise KeyError

    method = Called()
    assert beside(method, ours, 1) == "stock" and method.calls == [(2,)]
    assert stepped_aside()


@pytest.mark.parametrize("error", [ValueError("theirs"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_stock_method_raises_goes_through(error: BaseException) -> None:
    method = Called(error)
    with pytest.raises(type(error)) as raised:
        beside(method, lambda stock, number: stock(number), 1)
    assert raised.value is error and len(method.calls) == 1
    assert not stepped_aside()


def test_our_failing_over_its_error_does_not_hide_that() -> None:
    def ours(stock: Stock) -> str:
        try:
            return str(stock())
        except ValueError:
            raise KeyError("ours") from None

    with pytest.raises(ValueError, match="theirs"):
        beside(Called(ValueError("theirs")), ours)
    assert stepped_aside()


def raising(error: type[Exception] = ValueError) -> str:
    """As a method of torch that raises from one error while it handles another one."""
    try:
        raise LookupError("handled")
    except LookupError:
        raise error("theirs") from OSError("cause")


def test_its_error_is_not_changed_on_the_way() -> None:
    def ours(stock: Stock) -> str:
        try:
            return str(stock())
        except ValueError:
            raise KeyError("ours") from None

    found: ValueError | None = None
    try:
        raise RuntimeError("what the program handles meanwhile")
    except RuntimeError:
        try:
            beside(raising, ours)
        except ValueError as error:
            found = error
    assert found is not None and isinstance(found.__cause__, OSError)
    assert isinstance(found.__context__, LookupError)
    assert stepped_aside()


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Tensor:
    """Something big that a frame holds."""


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_keeps_nothing_alive_once_it_is_handled(fails: bool, uncollected: None) -> None:
    kept: list[weakref.ref[Tensor]] = []

    def method() -> str:
        tensor = Tensor()
        kept.append(weakref.ref(tensor))
        return raising()

    def ours(stock: Stock) -> str:
        try:
            return str(stock())
        except ValueError:
            if fails:
                raise KeyError("ours") from None
            raise

    with contextlib.suppress(ValueError):
        beside(method, ours)
    assert [reference() for reference in kept] == [None]


class TimedOut(Exception):
    """What a program raises from a signal's handler, to end what lasts too long."""


def time_out(number: int, frame: object) -> None:
    raise TimedOut


class Timeout:
    def __call__(self, number: int, frame: object) -> None:
        raise TimedOut

    def method(self, number: int, frame: object) -> None:
        raise TimedOut


@pytest.fixture
def handled_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "handler", [time_out, Timeout(), Timeout().method, functools.partial(time_out)]
)
def test_what_a_signal_raises_into_ours_reaches_the_program(
    handler: Callable[..., None], handled_before: None
) -> None:
    def ours(stock: Stock) -> str:
        signal.raise_signal(signal.SIGUSR1)
        return "ours"

    signal.signal(signal.SIGUSR1, handler)
    method = Called()
    with pytest.raises(TimedOut):
        beside(method, ours)
    with pytest.raises(TimedOut), quietly("it is not done"):
        signal.raise_signal(signal.SIGUSR1)
    assert method.calls == [] and not stepped_aside()


def test_what_a_signal_raised_before_is_not_raised_again(handled_before: None) -> None:
    """The program handles it, and compiles again."""
    signal.signal(signal.SIGUSR1, time_out)

    def ours(stock: Stock) -> str:
        raise KeyError("ours")

    try:
        signal.raise_signal(signal.SIGUSR1)
    except TimedOut:
        assert beside(Called(), ours) == "stock" and stepped_aside()


def test_a_stderr_of_the_program_that_raises_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stderr:
        def write(self, text: str) -> int:
            raise RecursionError("a logger that logs to itself")

    def ours(stock: Stock) -> str:
        raise KeyError("ours")

    monkeypatch.setattr(sys, "stderr", Stderr())
    with quietly("it is not done"):
        raise OSError("disk")
    assert beside(Called(), ours) == "stock"


def test_a_function_of_the_program_may_raise_too() -> None:
    method = Called()
    with pytest.raises(ValueError, match="theirs"):
        beside(method, lambda stock: stock.theirs(Called(ValueError("theirs"))))
    assert method.calls == [] and not stepped_aside()


def test_what_ends_a_program_ends_it_within_ours_too() -> None:
    def ours(stock: Stock) -> str:
        raise KeyboardInterrupt

    method = Called()
    with pytest.raises(KeyboardInterrupt):
        beside(method, ours)
    with pytest.raises(KeyboardInterrupt), quietly("it is not done"):
        raise KeyboardInterrupt
    assert method.calls == [] and not stepped_aside()


def test_ours_that_torch_calls_in_between_is_ours() -> None:
    """A view of the cache that raises while torch reads it: torch is asked again, without us."""
    reads = []

    def method() -> str:
        reads.append(1)
        if not stepped_aside():
            namespace: dict[str, Any] = {}
            code = compile("def get():\n    raise KeyError", guard.__file__ + "/../view.py", "exec")
            exec(code, namespace)
            namespace["get"]()
        return "stock"

    assert beside(method, lambda stock: stock()) == "stock" and len(reads) == 2


def test_listeners_hear_the_reason_and_cannot_fail(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []

    def broken(reason: str) -> None:
        raise OSError("disk")

    guard.when_aside(broken)
    guard.when_aside(heard.append)
    guard.step_aside(KeyError("x"))
    assert len(heard) == 1 and "KeyError" in heard[0]
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_program_can_do_without_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*args: int) -> None:
        raise KeyError(args)

    action = shielded("it is not recorded", broken)
    action(1)
    action(2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rocm-tui: it is not recorded: KeyError")
    assert not stepped_aside()
