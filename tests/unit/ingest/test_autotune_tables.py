"""Which table a line of a log belongs to, by its numbers, and what is said of what fits none."""

from __future__ import annotations

import pytest

from backend.model.session import Fault
from backend.model.tuning import Seconds
from rocm_tui.ingest.formats.autotune_lines import (
    ChoiceRow,
    Dtypes,
    Footer,
    Header,
    Stats,
    Strides,
)
from rocm_tui.ingest.formats.autotune_tables import (
    MAX_OPEN,
    PATIENCE,
    SHOWN,
    Block,
    Held,
    LogProblems,
    OpenTables,
)
from rocm_tui.ingest.formats.processes import Origins
from tests.support.log_lab import read

HEADER = Header("mm", ((4, 8), (8, 2)), "mm(4x8, 8x2)", False, 7.0)
FLOAT = "torch.float32"


def block(*rows: ChoiceRow, n: int = 1, key: str = "", **facts: object) -> Block:
    who = Origins().of(key)
    made = Block(n, ("/a.log",), HEADER, who, who, 1, 0, rows=[*rows])
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def row(name: str, ms: float, percent: float | None = None, description: str = "") -> ChoiceRow:
    return ChoiceRow(name, ms, percent, description)


@pytest.mark.parametrize(
    ("rows", "new", "fits"),
    [
        ([], row("a", 1.0, 100.0), True),
        ([], row("a", 1.0), True),
        ([], row("a", 1.0, 99.9), False),
        ([row("a", 1.0)], row("b", 1.0, 100.0), True),
        ([row("a", 1.0)], row("b", 2.0, 50.0), True),
        ([row("a", 1.0)], row("b", 2.0), True),
        ([row("a", 1.0)], row("b", 0.9, 111.1), False),
        ([row("a", 1.0)], row("a", 2.0, 50.0), False),
        ([row("", 1.0, None, "A=1")], row("", 2.0, 50.0, "A=2"), True),
        ([row("", 1.0, None, "A=1")], row("", 2.0, 50.0, "A=1"), False),
        ([row("a", 1.0)], row("b", 2.0, 50.06), False),
        ([row("a", 1.0)], row("b", 2.0, 49.94), False),
        ([row("a", 1.0)], row("b", 2.0, 50.05), True),
        ([row("a", 1.0)], row("b", 2.0, 49.95), True),
        ([row("a", 0.001)], row("b", 0.002, 53.8), True),
        ([row("a", 0.001)], row("b", 0.002, 46.3), True),
        ([row("a", 0.001)], row("b", 0.002, 54.0), False),
        ([row("a", 0.001)], row("b", 0.002, 46.2), False),
        ([row("a", 0.0)], row("b", 0.0, 12.0), True),
        ([row("a", 1.0)], row("b", float("inf"), 0.0), True),
        ([row("a", 1.0)], row("b", float("inf")), True),
        ([row("a", 1.0)], row("b", float("inf"), 50.0), False),
        ([row("a", 1.0)], row("b", float("nan"), 0.0), False),
    ],
)
def test_a_row_that_can_be_the_next(rows: list[ChoiceRow], new: ChoiceRow, fits: bool) -> None:
    assert block(*rows).takes_row(new) is block(*rows).takes(new) is fits
    over = block(*rows, footer=Footer(1.0, None, None, None)), block(*rows, ended=True)
    assert not any(each.takes_row(new) for each in over)


@pytest.mark.parametrize(
    ("rows", "new", "over", "behind_dots"),
    [
        ([], row("b", 0.5, 90.0), False, False),
        ([row("a", 1.0)], row("b", 0.9, 100.0), True, True),
        ([row("a", 1.0)], row("b", 1.0, 100.0), False, False),
        ([row("a", 1.0)], row("b", 2.0, 100.0), True, True),
        ([row("a", 1.0)], row("b", 2.0, 50.0), False, False),
        ([row("a", 1.0)], row("b", 2.0, 70.0), False, True),
        ([row("a", 1.0)], row("a", 2.0, 50.0), False, True),
    ],
)
def test_a_row_of_a_table_whose_header_is_missing(
    rows: list[ChoiceRow], new: ChoiceRow, over: bool, behind_dots: bool
) -> None:
    assert block(*rows).is_over_before(new) is over
    assert block(*rows, elided=True).is_over_before(new) is behind_dots


FIT = Strides(((8, 1), (2, 1)))
TYPES = Dtypes((FLOAT, FLOAT))


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        (FIT, True),
        (Strides(((8, 1), None)), True),
        (Strides(((8, 1),)), False),
        (Strides(((8, 1), (2, 1), (1,))), False),
        (Strides(((8, 1), (2,))), False),
        (TYPES, True),
        (Dtypes((FLOAT,)), False),
        (Dtypes((FLOAT, "torch.flo")), False),
    ],
)
def test_operands_as_many_as_the_header_has(part: Strides | Dtypes, fits: bool) -> None:
    name = "strides" if isinstance(part, Strides) else "dtypes"
    assert block().takes_operands(part) is block().takes(part) is fits
    unknown = block(header=HEADER._replace(shapes=()))
    assert unknown.takes_operands(part) is (part != Dtypes((FLOAT, "torch.flo")))
    ended = block(footer=Footer(1.0, None, None, None))
    for late in (block(**{name: part[0]}), block(row("a", 1.0)), ended):
        assert not late.lacks(part) and not late.takes_operands(part)
    assert not block().is_over_before_operands(part)
    assert not block(**{name: part[0]}).is_over_before_operands(part)
    for next_ in (block(row("a", 1.0)), block(**{name: ((1,),)})):
        assert next_.is_over_before_operands(part)
        next_.crowded = True
        assert not next_.is_over_before_operands(part)


def test_an_end_has_no_fewer_choices_than_there_are_rows() -> None:
    rows = [row("a", 1.0), row("b", 2.0)]
    for choices, fits in ((None, True), (1, False), (2, True), (3, True)):
        footer = Footer(1.0, None, None, choices)
        assert block(*rows).takes_footer(footer) is block(*rows).takes(footer) is fits
    assert not block(footer=Footer(1.0, None, None, None)).takes_footer(footer)


@pytest.mark.parametrize(
    ("stats", "fits"),
    [
        (Stats(2, "a", 1.0), True),
        (Stats(2, "a", 1.004), True),
        (Stats(2, "a", 1.006), False),
        (Stats(2, "b", 1.0), False),
    ],
)
def test_statistics_of_the_same_winner(stats: Stats, fits: bool) -> None:
    assert block(row("a", 1.0), row("b", 2.0)).fits_stats(stats) is fits
    assert not block().fits_stats(stats) and not block(row("a", 1.0), stats=stats).fits_stats(stats)
    small = block(row("a", 0.0001))
    assert small.fits_stats(Stats(2, "a", 0.00015)) and not small.fits_stats(Stats(2, "a", 0.0002))


@pytest.mark.parametrize(
    ("after", "said", "own"),
    [
        ("", "A=1, B=2", "A=1, B=2"), ("[0/1]", "A=1, B=2 [0/1]", "A=1, B=2"),
        ("[0/1]", "A=1, B=2 [3/77]", "A=1, B=2"), ("x y", "A=1 x y", "A=1"),
        ("x y", "A=1 y", "A=1 y"), ("end", "A=1end", "A=1"), ("end", "A=1", "A=1"),
        ("end", "", ""),
    ],
)  # fmt: skip
def test_what_a_logger_puts_behind_each_line_is_no_setting(after: str, said: str, own: str) -> None:
    its = block(header=HEADER._replace(after=after)).without_wrapper(row("a", 1.0, None, said))
    assert its.description == own


def test_the_tuning_of_a_table() -> None:
    rows = [row("b", 1.0), row("a", 2.0, 50.0, "A=1"), row("c", float("inf"), 0.0)]
    footer = Footer(1.5, 2.5, 0.5, 9)
    one = block(*rows, footer=footer, strides=FIT[0], dtypes=TYPES[0])
    told = one.tuning(False)
    assert (told.op, told.shapes, told.when, told.sources) == (
        "mm",
        HEADER.shapes,
        7.0,
        ("/a.log",),
    )
    assert (told.strides, told.dtypes, told.state, told.timed) == (*FIT, *TYPES, "done", 0)
    assert (told.num_choices, told.seconds) == (9, Seconds(1.5, 2.5, 0.5))
    assert [(c.name, c.ms, c.failed, c.description) for c in told.choices] == [
        ("b", 1.0, False, ""), ("a", 2.0, False, "A=1"), ("c", None, True, ""),
    ]  # fmt: skip
    running = block(*rows, stats=Stats(7, "b", 1.0), strides=((8, 1), None)).tuning(True)
    assert (running.state, running.timed, running.strides) == ("running", 3, ())
    assert (running.num_choices, running.seconds, running.dtypes) == (7, Seconds(), ())
    both = block(*rows, stats=Stats(7, "b", 1.0), footer=Footer(1.0, None, None, None))
    assert both.num_choices == 7 and block(*rows).num_choices is None
    assert block(row("", 1.0)).tuning(False).choices[0].name is None


@pytest.mark.parametrize(
    ("facts", "rows", "state"),
    [
        ({}, SHOWN - 1, "cut"), ({}, SHOWN, "done"), ({"ended": True}, 1, "done"),
        ({"elided": True}, 1, "done"), ({"torn": True}, SHOWN, "cut"),
        ({"footer": Footer(1.0, None, None, None)}, 1, "done"),
    ],
)  # fmt: skip
def test_when_a_table_is_whole(facts: dict[str, object], rows: int, state: str) -> None:
    own = block(*(row(f"a{at}", 1.0) for at in range(rows)), **facts)
    assert own.tuning(False).state == state and own.tuning(True).state == "running"
    assert own.complete is (state == "done" or "torn" in facts)
    own.restart()
    assert not own.complete and not own.rows and own.footer is None and not own.torn


def test_lines_of_one_table_come_in_an_order() -> None:
    who, own, end = Origins().of(""), block(), Footer(1.0, None, None, None)
    parts = [own, FIT, TYPES, row("a", 1.0), row("b", 1.0), row("c", 2.0), end]
    held = [Held(part, who, at, at) for at, part in enumerate(parts)]
    for at, one in enumerate(held):
        assert [one.follows(other) for other in held] == [
            before < at or (4 in (before, at) and 3 in (before, at)) for before in range(7)
        ]
    assert not Held(row("a", 2.0), who, 9, 9).follows(held[3]), "a name comes once"


def test_open_tables_are_found_by_stream_and_by_age() -> None:
    tables = OpenTables()
    one, two, other = (block(n=n, key=key) for n, key in ((1, ""), (2, ""), (3, "[x]")))
    assert one.key == two.key != other.key and not tables
    for each in (one, two, other):
        tables.add(each)
    assert tables.of(one.key) == [one, two] and tables.of(other.key) == [other]
    assert [*tables] == [one, two, other] and len(tables) == 3 and two in tables
    tables.touch(one, 9)
    assert [*tables] == [two, other, one] and one.touched == 9
    assert tables.newest() == [one, other, two]
    assert tables.expired(PATIENCE) == [] and tables.expired(PATIENCE + 1) == [two, other]
    assert tables.expired(PATIENCE + 10) == [two, other, one]
    tables.remove(two)
    tables.remove(two)
    assert two not in tables and tables.of(one.key) == [one] and len(tables) == 2
    tables.remove(one)
    assert tables.of(one.key) == [] and [*tables] == [other]
    for n in range(MAX_OPEN + 1):
        tables.add(block(n=100 + n))
    assert len(tables.newest()) == MAX_OPEN


def test_what_is_missing_is_counted_by_stream() -> None:
    problems = LogProblems("/a.log")
    one, other = Origins().of(""), Origins().of("[x]")
    for place in (3, 4):
        problems.orphan(one, place)
    problems.orphan(other, 5)
    problems.end_of_orphans(one, 6, 9)
    problems.end_of_orphans(one, 7, None)
    problems.report_orphans(one)
    problems.report_orphans()
    problems.report_orphans()
    told = problems.take()
    assert problems.take() == [] and problems.headless == 3
    assert [(fault.source, fault.line) for fault in told] == [("/a.log", at) for at in (6, 7, 5)]
    words = [("2 rows", "9 choices"), ("the end", "beginning"), ("1 row", "beginning")]
    assert all(a in f.what and b in f.what for f, (a, b) in zip(told, words, strict=True))
    problems.once("k", 1, "said")
    problems.once("k", 2, "said")
    assert len(problems.take()) == 1


TABLE = "AUTOTUNE mm(4x8, 8x2)\n"
A, B = "  a 0.0100 ms 100.0%\n", "  b 0.0200 ms 50.0%\n"
END = "SingleProcess AUTOTUNE takes 1.5 seconds\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (A, 1, ["1 row", "beginning is missing"]),
        (END, 1, ["the end", "beginning is missing"]),
        (A + B + END, 3, ["2 rows", "beginning is missing"]),
        (TABLE, 1, ["no readable rows", "mm(4x8, 8x2)"]),
        (TABLE + END, 1, ["no readable rows"]),
        (TABLE + B, 2, ["fastest row", "mm(4x8, 8x2)", "missing"]),
        (TABLE + A + "  b 0.0x ms 50.0%\n", 3, ["row of b", "cannot be read"]),
        (TABLE + "strides: [8, 1]\n" + A, 2, ["strides", "do not fit", "mm(4x8, 8x2)", "(8, 1)"]),
        (TABLE + "dtypes: torch.int8\n" + A, 2, ["dtypes", "do not fit", "torch.int8"]),
        (TABLE + "strides: [8, 1\n" + A, 2, ["strides cannot be read"]),
        (TABLE + "  a 0.0100 ms 100.0% A=1, B\n", 2, ["configuration of a", ": B"]),
        (TABLE + A[:-1] + " A=1, B=2\n" + B[:-1] + " A=1\n", 3, ["configuration of b", "A=1"]),
        (TABLE + A + "Aborted (core dumped)\n", 3, ["after 1 row of", "Aborted"]),
        (TABLE + "Aborted (core dumped)\n", 2, ["no rows follow", "Aborted"]),
        (TABLE + A + END + "Aborted (core dumped)\n", 4, ["Aborted"]),
        ("Exception out of resource: x\n", 1, ["out of resource: x"]),
        (
            '{"num_choices": 2, "best_kernel": "a", "best_time": 1}\n',
            1,
            ["1 statistic", "not shown"],
        ),
    ],
)
def test_what_is_missing_is_told_where_it_is_missing(
    text: str, line: int, words: list[str]
) -> None:
    result = read(text)
    (fault,) = result.problems
    assert isinstance(fault, Fault) and fault.line == line
    assert all(word in fault.what for word in words), fault.what
    states = [tuning.state for tuning in result.tunings]
    assert not states or (states == ["done"]) is (END in text)


def test_strides_and_rows_elsewhere_are_no_problem() -> None:
    assert not read("strides: [8, 1\n").problems and not read("  b 0.0x ms 50.0%\n").problems
    late = read(TABLE + A + "strides: [8, 1\n" + B + END)
    assert not late.problems and len(late.tunings[0].choices) == 2
