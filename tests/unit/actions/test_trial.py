"""Trials of graphs: which graph, which arms, what a worker's end means, what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.graph import (
    RETUNED,
    TEMPLATES,
    Arm,
    CompileOption,
    Graph,
    GraphTimes,
    Swap,
    Trial,
    TrialArm,
    TuningUse,
)
from backend.model.tuning import Pin, Tuning
from backend.pins.state import PinStatus
from backend.wire.jobs import Progress, TrialJob, TrialResult, WorkerJob
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.trial import (
    CapturedGraph,
    GraphTrial,
    NotTried,
    arms_for,
    choices_to_try,
    combined,
    graph_for,
    options_to_try,
)
from rocm_tui.cli.graphs import _print_trial
from rocm_tui.errors import NoSuchGraph
from rocm_tui.jobs.limits import JobError, JobTimeout
from rocm_tui.json_output import builtins_of
from rocm_tui.render.graphs import (
    ARMS,
    TrialJson,
    arm_lines,
    kernel_alone,
    output,
    pin_command,
    sentences,
    short,
    trial_line,
)
from rocm_tui.render.table import text_table
from rocm_tui.search.types import best_result
from rocm_tui.session.graph_rows import GraphRow, GraphTuning
from rocm_tui.session.model import Row
from tests.support.pin_lab import KEY, make_layout

USE = TuningUse(KEY.op, KEY.inputs, KEY.precision)
TUNING = Tuning(
    KEY.op,
    inputs_key=KEY.inputs,
    precision=KEY.precision,
    choices=(
        Choice("mm", "mm-1", 1.0),
        Choice("cpp_A", "Cpp-2", 1.1),
        Choice("cpp_B", "Cpp-3", 1.2),
        Choice("cpp_C", None, 1.3),
    ),
)

COMBO = CompileOption("combo_kernels", "True")


def row(tuning: Tuning = TUNING) -> Row:
    return Row("k", "abc1234", 1, tuning)


def graph_row(id: str, share: float = 0.5, *, uses: bool = True, **more: Any) -> GraphRow:
    tunings = {KEY: GraphTuning(USE, share=0.5)} if uses else {}
    kept = Path(f"/graphs/{id}.py") if more.pop("kept", True) else None
    graph = Graph(id, **more)
    return GraphRow(graph, GraphTimes(10, 10, 1.0), "p", share=share, tunings=tunings, path=kept)


# Which graph


def test_the_graph_with_the_tuning_in_which_most_time_is_spent() -> None:
    graphs = [graph_row("aaa0001", uses=False), graph_row("bbb0001"), graph_row("ccc0001", 0.5)]
    assert graph_for(row(), graphs).id == "bbb0001"
    unknown = replace(graph_row("ddd0001"), share=None)
    assert graph_for(row(), [unknown, *graphs, graph_row("eee0001", 0.6)]).id == "eee0001"
    assert graph_for(row(), graphs, "c").id == "ccc0001"
    with pytest.raises(NotTried, match="graph aaa0001 does not contain tuning abc1234"):
        graph_for(row(), graphs, "aaa")
    with pytest.raises(NoSuchGraph, match="no graph has the id 'f'"):
        graph_for(row(), graphs, "f")
    with pytest.raises(NoSuchGraph, match="begins several ids: bbb0001, bbb0002"):
        graph_for(row(), [*graphs, graph_row("bbb0002")], "bbb")


def test_what_is_not_captured_says_how_to() -> None:
    with pytest.raises(NotTried, match=r"no graph is known .*rocm-tui run --capture"):
        graph_for(row(), [])
    alone = graph_row("aaa0001", kept=False)
    with pytest.raises(NotTried, match="is not captured: run it with `rocm-tui run --capture"):
        graph_for(row(), [alone])
    refused = graph_row("aaa0001", kept=False, uncaptured="it calls an op of torchvision")
    with pytest.raises(NotTried, match="could not be captured: it calls an op of torchvision"):
        graph_for(row(), [refused])
    assert graph_for(row(), [alone, graph_row("bbb0001", 0.1)]).id == "bbb0001"


def test_a_tuning_of_a_log_is_in_no_graph() -> None:
    with pytest.raises(NotTried, match="known from a log only"):
        graph_for(row(Tuning("mm")), [graph_row("aaa0001")])


# Which arms


def test_each_choice_is_an_arm_beside_the_baseline() -> None:
    arms = arms_for(row(), [graph_row("aaa0001")], TUNING.choices[1:3])
    assert arms[0] == ()
    assert [[swap.hash for swap in arm] for arm in arms[1:]] == [["Cpp-2"], ["Cpp-3"]]
    assert arms[1][0].key == KEY and arms[1][0].name == "cpp_A"
    with pytest.raises(NotTried, match="does not contain"):
        arms_for(row(), [graph_row("aaa0001", uses=False)], TUNING.choices[1:2])


def test_unasked_the_choices_that_may_beat_inductors_own_are_tried() -> None:
    assert [c.label for c in choices_to_try(row())] == ["cpp_A"]
    named = TUNING.choices[2:3]
    assert choices_to_try(row(), named) == named
    pin = Pin(KEY.op, KEY.inputs, KEY.precision, "Cpp-4", "cpp_D", "system", {})
    status = PinStatus(pin, "active", "")
    slowest = replace(TUNING, choices=(*TUNING.choices[:3], Choice("cpp_D", "Cpp-4", 1.4)))
    pinned = replace(row(slowest), pin=status)
    assert [c.label for c in choices_to_try(pinned)] == ["cpp_D", "cpp_A"]
    alone = Tuning("mm", inputs_key=KEY.inputs, precision="highest", choices=TUNING.choices[:1])
    with pytest.raises(NotTried, match="no other choice to try"):
        choices_to_try(row(alone))
    with pytest.raises(NotTried, match="no other choice to try"):
        choices_to_try(row(Tuning("mm")))


# A worker


A: Arm = (Swap(KEY.op, KEY.inputs, KEY.precision, "Cpp-2", "cpp_A"),)
B: Arm = (Swap(KEY.op, KEY.inputs, KEY.precision, "Cpp-3", "cpp_B"),)


def arm(swaps: Arm = A, ratio: float = 0.95, verdict: str = "faster", **more: Any) -> TrialArm:
    numbers = {
        "ms": ratio,
        "low": ratio - 0.01,
        "high": ratio + 0.01,
        "ratio": ratio,
        "ratio_low": ratio - 0.01,
        "ratio_high": ratio + 0.01,
        "passes": 64,
        "kernels": 7,
        "error": 0.0,
        "allowed": 1e-5,
    }
    return TrialArm(swaps, verdict=verdict, **{**numbers, **more})  # type: ignore[arg-type]


def trial(*arms: TrialArm, **more: Any) -> Trial:
    baseline = arm((), 1.0, "tied", ratio_low=1.0, ratio_high=1.0)
    return Trial("abcdef0", 1.0, (baseline, *arms), rounds=64, seconds=2.0, **more)


class Worker:
    """A `RunJob` that answers as it is told; it keeps the jobs that it was asked."""

    def __init__(self, answer: Callable[[TrialJob], TrialResult]) -> None:
        self.jobs: list[TrialJob] = []
        self._answer = answer

    def __call__(self, job: WorkerJob[Any]) -> Any:
        assert isinstance(job, TrialJob)
        self.jobs.append(job)
        return self._answer(job)


def answered(job: TrialJob) -> TrialResult:
    return TrialResult(True, trial=trial(*(arm(swaps) for swaps in job.arms[1:])))


def test_the_job_says_what_is_asked(tmp_path: Path) -> None:
    layout, worker = make_layout(tmp_path), Worker(answered)
    done = GraphTrial(
        worker, layout, "abcdef0", [(), A], budget=5, rounds=9, threads=2, error=0.01, fresh=True
    ).once()
    assert [one.swaps for one in done.arms] == [(), A]
    expected = TrialJob("abcdef0", ((), A), 5, 9, 0.01, threads=2, fresh=True, processes=1)
    assert worker.jobs == [expected]
    assert (layout.graphs / "cache" / "cache" / "hash").exists()


def test_an_arm_that_ends_its_worker_has_failed_and_the_others_are_tried(tmp_path: Path) -> None:
    def answer(job: TrialJob) -> TrialResult:
        if A in job.arms:
            error = JobTimeout("it ran for 60 s without an end and was killed")
            error.blamed, error.last = "Cpp-2", Progress(seconds_left=3.0)
            raise error
        return answered(job)

    worker = Worker(answer)
    trying = GraphTrial(worker, make_layout(tmp_path), "abcdef0", [(), A, B])
    done = trying.once()
    assert [one.swaps for one in done.arms] == [(), B, A]
    assert done.arms[2].failed.startswith("it ran for 60 s")
    assert [job.budget for job in worker.jobs] == [30.0, 3.0]
    trying.once()
    assert worker.jobs[-1].arms == ((), B)


@pytest.mark.parametrize("blamed", [None, "Cpp-9"])
def test_a_worker_that_dies_of_something_else_is_an_error(
    tmp_path: Path, blamed: str | None
) -> None:
    """It is not started again, which would end it again, without an end."""

    def answer(job: TrialJob) -> TrialResult:
        assert len(worker.jobs) == 1, "started again"
        error = JobError("the worker ended")
        error.blamed = blamed
        raise error

    worker = Worker(answer)
    with pytest.raises(JobError, match="the worker ended"):
        GraphTrial(worker, make_layout(tmp_path), "abcdef0", [(), A]).once()


def test_where_no_arm_can_be_run_nothing_is_tried(tmp_path: Path) -> None:
    def answer(job: TrialJob) -> TrialResult:
        error = JobError("the worker ended (signal 11)")
        error.blamed = "Cpp-2"
        raise error

    with pytest.raises(NotTried, match=r"none of the choices can be run .*signal 11"):
        GraphTrial(Worker(answer), make_layout(tmp_path), "abcdef0", [(), A]).once()


def test_a_refusal_is_told(tmp_path: Path) -> None:
    worker = Worker(lambda job: TrialResult(False, "line 12 is no torch op\x1b[31m"))
    with pytest.raises(NotTried, match="line 12 is no torch op␛"):
        GraphTrial(worker, make_layout(tmp_path), "abcdef0", [(), A]).once()


# Several processes


def test_several_processes_make_one_interval() -> None:
    ratios = (0.95, 0.96, 0.94, 0.955)
    done = combined([trial(arm(A, r), arm(B, 1.0 + r / 100, "unclear")) for r in ratios])
    _, first, second = done.arms
    assert first.verdict == "faster" and first.ratio == pytest.approx(0.951, abs=0.002)
    assert first.ratio_low is not None and first.ratio_low < 0.94
    assert first.ratio_high is not None and 0.96 < first.ratio_high < 1
    assert first.passes == 4 * 64 and done.rounds == 4 * 64
    assert second.verdict == "slower"


def test_a_process_that_knows_nothing_is_left_out() -> None:
    knowing = [trial(arm(A, ratio)) for ratio in (0.95, 0.96, 0.94, 0.955)]
    nothing = trial(arm(A, 3.0, "unclear", ratio_low=0.0, ratio_high=inf))
    assert combined([*knowing, nothing]).arms == combined(knowing).arms
    assert combined([nothing] * 3).arms[1].verdict == "unclear"


def test_the_same_trouble_is_told_once() -> None:
    told = [("busy neighbour: 22 %", "x"), ("busy neighbour: 30 %",), ("y",)]
    done = combined([trial(arm(A), trouble=texts) for texts in told])
    assert done.trouble == ("busy neighbour: 30 %", "x", "y")


def test_an_arm_that_failed_once_has_failed() -> None:
    failing = TrialArm(B, failed="it crashed")
    done = combined([trial(arm(A), arm(B)), trial(arm(A), failing), trial(arm(A), arm(B))])
    assert [one.failed for one in done.arms] == ["", "", "it crashed"]


@pytest.mark.parametrize("at", range(3))
def test_outputs_that_differed_in_one_process_differ(at: int) -> None:
    """Also in a process in which others took the CPU all the time, so that it has no times."""
    fast = arm(A, 0.9, error=0.0, allowed=1e-3)
    wrong = replace(fast, error=0.5)
    for odd in (wrong, replace(wrong, ratio_low=0.0, ratio_high=inf)):
        arms = [odd if number == at else fast for number in range(3)]
        done = combined([trial(each) for each in arms])
        assert done.arms[1].error == 0.5
        assert best_result(done) is None and pin_command(done, TUNING, "abc1234") == ""
    unknown = [replace(fast, error=None if number == at else 0.0) for number in range(3)]
    assert combined([trial(each) for each in unknown]).arms[1].error is None
    assert combined([trial(fast)] * 3).arms[1].error == 0.0


@pytest.mark.parametrize("at", range(3))
def test_code_that_differed_in_one_process_is_not_the_same(at: int) -> None:
    arms = [arm(A, 1.0, "tied", same=number != at) for number in range(3)]
    assert not combined([trial(each) for each in arms]).arms[1].same
    assert combined([trial(arm(A, 1.0, "tied", same=True))] * 3).arms[1].same


def test_two_processes_are_too_few() -> None:
    assert combined([trial(arm(A)), trial(arm(A))]).arms[1].verdict == "unclear"


# What is said


def measured(**verdicts: tuple[float, str]) -> Tuning:
    choices = tuple(
        MeasuredChoice(hash, r, r, r, 0.01, 64, r, r - 0.005, r + 0.005, verdict)  # type: ignore[arg-type]
        for hash, (r, verdict) in verdicts.items()
    )
    return replace(TUNING, measured=Measurement("mm", KEY.inputs, "highest", 1.0, choices))


def test_the_sentence_says_how_much_and_how_sure() -> None:
    first, *_ = sentences(trial(arm(A, 0.956, ratio_low=0.951, ratio_high=0.961)), TUNING)
    assert first == "The graph is 4.4 % faster (3.9 to 4.9 %) with cpp_A."
    first, *_ = sentences(trial(arm(A, 1.03, "slower")), TUNING)
    assert first == "The graph is 3.0 % slower (2.0 to 4.0 %) with cpp_A."
    first, *_ = sentences(trial(arm(A, 1.0, "tied")), TUNING)
    assert first == "The graph is as fast with cpp_A, within 0.5 %."
    first, *rest = sentences(trial(arm(A, 1.0, "unclear")), TUNING)
    assert first.startswith(
        "It is unclear whether the graph is faster with cpp_A (−1.0 % to +1.0 %"
    )
    assert any("--processes 3" in text for text in rest)


def test_the_kernel_alone_may_say_something_else() -> None:
    tuning = measured(**{"Cpp-2": (1.0, "faster"), "mm-1": (1.05, "slower")})
    said = kernel_alone(tuning, arm(A, 1.03, "slower"))
    assert said == (
        "; its kernel alone is 4.8 % faster than mm, says `measure`: the graph is what counts"
    )
    said = kernel_alone(tuning, arm(A, 0.97, "faster"))
    assert said == "; its kernel alone is 4.8 % faster than mm, says `measure`"
    assert kernel_alone(TUNING, arm(A)) == ""
    tied = measured(**{"Cpp-2": (1.0, "tied"), "mm-1": (1.0, "tied")})
    assert "as fast as mm" in kernel_alone(tied, arm(A, 1.0, "tied"))
    unclear = measured(**{"Cpp-2": (1.0, "unclear"), "mm-1": (1.0, "unclear")})
    assert "found no clear difference from mm" in kernel_alone(unclear, arm(A))


def test_what_changed_in_the_graph_is_named() -> None:
    its = arm(A, kernels=8, gone=("fused_gelu",), added=("cpp_A", "gelu"))
    texts = sentences(trial(its), TUNING)
    assert texts[1] == (
        "With cpp_A it calls cpp_A, gelu, no longer fused_gelu: 8 kernels a pass instead of 7."
    )


def test_outputs_that_differ_too_much_are_never_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = arm(A, 0.5, error=0.3, allowed=1e-5)
    right = arm(B, 0.9, error=1e-6, allowed=1e-5)
    both = trial(wrong, right)
    assert best_result(both) == right
    assert pin_command(both, TUNING, "abc1234") == "rocm-tui pin abc1234 cpp_B"
    _print_trial(row(), both, ShellCommands(Layout(Path("/a b"))))
    command = f"rocm-tui pin {row().id} cpp_B --cache-dir '/a b'"
    assert f"To use it: {command}\n" in capsys.readouterr().out
    assert any("computes something else" in text for text in sentences(both, TUNING))
    unknown = trial(arm(A, 0.5, error=None))
    assert best_result(unknown) is None and pin_command(unknown, TUNING, "abc1234") == ""
    assert "differ" not in " ".join([short(unknown), *sentences(unknown)])
    assert output(wrong).startswith("differs") and output(right) == "1e-06"
    assert output(arm(error=0.0)) == "same bits" and output(arm(error=inf)).startswith("differs")
    assert pin_command(trial(wrong), TUNING, "abc1234") == ""


def test_a_failed_arm_is_a_line_of_the_table() -> None:
    text = text_table(ARMS, arm_lines(trial(arm(A), TrialArm(B, failed="it\x1b[31m crashed"))))
    lines = text.splitlines()
    assert lines[1].split()[:2] == ["without", "baseline"]
    assert "cpp_A" in lines[2] and "faster" in lines[2]
    assert "failed: it␛[31m crashed" in lines[3]


def test_a_narrow_terminal_keeps_the_verdicts_and_the_outputs() -> None:
    combo = CompileOption("triton.autotune_at_compile_time", "True")
    tried = trial(arm((combo,), 1.0412, "slower", kernels=12), arm(A))
    table = text_table(ARMS, arm_lines(tried), 80)
    assert max(map(len, table.splitlines())) <= 80
    heading = table.splitlines()[0]
    assert "the graph is" in heading and "output" in heading and "kernels" not in heading


def test_the_short_line_of_a_job() -> None:
    assert short(trial(arm(A, 0.956))) == "graph 4.4 % faster with cpp_A"
    assert (
        short(trial(arm(A, 1.0, "tied"), arm(B))) == "graph 5.0 % faster with cpp_B; 1 more tried"
    )
    assert short(trial(arm(A, 1.0, "unclear"))) == "graph unclear with cpp_A"
    assert short(trial(TrialArm(A, failed="x"))) == "no choice could be run in the graph"


def test_an_option_that_is_no_faster_than_a_new_tuning_is_no_gain() -> None:
    control, option = arm((RETUNED,), 0.75), arm((COMBO,), 0.74, retuned=True)
    tried = trial(option, control)
    assert best_result(tried) is None
    assert short(tried) == "graph as retuned with combo_kernels=True"
    table = text_table(ARMS, arm_lines(tried))
    assert "as retuned" in table and "tuned again" in table
    (said,) = (line for line in sentences(tried) if "combo_kernels" in line)
    assert said.endswith(
        "with combo_kernels=True, but not clearly more than when it is only tuned again."
    )
    line = trial_line(tried)
    assert line is not None and "good" not in {style for _, style in line}
    better = replace(option, ratio=0.6, ratio_low=0.59, ratio_high=0.61)
    assert best_result(trial(better, control)) == better


def test_json_is_strict() -> None:
    ours = replace(arm(A), swaps=(TEMPLATES,))
    document = builtins_of(TrialJson.of(trial(arm(A), TrialArm(B, failed="x"), ours)))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["arms"][1]["choices"][0]["hash"] == "Cpp-2"
    assert document["arms"][2]["verdict"] is None
    assert [each["templates"] for each in document["arms"]] == [False, False, False, True]


# What is tried unasked


def test_three_choices_are_tried_unasked() -> None:
    """The pinned one, the best by measurement, the second, ATen's best; the one that Inductor
    takes is the baseline."""
    times = {"cpp_0": 1.0, "cpp_1": 1.1, "mm": 1.2, "cpp_2": 1.3, "cpp_3": 1.4}
    choices = tuple(Choice(name, f"{name}-h", ms) for name, ms in times.items())
    tuning = replace(measured(**{"cpp_2-h": (1.0, "faster")}), choices=choices)
    pin = Pin(KEY.op, KEY.inputs, KEY.precision, "cpp_3-h", "cpp_3", "system", {})
    pinned = replace(row(tuning), pin=PinStatus(pin, "active", ""))
    assert [c.label for c in choices_to_try(pinned)] == ["cpp_3", "cpp_2", "cpp_1"]
    assert [c.label for c in choices_to_try(row(tuning))] == ["cpp_2", "cpp_1", "mm"]
    best = replace(measured(**{"cpp_0-h": (1.0, "faster")}), choices=choices)
    assert [c.label for c in choices_to_try(row(best))] == ["cpp_1", "mm"]


def test_options_that_often_help_are_tried_whatever_the_text_says_of_its_own() -> None:
    odd = CapturedGraph(Path("/g.py"), b"no head at all")
    cpu, gpu = options_to_try(odd, "cpu"), options_to_try(odd, "cuda")
    assert cpu and gpu and all(isinstance(option, CompileOption) for option in (*cpu, *gpu))


def test_the_body_of_a_text_begins_where_it_computes() -> None:
    data = b"import torch\n\nclass G:\n    def forward(self, a):\n\n        return a\x1b\n"
    text = CapturedGraph(Path("/g.py"), data)
    assert text.body[0].strip() == "def forward(self, a):" and len(text.body) == 2
    assert not any("\x1b" in line for line in text.lines) and len(text.lines) == 6
    assert CapturedGraph(Path("/g.py"), b"one\n\ntwo\n").body == ["one", "two"]


def test_no_trials_are_no_result() -> None:
    with pytest.raises(ValueError, match="no trials"):
        combined([])


def test_a_combined_trial_has_the_times_of_its_processes() -> None:
    done = combined([trial(arm(A, ratio)) for ratio in (0.9, 0.95, 1.0)])
    baseline, other = done.arms
    assert (baseline.ms, other.ms) == (1.0, 0.95) and done.seconds == 6.0
    assert other.low is not None and other.high is not None
    assert other.low <= 0.9 and other.high >= 1.0
    assert baseline.verdict == "tied" and baseline.passes == 3 * 64


def test_of_several_arms_all_that_one_choice_breaks_are_left_out(tmp_path: Path) -> None:
    both: Arm = (*A, *B)

    def answer(job: TrialJob) -> TrialResult:
        if any(swap.hash == "Cpp-2" for swaps in job.arms for swap in swaps):
            error = JobError("it died")
            error.blamed = "Cpp-2"
            raise error
        return answered(job)

    worker = Worker(answer)
    done = GraphTrial(worker, make_layout(tmp_path), "abcdef0", [(), A, B, both]).once()
    assert [one.swaps for one in done.arms] == [(), B, A, both]
    assert [bool(one.failed) for one in done.arms] == [False, False, True, True]


def test_a_control_that_ends_its_worker_is_left_out(tmp_path: Path) -> None:
    def answer(job: TrialJob) -> TrialResult:
        if job.control:
            error = JobError("the worker died of SIGSEGV")
            error.blamed = RETUNED.identity
            raise error
        return TrialResult(True, trial=trial(arm((COMBO,), retuned=True)))

    worker = Worker(answer)
    tried = GraphTrial(worker, make_layout(tmp_path), "abcdef0", ((), (COMBO,))).once()
    assert [job.control for job in worker.jobs] == [True, False]
    assert [each.swaps for each in tried.arms] == [(), (COMBO,), (RETUNED,)]
    assert tried.arms[-1].failed == "the worker died of SIGSEGV" and tried.control is None
    assert tried.verdict(tried.arms[1]) == "unclear" and best_result(tried) is None
    assert short(tried) == "graph unclear with combo_kernels=True"
    (said,) = (line for line in sentences(tried) if "with combo_kernels" in line)
    assert "unclear whether tuning it again would do the same" in said


def test_a_control_that_a_process_lacks_has_no_times_in_several() -> None:
    option, control = arm((COMBO,), 0.74, retuned=True), arm((RETUNED,), 0.75)
    every = combined([trial(option, control)] * 3)
    assert every.control is not None and every.verdict(every.arms[1]) == "as retuned"
    lacking = combined([trial(option, control), trial(option, control), trial(option)])
    assert [each.swaps for each in lacking.arms] == [(), (COMBO,), (RETUNED,)]
    assert lacking.control is None and lacking.verdict(lacking.arms[1]) == "unclear"
    assert lacking.arms[2].ratio is None and best_result(lacking) is None
    assert best_result(combined([trial(option)] * 3)) is not None
