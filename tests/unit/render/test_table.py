"""One description of a table, printed as text, as Markdown and as cells; and what is said of it."""

from __future__ import annotations

import pytest

from rocm_tui.render import glossary
from rocm_tui.render.table import (
    Column,
    Field,
    cells,
    code_span,
    fields_of,
    fit,
    markdown_table,
    problem_line,
    text_table,
    wrapped,
)
from rocm_tui.render.tunings import COLUMNS, LIST

NUMBERS: tuple[Field[int], ...] = (
    Field("n", "N", 1, 4, right=True, text=str, style="strong", about="the number"),
    Field(
        "odd", "ODD", 3, 3, name="is odd", about="whether it is odd",
        text=lambda n: "odd" if n % 2 else "",
        short=lambda n: "!" if n % 2 else "",
        style=lambda n: "warn" if n % 2 else "dim",
    ),
)  # fmt: skip


def test_text_has_headings_in_small_letters_and_its_own_alignment() -> None:
    assert text_table(NUMBERS, [7, 10]).split("\n") == [" n  is odd", " 7  odd", "10"]


def test_markdown_has_a_rule_that_aligns() -> None:
    assert markdown_table(NUMBERS, [7]) == ["| n | is odd |", "| ---: | --- |", "| 7 | odd |"]
    assert code_span("a|b`c\x1b[2J") == "`a¦b'c␛[2J`"


def test_the_screen_has_the_short_text_and_a_style() -> None:
    assert cells(NUMBERS, 7) == {"n": ("7", "strong"), "odd": ("!", "warn")}
    assert cells(NUMBERS, 8)["odd"] == ("", "dim")
    assert [slot.width for slot in fit(NUMBERS, {"n": 2, "odd": 1}, 10)] == [2, 3]


NAMED = (
    Column("name", "NAME", 8, 28, whole=True),
    Column("shape", "SHAPE", 16, 34),
    Column("layout", "LAYOUT", 6, 6, drop=2),
)


@pytest.mark.parametrize(
    ("width", "sizes"),
    [
        (60, {"name": 24, "shape": 24, "layout": 6}),
        (50, {"name": 24, "shape": 16, "layout": 6}),
        (49, {"name": 24, "shape": 23}),  # a name is not cut while another column can leave
        (42, {"name": 24, "shape": 16}),
        (40, {"name": 22, "shape": 16}),
    ],
)
def test_a_whole_name_is_cut_last(width: int, sizes: dict[str, int]) -> None:
    slots = fit(NAMED, {"name": 24, "shape": 24, "layout": 0}, width)
    assert {slot.column.key: slot.width for slot in slots} == sizes


def test_a_column_that_needs_less_leaves_its_cells_to_another() -> None:
    columns = Column("shape", "SHAPE", 15, 34, good=20), Column("lead", "LEAD", 8, 9, drop=2)
    sizes = [slot.width for slot in fit(columns, {"shape": 10, "lead": 0}, 20)]
    assert sizes == [10, 8]
    assert [slot.width for slot in fit(columns, {"shape": 15, "lead": 0}, 20)] == [15]


def test_a_column_keeps_its_good_width_while_another_can_shrink() -> None:
    columns = Column("shape", "SHAPE", 8, 34, good=20), Column("source", "SOURCE", 8, 18)
    sizes = [slot.width for slot in fit(columns, {"shape": 25, "source": 18}, 36)]
    assert sizes == [20, 14]


def test_a_name_with_a_hyphen_is_not_cut_there() -> None:
    assert wrapped("`rocm-tui agree` proposes one", 20) == ["`rocm-tui agree`", "proposes one"]
    assert wrapped("`rocm-tui agree` and rocm-tui", 22)[1] == "rocm-tui"


def test_columns_of_a_part_are_columns_of_the_whole() -> None:
    of_words = fields_of(NUMBERS, len)
    assert text_table(of_words, ["a", "ab"]) == text_table(NUMBERS, [1, 2])
    assert cells(of_words, "abc") == cells(NUMBERS, 3)
    assert problem_line(of_words, "abc") == "3 odd" and problem_line(NUMBERS, 4) == "4"


@pytest.mark.parametrize("group", glossary.groups(), ids=lambda group: group.title)
def test_every_column_and_state_is_explained_on_one_line_of_the_help(
    group: glossary.Group,
) -> None:
    for entry in group.entries:
        assert entry.name and entry.about and entry.about.removesuffix("...")[-1] != ".", entry
    names = [entry.name for entry in group.entries]
    assert len(set(names)) == len(names)


def test_watch_and_ls_call_a_column_alike() -> None:
    titles = {field.key: field.heading for field in LIST}
    assert titles["gain"] == "vs ATen" and titles["lead"] == "lead"
    shown: dict[str, Column] = {column.key: column for column in COLUMNS}
    assert shown["gain"].title == "VS ATEN" and shown["winner"].title == "IN USE"
    assert all(len(shown[key].about) <= 62 for key in shown), "the help is 80 cells wide"
