"""What one line of a log says of an autotuning, value by value."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from backend.model.problem import Shape
from rocm_tui.ingest.formats.autotune_lines import (
    ChoiceRow,
    Died,
    Dots,
    Dtypes,
    Footer,
    Header,
    OutOfResource,
    Part,
    Stats,
    Strides,
    Torn,
    all_known,
    is_config,
    is_dtype,
    may_matter,
    only_part,
    parse_numbers,
    parse_shapes,
    parse_stride_list,
    parts,
    single_part,
    stats_of,
)

MM = Header("mm", ((4, 8), (8, 2)), "mm(4x8, 8x2)", False, None)


def said(text: str) -> list[tuple[int, Part]]:
    found = list(parts(text))
    assert may_matter(text.encode()) or not found
    return found


@pytest.mark.parametrize(
    ("text", "at", "part"),
    [
        ("AUTOTUNE mm(4x8, 8x2)", 0, MM),
        ("x: AUTOTUNE mm(4x8, 8x2) [0/1] end ", 3, MM._replace(after="[0/1] end")),
        ("AUTOTUNE mm(4x8, 8x2)" + "y" * 300, 0, MM._replace(after="y" * 200)),
        ('{"AUTOTUNE mm(4x8, 8x2)', 2, MM._replace(quoted=True)),
        ('"" AUTOTUNE mm(4x8, 8x2)', 3, MM),
        ('"" "AUTOTUNE mm(4x8, 8x2)', 4, MM._replace(quoted=True)),
        ("AUTOTUNE mm(s0x8, 8x2)", 0, Header("mm", (), "mm(s0x8, 8x2)", False, None)),
        ("AUTOTUNE mm(f(1), 8)", 0, Header("mm", (), "mm(f(1), 8)", False, None)),
        ("AUTOTUNE f(, 3)", 0, Header("f", ((), (3,)), "f(, 3)", False, None)),
        ("AUTOTUNE f()", 0, Header("f", (), "f()", False, None)),
        ("AUTOTUNE a.b::c(1)", 0, Header("a.b::c", ((1,),), "a.b::c(1)", False, None)),
        ("AUTOTUNE \U0001f525 mm(4x8, 8x2)", 0, MM),
        ("2026-01-14T08:14:24Z AUTOTUNE mm(4x8, 8x2)", 21, MM._replace(when=1768378464.0)),
        (" 2026-01-14T08:14:24.2Z AUTOTUNE mm(4x8, 8x2)", 24, MM._replace(when=1768378464.2)),
        ("2026-13-14T08:14:24Z AUTOTUNE mm(4x8, 8x2)", 21, MM),
        ("2026-01-14T08:14:24 AUTOTUNE mm(4x8, 8x2)", 20, MM),
        ("AUTOTUNE takes 1.5 seconds", 0, Footer(1.5, None, None, None)),
        (
            "AUTOTUNE benchmarking takes 1 seconds and 2.5 seconds precompiling for 7 choices"
            " and 0.5 seconds prescreening",
            0,
            Footer(1.0, 2.5, 0.5, 7),
        ),
        ("AUTOTUNE takes  2 seconds  for  3 choices", 0, Footer(2.0, None, None, 3)),
        ("strides: [8, 1], [2, 1]", 0, Strides(((8, 1), (2, 1)))),
        ("w: strides: (8, 1), (), [s0, 1] x", 3, Strides(((8, 1), (), None))),
        ("dtypes: torch.int8, torch.int8 end", 0, Dtypes(("torch.int8", "torch.int8"))),
        ("dtypes: torch.int8", 0, Dtypes(("torch.int8",))),
        ("..", -1, Dots("")),
        (" ... ", 0, Dots(" ... ")),
        ("# …", 0, Dots("# …")),
        ("E0] [0/0] out of resource: x", 10, OutOfResource("out of resource: x")),
        ("out of resource: x", 0, OutOfResource("out of resource: x")),
        ("  mm 0.01 ms 100.0%", 2, ChoiceRow("mm", 0.01, 100.0, "")),
        ("mm inf ms 0.0% A=1, B=2 ", 0, ChoiceRow("mm", inf, 0.0, "A=1, B=2")),
        ("mm 0.0 ms nan% A=1", 0, ChoiceRow("mm", 0.0, None, "A=1")),
        ("mm 0.0 ms <DIVIDED BY ZERO ERROR>", 0, ChoiceRow("mm", 0.0, None, "")),
        ("[rank0]:mm 0.01 ms 100.0%", 8, ChoiceRow("mm", 0.01, 100.0, "")),
        ('"mm 0.01 ms 100.0%",', 1, ChoiceRow("mm", 0.01, 100.0, "")),
        ("#mm 0.01 ms 100.0%", 1, ChoiceRow("mm", 0.01, 100.0, "")),
        ("took 5 ms then mm 0.01 ms 100.0%", 15, ChoiceRow("mm", 0.01, 100.0, "")),
        ("A='x', B=2 0.01 ms 50.0%", 0, ChoiceRow("", 0.01, 50.0, "A='x', B=2")),
        ("note A=1, B=2 0.01 ms 50.0%", 5, ChoiceRow("", 0.01, 50.0, "A=1, B=2")),
        ("B=2 0.01 ms 50.0% C=3", 0, ChoiceRow("", 0.01, 50.0, "B=2, C=3")),
        ("ExternKernelCaller(aten.mm) 0.01 ms 9.0%", 0, ChoiceRow("aten.mm", 0.01, 9.0, "")),
        ("w TritonTemplateCaller(/a.py, A=1) 1 ms 9.0%", 2, ChoiceRow("", 1.0, 9.0, "A=1")),
        ("mm 0.2882s 100.0%", 0, ChoiceRow("mm", 0.2882, 100.0, "")),
        ('{"num_choices": 3, "best_kernel": "mm", "best_time": 0.5}', 0, Stats(3, "mm", 0.5)),
        ('x {"num_choices": 3, "best_kernel": "mm", "best_time": 1} y', 2, Stats(3, "mm", 1.0)),
        ("Fatal Python error: Aborted", 0, Died("Fatal Python error: Aborted")),
        (" Aborted (core dumped) ", 1, Died("Aborted (core dumped)")),
    ],
)  # fmt: skip
def test_the_one_part_of_a_line(text: str, at: int, part: Part) -> None:
    assert said(text) == ([(at, part)] if at >= 0 else [])
    assert single_part(text) == ((at, part) if at >= 0 else None)


@pytest.mark.parametrize(
    "text",
    [
        "MY_AUTOTUNE mm(4x8, 8x2)",
        "xAUTOTUNE mm(4x8, 8x2)",
        "AUTOTUNE is on",
        "strides: contiguous",
        "mm 0.01 ms",
        "mm 0.01 ms fast",
        "0.01 ms 100%",
        "it took 12 ms 3 x",
        "took 0.1234s 12.5% of all",
        "TritonTemplateCaller(/a.py) 1 ms 9.0%",
        "hello",
        "",
    ],
)
def test_lines_that_say_nothing(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "at", "kind", "words"),
    [
        ("AUTOTUNE mm(4x8, 8x2", 0, "any", "the beginning of a table"),
        ("SubProcess AUTOTUNE takes x", 11, "any", "the end of a table"),
        ('w {"num_choices": 3', 2, "any", "these statistics"),
        ('{"num_choices": [', 0, "any", "these statistics"),
        ("strides: [8, 1", 0, "operands", "these strides"),
        ("strides: (8, 1", 0, "operands", "these strides"),
        ("  mm 0.0x1 ms 100.0%", 2, "row", "the row of mm"),
        ("mm soon ms 100.0%", 0, "row", "the row of mm"),
        ("  mm 0.0100 ms 10", 2, "row", "the row of mm"),
        ("  mm 0.0100 ms ", 2, "row", "the row of mm"),
        ("[x] 0.0100 ms 10.0%", 4, "row", "a row without a name"),
    ],
)
def test_parts_that_cannot_be_read(text: str, at: int, kind: str, words: str) -> None:
    ((place, part),) = said(text)
    assert isinstance(part, Torn) and (place, part.kind) == (at, kind)
    assert part.what.startswith(words) and part.what.endswith(text[-3:])
    assert only_part(text) is None


def test_several_parts_of_a_line() -> None:
    footer = "SingleProcess AUTOTUNE takes 1.5 seconds"
    assert said(f"AUTOTUNE mm(4x8, 8x2) AUTOTUNE mm(4x8, 8x2) {footer}") == [
        (0, MM._replace(after=f"AUTOTUNE mm(4x8, 8x2) {footer}")),
        (22, MM._replace(after=footer)),
        (58, Footer(1.5, None, None, None)),
    ]
    assert single_part(f"AUTOTUNE mm(4x8, 8x2) {footer}") is None
    row = ChoiceRow("mm", 0.01, 50.0, "A=1")
    assert said(f"  mm 0.01 ms 50.0% A=1 {footer}")[0] == (2, row)
    assert said(f"[w] mm 0.01 ms 50.0% A=1[w] {footer}")[0] == (4, row)
    assert said(f"mm 0.01 ms 50.0% torn {footer}")[0] == (0, row._replace(description=""))
    ((_, part), _) = said(f"  mm 0.01 ms 50.0% A=1x{footer}")
    assert isinstance(part, Torn) and part.kind == "row" and "the row of mm" in part.what


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("AUTOTUNE mm(4x8, 8x2)", True),
        ("AUTOTUNE mm(4x8, 8x2) x", False),
        ("x AUTOTUNE mm(4x8, 8x2)", False),
        ("SingleProcess AUTOTUNE takes 1.5 seconds", True),
        ("AUTOTUNE takes 1.5 seconds", False),
        ("x SingleProcess AUTOTUNE takes 1.5 seconds", False),
        ("mm 0.01 ms 100.0%", True),
        ("# mm 0.01 ms 100.0%", True),
        ("x mm 0.01 ms 100.0%", False),
        ("strides: [8, 1]", True),
        ("x strides: [8, 1]", False),
        ("Fatal Python error: Aborted", False),
        ("hello", False),
    ],
)
def test_a_line_that_is_nothing_but_a_part(text: str, whole: bool) -> None:
    assert (only_part(text) is not None) is whole


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("4x8, 8", ((4, 8), (8,))),
        ("4x8,8", ((4, 8), (8,))),
        (", 1", ((), (1,))),
        ("  ", ()),
        ("4xs0", None),
        ("4x-1", None),
        ("٤x4", None),
        ("9" * 19 + ",1", ((10**19 - 1,), (1,))),
        ("9" * 20 + ",1", None),
    ],
)
def test_sizes(text: str, shapes: tuple[Shape, ...] | None) -> None:
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("8, 1", (8, 1)), ("8,1", (8, 1)), ("8,", (8,)), ("-1, 0", (-1, 0)), ("", ()), (" ", ()),
        ("s0, 1", None), ("8, , 1", None), ("1" * 20, None),
    ],
)  # fmt: skip
def test_numbers(text: str, numbers: Shape | None) -> None:
    assert parse_numbers(text) == numbers


def test_strides_are_all_known_or_none() -> None:
    assert parse_stride_list("[8, 1], (2,)") == ((8, 1), (2,))
    assert parse_stride_list("[8, s0], [2, 1]") is None and parse_stride_list("none") is None
    assert all_known([(1,), ()]) == ((1,), ()) and all_known([(1,), None]) is None


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("name_only", True),
        ("A=1, B='x y', C=(1, 2), D=[3]", True),
        ("A=True, B=None", True),
        ("A=Tru", False),
        ("A=No, B=1", False),
        ("A=1, B", False),
        ("A=1,B=2", False),
        ("A=", False),
        ("A=1 B=2", False),
    ],
)
def test_a_whole_configuration(text: str, whole: bool) -> None:
    assert is_config(text) is whole


def test_a_dtype() -> None:
    assert is_dtype("torch.float8_e4m3fn") and is_dtype("torch.uint7")
    assert not is_dtype("torch.float33") and not is_dtype("float32")


@pytest.mark.parametrize(
    "change",
    [
        {"num_choices": 0},
        {"num_choices": "3"},
        {"num_choices": True},
        {"num_choices": 3.0},
        {"best_kernel": None},
        {"best_time": "1"},
        {"best_time": False},
        {"best_time": -0.5},
        {"best_time": float("nan")},
        {"best_time": 10**400},
    ],
)
def test_statistics_that_cannot_be(change: dict[str, Any]) -> None:
    document: dict[str, Any] = {"num_choices": 1, "best_kernel": "m\x07m", "best_time": 0}
    assert stats_of(document) == Stats(1, "mm", 0.0)
    assert stats_of({**document, **change}) is None and stats_of([document]) is None
