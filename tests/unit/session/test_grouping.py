"""Lines that stand for several tunings: headings of groups, and one for those without a choice."""

from __future__ import annotations

from dataclasses import replace

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.records import Seen
from rocm_tui.render.table import Line
from rocm_tui.render.tunings import folded_line, heading_line
from rocm_tui.session.graphs import Share, Told
from rocm_tui.session.grouping import Arrangement, Entry, Folded, Heading, arrange, folds, sums
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


def test_shares_that_are_bounds_add_up_to_no_more_than_all() -> None:
    def shared(row: Row, share: float, told: Told) -> Row:
        return replace(row, share=Share("model.py", 1, share, told))

    one, two = MIXED[:2]
    known = sums([shared(one, 0.3, "measured"), shared(two, 0.2, "once")])
    assert (known.share, known.told) == (0.5, "once")
    known = sums([shared(one, 0.9, "once"), shared(two, 0.2, "seen")])
    assert (known.share, known.told) == (1.0, "once")


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
    assert text(folded_line(Folded("", tuple(MIXED)))) == "▸ 5 with a single choice (f)"
