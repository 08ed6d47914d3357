"""What Triton prints of each configuration that it tries, and of their times."""

from __future__ import annotations

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.formats.stderr_log import StderrLog
from rocm_tui.ingest.records import Seen
from tests.support.growth import is_linear
from tests.support.log_lab import MM, read
from tests.support.odd_logs import NEW_TRITON, OLD_TRITON
from tests.support.scan_lab import FILLER, scanned


def config(m: int, n: int = 64, end: str = ", maxnreg: None") -> str:
    return f"BLOCK_M: {m}, BLOCK_N: {n}, num_warps: 4, num_ctas: 1, num_stages: 2{end}"


def shown(m: int, n: int = 64) -> str:
    return f"BLOCK_M={m}, BLOCK_N={n}, num_warps=4, num_ctas=1, num_stages=2"


ENDED = (
    f"Triton autotuning for function f_k finished after 0.41s; best config selected: {config(128)};"
)
HEADING = "Triton autotuning benchmark results for function f_k:"
ROWS = [
    f"  config={config(64)}; p50=0.0140 ms, p20=0.0130 ms, p80=0.0150 ms",
    f"  config={config(128)}; p50=0.0100 ms, p20=0.0090 ms, p80=0.0110 ms [selected]",
    f"  config={config(128, 128)}; mean=0.0180 ms",
]
TRIED = [f"Autotuning kernel f_k with config {config(m)}" for m in (64, 128)]
TIMES = [(shown(128), 0.01), (shown(64), 0.014), (shown(128, 128), 0.018)]


def lines(*texts: str, prefix: str = "") -> str:
    return "".join(f"{prefix}{text}\n" for text in texts)


@pytest.mark.parametrize("prefix", ["", "[rank1]:", "I0519 x.py:3] ", "2026-01-14 08:14:24,7 - "])
@pytest.mark.parametrize("tried", [[], TRIED])
def test_times_of_each_configuration(prefix: str, tried: list[str]) -> None:
    log = lines(*tried, ENDED, HEADING, *ROWS, prefix=prefix) + MM
    for text in (log, FILLER * 2000 + log, log * 2):
        result = read(text)
        assert scanned(text.encode()) == result
        assert not result.problems
        kernel = result.tunings[0]
        assert [(c.description, c.ms) for c in kernel.choices] == TIMES
        assert [c.quantiles for c in kernel.choices] == [(0.009, 0.011), (0.013, 0.015), None]
        assert len({c.name for c in kernel.choices}) == 3
        assert (kernel.op, kernel.state, kernel.seconds.benchmark) == ("triton", "done", 0.41)
        assert kernel.inputs_key == "f_k"
        assert kernel.num_choices == (2 if tried else None)
        assert kernel.rank == (1 if "rank" in prefix else None)


def test_times_are_of_the_kernel_in_their_heading() -> None:
    other = ENDED.replace("f_k", "g_k")
    result = read(lines(ENDED, other, HEADING, *ROWS))
    first, second = result.tunings
    assert ([len(t.choices) for t in (first, second)], second.inputs_key) == ([3, 1], "g_k")
    ranks = [f"[rank0]:{ENDED}", *(f"[rank1]:{line}" for line in (HEADING, *ROWS))]
    assert [(t.rank, len(t.choices)) for t in read(lines(*ranks)).tunings] == [(0, 1), (1, 3)]
    ranks = [f"[rank{r}]:{line}" for line in (ENDED, HEADING, *ROWS) for r in (0, 1)]
    assert [(t.rank, len(t.choices)) for t in read(lines(*ranks)).tunings] == [(0, 3), (1, 3)]


def test_times_without_the_line_before_them() -> None:
    result = read(lines(HEADING, *ROWS))
    assert [(c.description, c.ms) for c in result.tunings[0].choices] == TIMES
    assert (result.tunings[0].state, result.problems) == ("done", [])
    assert not read(lines(*ROWS)).tunings  # of which kernel nobody knows


def test_times_with_the_newer_four_lines() -> None:
    heading = HEADING.replace("f_k", "matmul_kernel")
    (tuning,) = read(NEW_TRITON + lines(heading, *ROWS)).tunings
    assert tuning.inputs_key == 'matmul_kernel[512, 256, "torch.float16"]'
    assert [c.ms for c in tuning.choices] == [0.01, 0.014, 0.018, None]
    assert tuning.state == "cut"  # which of them was taken has no time


@pytest.mark.parametrize(
    "row",
    [
        f"  config={config(64)}; p50=0.01x0 ms, p20=0.0130 ms, p80=0.0150 ms",
        f"  config={config(64)}; p50=nan ms",
        f"  config={config(64)}; mean=0.01",
        f"  config={config(64)}; p50=-0.0140 ms",
        f"  config={config(64)[:-9]}; p50=0.0140 ms",
        "  config=BLOCK_M: 64, num_wa; p50=0.0140 ms",
        "  config=BLOCK_M: 6 4; p50=0.0140 ms",
        "  config=BLOCK_M: 64, ...; p50=0.0140 ms",
    ],
)
def test_a_torn_row_of_times(row: str) -> None:
    result = read(lines(ENDED, HEADING, ROWS[1], row, ROWS[2]))
    assert [p.line for p in result.problems] == [4]
    assert "f_k" in result.problems[0].what
    assert [c.ms for c in result.tunings[0].choices] == [0.01, 0.018]


TIMED = ENDED[:-1] + " with benchmark time {}; "


@pytest.mark.parametrize(
    ("times", "ms", "quantiles"),
    [
        ("[0.0112, 0.0108, 0.0117]", 0.0112, (0.0108, 0.0117)),
        ("[1.5, 1.25, 1e-05];  evaluated 12 configurations", 1.5, (1.25, 1e-05)),
        ("0.0112", 0.0112, None),
        ("[0.0112]", 0.0112, None),
        ("(0.0112, 0.0108, 0.0117)", 0.0112, (0.0108, 0.0117)),
    ],
)
def test_a_time_behind_the_configuration(
    times: str, ms: float, quantiles: tuple[float, float] | None
) -> None:
    result = read(lines("[2026-11-02 10:11:12] " + TIMED.format(times)))
    (choice,) = result.tunings[0].choices
    assert (choice.description, choice.ms, choice.quantiles) == (shown(128), ms, quantiles)
    assert not result.problems


@pytest.mark.parametrize("times", ["[0.0112, 0.01", "[inf, inf, inf]", "None", "[]", "[0.01x2]"])
def test_a_time_behind_the_configuration_that_is_none(times: str) -> None:
    text = TIMED.format(times)
    result = read(lines(text if times[-1] in "]e" else text.rstrip("; ")))
    assert [p.what.split(":")[0] for p in result.problems] == ["a time of f_k is no number"]
    (choice,) = result.tunings[0].choices
    assert (choice.description, choice.ms) == (shown(128), None)


@pytest.mark.parametrize(
    "end",
    [
        ENDED[:-1],
        ENDED[:-14],
        ENDED.replace("num_ctas: 1", "num_ctas: 1 [repeated"),
        ENDED.replace("128", '128"}'),
        ENDED.replace("num_warps: 4", "num_warps:"),
    ],
)
def test_half_a_configuration_is_no_tuning(end: str) -> None:
    result = read(lines("hello", end) + OLD_TRITON)
    assert [p.line for p in result.problems] == [2]
    assert "a configuration of f_k cannot be read" in result.problems[0].what
    assert [t.inputs_key for t in result.tunings] == ["add_kernel"]


def test_seconds_that_are_none() -> None:
    result = read(lines(ENDED.replace("0.41s", "0.4x1s")))
    assert [p.what for p in result.problems] == ["f_k finished after no time: 0.4x1s"]
    assert result.tunings[0].seconds.benchmark is None


@pytest.mark.parametrize("prefix", ["", "[rank1]:", "I0519 x.py:3] ", "# ", "(W pid=7) "])
def test_a_tuning_that_does_not_end(prefix: str) -> None:
    log = FILLER * 2000 + lines(*TRIED, prefix=prefix) + FILLER * 100
    result = read(log)
    assert scanned(log.encode()) == result
    assert [(p.line, p.what) for p in result.problems] == [
        (2002, f"the autotuning of f_k does not end; last configuration: {shown(128)}")
    ]
    (tuning,) = result.tunings
    assert (tuning.state, tuning.num_choices, tuning.selected_by) == ("cut", 2, None)
    assert [(c.description, c.ms) for c in tuning.choices] == [
        (shown(64), None),
        (shown(128), None),
    ]


def test_a_tuning_is_running_until_it_ends() -> None:
    reader = StderrLog("x")
    states = []
    for line in (*TRIED, ENDED):
        (record,) = reader.feed(f"{line}\n".encode())
        assert isinstance(record, Seen) and record.uid == "x#1"
        states.append((record.tuning.state, record.tuning.timed))
        assert reader.settle() == []  # a benchmark takes longer than the print of a table
    assert states == [("running", 0), ("running", 1), ("done", 0)]
    assert reader.close() == []


UNFINISHED = [f"Autotuning kernel g_k with config {config(m)}" for m in (32, 64)]


@pytest.mark.parametrize("prefix", ["", "[rank1]:"])
@pytest.mark.parametrize("next_tuning", [lines(*TRIED, ENDED), MM])
def test_a_tuning_that_does_not_end_is_reported_while_the_log_grows(
    prefix: str, next_tuning: str
) -> None:
    """Its process went on to another tuning, and has ended that."""
    reader = StderrLog("x.log")
    *_, first = reader.feed(lines(*UNFINISHED, prefix=prefix).encode())
    assert isinstance(first, Seen) and first.tuning.state == "running"
    records = reader.feed(lines(*next_tuning.splitlines(), prefix=prefix).encode())
    (fault,) = [record for record in records if isinstance(record, Fault)]
    assert (fault.what.partition(";")[0], fault.line) == ("the autotuning of g_k does not end", 2)
    states = {r.tuning.inputs_key: r.tuning.state for r in records if isinstance(r, Seen)}
    assert states["g_k"] == "cut"
    assert not [record for record in reader.close() if isinstance(record, Fault)]


def test_a_tuning_goes_on_beside_that_of_another_process() -> None:
    reader = StderrLog("x.log")
    reader.feed(lines(*UNFINISHED, prefix="[rank0]:").encode())
    records = reader.feed(lines(*TRIED, ENDED, prefix="[rank1]:").encode())
    records += reader.feed(lines(UNFINISHED[0], *TRIED, UNFINISHED[1], ENDED).encode())
    assert not [record for record in records if isinstance(record, Fault)]


def test_two_kernels_at_once_and_one_ends() -> None:
    other = [line.replace("f_k", "g_k") for line in TRIED]
    result = read(lines(TRIED[0], other[0], TRIED[1], other[1], ENDED))
    assert [(t.inputs_key, t.state) for t in result.tunings] == [("f_k", "done"), ("g_k", "cut")]
    assert [p.what.partition(" does")[0] for p in result.problems] == ["the autotuning of g_k"]


def test_a_counter_before_each_line_is_one_process() -> None:
    log = [*TRIED, ENDED, HEADING, *ROWS]
    result = read(lines(*(f"[{n}] {line}" for n, line in enumerate(log))))
    assert not result.problems
    (tuning,) = result.tunings
    assert (tuning.state, tuning.num_choices) == ("done", 2)
    assert [(c.description, c.ms) for c in tuning.choices] == TIMES


def test_two_processes_try_the_same() -> None:
    log = [f"(W pid={pid}) {line}" for line in (*TRIED, ENDED, HEADING, *ROWS) for pid in (7, 8)]
    slower = [line.replace("p50=0.01", "p50=0.02") if "pid=8" in line else line for line in log]
    result = read(lines(*slower))
    assert not result.problems
    first, second = result.tunings
    assert [c.ms for c in first.choices] == [0.01, 0.014, 0.018]
    assert [c.ms for c in second.choices] == [0.018, 0.02, 0.024]
    assert (first.num_choices, second.num_choices) == (2, 2)


def test_a_configuration_that_failed() -> None:
    """Triton itself prints why behind the configuration; Ascend's names it."""
    reason = "PTXASError: no room"
    status = f"Triton autotuning: config={config(64)}; compile_failed; reason=Assertion: x"
    for failed in (f"Autotuning failed with {reason}", status):
        result = read(lines(TRIED[0], failed, TRIED[1], ENDED, HEADING, *ROWS[1:]))
        assert [p.line for p in result.problems] == [2]
        *timed, last = result.tunings[0].choices
        assert [c.ms for c in timed] == [0.01, 0.018]
        assert (last.description, last.failed, last.ms) == (shown(64), True, None)
        assert last.reason in (reason, "compile_failed: Assertion: x")
        words = "Autotuning failed with " if failed != status else "f_k: "
        assert result.problems[0].what == words + str(last.reason)
    stopped = status.replace("compile_failed", "not_evaluated")
    (tuning,) = read(lines(*TRIED, stopped)).tunings
    assert [(c.failed, c.ms) for c in tuning.choices] == [(False, None)] * 2
    assert not read("Autotuning failed with a shrug\n").problems  # another program's
    (problem,) = read("Autotuning failed with out of resource: shared memory\n").problems
    assert problem.what == "Autotuning failed with out of resource: shared memory"


def test_a_fault_names_the_configuration_before_it() -> None:
    fault = "HW Exception by GPU node-2 (Agent handle: 0x7f) reason :GPU Hang"
    reader = StderrLog("x")
    *_, tuning, problem = reader.feed(lines(*TRIED, fault).encode())
    assert isinstance(tuning, Seen) and tuning.tuning.state == "cut"
    assert isinstance(problem, Fault)
    assert problem.what == f"after f_k began {shown(128)}: {fault}"
    ranks = [f"[rank0]:{TRIED[0]}", f"[rank1]:{TRIED[1]}", f"[rank0]:{fault}"]
    assert read(lines(*ranks)).problems[0].what == f"after f_k began {shown(64)}: [rank0]:{fault}"


@pytest.mark.parametrize(
    "value", ["tl.float32", "fp16", "(16, 32)", "[1, 2]", "<function f at 0x7>", "-1.5"]
)
def test_values_of_a_configuration(value: str) -> None:
    end = ENDED.replace("BLOCK_N: 64", f"BLOCK_N: {value}")
    result = read(lines(end))
    assert not result.problems
    assert f"BLOCK_N={value}, num_warps=4" in result.tunings[0].choices[0].description


def test_all_that_is_set_at_the_end_of_newer_configurations() -> None:
    end = ENDED.replace("maxnreg: None", "maxnreg: 128, ir_override: None")
    (choice,) = read(lines(end)).tunings[0].choices
    assert choice.description == f"{shown(128)}, maxnreg=128"


def test_a_line_of_many_beginnings_takes_no_time_by_its_square() -> None:
    for text in ("config=", "Autotuning kernel f with config ", "Triton autotuning: config=A: "):

        def work(times: int, text: str = text) -> None:
            read(f"Autotuning kernel f with config A: 1\n{text * times}\n")

        assert is_linear(work, 1250), text


def test_lines_behind_a_counter_take_no_time_by_its_square() -> None:
    def work(count: int) -> None:
        pairs = (lines(TRIED[n % 2], ROWS[n % 2], prefix=f"[{n}] ") for n in range(count))
        read("".join(pairs))

    assert is_linear(work, 100)


def test_results_of_pieces() -> None:
    log = lines(*TRIED, ENDED, HEADING, *ROWS).encode()
    whole = read(log)
    assert read(log, list(range(0, len(log), 7))) == whole
