"""`trial -- CMD`: a program whose difference is planted, and what programs do instead of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil
import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import ChoiceSelected, SessionStarted, TuningStarted
from backend.model.inductor_kernel import TRITON, inputs_of
from backend.model.session import Session
from backend.pins.file import PinRecord
from backend.pins.store import PinStore
from rocm_tui.actions.trial import NotTried, private_name
from rocm_tui.actions.trial_program import (
    ONCE,
    code_of,
    copy_times,
    not_launched,
    step_times,
    steps_of,
    try_program,
)
from rocm_tui.cli.entry import main
from rocm_tui.errors import UsageError
from rocm_tui.jobs import program
from rocm_tui.jobs.program import ProgramRun, ProgramTrial, run_program
from rocm_tui.json_output import builtins_of
from rocm_tui.render.graphs import ProgramTrialJson, program_sentences, program_text, run_line
from tests.support.pin_lab import KEY, cache_file, make_layout, times
from tests.support.places import ROOT
from tests.support.printed_times import run_at_printed_times
from tests.support.terminal_lab import alive
from tests.support.torch_models import child_env

PROGRAM = str(ROOT / "tests" / "support" / "planted_program.py")
STEPS = steps_of("loss", None, 2)


def command(with_pins: float, without: float, how: str = "steps") -> list[str]:
    return [sys.executable, PROGRAM, str(with_pins), str(without), how]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Times of mm-c1 are above those of Cpp-c2 in one precision, below in the other."""
    layout = make_layout(tmp_path / "cache")
    PinStore(layout).pin(None, KEY, "Cpp-c2")
    return layout


@pytest.fixture(autouse=True)
def printed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.actions.trial_program.run_program", run_at_printed_times)


def tried(
    layout: Layout, words: list[str], pairs: int | None = 3, budget: float = 60.0
) -> ProgramTrial:
    return try_program(words, layout, STEPS, pairs=pairs, budget=budget)


def left(layout: Layout) -> list[Path]:
    """What a trial left of its private folders."""
    return list(layout.graphs.glob("trial-*"))


def test_a_planted_difference_is_found_and_nothing_of_the_persons_changes(layout: Layout) -> None:
    before = cache_file(layout).read_bytes(), layout.pins.read_bytes()
    assert times(layout)["mm-c1"] > 1e7
    heard: list[ProgramRun] = []
    trial = try_program(command(10, 30), layout, STEPS, pairs=4, tell=heard.append)
    assert (cache_file(layout).read_bytes(), layout.pins.read_bytes()) == before
    assert left(layout) == []
    its = trial.verdict
    assert its.verdict == "faster", trial
    assert its.ratio == pytest.approx(1 / 3, rel=0.01)
    assert its.ratio_low <= its.ratio <= its.ratio_high < 1
    assert [run.pair for run in heard] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert {run.side for run in heard[2:4]} == {"with", "without"}
    assert all(run.steps == 9 for run in heard)
    assert trial.trouble == ()
    said = program_sentences(trial)
    assert re.match(r"The program is \d\d\.\d % faster with the pins \(", said[0]), said
    assert "faster" in program_text(trial)
    assert re.match(
        r"pair 1, with(out)? the pins: [\d.]+ ms a step, 9 steps in", run_line(heard[2])
    )
    document = builtins_of(ProgramTrialJson.of(trial))
    json.dumps(document, allow_nan=False)
    assert document["verdict"] == "faster" and len(document["runs"]) == 10


def test_folders_of_trials_that_were_killed_are_removed(layout: Layout) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    dead, alive = (
        layout.graphs / f"{private_name()}{pid}-0badcafe" for pid in (over.pid, os.getpid())
    )
    others = {
        layout.graphs / f"trial-another.host-{over.pid}-0badcafe",
        layout.graphs / f"trial-{socket.gethostname()}-{over.pid}-0badcafe",  # of a container
        layout.graphs / f"{private_name()}{over.pid}-{os.getpid()}-0badcafe",  # a longer host name
    }
    for folder in (dead, alive, *others):
        (folder / "with").mkdir(parents=True)
    tried(layout, command(10, 10), pairs=None, budget=0.1)
    assert set(left(layout)) == {alive, *others}


def test_slower_with_the_pins_is_found_too(layout: Layout) -> None:
    trial = tried(layout, command(30, 10))
    assert trial.verdict.verdict == "slower", trial
    assert "slower with the pins" in program_sentences(trial)[0]


def test_without_a_number_of_pairs_it_ends_when_it_is_clear(layout: Layout) -> None:
    trial = tried(layout, command(30, 120), pairs=None)
    assert trial.verdict.verdict == "faster"
    assert trial.pairs in (3, 6)


def test_a_spent_budget_ends_it_unclear(layout: Layout) -> None:
    trial = tried(layout, command(10, 10), pairs=None, budget=0.1)
    assert (trial.pairs, trial.verdict.verdict) == (1, "unclear")
    assert "3 pairs of runs are needed" in program_sentences(trial)[0]


def test_the_same_code_on_both_sides_is_told(layout: Layout) -> None:
    trial = tried(layout, command(10, 10, "same"), pairs=None, budget=0.1)
    assert "both sides run the same code" in trial.trouble[0]


def test_a_side_that_loads_its_compiled_graphs_is_said_to_be_compiled_once(
    layout: Layout,
) -> None:
    trial = tried(layout, command(10, 30, "graphs"))
    assert trial.trouble == (ONCE,) and trial.verdict.verdict == "faster"
    assert ONCE in program_sentences(trial)


def test_a_program_that_compiles_elsewhere_is_told(layout: Layout) -> None:
    script = "import time\nfor n in range(9): print('loss'); time.sleep(0.1)"
    trial = tried(layout, [sys.executable, "-c", script], pairs=None, budget=0.1)
    assert "compiled nothing in the cache dir" in trial.trouble[0]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("crash", r"ended with exit code 1.*RuntimeError: out of luck.*failed/"),
        ("none", r"printed no line that matches 'loss'.*loading"),
    ],
)
def test_a_run_that_cannot_be_used_is_one_line(layout: Layout, how: str, why: str) -> None:
    with pytest.raises(NotTried, match=why) as error:
        tried(layout, command(10, 10, how))
    assert "\n" not in str(error.value)
    assert left(layout) == []


def test_markers_that_come_at_once_are_no_steps(layout: Layout) -> None:
    with pytest.raises(NotTried, match="several at once: let it flush"):
        try_program(command(10, 10, "burst"), layout, steps_of("step", None, 2))


def test_too_few_steps_are_told(layout: Layout) -> None:
    with pytest.raises(NotTried, match="printed 12 lines that match 'loss', and 14 are needed"):
        try_program(command(10, 10), layout, steps_of("loss", None, 10))


def test_without_pins_there_is_nothing_to_try(tmp_path: Path) -> None:
    with pytest.raises(NotTried, match="nothing is pinned"):
        tried(make_layout(tmp_path), command(10, 10))


def test_a_command_that_does_not_exist(layout: Layout) -> None:
    with pytest.raises(NotTried, match="no-such-command-xyz: No such file"):
        tried(layout, ["no-such-command-xyz"])
    assert left(layout) == []


@pytest.mark.parametrize(
    ("marker", "graph", "skip"), [(None, None, 1), ("a", "b", 1), ("a", None, -1), ("(", None, 1)]
)
def test_steps_that_make_no_sense(marker: str | None, graph: str | None, skip: int) -> None:
    with pytest.raises(UsageError):
        steps_of(marker, graph, skip)


def test_many_short_steps_are_timed_in_parts() -> None:
    """Each tenth line is heard late, with the one behind it; one step takes long."""
    marks = [step + (1.0 if step % 10 == 4 else 0.0) + 500 * (step > 70) for step in range(101)]
    times = step_times(marks)
    assert len(times) == 20
    assert median(times) == pytest.approx(1.0)
    assert step_times([1.0, 2.0, 4.0]) == [1.0, 2.0]


def test_code_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    for name, more in (("a", ""), ("b", ""), ("c", "x = 1")):
        folder = tmp_path / name / "xy"
        folder.mkdir(parents=True)
        (folder / f"c{name}.py").write_text(f"# {tmp_path / name}/xy/k.py\n{more}")
    one, other, third = (code_of(Layout(tmp_path / name)) for name in "abc")
    assert one == other != third


# The program's life


def test_what_a_program_leaves_running_is_ended(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = tmp_path / "children"
    monkeypatch.setenv("CHILDREN", str(children))
    tried(layout, command(10, 10, "child"), pairs=None, budget=0.1)
    pids = [int(line) for line in children.read_text().splitlines()]
    assert len(pids) > 1 and not any(map(alive, pids))


def test_lines_come_with_their_times(tmp_path: Path) -> None:
    """The program goes on when its first line was heard, and sleeps before the second one."""
    heard = tmp_path / "heard"
    script = (
        "import pathlib, sys, time\nprint('a')\nheard = pathlib.Path(sys.argv[1])\n"
        "for _ in range(6000):\n    if heard.exists(): break\n    time.sleep(0.01)\n"
        "time.sleep(0.2)\nprint('b\\x1b[31m', end='')"
    )
    lines: list[tuple[str, float]] = []

    def hear(line: str, when: float) -> None:
        lines.append((line, when))
        heard.touch()

    ended = run_program([sys.executable, "-c", script, str(heard)], dict(os.environ), hear)
    assert ended.status == 0 and [line for line, _ in lines] == ["a", "b"]
    assert ended.seconds > lines[1][1] - lines[0][1] > 0.2


def test_a_program_that_has_closed_its_output_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only output that something else holds open is given more time."""
    monkeypatch.setattr(program, "_LAST", 60.0)
    ended = run_program(["echo", "a"], dict(os.environ), lambda line, when: None)
    assert ended.lines == ["a"] and ended.seconds < 30


def test_a_signal_is_minus_its_number() -> None:
    words = ["sh", "-c", "kill -9 $$"]
    assert run_program(words, dict(os.environ), lambda line, when: None).status == -9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_process_and_no_folder(layout: Layout, number: int) -> None:
    words = ["trial", "--step", "loss", "--", *command(10, 10, "hang")]
    process = subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(layout.root),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 120
    while not (children := psutil.Process(process.pid).children(recursive=True)):
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode in (130, 143), stderr
    assert b"Traceback" not in stderr
    assert not any(psutil.pid_exists(child.pid) for child in children)
    assert left(layout) == []


def test_the_command_prints_each_run_and_the_verdict(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in child_env(layout.root).items():
        monkeypatch.setenv(name, value)
    words = ["trial", "--step", "loss", "--skip", "2", "--pairs", "3", "--", *command(10, 40)]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.count("\npair ") == 6, out
    assert "The program is" in out and "faster with the pins" in out
    assert err == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--"], "-- needs a command"),
        (["abc", "--", "true"], "not both"),
        (["--", "true"], "say what a step"),
        (["--step", "x", "--pairs", "2", "--", "true"], "--pairs is a number, 3 or more"),
        ([], "give a tuning's ID"),
    ],
)
def test_words_that_are_off(tmp_path: Path, words: list[str], why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "trial", *words],
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert why in done.stderr


def test_a_pinned_kernel_that_no_process_launched_is_told(tmp_path: Path) -> None:
    private = Layout(tmp_path / "private")
    writer = EventWriter(private, Session(id="s", cache_dir=str(private.root)))
    asked = TuningStarted(1, 1.0, "pointwise", "k[1]:A", "", (), (), (), "cuda", ())
    taken = ChoiceSelected(1, 2.0, "triton_config-1", "pin", None, None)
    timed = TuningStarted(2, 1.0, "pointwise", "k[2]:B", "", (), (), (), "cuda", ())
    other = ChoiceSelected(2, 2.0, "triton_config-2", "timing", None, None)
    for event in (SessionStarted(writer.session), asked, taken, timed, other):
        writer.write(event)
    writer.close()
    first = PinRecord("pointwise", "k[1]:A", "", "triton_config-1", "", "all.best_config", {})
    second = replace(first, inputs="k[2]:B", hash="triton_config-2")
    unseen = replace(first, hash="triton_config-3")
    assert not_launched([first, second, unseen], private) == [second, unseen]


def test_the_side_with_pins_has_a_copy_of_what_triton_reads_of_them(tmp_path: Path) -> None:
    private, name = Layout(tmp_path / "private"), "add.autotune.json"
    private.root.mkdir()
    kept = tmp_path / "triton" / ("A" * 52) / name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"{}")
    pin = PinRecord(
        TRITON, inputs_of("add", [4096], "A" * 52), "", "triton_config-1", "", "A" * 52, {},
        folder=str(tmp_path / "triton"),
    )  # fmt: skip
    gone = replace(pin, system_hash="B" * 52)
    copy_times([pin, gone, replace(pin, op="pointwise")], private)
    (copy,) = (path for path in private.root.rglob("*") if path.is_file())
    assert copy == private.root / "autotuned" / ("A" * 52) / name and copy.read_bytes() == b"{}"
