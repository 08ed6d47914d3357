"""Values of logs that are none, and lines that end too early: a problem with its line, no value."""

from __future__ import annotations

import json

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.formats import mm_log
from rocm_tui.ingest.formats.autotune_lines import only_part
from rocm_tui.ingest.formats.stderr_log import StderrLog
from rocm_tui.ingest.records import Seen
from tests.support.log_lab import BMM, MM, read
from tests.support.scan_lab import FILLER, scanned

LAST = "triton_mm_3 0.0200 ms 50.0% BLOCK_M=32, num_warps=2"
CONFIG = "BLOCK_M=32, num_warps=2"


@pytest.mark.parametrize(
    "torn",
    [
        "mm 0.01x0 ms 100.0%",
        "mm 1e-2 ms 100.0%",
        "mm -0.0100 ms 100.0%",
        "mm 0.0.1 ms 100.0%",
        "mm 0.0100 ms 100.",
        "mm 0.0100 ms 10",
    ],
)
def test_a_row_whose_numbers_are_none(torn: str) -> None:
    """The fastest choice is not in the table then: nobody is called the winner."""
    for prefix in ("", "[rank1]:", "2026-05-19 21:15:50,375 - INFO - "):
        text = MM.replace("mm 0.0100 ms 100.0%", torn)
        result = read("".join(f"{prefix}{line}\n" for line in text.splitlines()))
        (problem,) = result.problems
        assert problem.line == 4 and problem.what.startswith("the row of mm cannot be read: mm ")
        (tuning,) = result.tunings
        assert [choice.name for choice in tuning.choices] == ["triton_mm_3"]
        assert tuning.state == "cut"


@pytest.mark.parametrize(
    "line",
    ["mm 0.01x0 ms 100.0%", "mm 0.0100 ms 10", "Aborted (core dumped)", "SubProcess AUTOTUNE ta"],
)
def test_what_cannot_be_read_is_no_part_of_a_table_that_run_hides(line: str) -> None:
    assert only_part(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "  step took 5 ms CUDA",
        "  GPU0 busy 12.5 ms of 20",
        "  mean 1e5 ms per token",
        "  saw -3 ms drift",
        "  epoch 12 ms 3 x",
    ],
)
def test_other_lines_between_the_rows_are_no_torn_rows(line: str) -> None:
    assert not read(MM.replace("  triton_mm_3", f"{line}\n  triton_mm_3")).problems


@pytest.mark.parametrize(
    "config",
    [
        'BLOCK_M=32, num_warps=4"}',
        "BLOCK_M=32, num_warps=4 [repeated",
        "BLOCK_M=32, EVEN_K=Tru",
        "BLOCK_M=32, num_wa",
        "BLOCK_M=32,",
        "BLOCK_M=32, num_warps=",
        "ACC_TYPE='tl.flo",
        "BLOCK_M=32, SHAPE=(1, 2",
        'BLOCK_M=32, num_warps=4\', "timestamp": "2026"',
    ],
)
def test_half_a_configuration_is_not_shown(config: str) -> None:
    result = read(MM.replace(CONFIG, config) + BMM)
    assert [p.line for p in result.problems] == [5]
    assert "the configuration of triton_mm_3 cannot be read" in result.problems[0].what
    choice = result.tunings[0].choices[1]
    assert (choice.ms, choice.description, choice.config) == (0.02, "", {})
    assert len(result.tunings) == 2


@pytest.mark.parametrize(
    "config",
    [
        "BLOCK_M=32, EVEN_K=True, X=None",
        "P=\"'ieee'\", ACC_TYPE='tl.float32', num_warps=2",
        "TILE=(16, 32), LIST=[1, 2], SM_SCALE=0.125",
        "kernel_Name<8, 4>",
        "DTYPE=torch.float32, num_warps=2",
    ],
)
def test_a_whole_configuration_is_kept(config: str) -> None:
    result = read(MM.replace(CONFIG, config))
    assert not result.problems
    assert result.tunings[0].choices[1].description == config


@pytest.mark.parametrize(
    "prose",
    [
        "strides: contiguous where nothing else is said",
        "the dtypes: are mixed",
        "it took 5 ms 10 times",
    ],
)
def test_prose_with_words_of_tables_is_no_torn_part(prose: str) -> None:
    header, *rest = MM.splitlines()
    lines = [prose, header, prose, *rest, prose]
    result = read("".join(f"{line}\n" for line in lines))
    assert not result.problems
    assert result.tunings == read(MM).tunings


@pytest.mark.parametrize("wrong", ["num_warps", "num_war ps=2", "=2"])
def test_the_part_of_a_configuration_that_cannot_be_read_is_named(wrong: str) -> None:
    for config in (f"BLOCK_M=32, {wrong}", f"{wrong}, BLOCK_M=32"):
        result = read(MM.replace(CONFIG, config))
        what = f"the configuration of triton_mm_3 cannot be read: {wrong}"
        assert [problem.what for problem in result.problems] == [what]
        assert result.tunings[0].choices[1].description == ""


def test_a_log_that_ends_within_a_row() -> None:
    """Settings are missing that each other row has."""
    rows = MM.splitlines()[:4]
    rows += ["  triton_mm_3 0.0200 ms 50.0% A=1, BLOCK_M=32, num_warps=2"]
    for rest in ("A=1, BLOCK_M=32", "A=1"):
        result = read("\n".join([*rows, f"  triton_mm_4 0.0400 ms 25.0% {rest}"]))
        (problem,) = result.problems
        assert (problem.line, problem.what) == (
            6,
            f"the configuration of triton_mm_4 ends at {rest}",
        )
        assert [c.description for c in result.tunings[0].choices][1:] == [
            "A=1, BLOCK_M=32, num_warps=2",
            "",
        ]
    whole = read(
        "\n".join([*rows, "  triton_mm_4 0.0400 ms 25.0% B=1", MM.splitlines()[-1]]).replace(
            "2 choices", "3 choices"
        )
    )
    assert not whole.problems


@pytest.mark.parametrize(
    "dtypes",
    [
        "torch.bfloat16, torch.bflo",
        "torch.bfloat16,",
        "torch.bfloat16",
        "torch.bfloat16, torch.float33",
    ],
)
def test_a_dtype_that_is_none(dtypes: str) -> None:
    result = read(MM.replace("torch.bfloat16, torch.bfloat16", dtypes))
    assert [p.line for p in result.problems] == [3]
    assert result.problems[0].what.startswith("these dtypes do not fit AUTOTUNE mm(64x32, 32x16): ")
    (tuning,) = result.tunings
    assert (tuning.dtypes, len(tuning.choices), tuning.state) == ((), 2, "done")


@pytest.mark.parametrize(
    "dtype",
    ["float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "uint4", "int8", "complex64", "bool"],
)
def test_each_dtype_of_torch(dtype: str) -> None:
    result = read(MM.replace("torch.bfloat16", f"torch.{dtype}"))
    assert not result.problems
    assert result.tunings[0].dtypes == (f"torch.{dtype}",) * 2


@pytest.mark.parametrize("strides", ["[32, 1], [16, ", "[32, 1]", "[32, 1, 5], [16, 1]", "(32"])
def test_strides_that_are_none(strides: str) -> None:
    result = read(MM.replace("[32, 1], [16, 1]", strides))
    assert [p.line for p in result.problems] == [2]
    assert "strides" in result.problems[0].what
    assert result.tunings[0].strides == ()


@pytest.mark.parametrize(
    "footer",
    [
        "SingleProcess AUTOTUNE benchmarking takes 1.5x seconds",
        "SingleProcess AUTOTUNE benchmarking ta",
        "SubProcess AUTOTUNE takes seconds",
        "SingleProcess AUTOTUNE takes -1.0 seconds",
        "SubProcess AUTOTUNE takes inf seconds",
    ],
)
def test_the_end_of_a_table_without_its_time(footer: str) -> None:
    lines = [*MM.splitlines()[:-1], footer]
    result = read("\n".join(lines) + "\n")
    assert [p.line for p in result.problems] == [6]
    assert "the end of a table cannot be read" in result.problems[0].what
    assert result.tunings[0].seconds.benchmark is None


STATS = '{"num_choices": 20, "best_kernel": "mm", "best_time": 0.0100}'


@pytest.mark.parametrize(
    "stats",
    [
        STATS[:40],
        STATS.replace("20", "-1"),
        STATS.replace("20", '"20"'),
        STATS.replace("0.0100", "NaN"),
        STATS.replace("0.0100", "-0.5"),
        STATS.replace("0.0100", '"fast"'),
    ],
)
def test_statistics_that_cannot_be_read(stats: str) -> None:
    result = read(f"Autotune Choices Stats:\n{stats}\n" + MM.rpartition("SingleProcess")[0])
    assert [p.line for p in result.problems] == [2]
    assert "these statistics cannot be read" in result.problems[0].what
    assert result.tunings[0].num_choices is None


def test_statistics_without_tables_are_counted() -> None:
    for count, words in ((1, "1 statistic reports a tuning"), (3, "3 statistics report tunings")):
        for prefix in ("", "[rank0]:"):
            log = f"{prefix}Autotune Choices Stats:\n{prefix}{STATS}\n" * count
            (problem,) = read(log).problems
            assert problem.line == 2 and problem.what.startswith(words)
            assert scanned((FILLER * 2000 + log).encode()).problems[0].what == problem.what
    both = read(f"{STATS}\n{MM}{STATS}\n{STATS}\n")
    assert [p.what[:12] for p in both.problems] == ["2 statistics"]
    assert both.tunings[0].num_choices == 2


def test_statistics_without_tables_are_counted_while_the_log_grows() -> None:
    """The table of the last ones of each process may still come."""
    reader = StderrLog("x.log")
    stats = [f"[rank{rank}]:{STATS}\n" for rank in (0, 1)]
    reader.feed("".join(stats).encode())
    assert reader.settle() == []
    reader.feed((stats[0] * 2).encode())
    (problem,) = reader.settle()
    assert isinstance(problem, Fault) and (problem.line, problem.what[:12]) == (1, "2 statistics")
    assert reader.settle() == []
    table = "".join(f"[rank0]:{line}\n" for line in MM.splitlines())
    assert not [record for record in reader.feed(table.encode()) if isinstance(record, Fault)]
    (problem,) = reader.close()
    assert isinstance(problem, Fault) and (problem.line, problem.what[:11]) == (2, "1 statistic")


def test_statistics_of_tables_are_not_counted() -> None:
    """Before or behind their table, of two processes, or of a table whose beginning is missing."""
    table = MM.rpartition("SingleProcess")[0]
    footer = "SingleProcess AUTOTUNE takes 1.0 seconds\n"
    ranks = "".join(f"[rank{r}]:{line}\n" for line in (STATS, *MM.splitlines()) for r in (0, 1))
    for log in (f"{STATS}\n{MM}", table + footer + STATS + "\n", ranks):
        assert not read(log).problems
    headless = read(STATS + "\n" + "\n".join(MM.splitlines()[3:]) + "\n")
    assert ["beginning is missing" in p.what for p in headless.problems] == [True]


def test_seconds_of_torch_2_0_are_milliseconds() -> None:
    """It printed the unit `s` behind what its benchmark gives in milliseconds."""
    for prefix in ("", "[rank1]:", "[2023-03-24 10:11:12,345] "):
        text = (
            "AUTOTUNE bias_addmm(512x1979, 512x512, 512x1979)\n  triton_mm_61 0.2882s 100.0%\n"
            "  bias_addmm 0.4889s 58.9%\n  addmm 10.5603s 2.7%\n"
            "SingleProcess AUTOTUNE takes 2.949904441833496 seconds\n"
        )
        result = read("".join(f"{prefix}{line}\n" for line in text.splitlines()))
        assert not result.problems
        (tuning,) = result.tunings
        assert [(c.name, c.ms) for c in tuning.choices] == [
            ("triton_mm_61", 0.2882),
            ("bias_addmm", 0.4889),
            ("addmm", 10.5603),
        ]
        assert tuning.seconds.benchmark == pytest.approx(2.9499, abs=1e-4)
        assert tuning.state == "done"
    loose = read(MM.replace("  triton_mm_3", "  step 0.1234s 12.5% of all\n  triton_mm_3"))
    assert len(loose.tunings[0].choices) == 2


FAULT = (
    "Memory access fault by GPU node-4 (Agent handle: 0x55d0) on address 0x7f00. Reason: Unknown."
)
DEATHS = [
    FAULT,
    "HW Exception by GPU node-2 (Agent handle: 0x7f) reason :GPU Hang",
    ":0:rocdevice.cpp :2984: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION",
    "free(): invalid pointer",
    "double free or corruption (out)",
    "terminate called after throwing an instance of 'c10::Error'",
    "Fatal Python error: Segmentation fault",
    "Aborted (core dumped)",
]


@pytest.mark.parametrize("death", DEATHS)
def test_why_a_process_ended(death: str) -> None:
    for prefix in ("", "[rank0]:"):
        begun = [f"{prefix}{line}\n" for line in MM.splitlines()]
        empty = read("".join(begun[:3]) + f"{death}\nAborted (core dumped)\n")
        assert [(p.line, p.what) for p in empty.problems] == [
            (4, f"no rows follow AUTOTUNE mm(64x32, 32x16): {death}")
        ]
        half = read("".join(begun[:5]) + f"{death}\n")
        assert [p.what for p in half.problems] == [
            f"after 2 rows of AUTOTUNE mm(64x32, 32x16): {death}"
        ]
        assert half.tunings[0].state == "cut"
        whole = read("".join(begun) + f"{death}\nAborted (core dumped)\n")
        assert [(p.line, p.what) for p in whole.problems] == [(7, death)]
        assert whole.tunings[0].state == "done"


def test_two_ends_far_apart_are_two_problems() -> None:
    log = f"{FAULT}\n{FILLER * 100}{FAULT}\n"
    assert [p.line for p in read(log).problems] == [1, 102]


@pytest.mark.parametrize("death", [line for line in DEATHS if " by GPU node-" in line])
def test_a_fault_in_the_middle_of_a_long_log(death: str) -> None:
    log = f"{FILLER * 2000}{death}\nAborted (core dumped)\n{FILLER * 2000}"
    assert [p.what for p in scanned(log.encode()).problems] == [death]


@pytest.mark.parametrize("time", ['"0.5"', "-0.5", "true", "[1]", "{}", "null"])
def test_an_entry_of_an_mm_log_whose_time_is_none(time: str) -> None:
    good = {"(64, 32, 16)": [{"type": "cublas", "time": 0.25}, None], "kernel_type": "mm"}
    bad = json.dumps(good).replace("0.25", time)
    records = mm_log.parse(f"[{bad}, {json.dumps(good)}]".encode(), "m.json")
    problem, seen = records
    assert isinstance(seen, Seen) and seen.uid == "m.json#2"
    assert "entry 1 of an MM log: a choice has no time: " in repr(problem)


def test_a_symbol_among_the_sizes_of_an_mm_log_is_unknown() -> None:
    entry = {"(s77, 32, 16)": [{"type": "cublas", "time": 0.25}], "kernel_type": "mm"}
    (seen,) = mm_log.parse(json.dumps([entry]).encode(), "m.json")
    assert isinstance(seen, Seen) and seen.tuning.dims == ()


OTHER = """\
AUTOTUNE mm(64x48, 48x16)
strides: [48, 1], [16, 1]
dtypes: torch.float16, torch.float16
  mm 0.0300 ms 100.0%
  triton_mm_5 0.0400 ms 75.0% BLOCK_M=64, num_warps=2
SingleProcess AUTOTUNE benchmarking takes 0.5 seconds and 0.1 seconds precompiling for 2 choices
"""


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_slower_rows_of_a_table_without_its_header(missing: int) -> None:
    """They are not of the table before, whose end is missing."""
    before = MM.splitlines(keepends=True)[:5]
    result = read("".join(before + OTHER.splitlines(keepends=True)[missing:]))
    (tuning,) = result.tunings
    assert [choice.ms for choice in tuning.choices] == [0.01, 0.02]
    assert tuning.state == "cut"
    assert [p.what for p in result.problems] == [
        "2 rows of a table of 2 choices whose beginning is missing"
    ]


def test_operands_of_another_table_before_any_row() -> None:
    """The rows that follow have the operands of a table whose header is missing."""
    before = MM.splitlines(keepends=True)[:3]
    result = read("".join(before + OTHER.splitlines(keepends=True)[1:]))
    assert result.tunings == []
    assert [p.what for p in result.problems] == [
        "no rows of AUTOTUNE mm(64x32, 32x16) before another table's operands",
        "2 rows of a table of 2 choices whose beginning is missing",
    ]


@pytest.mark.parametrize("half", ["", "  mm\n", "  mm 0.01\n"])
def test_the_fastest_row_is_missing(half: str) -> None:
    """Nobody is called the winner: the first row's share says that a faster one was before it."""
    result = read(MM.replace("  mm 0.0100 ms 100.0%\n", half))
    (tuning,) = result.tunings
    assert tuning.state == "cut"
    assert [p.what for p in result.problems] == [
        "the fastest row of AUTOTUNE mm(64x32, 32x16) is missing"
    ]


@pytest.mark.parametrize("wrapper", ["", "[job] "])
@pytest.mark.parametrize("after", ["footer", "header"])
def test_a_row_whose_newline_was_lost(wrapper: str, after: str) -> None:
    lines = [wrapper + line for line in MM.splitlines() if after == "footer" or "takes" not in line]
    lines += [wrapper + line for line in OTHER.splitlines()]
    lines[4:6] = [f"{lines[4]} {lines[5]}" if after == "header" else lines[4] + lines[5]]
    result = read("\n".join(lines) + "\n")
    assert [[(c.name, c.ms) for c in t.choices] for t in result.tunings] == [
        [("mm", 0.01), ("triton_mm_3", 0.02)],
        [("mm", 0.03), ("triton_mm_5", 0.04)],
    ]
    assert result.tunings[0].choices[1].description == CONFIG
    assert result.problems == []


def test_a_row_that_runs_into_the_line_of_another_process() -> None:
    line = f"{LAST}(pid=7) SingleProcess AUTOTUNE benchmarking takes 0.5 seconds"
    result = read("".join(MM.splitlines(keepends=True)[:4]) + f"  {line}\n")
    assert [c.name for t in result.tunings for c in t.choices] == ["mm"]
    (problem,) = result.problems
    assert problem.what.startswith("the row of triton_mm_3 cannot be read: triton_mm_3 0.0200 ms")


def test_a_row_without_a_name() -> None:
    result = read(MM.replace("triton_mm_3 ", ""))
    assert [c.name for t in result.tunings for c in t.choices] == ["mm"]
    assert [p.what for p in result.problems] == [
        f"a row without a name cannot be read: {LAST.removeprefix('triton_mm_3 ')}"
    ]


def test_a_header_without_its_end() -> None:
    result = read(f"AUTOTUNE mm(64x32, 3\n{MM}")
    assert [t.state for t in result.tunings] == ["done"]
    assert [p.what for p in result.problems] == [
        "the beginning of a table cannot be read: AUTOTUNE mm(64x32, 3"
    ]
