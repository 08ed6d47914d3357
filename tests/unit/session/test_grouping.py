"""Lines that stand for several tunings: headings of groups, and one for those without a choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.tuning import Pin, Seconds, TableEntry, Tuning
from backend.pins.state import PinStatus
from rocm_tui.ingest.records import Seen
from rocm_tui.render.table import Line
from rocm_tui.render.tunings import folded_line, heading_line
from rocm_tui.session.graphs import Share, ShareBasis
from rocm_tui.session.grouping import (
    Arrangement,
    DifferingFacets,
    Entry,
    Folded,
    Heading,
    SourceNames,
    UnseenRows,
    arrange,
    difference,
    differing,
    folds,
    is_other,
    sums,
)
from rocm_tui.session.model import Model, Row

PAIR = (Choice(name="triton_mm_1", ms=1.0), Choice(name="mm", ms=1.2))
OPEN = Arrangement(fold=False)


def tuning(op: str, size: int, choices: tuple[Choice, ...] = PAIR, device: str = "cuda") -> Tuning:
    return Tuning(
        op=op, shapes=((size, 8), (8, 8)), device=device, choices=choices,
        num_choices=len(choices), seconds=Seconds(benchmark=2.0, precompile=1.5),
    )  # fmt: skip


def alone(op: str, size: int) -> Tuning:
    return tuning(op, size, (Choice(name=op),))


def rows(*tunings: Tuning) -> list[Row]:
    model = Model()
    model.apply([Seen(f"a.log#{at}", one) for at, one in enumerate(tunings)], 0.0)
    return sorted(model.rows(), key=lambda row: row.seq)


def told(entries: list[Entry] | tuple[Entry, ...]) -> list[object]:
    """A row by its size, a line for several by its name and how many."""
    return [
        entry.tuning.shapes[0][0]
        if isinstance(entry, Row)
        else (type(entry).__name__, entry.group, len(entry.rows))
        for entry in entries
    ]


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


MIXED = rows(alone("mm", 1), tuning("mm", 2), tuning("bmm", 3), alone("mm", 4), alone("bmm", 5))


def test_without_groups_only_what_had_no_choice_is_folded() -> None:
    assert told([*arrange(MIXED, OPEN)]) == [1, 2, 3, 4, 5]
    assert told([*arrange(MIXED, Arrangement())]) == [2, 3, ("Folded", "", 3)]
    assert arrange(MIXED[:2], Arrangement()) == MIXED[:2], "one line for one row is no gain"
    only = rows(alone("mm", 1), alone("mm", 2))
    assert arrange(only, Arrangement()) == only, "nor is one for all"


def test_a_group_is_closed_and_opened() -> None:
    by_op = Arrangement(by="op")
    grouped = [("Heading", "mm", 3), 2, ("Folded", "mm", 2), ("Heading", "bmm", 2), 3, 5]
    assert told([*arrange(MIXED, by_op)]) == grouped
    closed = by_op.turned("mm")
    assert told([*arrange(MIXED, closed)]) == [("Heading", "mm", 3), ("Heading", "bmm", 2), 3, 5]
    assert closed.turned("mm") == by_op


def test_a_key_goes_round() -> None:
    seen, how = [], Arrangement(closed=frozenset("mm"), fold=False)
    for _ in range(4):
        how = how.next
        seen.append(how.by)
    assert seen == ["session", "op", "device", ""]
    assert not how.closed and not how.fold


def test_what_is_of_interest_is_not_folded() -> None:
    assert [folds(row) for row in MIXED] == [True, False, False, True, True]
    running = replace(alone("mm", 1), state="running")
    log = replace(alone("mm", 1), num_choices=None)
    (one,), (two,) = rows(running), rows(log)
    assert not folds(one) and not folds(two), "more may come, or nobody tells of the others"
    assert folds(rows(replace(log, selected_by="only"))[0])


def test_what_was_pinned_or_measured_is_not_folded() -> None:
    (one,) = rows(alone("mm", 1))
    found = Measurement("mm", "x", "highest", 1.0, ())
    assert not folds(replace(one, pin=PIN))
    assert folds(one) and not folds(replace(one, tuning=replace(one.tuning, measured=found)))


def test_shares_that_are_bounds_add_up_to_no_more_than_all() -> None:
    def shared(row: Row, share: float, basis: ShareBasis) -> Row:
        return replace(row, share=Share("model.py", 1, share, basis))

    one, two = MIXED[:2]
    known = sums([shared(one, 0.3, "measured"), shared(two, 0.2, "once")])
    assert (known.share, known.basis) == (0.5, "once")
    known = sums([shared(one, 0.9, "once"), shared(two, 0.2, "seen")])
    assert (known.share, known.basis) == (1.0, "once")


def test_a_heading_tells_what_is_known_in_all() -> None:
    known = sums(MIXED[:3])
    assert (known.tunings, known.pinned, known.running, known.measured) == (3, 0, 0, 0)
    assert known.seconds == 10.5 and known.share is None
    assert known.faster == 0, "nothing was measured"
    heading = Heading("mm", tuple(MIXED[:3]), True)
    assert text(heading_line(heading, "op", {})) == "▾ mm  3 tunings · tuning took 10 s"
    unknown = replace(heading, group="", open=False, rows=(MIXED[0],))
    assert text(heading_line(unknown, "device", {})).startswith("▸ device not known  1 tuning ")
    assert text(heading_line(heading, "session", {"mm": "node-1"})).startswith("▾ node-1  ")
    assert text(folded_line(Folded("", tuple(MIXED)))) == "▸ 5 with a single choice · f shows them"


def bare(key: str, **facts: Any) -> Row:
    given: dict[str, Any] = {"choices": PAIR, **facts}
    return Row(key, f"id{key}", 1, Tuning(**{"op": "mm", **given}))


ENTRY = {"entry": TableEntry("aiter", 1)}
PIN = PinStatus(Pin("mm", "x", "highest", "h", "h", "s", {}), "active")


@pytest.mark.parametrize(
    ("row", "other"),
    [
        (bare("a"), False),
        (bare("a", choices=()), False),
        (bare("a", **ENTRY), True),
        (bare("a", op="triton"), False),
        (bare("a", op="triton", choices=(Choice("x"),)), True),
        (bare("a", op="triton", choices=(Choice("x"), PAIR[0])), False),
        (bare("a", op="triton", choices=(Choice("x"),), state="running"), False),
        (replace(bare("a", **ENTRY), pin=PIN), False),
        (replace(bare("a", **ENTRY), awaits_pin=True), False),
        (replace(bare("a", **ENTRY), share=Share("p", 1)), False),
    ],
)
def test_rows_of_other_tuners_and_of_kernels_without_times(row: Row, other: bool) -> None:
    assert is_other(row) is other


def measured(verdict: Verdict, *hashes: str) -> Row:
    """Of two choices, whose hashes are measured in this order."""
    timed = (Choice("triton_mm_1", "t", 1.0), Choice("mm", "m", 1.2))
    other: Verdict = "slower" if verdict == "faster" else verdict
    found = [
        MeasuredChoice(h, 1.0, 0.9, 1.1, 0.0, 9, *((1.0,) * 3 if at == 0 else (1.2, 1.1, 1.3)), v)
        for at, (h, v) in enumerate(zip(hashes, (verdict, other), strict=True))
    ]  # fmt: skip
    own = Measurement("mm", "x", "highest", 1.0, tuple(found))
    return bare(f"{verdict}{hashes}", choices=timed, measured=own)


def test_the_sums_of_a_group() -> None:
    its = [
        bare("a", **ENTRY), replace(bare("b"), pin=PIN), bare("c", state="running"),
        measured("faster", "t", "m"), measured("tied", "t", "m"), measured("faster", "m", "t"),
        bare("d", seconds=Seconds(precompile=2.0)), bare("e", choices=PAIR[1:]),
        bare("f", choices=()),
    ]  # fmt: skip
    known = sums(its)
    assert (known.tunings, known.entries, known.pinned, known.running) == (8, 1, 1, 1)
    assert (known.faster, known.measured, known.seconds, known.share) == (1, 3, 2.0, None)
    assert sums(its[:2]).seconds is None and sums([]).basis == "seen"
    one, other = (replace(bare(p), share=Share(p, 1, 0.25)) for p in ("p", "q"))
    unknown = replace(bare("u"), share=Share("z", 1))
    assert sums([one, unknown]).share == 0.25 and sums([one, other]).share is None


def test_devices_are_shown_below_the_row_that_is_opened() -> None:
    one, two = bare("k1"), bare("k2")
    its = tuple(replace(one, key=f"k1#@{at}") for at in range(2))
    whole = replace(one, devices=its)
    how = Arrangement(fold=False).with_devices("k1")
    two = replace(two, devices=(replace(two, key="k2#@0"),))
    assert [*arrange([two, whole], how)] == [two, whole, *its]
    assert [*arrange([two, whole], how.with_devices("k1"))] == [two, whole]
    assert [*arrange([two, whole], replace(how, by="op"))][1:] == [two, whole, *its]


@pytest.mark.parametrize(
    ("before", "after", "gone", "came"),
    [
        ("", "", "", ""), ("", "ab", "", "ab"), ("ab", "", "ab", ""), ("abc", "abc", "", ""),
        ("abc", "abxc", "", "x"), ("abxc", "abc", "x", ""), ("abc", "axc", "b", "x"),
        ("aaa", "aa", "a", ""), ("abcd", "bcd", "a", ""), ("abcd", "abc", "d", ""),
        ("abcd", "acbd", "bc", "cb"),
    ],
)  # fmt: skip
def test_what_went_and_what_came(before: str, after: str, gone: str, came: str) -> None:
    assert difference([*before], [*after]) == ([*gone], [*came])


def test_what_distinguishes_rows_as_they_come_and_go() -> None:
    facets = DifferingFacets()
    one = replace(bare("a", rank=0, session="s1"), device="cuda", layout="NN")
    two = replace(bare("b", rank=1, session="s2"), device="cpu", layout="NT")
    assert facets.of([]) == facets.of([one]) == facets.of([one, bare("c", session="s1")]) == ()
    assert facets.of([one, two]) == ("device", "layout", "rank", "source") == differing([one, two])
    assert facets.of([one, replace(one, key="n", layout="", device="")]) == (), "it is unknown"
    same = replace(two, device="cuda", layout="NN")
    assert facets.of([one, same]) == ("rank", "source")
    assert facets.of([two, one, same]) == ("device", "layout", "rank", "source")
    assert facets.of([one]) == ()
    entry = replace(bare("e", **ENTRY), device="gfx942")
    assert facets.of([entry]) == differing([entry]) == ("tuner", "device")
    several = replace(bare("d", device_index=0, device="cuda"), key="d")
    other = bare("d1", device_index=1, device="cuda")
    assert facets.of([several]) == ()
    assert facets.of([replace(several, devices=(several, other))]) == ("devices",)


def test_names_of_sources_as_they_come_and_go() -> None:
    names = SourceNames()
    logs = [bare(at, sources=(f"/l/{at}/t.log",)) for at in "ab"]
    kernel = bare("k", op="triton", sources=("/c/triton/HASH/k.json",))
    assert names.of(logs[:1]) == {"/l/a/t.log": "t.log"}
    assert names.of([*logs, bare("x", sources=("/l/b/t.log",))]) == {
        "/l/a/t.log": "a/t.log", "/l/b/t.log": "b/t.log",
    }  # fmt: skip
    assert names.of([logs[0], bare("x", sources=("/l/b/t.log",))]) == {
        "/l/a/t.log": "a/t.log", "/l/b/t.log": "b/t.log",
    }  # fmt: skip
    assert names.of([logs[0], kernel]) == {"/l/a/t.log": "t.log", "/c/triton": "triton"}
    assert names.of([bare("s", session="node-7-1700000000-ab")]) == {
        "node-7-1700000000-ab": "node-7"
    }


def test_rows_that_came_are_news_until_they_were_seen() -> None:
    unseen = UnseenRows()
    one, two, three = (bare(key) for key in "abc")
    unseen.take([], [one])
    assert unseen.count([one]) == 0, "the very first rows are no news"
    unseen.take([one], [one, two])
    assert unseen.count([one, two, three]) == 1
    changed = replace(two, seq=5)
    unseen.take([one, two], [one, changed])
    assert unseen.count([one, changed]) == 1, "it changed, and is news all the same"
    unseen.take([one, changed], [one])
    unseen.take([one], [one, two])
    unseen.clear()
    assert unseen.count([one, two]) == 0
    again = replace(two, key="z")
    unseen.take([one, two], [one, again])
    assert unseen.count([again]) == 0, "its source was written anew"
    later = replace(again, key="y", occurrence=2)
    unseen.take([one, again], [one, again, later])
    assert unseen.count([again, later]) == 1
    running = bare("r", state="running")
    reused = bare("u", session="s", selected_by="cache")
    file = bare("f", selected="h", inputs_key="x", precision="highest")
    unseen.take([one], [one, running, reused, file])
    assert [unseen.count([row]) for row in (running, reused, file)] == [0, 0, 1]
