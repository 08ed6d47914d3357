"""Logs as people really have them: cut, copied, decorated, wrapped in JSON, of other versions."""

from __future__ import annotations

import json

import pytest

from backend.model.inductor_kernel import kernel_name
from backend.model.tuning import Seconds
from rocm_tui.ingest.formats.autotune_lines import ChoiceRow, only_part, parts
from rocm_tui.ingest.formats.stderr_log import StderrLog
from tests.support.format_lab import tunings
from tests.support.log_lab import BMM, MM, read
from tests.support.odd_logs import NEW_TRITON, OLD_TRITON
from tests.support.scan_lab import FILLER, scanned

FOOTLESS = MM.rpartition("SingleProcess")[0]
BARE = "".join(MM.splitlines(keepends=True)[:3])


def table(n: int) -> str:
    """A table of three rows whose times are the other tables' too."""
    return (
        f"AUTOTUNE mm({n}x32, 32x16)\nstrides: [32, 1], [16, 1]\n"
        "dtypes: torch.bfloat16, torch.bfloat16\n"
        f"  mm 0.0100 ms 100.0%\n  triton_mm_{n} 0.0200 ms 50.0% BLOCK_M=32\n"
        f"  triton_mm_{n + 1} 0.0400 ms 25.0% BLOCK_M=64\n"
        f"SingleProcess AUTOTUNE benchmarking takes {n}.5 seconds and 0.25 seconds precompiling"
        " for 3 choices\n"
    )


TABLES = [table(n) for n in range(101, 131)]


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "2026-01-14T08:14:24.7334912Z "])
@pytest.mark.parametrize(
    ("lost", "empty"),
    [(FOOTLESS, 0), (BARE, 1), (FOOTLESS * 3, 0), (BARE * 3, 3), (FOOTLESS + BARE, 1)],
    ids=["no footer", "no rows", "three without footers", "three without rows", "both"],
)
def test_what_one_table_lacks_spoils_no_other(prefix: str, lost: str, empty: int) -> None:
    text = "".join([*TABLES[:3], lost, *TABLES[3:]])
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    result = read(text)
    assert scanned(text.encode()) == result
    whole = [t for t in result.tunings if t.seconds.benchmark]
    assert [t.seconds.benchmark for t in whole] == [n + 0.5 for n in range(101, 131)]
    assert {len(t.choices) for t in whole} == {3}
    assert all(t.strides and t.dtypes and t.state == "done" for t in whole)
    cut = [t for t in result.tunings if not t.seconds.benchmark]
    assert [(t.state, len(t.choices)) for t in cut] == [("cut", 2)] * lost.count("triton_mm_3 ")
    assert len(result.empty) == len(result.problems) == empty


@pytest.mark.parametrize(("broken", "ops"), [(7, ["mm"]), (8, [])])
def test_a_line_of_broken_headers_is_given_up_at_the_eighth(broken: int, ops: list[str]) -> None:
    """Otherwise a long line of them would take time by the square of its length."""
    assert [t.op for t in read("AUTOTUNE mm( " * broken + MM).tunings] == ops


def test_a_table_is_given_up_though_an_older_one_goes_on() -> None:
    """What counts is when a table's last line came, not when it began."""
    reader = StderrLog("x.log")
    ranks = [f"[rank{rank}]:{line}\n" for rank in (0, 1) for line in FOOTLESS.splitlines()]
    records = reader.feed("".join(ranks).encode())
    for n in range(4):
        records += reader.feed(b"step of a training loop\n" * 4000)
        records += reader.feed(f"[rank0]:  triton_mm_{n + 4} 0.0{n + 3}00 ms 30.0%\n".encode())
    found = {tuning.rank: tuning for tuning in tunings(records).values()}
    assert [(found[n].state, len(found[n].choices)) for n in (0, 1)] == [("running", 6), ("cut", 2)]


def test_a_row_is_read_to_its_last_digit() -> None:
    row = only_part("triton_mm_3 0.0123 ms 83.7% BLOCK_M=32")
    assert row == ChoiceRow("triton_mm_3", 0.0123, 83.7, "BLOCK_M=32")
    assert only_part("# triton_mm_3 0.0123 ms 83.7%") == ChoiceRow("triton_mm_3", 0.0123, 83.7, "")
    assert only_part("loss # triton_mm_3 0.0123 ms 83.7%") is None


def test_a_log_that_begins_with_a_header_alone() -> None:
    result = read(BARE + "".join(TABLES))
    assert [len(t.choices) for t in result.tunings] == [3] * 30
    assert [p.line for p in result.problems] == [1]


def test_a_footer_of_the_older_table_is_not_the_newers() -> None:
    """A second header, then the end of the first table: two processes write at once."""
    older, newer = MM.splitlines(), BMM.splitlines()
    result = read("\n".join([*older[:5], newer[0], older[5], *newer[1:]]) + "\n")
    assert not result.problems
    assert [(t.op, t.seconds.benchmark, len(t.choices)) for t in result.tunings] == [
        ("mm", 1.5, 2),
        ("bmm", 3.0, 2),
    ]


def test_what_was_shown_too_early_is_taken_back() -> None:
    """Rows that fitted the newest table, until a line tells that two processes write at once."""
    lines = [line for line in MM.splitlines()[:4] for _ in range(2)]
    odd = read("\n".join(lines[:2] + MM.splitlines()[1:4] + MM.splitlines()[1:4]) + "\n")
    assert not odd.tunings
    assert len(odd.empty) == 2


def notebook(text: str) -> str:
    cell = {"cell_type": "code", "outputs": [{"text": text.splitlines(keepends=True)}]}
    return json.dumps({"cells": [cell]}, indent=1)


def docker(text: str) -> str:
    when = "2026-01-14T08:14:24.733491200Z"
    return "".join(
        json.dumps({"log": line, "stream": "stderr", "time": when}, separators=(",", ":")) + "\n"
        for line in text.splitlines(keepends=True)
    )


def one_string(text: str) -> str:
    return json.dumps({"outputs": [{"text": text}]})


@pytest.mark.parametrize("wrapped", [notebook, docker, one_string, repr])
def test_line_ends_written_as_backslash_and_n(wrapped: object) -> None:
    assert callable(wrapped)
    text = "".join(TABLES) + "\x1b[0m" + MM.replace("BLOCK_M=32", "P=\"'ieee'\", BLOCK_M=32") + BMM
    log = wrapped(text)
    result = read(log)
    assert [len(t.choices) for t in result.tunings] == [3] * 30 + [2, 2]
    assert all(t.seconds.benchmark and t.num_choices for t in result.tunings)
    assert result.tunings[30].choices[1].config == {
        "P": "'ieee'",
        "BLOCK_M": "32",
        "num_warps": "2",
    }
    assert not result.problems
    assert scanned(log.encode()) == result


@pytest.mark.parametrize("footer", ["", MM.splitlines()[-1]])
def test_the_last_string_of_a_notebooks_list_has_no_end(footer: str) -> None:
    text = "\n".join([*MM.splitlines()[:4], footer]).rstrip("\n")
    (tuning,) = read(notebook(text)).tunings
    assert [c.name for c in tuning.choices] == ["mm"]


def test_rows_of_early_2024() -> None:
    text = """AUTOTUNE mm(4096x4096, 4096x4096)
  ExternKernelCaller(extern_kernels.mm) 0.0410 ms 100.0%
  ACC_TYPE='tl.float32', BLOCK_K=32, num_warps=4 0.0487 ms 84.2%
[rank0]:ACC_TYPE='tl.float32', BLOCK_K=64, num_warps=8 0.0500 ms 82.0%
TritonTemplateCaller(/tmp/a/cab.py, BLOCK_K=16, num_warps=2) 0.0820 ms 50.0%
SingleProcess AUTOTUNE takes 4.5 seconds
"""
    (tuning,) = read(text.replace("[rank0]:", "")).tunings
    assert [(c.name, c.ms) for c in tuning.choices] == [
        ("mm", 0.041),
        (None, 0.0487),
        (None, 0.05),
        (None, 0.082),
    ]
    assert tuning.choices[1].config == {
        "ACC_TYPE": "'tl.float32'",
        "BLOCK_K": "32",
        "num_warps": "4",
    }
    assert tuning.choices[3].config == {"BLOCK_K": "16", "num_warps": "2"}
    ranked = "".join(f"[rank0]:{line}\n" for line in text.replace("[rank0]:", "").splitlines())
    (again,) = read(ranked).tunings
    assert again.choices == tuning.choices


def test_columns_aligned_by_blanks_and_headings_with_an_emoji() -> None:
    text = """🚀 AUTOTUNE 🔥 mm(64x32, 32x16)
📐 strides: [32, 1], [16, 1]
🔢 dtypes: torch.bfloat16, torch.bfloat16
  🥇 mm              0.0100 ms   100.0%
     triton_mm_3     0.0200 ms    50.0%   BLOCK_M=32, num_warps=2
⏱️  SingleProcess AUTOTUNE benchmarking takes  1.5000 seconds and  0.2500 seconds precompiling for 2 choices
"""  # noqa: E501
    result = read(text)
    (tuning,) = result.tunings
    (plain,) = read(MM).tunings
    assert tuning == plain
    assert not result.problems


def test_blanks_before_a_configuration_are_no_part_of_it() -> None:
    text = MM.replace(" BLOCK_M=32", "    BLOCK_M=32")
    ends = [at + 1 for at, letter in enumerate(text) if letter == "\n"]
    assert read(text).tunings == read(text, ends).tunings == read(MM).tunings


def test_dots_between_the_rows_do_not_end_a_table() -> None:
    lines = MM.replace("for 2 choices", "for 34 choices").splitlines()
    (tuning,) = read("\n".join([*lines[:5], "    ...", lines[5]]) + "\n").tunings
    assert (tuning.num_choices, tuning.seconds) == (34, Seconds(1.5, 0.25))
    (tuning,) = read("\n".join([*lines[:4], "...", *lines[4:]]) + "\n").tunings
    assert (len(tuning.choices), tuning.num_choices) == (2, 34)


def test_rows_behind_dots_may_be_another_tables() -> None:
    lines = MM.splitlines()
    foreign = "  bmm 0.0050 ms 100.0%"
    result = read("\n".join([*lines[:5], "...", foreign]) + "\n" + BMM)
    assert [(t.op, len(t.choices), t.state) for t in result.tunings] == [
        ("mm", 2, "done"),
        ("bmm", 2, "done"),
    ]
    assert [p.what for p in result.problems] == ["1 row of a table whose beginning is missing"]


@pytest.mark.parametrize("prefix", ["", "[rank1]:", "I0519 x.py:3] "])
def test_tritons_own_autotuning(prefix: str) -> None:
    text = NEW_TRITON + OLD_TRITON + MM
    for fill in (0, 2000):
        log = "".join(f"{prefix}{line}\n" for line in text.splitlines())
        log = FILLER * fill + log + FILLER * fill + log
        result = read(log)
        assert scanned(log.encode()) == result
        assert not result.problems
        new, old, mm = result.tunings[:3]
        assert result.tunings[3] == new
        assert (new.op, new.seconds, new.state) == ("triton", Seconds(1.23), "done")
        assert new.inputs_key == 'matmul_kernel[512, 256, "torch.float16"]'
        (best,) = new.choices
        assert (best.name, best.ms, best.hash) == ("matmul_kernel", None, None)
        assert best.config == {
            "BLOCK_M": "64",
            "BLOCK_N": "32",
            "num_warps": "4",
            "num_ctas": "1",
            "num_stages": "3",
        }
        assert (old.op, old.seconds, old.inputs_key) == ("triton", Seconds(0.48), "add_kernel")
        assert old.choices[0].config["BLOCK_SIZE"] == "128"
        assert (mm.op, mm.rank) == ("mm", 1 if "rank" in prefix else None)
        assert new.rank == mm.rank
        assert (new.num_choices, new.when) == (None, None)


def test_tritons_lines_of_two_ranks() -> None:
    other = NEW_TRITON.replace("matmul", "other").replace("1.23", "2.5")
    pairs = zip(NEW_TRITON.splitlines(), other.splitlines(), strict=True)
    result = read("".join(f"[rank0]:{one}\n[rank1]:{two}\n" for one, two in pairs))
    told = [(kernel_name(t.inputs_key or ""), t.rank, t.seconds.benchmark) for t in result.tunings]
    assert told == [("matmul_kernel", 0, 1.23), ("other_kernel", 1, 2.5)]


@pytest.mark.parametrize(
    "key", ["(" * 200, "f(1)", "(1, b'a')", "(float,)", "1e9", "('\\d',)", "(007,)"]
)
def test_a_key_of_a_triton_line_is_read_and_never_run(key: str) -> None:
    (tuning,) = read(NEW_TRITON.replace("(512, 256, 'torch.float16')", key)).tunings
    assert tuning.inputs_key == f"matmul_kernel{json.dumps([key])}"


@pytest.mark.parametrize("text", ["strides: ", "strides: soon"])
def test_a_line_without_readable_strides_says_nothing(text: str) -> None:
    assert list(parts(text)) == []
