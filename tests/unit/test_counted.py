"""`1 choice`, `2 choices`: how numbers of things are written."""

from __future__ import annotations

from backend.counted import counted, noun


def test_a_number_of_things() -> None:
    assert [counted(n, "choice") for n in (0, 1, 2)] == ["0 choices", "1 choice", "2 choices"]
    assert counted(1, "graph is", "graphs are") == "1 graph is"
    assert counted(12_345, "process", "processes") == "12,345 processes"
    assert [noun(1.0, "call"), noun(0.5, "call"), noun(None, "call")] == ["call", "calls", "calls"]
