"""What is asked of ten thousand rows each time that one comes: of those that came alone."""

from __future__ import annotations

import random

import pytest

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
