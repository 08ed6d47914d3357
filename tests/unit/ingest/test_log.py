"""AUTOTUNE tables in logs: every variant, in pieces, interleaved, hostile."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.model.session import Fault
from backend.model.tuning import Seconds
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.stderr_log import StderrLog
from rocm_tui.ingest.records import Seen
from tests.support.log_lab import BMM, LOGLIKE, LOGS, MM, SNIPPETS, Result, needs_corpus, read
from tests.support.places import CORPUS

ORPHANS = {
    "ci_ao_cuda2.9_int_mm.log": 2,
    "torchbench_dec2023_mm.log": 1,
    "torchbench_feb2024_convolution.log": 1,
}
"""Rows that stand before the first header of their file. COUNTS.tsv counts them as rows, but
no tuning can hold them: its op and shapes were cut off. They are one problem each file."""


OLDER_FOOTER = "SingleProcess AUTOTUNE takes 1.0 seconds"


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_counts_of_the_corpus(path: Path) -> None:
    with (CORPUS / "COUNTS.tsv").open() as table:
        counts = {row["file"]: row for row in csv.DictReader(table, delimiter="\t")}[path.name]
    result = read(path.read_bytes())
    assert len(result.tunings) + len(result.empty) == int(counts["headers"])
    rows = sum(len(tuning.choices) for tuning in result.tunings)
    orphans = ORPHANS.get(path.name, 0)
    assert rows == int(counts["rows"]) - orphans
    headless = [p for p in result.problems if "whose beginning is missing" in p.what]
    assert sum(int(p.what.split()[0]) for p in headless if p.what[0].isdigit()) == orphans
    ended = sum(tuning.seconds.benchmark is not None for tuning in result.tunings)
    without_table = sum("choices" in p.what or "end of a table" in p.what for p in headless)
    if path.name.startswith("torchbench"):
        without_table = 1  # of the orphan row's table; its version does not tell the choices
    assert ended + without_table == int(counts["footers"])
    refused = [p for p in result.problems if "out of resource" in p.what]
    assert len(refused) == int(counts["E_W_out_of_resource"])
    assert all(p.line is not None for p in result.problems)


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_pieces_make_no_difference(path: Path) -> None:
    data = path.read_bytes()
    whole = read(data)
    for step in (1, 7, 1000) if len(data) < 20_000 else (977, 40_000):
        assert read(data, list(range(0, len(data), step))) == whole


@needs_corpus
def test_ranks_of_torchrun() -> None:
    result = read((CORPUS / "local_cpu2130_torchrun2_tee_default_prefix.log").read_bytes())
    assert [sum(t.rank == rank for t in result.tunings) for rank in (0, 1)] == [9, 9]
    assert not result.problems
    assert all(t.seconds.benchmark and t.num_choices == 2 for t in result.tunings)


@needs_corpus
def test_an_empty_operand_is_zero_dimensional() -> None:
    result = read((CORPUS / "cuda_l20_flux_scaled_mm_commented.log").read_bytes())
    assert result.tunings[0].shapes == ((4096, 3072), (3072, 64), (1,), (), (64,))


@needs_corpus
def test_symbolic_strides_are_unknown() -> None:
    result = read((CORPUS / "ci_ao_cuda2.9_int_mm.log").read_bytes())
    (tuning,) = result.tunings
    assert (tuning.op, tuning.strides) == ("int_mm", ())
    assert tuning.dtypes == ("torch.int8", "torch.int8")
    assert tuning.when == pytest.approx(1768379882.4523821)


def test_one_table() -> None:
    result = read("Loading\n" + MM + "step 1\n")
    (tuning,) = result.tunings
    assert (tuning.op, tuning.shapes) == ("mm", ((64, 32), (32, 16)))
    assert tuning.strides == ((32, 1), (16, 1))
    assert tuning.dtypes == ("torch.bfloat16", "torch.bfloat16")
    assert [(c.name, c.ms) for c in tuning.choices] == [("mm", 0.01), ("triton_mm_3", 0.02)]
    assert tuning.choices[1].config == {"BLOCK_M": "32", "num_warps": "2"}
    assert tuning.seconds == Seconds(benchmark=1.5, precompile=0.25)
    assert (tuning.num_choices, tuning.state, tuning.rank) == (2, "done", None)
    assert tuning.sources == ("x.log",)
    assert not result.problems


@pytest.mark.parametrize(
    ("footer", "seconds", "choices"),
    [
        ("SingleProcess AUTOTUNE takes 4.5 seconds", Seconds(4.5), None),
        (
            "SingleProcess AUTOTUNE benchmarking takes 1.5 seconds and 2 seconds precompiling",
            Seconds(1.5, 2.0),
            None,
        ),
        (
            "SubProcess AUTOTUNE benchmarking takes 1.5 seconds and 2.5 seconds precompiling "
            "for 34 choices and 0.5 seconds prescreening",
            Seconds(1.5, 2.5, 0.5),
            34,
        ),
    ],
)
def test_footers_of_all_versions(footer: str, seconds: Seconds, choices: int | None) -> None:
    rows = "".join(f"  t{n} 0.{n + 10} ms {100 - n}.0%\n" for n in range(3))
    (tuning,) = read(f"AUTOTUNE mm(1x2, 2x3)\n{rows}{footer}\n").tunings
    assert (tuning.seconds, tuning.num_choices, tuning.state) == (seconds, choices, "done")


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-01-14T08:14:24.7334912Z ",
        "[rank0]:",
        "[default1]:",
        "[1,3]<stderr>:",
        "3: ",
        "(RayWorker pid=123, ip=10.0.0.1) ",
        "# ",
        "    ",
        "\x1b[36m",
        "[titan] 2026-05-19 21:15:50,375 - root - INFO - ",
        "I1120 08:18:01.769000 1436 torch/x.py:526] [0/0] [__autotuning] ",
        "2026-01-14T08:14:24.7334912Z [rank7]:",
        "node1 | ",
    ],
)
def test_prefixes_on_every_line(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in (MM + BMM).splitlines())
    result = read(text)
    assert not result.problems
    assert [(t.op, len(t.choices), t.num_choices) for t in result.tunings] == [
        ("mm", 2, 2),
        ("bmm", 2, 2),
    ]
    assert result.tunings[1].strides == ((32768, 256, 1), (49152, 192, 1))
    ranks = {"[rank0]:": 0, "[default1]:": 1, "[1,3]<stderr>:": 3, "3: ": 3}
    ranks["2026-01-14T08:14:24.7334912Z [rank7]:"] = 7
    assert {t.rank for t in result.tunings} == {ranks.get(prefix)}


@pytest.mark.parametrize(
    "before",
    [
        "test/a.py::Test::test_x[param-0] ",
        "100%|██████████| 3/3 [00:01<00:00, 2.9it/s]",
        " 33%|███▎ | 1/3\r 66%|██████▋ | 2/3\r",
        "[rank5]: 50%|█████     | 1/2\r",
        "\x1b[32mPASSED\x1b[0m ",
        "12:00:01 ",
    ],
)
def test_things_on_the_headers_own_line(before: str) -> None:
    result = read(before + MM)
    (tuning,) = result.tunings
    assert (tuning.op, len(tuning.choices), tuning.num_choices) == ("mm", 2, 2)
    assert tuning.rank == (5 if "rank5" in before else None)
    assert not result.problems


@pytest.mark.parametrize("prefix", ["[rank1]:", "worker-3 | "])
def test_rows_behind_a_header_with_more_before_it_are_of_that_table(prefix: str) -> None:
    """The table before it has no end, and its process has the same prefix."""
    endless = MM.splitlines()[:-1]
    header, *rest = BMM.splitlines()
    lines = [*endless, f"step 12: {header}", *rest]
    result = read("".join(f"{prefix}{line}\n" for line in lines))
    tables = [(tuning.op, len(tuning.choices), tuning.state) for tuning in result.tunings]
    assert tables == [("mm", 2, "cut"), ("bmm", 2, "done")]
    assert not result.problems


def test_a_progress_bar_between_the_rows() -> None:
    text = MM.replace("  triton_mm_3", " 66%|██████▋ | 2/3\r  triton_mm_3")
    assert len(read(text).tunings[0].choices) == 2


def test_windows_line_ends() -> None:
    assert read(MM.replace("\n", "\r\n")).tunings == read(MM).tunings


def test_unusual_rows() -> None:
    text = """AUTOTUNE mm(1x2, 2x3)
a 0.0000 ms <DIVIDED BY ZERO ERROR>
    b 0.1000 ms 0.0% FLOAT32_PRECISION="'ieee'", BLOCK_M=16
 c 0.2000 ms 0.0% opaque_kernel_Name<8, 4>
  d inf ms 0.0% X=1
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 4 choices
"""
    (tuning,) = read(text).tunings
    assert [(c.name, c.ms, c.failed) for c in tuning.choices] == [
        ("a", 0.0, False),
        ("b", 0.1, False),
        ("c", 0.2, False),
        ("d", None, True),
    ]
    assert tuning.choices[1].config == {"FLOAT32_PRECISION": "'ieee'", "BLOCK_M": "16"}
    assert tuning.choices[2].description == "opaque_kernel_Name<8, 4>"


@pytest.mark.parametrize(
    ("choice", "name", "description"),
    [
        ("BLOCK_K=64", None, "BLOCK_K=64"),
        ("ACC='tl.float32', TF32=True", None, "ACC='tl.float32', TF32=True"),
        ("TritonTemplateCaller(/a.py, BLOCK_M=32, num_warps=2)", None, "BLOCK_M=32, num_warps=2"),
        ("ExternKernelCaller(extern_kernels.bmm)", "bmm", ""),
        ("ExternKernelCaller(aten._int_mm)", "aten._int_mm", ""),
    ],
)
@pytest.mark.parametrize("prefix", ["", "2026-05-19 21:15:50,375 - INFO - ", "[rank0]:"])
def test_rows_of_early_versions(
    prefix: str, choice: str, name: str | None, description: str
) -> None:
    """A configuration stood in the place of a name, or what `str` made of a choice."""
    row = "triton_mm_3 0.0200 ms 50.0% BLOCK_M=32, num_warps=2"
    text = MM.replace(row, f"{choice} 0.0200 ms 50.0%")
    result = read("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    (tuning,) = result.tunings
    second = tuning.choices[1]
    assert (second.name, second.ms, second.description) == (name, 0.02, description)
    assert not result.problems


def test_operands_without_dimensions_and_symbolic_strides() -> None:
    text = MM.replace("mm(64x32, 32x16)", "scaled_mm(64x32, 32x16, , 1)")
    text = text.replace("[32, 1], [16, 1]", "[32, 1], [16, 1], [], [0]")
    text = text.replace("16, torch.bfloat16", "16, torch.bfloat16, torch.float32, torch.float32")
    (tuning,) = read(text).tunings
    assert tuning.shapes == ((64, 32), (32, 16), (), (1,))
    assert tuning.strides == ((32, 1), (16, 1), (), (0,)) and len(tuning.dtypes) == 4
    result = read(MM.replace("[32, 1], [16, 1]", "[s77, 1], [16, 1]"))
    (tuning,) = result.tunings
    assert tuning.strides == () and tuning.state == "done" and not result.problems


def test_a_csv_cell() -> None:
    table = MM.replace("BLOCK_M=32", "P=\"'ieee'\", BLOCK_M=32")
    text = io.StringIO()
    csv.writer(text).writerows([["id", "log"], [1, table], [2, BMM]])
    result = read(text.getvalue())
    assert [(t.op, len(t.choices)) for t in result.tunings] == [("mm", 2), ("bmm", 2)]
    assert result.tunings[0].choices[1].config["P"] == "'ieee'"
    assert not result.problems


def test_statistics_before_and_after() -> None:
    stats = '{"num_choices": 30, "best_kernel": "mm", "best_time": 0.01001}\n'
    table = MM.rpartition("SingleProcess")[0]
    before = read("Autotune Choices Stats:\n" + stats + table)
    assert before.tunings[0].num_choices == 30
    footer = "SingleProcess AUTOTUNE takes 1.0 seconds\n"
    assert read(table + footer + stats).tunings[0].num_choices == 30
    other = stats.replace('"mm"', '"addmm"')
    assert read(other + table + footer).tunings[0].num_choices is None


def test_a_table_cut_at_its_end() -> None:
    result = read(MM.rpartition("SingleProcess")[0])
    (tuning,) = result.tunings
    assert (tuning.state, tuning.num_choices) == ("cut", None)


def test_a_table_in_pieces_is_running_until_it_is_done() -> None:
    reader = StderrLog("x")
    lines = MM.splitlines(keepends=True)
    assert reader.feed("".join(lines[:3]).encode()) == []
    (first,) = reader.feed(lines[3].encode())
    assert isinstance(first, Seen)
    assert (first.uid, first.tuning.state, len(first.tuning.choices)) == ("x#1", "running", 1)
    (cut,) = reader.settle()
    assert isinstance(cut, Seen) and (cut.uid, cut.tuning.state) == ("x#1", "cut")
    reader.feed(lines[4].encode())
    (last,) = reader.feed(lines[5].encode())
    assert isinstance(last, Seen) and (last.uid, last.tuning.state) == ("x#1", "done")
    assert reader.settle() == []


def test_a_header_without_rows_is_a_problem() -> None:
    result = read("hello\nAUTOTUNE mm(1x2, 2x3)\nstrides: [2, 1], [3, 1]\n")
    assert not result.tunings
    assert result.problems == [Fault("x.log", "no readable rows follow AUTOTUNE mm(1x2, 2x3)", 2)]


def test_rows_before_any_header_are_a_problem() -> None:
    result = read("\n".join(MM.splitlines()[3:]) + "\n" + BMM)
    assert [t.op for t in result.tunings] == ["bmm"]
    (problem,) = result.problems
    assert problem.what == "2 rows of a table of 2 choices whose beginning is missing"


def test_ranks_interleaved_line_by_line() -> None:
    zero = [f"[rank0]:{line}" for line in MM.splitlines()]
    one = [f"[rank1]:{line}" for line in BMM.splitlines()]
    text = "\n".join(line for pair in zip(zero, one, strict=True) for line in pair) + "\n"
    result = read(text)
    assert not result.problems
    found = {t.rank: t for t in result.tunings}
    alone = {0: read(MM).tunings[0], 1: read(BMM).tunings[0]}
    for rank, tuning in found.items():
        assert tuning.choices == alone[rank].choices
        assert tuning.seconds == alone[rank].seconds
        assert (tuning.strides, tuning.dtypes) == (alone[rank].strides, alone[rank].dtypes)


def test_two_processes_without_a_prefix_are_told_apart_by_their_numbers() -> None:
    mm, bmm = MM.splitlines(), BMM.splitlines()
    # The second header comes before the first table's rows; each header's dtypes are known first.
    text = "\n".join([*mm[:4], *bmm[:3], mm[4], bmm[3], bmm[4], mm[5], bmm[5]]) + "\n"
    result = read(text)
    by_op = {t.op: t for t in result.tunings}
    assert [c.name for c in by_op["mm"].choices] == ["mm", "triton_mm_3"]
    assert [c.name for c in by_op["bmm"].choices] == ["cpp_CppMicroGemmFP32Vec_0", "bmm"]
    # Which footer ends which of two full tables cannot be told; that both have ended can.
    assert [p.line for p in result.problems] == [11, 12]
    assert {(t.state, t.seconds) for t in result.tunings} == {("done", Seconds())}
    # An older footer gives no number of choices, so any table may be full.
    older = read(text.replace(mm[5], OLDER_FOOTER).replace(bmm[5], OLDER_FOOTER))
    several = "the end of a table could belong to several tables"
    assert [(p.line, p.what) for p in older.problems] == [(11, several), (12, several)]
    assert {(t.state, t.seconds) for t in older.tunings} == {("done", Seconds())}


def test_rows_that_could_be_anyones_are_problems() -> None:
    lines = MM.splitlines()
    text = "\n".join(line for line in lines[:5] for _ in range(2)) + "\n"
    result = read(text)
    assert not result.tunings
    assert len(result.empty) == 2
    ambiguous = [p for p in result.problems if p.what.startswith("the row of")]
    assert [p.line for p in ambiguous] == [7, 8, 9, 10]


@settings(max_examples=60)
@given(st.data())
def test_a_shuffle_never_mixes_two_tables(data: st.DataObject) -> None:
    one, two = MM.splitlines(), BMM.splitlines()
    lines: list[str] = []
    while one or two:
        source = one if not two or (one and data.draw(st.booleans())) else two
        lines.append(source.pop(0))
    result = read("\n".join(lines) + "\n")
    names = {"mm": {"mm", "triton_mm_3"}, "bmm": {"bmm", "cpp_CppMicroGemmFP32Vec_0"}}
    for tuning in result.tunings:
        assert {c.name for c in tuning.choices} <= names[tuning.op]
    rows = sum(len(tuning.choices) for tuning in result.tunings)
    lost = sum(p.what.startswith("the row of") for p in result.problems)
    assert rows + lost == 4


def test_a_reason_of_failure_is_a_problem_with_its_line() -> None:
    line = "[rank1]:E0114 08:32:15.892000 1335 x.py:1477] [0/0] Exception out of resource: shared"
    result = read(f"a\nb\n{line} memory\n" * 60)
    assert result.problems[0].line == 3
    assert result.problems[0].what == "Exception out of resource: shared memory"
    assert len(result.problems) == 51  # and that more are not listed


def test_tables_beside_a_very_long_line() -> None:
    noise = b"[" * 3_000_000 + b" 1.0 ms " * 400_000 + b"(" * 4_000_000
    result = read(noise + b"\r" + MM.encode() + noise + b"\n" + BMM.encode())
    assert [t.op for t in result.tunings] == ["mm", "bmm"]


def _texts(result: Result) -> list[str]:
    found = [p.what for p in result.problems]
    for tuning in result.tunings:
        found += [tuning.op, *tuning.dtypes]
        for choice in tuning.choices:
            found += [choice.name or "", choice.description, *choice.config.values()]
    return found


@settings(max_examples=300)
@given(
    st.one_of(LOGLIKE.map(lambda t: t.encode("utf-8", "surrogatepass")), st.binary(max_size=300)),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_nothing_raises_nothing_escapes_and_pieces_do_not_matter(
    data: bytes, pieces: list[int]
) -> None:
    whole = read(data)
    assert read(data, pieces) == whole
    for text in _texts(whole):
        assert clean(text) == text


@settings(max_examples=150)
@given(
    st.sampled_from(["", "2026-05-19T21:15:50Z ", "[rank1]:", '"']),
    st.integers(0, 6),
    st.integers(0, 120),
    st.integers(0, 30),
    st.sampled_from(
        ["", "\n", " ", "x", "%", "(", "{", "\t", "é", "  mm 1.0 ms 2.0%\n", "AUTOTUNE "]
    ),
)
def test_a_table_at_once_is_the_same_as_its_lines(
    prefix: str, line: int, column: int, gone: int, instead: str
) -> None:
    lines = (MM + BMM).splitlines(keepends=True)
    lines[line] = lines[line][:column] + instead + lines[line][column + gone :]
    data = "".join(prefix + text for text in lines).encode()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    assert read(data, ends) == read(data)


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(SNIPPETS).map("".join)))
def test_clean_leaves_nothing_that_acts_and_changes_nothing_twice(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in cleaned)


def test_clean_removes_whole_sequences() -> None:
    assert (
        clean("a\x1b[31;1mb\x1b]0;title\x07c\x1b]52;c;eA==\x1b\\d\x1bPq#0\x1b\\e\x9b2Jf")
        == "abcdef"
    )
    assert clean("tab\there") == "tab here"
    assert clean("[__output_code] x[/b] ✓ ü") == "[__output_code] x[/b] ✓ ü"
