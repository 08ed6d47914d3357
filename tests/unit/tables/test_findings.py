"""What lint found, by file and line."""

from __future__ import annotations

from dataclasses import replace

from rocm_tui.tables.findings import NOTHING, Finding, findings_by_row

NOTE = Finding("copied-time", "note", "a.csv", 7, "row copied", "time it", detail="M 8 — line 3")
ERROR = Finding("duplicate", "error", "a.csv", 7, "row with a key twice", "", detail="as line 2")
WHOLE = Finding("line-ends", "error", "b.csv", None, "all rows are ignored", "mend it")
FOUND = (
    NOTE,
    replace(ERROR, line=9, detail="as line 4"),
    WHOLE,
    ERROR,
    replace(NOTE, path="b.csv", line=2, detail=""),
)
MARKS = findings_by_row(FOUND)


def test_each_finding_comes_back_the_worst_of_a_line_first() -> None:
    assert MARKS.at("a.csv", 7) == (ERROR, NOTE)
    assert MARKS.at("a.csv", 9) == (FOUND[1],) and MARKS.whole("b.csv") == (WHOLE,)
    assert MARKS.at("b.csv", 2) == (FOUND[4],)
    assert MARKS.at("a.csv", 8) == MARKS.whole("a.csv") == MARKS.at("c.csv", 1) == ()


def test_lines_are_found_by_level_and_rule() -> None:
    assert MARKS.lines("a.csv", "error") == {7, 9} and MARKS.lines("a.csv", "copied") == {7}
    assert MARKS.lines("b.csv", "any") is None and MARKS.lines("b.csv", "note") == {2}
    assert MARKS.lines("c.csv", "") == frozenset() == MARKS.lines("a.csv", "peak")


def test_they_are_counted_and_those_of_a_file_are_left_out() -> None:
    assert MARKS.levels() == {"error": 3, "note": 2}
    left = MARKS.without(["a.csv"])
    assert left.levels() == {"error": 1, "note": 1} and left.at("a.csv", 7) == ()
    assert MARKS.without(["a.csv", "b.csv"]) == NOTHING
