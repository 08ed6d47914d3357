"""What is asked of ten thousand rows each time that one comes: of those that came alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui.session import grouping
from rocm_tui.session.grouping import UnseenRows, names_of
from rocm_tui.session.model import Row
from rocm_tui.tui.widgets.tunings import TuningLines


def row(number: int, op: str, *aliases: str) -> Row:
    return Row(f"a.log#{number}", f"{number:07x}", 1, Tuning(op), aliases=aliases, seq=number)


def op_width(lines: TuningLines) -> int:
    return next(slot.width for slot in lines.slots(200) if slot.column.key == "op")


def test_an_op_is_as_wide_as_the_widest_of_all_rows_whatever_came_and_went() -> None:
    draw, lines, rows = random.Random(7), TuningLines(), [row(0, "mm")]
    for number in range(1, 120):
        op = "x" * draw.choice((2, 9, 11, 14, 17))
        kept = [one for one in rows if draw.random() > 0.1]
        rows = [row(number, op), *kept]
        far = [row(1_000 + n, "mm") for n in range(250)]  # more than decide of other columns
        rows, shown = rows[:20], [*far, *rows[:20]]
        lines.measure(shown, "")
        anew = TuningLines()
        anew.measure(shown, "")
        assert op_width(lines) == op_width(anew) == max(8, *(len(r.tuning.op) for r in rows))


TIMED = (Choice("triton_mm_0", "triton_mm-aa", 1.0), Choice("triton_mm_1", "triton_mm-bb", 2.0))


def test_a_column_of_dashes_is_left_out_until_a_row_has_a_value() -> None:
    """Whatever came and went, and wherever in the table the one row is."""
    draw, lines, rows = random.Random(11), TuningLines(), list[Row]()
    for number in range(60):
        timed = draw.random() > 0.7
        new = replace(row(number, "mm"), tuning=Tuning("mm", choices=TIMED if timed else ()))
        new = replace(new, seen=1.8e9) if draw.random() > 0.8 else new
        rows = [new, *(old for old in rows if draw.random() > 0.3)]
        shown = [*(row(1_000 + n, "mm") for n in range(250)), *rows]
        lines.measure(shown, "")
        keys = {slot.column.key for slot in lines.slots(200)}
        assert ("time" in keys) == any(r.tuning.choices for r in rows)
        assert ("age" in keys) == any(r.when for r in rows)
        assert "gain" not in keys and "pin" not in keys  # no row has an ATen choice, or a pin
        lines.measure(shown, "", jobs=True)
        assert "lead" in {slot.column.key for slot in lines.slots(200)}


def test_the_column_that_sorts_the_rows_stays_at_every_width() -> None:
    rows = [replace(row(1, "mm"), tuning=Tuning("mm", choices=TIMED), seen=1.8e9)]
    lines = TuningLines()
    lines.measure(rows, "")
    for key in ("n", "lead", "age"):
        lines.sorted_by = ""
        narrow = next(
            w for w in range(120, 20, -1) if key not in {s.column.key for s in lines.slots(w)}
        )
        lines.sorted_by = key
        assert key in {slot.column.key for slot in lines.slots(narrow)}


def test_a_column_does_not_repeat_the_headings_of_groups() -> None:
    rows = [
        replace(row(number, "mm"), device=device, tuning=Tuning("mm", sources=(source,)))
        for number, (device, source) in enumerate((("cpu", "a.log"), ("gfx942", "b.log")))
    ]
    lines, without = TuningLines(), {"": set(), "session": {"source"}, "device": {"device"}}
    for by, absent in without.items():
        lines.measure(rows, by)
        keys = {slot.column.key for slot in lines.slots(200)}
        assert {"source", "device"} - keys == absent


def test_what_came_is_compared_with_rows_of_its_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Row] = []

    def names(one: Row) -> set[str]:
        asked.append(one)
        return names_of(one)

    monkeypatch.setattr(grouping, "names_of", names)
    rows = [row(n, "mm", *["of the log"] * (n == 7)) for n in range(500)]
    came = [row(500, "mm"), row(501, "mm", "of the log"), row(502, "mm", "0000009")]
    told = UnseenRows()
    told.take(rows, [*came, *rows])
    assert set(asked) == {rows[7], rows[9], *came}
    assert told.count([*came, *rows]) == told.count(came[:1]) == 1
