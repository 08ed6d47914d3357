"""What two processes make together is what one makes alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from rocm_tui import halves
from rocm_tui.halves import LEAST, Aside, in_halves


def squares(numbers: Sequence[int]) -> list[list[str]]:
    return [[str(number), str(number * number), str(os.getpid())] for number in numbers]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_another_process_makes_the_second_half() -> None:
    numbers = range(LEAST + 1)
    made = in_halves(squares, numbers)
    assert [row[:2] for row in made] == [row[:2] for row in squares(numbers)]
    assert len({row[2] for row in made}) == 2 and made[0][2] == str(os.getpid()) != made[-1][2]
    assert {row[2] for row in in_halves(squares, range(10))} == {str(os.getpid())}


def test_half_of_one_that_ends_early_is_made_here() -> None:
    here = os.getpid()

    def fragile(numbers: Sequence[int]) -> list[list[str]]:
        if os.getpid() != here:
            os._exit(3)
        return squares(numbers)

    assert {row[2] for row in in_halves(fragile, range(LEAST))} == {str(here)}


def test_none_is_begun_beside_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves.threading, "active_count", lambda: 2)
    assert Aside.begin(lambda: b"") is None


def test_one_that_nobody_wants_is_ended() -> None:
    aside = Aside.begin(lambda: bytes(1 << 20))
    assert aside is not None
    aside.drop()
    with pytest.raises(ChildProcessError):  # it is waited for already
        os.waitpid(aside.pid, os.WNOHANG)


def test_each_process_has_a_core_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    aside = Aside.begin(lambda: b"begun" if Aside.begin(lambda: b"") else b"no core")
    assert aside is not None and Aside.begin(lambda: b"") is None
    assert aside.told() == b"no core"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with_three = [Aside.begin(lambda: b"") for _ in range(3)]
    assert [one is not None for one in with_three] == [True, True, False]
    assert {one.told() for one in with_three if one} == {b""}
    assert Aside.at_work == 1
