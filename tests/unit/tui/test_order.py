"""Lists are ordered by what a person reads in them."""

from __future__ import annotations

import math

import pytest

from rocm_tui.session import numbers as fmt
from rocm_tui.session.numbers import quantity
from rocm_tui.tui.widgets.grid import falls, lines_by


@pytest.mark.parametrize("value", [1e-4, 0.0021, 0.57, 1.0, 9.99, 48.2, 640.0, 3599.0, 8.1e4])
def test_what_is_written_is_read_back(value: float) -> None:
    for text, meant in (
        (fmt.duration(value), value / 1e3),
        (fmt.once(fmt.duration(value)), value / 1e3),
        (fmt.factor(value), value),
        (fmt.percent(value), value),
        (fmt.signed(-value), -value),
    ):
        assert math.isclose(quantity(text) or 0.0, meant, rel_tol=0.1, abs_tol=0.006), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 min 20 s", 200.0),
        ("2 h 5 min", 7500.0),
        ("12 KiB", 12288.0),
        ("now", 0.0),
        ("≤2.7 %", 0.027),
        ("mm", None),
        ("–", None),
        ("3fa91c2", None),
        ("2026-11-22 19:20", None),
        ("vm-51", None),
        ("12 apples", None),
    ],
)
def test_quantities(text: str, value: float | None) -> None:
    found = quantity(text)
    assert found is None if value is None else math.isclose(found or 0.0, value)


def test_lines_of_a_column() -> None:
    times = ["~1.2 ms", "–", "800.0 µs", "", "2.000 s"]
    assert lines_by(times, False) == [4, 0, 2, 1, 3] and falls(times, False)
    assert lines_by(times, True) == [2, 0, 4, 1, 3] and not falls(times, True)
    words = ["bmm", "Addmm", "", "mm 2"]
    assert lines_by(words, False) == [1, 0, 3, 2] and not falls(words, False)
    assert lines_by(words, True) == [3, 0, 1, 2]
    assert lines_by(["1 s", "1 s", "2 s"], False) == [2, 0, 1]
