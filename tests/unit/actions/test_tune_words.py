"""`rocm-tui tune`: what its words mean, without a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter, end_log, read_log
from backend.model.choice import Choice, sort_choices
from backend.model.events import SessionEnded, SessionStarted
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.jobs import Progress, TuneJob, answer_of
from rocm_tui.actions.tune import backend_list, is_op, is_shape, typed_problem
from rocm_tui.cli.entry import main
from rocm_tui.environment import device_env, device_to_measure, lane
from rocm_tui.errors import UsageError
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.tune import NotTunable, NotTuned, TuneOptions, problem_of, tune, words_of
from rocm_tui.jobs.worker import heard_progress
from rocm_tui.render.jobs import outcome, progress_text
from tests.support.terminal_lab import table


def test_an_op_with_shapes() -> None:
    problem = typed_problem(["bmm", "8x128x256", "8×256×192"], dtype="bf16")
    assert words_of(problem) == {
        "op": "bmm",
        "shapes": [[8, 128, 256], [8, 256, 192]],
        "dtypes": ["torch.bfloat16", "torch.bfloat16"],
    }
    full = typed_problem(
        ["mm", "4x8", "8x2"],
        dtype="int8,torch.float8_e4m3fn",
        strides="8x1,1x8",
        device="cpu",
        precision="high",
    )
    assert words_of(full) == {
        "op": "mm",
        "shapes": [[4, 8], [8, 2]],
        "strides": [[8, 1], [1, 8]],
        "dtypes": ["torch.int8", "torch.float8_e4m3fn"],
        "device": "cpu",
        "precision": "high",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to tune"),
        (["bmm", "4x4", "4x4"], "--dtype bf16"),
        (["bmm", "4x4", "4y4", "--dtype", "f32"], "4y4 is no shape"),
        (["bmm", "4x4", "4x4", "--dtype", "f32,f32,f32"], "3 types for 2 operands"),
        (["bmm", "4x4", "4x4", "--dtype", "a b"], "is no type"),
        (["bmm", "4x4", "4x4", "--dtype", "f32", "--strides", "4x1"], "--strides"),
        (["bmm", "4x4", "4x4", "--dtype", "f32", "--precision", "low"], "no precision"),
        (["abc1234", "--dtype", "f32"], "--dtype goes with OP SHAPE"),
        (["abc1234", "--backends", "ATEN,TRITTON"], "no such backend: TRITTON"),
        (["abc1234", "--backends", ","], "no such backend"),
        (["abc1234", "--budget", "0"], "--budget"),
        (["abc1234", "--budget", "nan"], "--budget"),
        (["abc1234", "--device", "gpu"], "no device"),
    ],
)
def test_bad_words_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["tune", "--cache-dir", str(tmp_path), *words]) == 2
    out, err = capsys.readouterr()
    assert said in err and len(err.splitlines()) == 1 and out == ""


def test_every_problem_of_a_log_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16) + table(32) + table(16, first="triton_mm_7"))
    words = ["tune", "--cache-dir", str(tmp_path), "--from-log", str(log), "--dry-run"]
    assert main(words) == 0
    assert capsys.readouterr().out.split("\n") == [
        "mm 16×64 · 64×64 f32",
        "mm 32×64 · 64×64 f32",
        "",
    ]
    assert main([*words, "--json"]) == 0
    (first, _) = json.loads(capsys.readouterr().out)["problems"]
    assert first["shapes"] == [[16, 64], [64, 64]] and first["strides"] == [[64, 1], [64, 1]]
    (tmp_path / "empty.log").write_text("nothing\n")
    assert main([*words[:3], "--from-log", str(tmp_path / "empty.log"), "--dry-run"]) == 1
    assert main([*words, "1234567"]) == 1


def test_devices_are_counted_among_those_that_are_visible() -> None:
    assert device_env({"A": "1"}, None) == device_env({"A": "1"}, "cpu") == {"A": "1"}
    both = {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert device_env({}, "1") == both
    assert device_env({"HIP_VISIBLE_DEVICES": "4, 6"}, "1") == dict.fromkeys(both, "6")
    with pytest.raises(UsageError, match="no GPU 2 among those visible: 4,6"):
        device_env({"HIP_VISIBLE_DEVICES": "4,6"}, "2")
    assert [
        lane(*words) for words in ((None, "cpu"), (None, "cuda"), (None, None), ("3", None))
    ] == [
        "cpu",
        "0",
        "0",
        "3",
    ]


def test_names_of_backends() -> None:
    assert backend_list("aten, triton") == ("ATEN", "TRITON") and backend_list(None) is None


# The mode that a cache was tuned in.

RESULT = {
    "ok": True,
    "conclusive": True,
    "op": "mm",
    "inputs": "[]",
    "precision": "highest",
    "choices": [
        {"name": "mm", "hash": "mm-a", "ms": 0.2, "failed": False, "reason": None},
        {"name": "x", "hash": "x-b", "ms": 0.1, "failed": False, "reason": None},
        {"name": "y", "hash": "y-b", "ms": None, "failed": True, "reason": "no"},
    ],
}
ELSEWHERE = {"ok": False, "conclusive": False, "modes": 3, "reason": "tuned in another mode"}


def answering(*answers: dict[str, object]) -> tuple[RunJob, list[tuple[int, bool]]]:
    """A worker that gives these answers in turn, and the modes that it was asked to tune in."""
    asked: list[tuple[int, bool]] = []
    left = list(answers)

    def run(job: Any) -> Any:
        assert isinstance(job, TuneJob)
        asked.append((job.mode, job.any_mode))
        return answer_of(job, left.pop(0))

    return run, asked


def test_the_mode_is_the_one_that_the_cache_tells_of() -> None:
    problem = typed_problem(["mm", "4x4", "4x4"], dtype="f32")
    run, asked = answering(RESULT)
    tuned = tune(run, problem, TuneOptions())
    assert asked == [(0, False)] and [c.name for c in tuned.choices] == ["x", "mm", "y"]
    assert "x, ~100.0 µs, ~100 % ahead of mm; 1 of 3 without a time" in outcome(tuned)
    run, asked = answering(ELSEWHERE, ELSEWHERE, RESULT)
    tune(run, problem, TuneOptions())
    assert asked == [(0, False), (1, False), (2, False)]
    run, asked = answering(ELSEWHERE, ELSEWHERE, ELSEWHERE, RESULT)
    tune(run, problem, TuneOptions())
    assert asked[3:] == [(0, True)]
    run, asked = answering(RESULT)
    tune(run, problem, TuneOptions(mode=1))
    assert asked == [(1, True)]
    run, _ = answering({"ok": False, "reason": "one\x1b"})
    with pytest.raises(NotTuned, match="one␛"):
        tune(run, problem, TuneOptions())


def test_a_tie_is_said_to_be_one() -> None:
    choices = sort_choices([Choice(name="a", ms=0.1), Choice(name="b", ms=0.101)])
    assert "a, ~100.0 µs, a tie with b" in outcome(Tuning("mm", choices=choices))
    assert "no choice could be timed" in outcome(Tuning("mm"))


def test_what_is_known_too_little_of() -> None:
    with pytest.raises(NotTunable, match="without its shapes"):
        problem_of(Tuning("mm", dims=(4, 4, 4)))
    known = Tuning("mm", inputs_key="[]", precision="high", choices=(Choice(name="x"),))
    assert words_of(problem_of(known)) == {"op": "mm", "inputs": "[]", "precision": "high"}


def test_progress_is_what_a_worker_said_made_harmless() -> None:
    event = {"event": "progress", "what": "a\x1b", "timed": 3, "total": 14, "best": "x\n"}
    event |= {"best_ms": 0.0123, "seconds_left": 8.0}
    told = heard_progress(event)
    assert told is not None and progress_text(told) == "3/14 timed, best x  ~12.3 µs, 8.0 s left"
    bad = {"event": "progress", "timed": -1, "total": "9", "best_ms": 10**400, "seconds_left": True}
    assert heard_progress(bad) == Progress()
    assert heard_progress({"event": "result"}) is None


def test_a_killed_writer_gets_an_end(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    session = Session("x", host="h", pid=7, started=1.0)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    writer.close()
    with writer.path.open("ab") as stream:
        stream.write(b'{"event": "choi')
    assert end_log(layout, writer.path) is True
    events, problems = read_log(writer.path)
    assert isinstance(events[-1], SessionEnded) and len(problems) == 1
    assert end_log(layout, writer.path) is False, "it has one"
    assert end_log(layout, tmp_path / "other.jsonl") is False
    assert end_log(layout, layout.sessions / "none.jsonl") is False


def test_a_tuning_is_measured_on_its_own_gpu() -> None:
    assert device_to_measure(None, 3) == "3"
    assert device_to_measure("1", 3) == "1"
    assert device_to_measure("cpu", 3) == "cpu"
    assert device_to_measure(None, 0) is device_to_measure(None, None) is None


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], False), (["mm"], True), (["mm", "x"], True), (["nm", "4x4"], True),
        (["nm", "a", "4"], True), (["4x4"], False), (["abc1234"], False),
    ],
)  # fmt: skip
def test_which_words_are_meant_as_an_op_with_shapes(words: list[str], meant: bool) -> None:
    assert is_op(words) is meant


@pytest.mark.parametrize(
    ("word", "shape"),
    [("8x128", True), ("8×1", True), ("7", True), ("", False), ("x8", False), ("8x", False),
     ("-8", False), ("9" * 18, True), ("9" * 19, False), ("٣x3", False)],
)  # fmt: skip
def test_which_words_are_shapes(word: str, shape: bool) -> None:
    assert is_shape(word) is shape


@pytest.mark.parametrize(
    ("given", "name"),
    [("f64", "float64"), ("double", "float64"), ("f32", "float32"), ("float", "float32"),
     ("fp32", "float32"), ("f16", "float16"), ("fp16", "float16"), ("half", "float16"),
     ("bf16", "bfloat16"), ("i8", "int8"), ("fp8", "float8_e4m3fn"), (" torch.int8 ", "int8")],
)  # fmt: skip
def test_the_names_of_types(given: str, name: str) -> None:
    problem = typed_problem(["mm", "4x4", "4x4"], dtype=given)
    assert problem.dtypes == (f"torch.{name}",) * 2


def test_types_may_be_one_each() -> None:
    problem = typed_problem(["mm", "4x4", "4x4"], dtype="f32,bf16")
    assert problem.dtypes == ("torch.float32", "torch.bfloat16")
    one = typed_problem(["mm", "4x4"], dtype="f32", strides="4x1")
    assert (one.dtypes, one.strides) == (("torch.float32",), ((4, 1),))


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["adddmm", "4x4"], {}, "did you mean 'addmm'"),
        (["mm"], {}, "shapes of mm"),
        (["mm", "4x4"], {"dtype": None}, "type of the operands of mm"),
        (["mm", "4x4"], {"dtype": "bf17"}, "did you mean"),
        (["mm", "4x4"], {"dtype": "f32,f32"}, "2 types for 1 operand;"),
        (["mm", "4x4"], {"strides": "4x1,4x1"}, "--strides"),
        (["mm", "4x4"], {"strides": "4xy"}, "is no stride"),
        (["mm", "4x4"], {"precision": "low"}, "highest, high and medium"),
    ],
)
def test_what_is_wrong_with_a_typed_problem(
    words: list[str], more: dict[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        typed_problem(words, **{"dtype": "f32", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_each_precision_can_be_named(precision: str) -> None:
    problem = typed_problem(["mm", "4x4", "4x4"], dtype="f32", precision=precision)
    assert problem.precision == precision
