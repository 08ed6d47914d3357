"""`trial`: a captured graph with choices in place, its passes timed by a worker."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from backend.cache.autotune import copy_unpinned, read_caches
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import GraphCompiled, GraphTried
from backend.model.graph import RETUNED, CompileOption, Graph, Swap, Trial, TrialArm
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.wire.codec import to_json
from backend.wire.jobs import TrialJob, TrialResult, answer_of, job_words
from backend.worker.jobs.trial import merged
from backend.worker.trial.passes import kernels_of
from rocm_tui.environment import find_python
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.hooked import launch_program, logs_of
from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

BMM = """
import torch, torch._inductor.config as config
def bmm(x, w, b):
    return torch.nn.functional.gelu(torch.bmm(x, w) + b) * 2
config.max_autotune = True
x, w, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96), torch.randn(96)
with torch.no_grad():
    torch.compile(bmm)(x, w, b)
"""


@dataclass(frozen=True)
class Captured:
    cache: Path
    graph: Graph
    key: TuningKey
    times: dict[str, float]

    @property
    def text(self) -> Path:
        return Layout(self.cache).graphs / f"{self.graph.id}.py"

    def swap(self, hash: str) -> Swap:
        return Swap(self.key.op, self.key.inputs, self.key.precision, hash)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    cache = tmp_path_factory.mktemp("captured") / "cache"
    launch_program(BMM, cache, env={"ROCM_TUI_CAPTURE": "1"})
    (log,) = logs_of(cache)
    events, _ = read_log(log)
    graph = [event.graph for event in events if isinstance(event, GraphCompiled)][-1]
    (file,), _ = read_caches(Layout(cache))
    ((key, times),) = file.entries.items()
    return Captured(cache, graph, key, dict(times))


@pytest.fixture(scope="module")
def worker(captured: Captured) -> Iterator[Worker]:
    private = Layout(Layout(captured.cache).graphs / "cache")
    copy_unpinned(Layout(captured.cache), private)
    with spawn_worker(find_python(), private.root) as worker:
        yield worker


def tried(worker: Worker, job: TrialJob) -> TrialResult:
    heard: list[object] = []
    return answer_of(job, worker.exchange(job_words(job), heard.append, 300))


def state(cache: Path) -> dict[str, str]:
    """All files of a person, but for logs and what trials keep."""
    own = Layout(cache).graphs / "cache"
    return {
        str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and own not in path.parents and path.parent != Layout(cache).sessions
    }


def graphs_tried(cache: Path) -> list[Trial]:
    """Return the recorded trials, oldest first."""
    events = [event for log in logs_of(cache) for event in read_log(log)[0]]
    trials = [event.trial for event in events if isinstance(event, GraphTried)]
    return sorted(trials, key=lambda trial: trial.when)


def other(captured: Captured) -> str:
    """The choice that the program did not take."""
    taken = captured.graph.tunings[0].hash
    return next(hash for hash in captured.times if hash != taken)


def test_a_trial(captured: Captured, worker: Worker) -> None:
    """Its arms are timed; what cannot be put in place has failed alone; nothing of the person's
    changes but that the trial is recorded."""
    assert captured.graph.captured and captured.graph.tunings[0].key == captured.key
    before = state(captured.cache)
    unasked = Swap("mm", "[]", "highest", "x")
    arms = ((), (captured.swap(other(captured)),), (captured.swap("gone"),), (unasked,))
    result = tried(worker, TrialJob(captured.graph.id, arms, budget=2.0))
    assert result.ok and result.trial is not None, result.reason
    first, swapped, gone, never = result.trial.arms
    assert (first.ratio, first.verdict, first.error) == (1.0, "tied", 0.0)
    assert first.ms and swapped.ms and first.passes == swapped.passes == result.trial.rounds > 0
    assert swapped.gone and swapped.added, "one of the two is fused with what follows it"
    assert {first.kernels, swapped.kernels} == {1, 2}
    assert swapped.error is not None and swapped.allowed is not None
    assert swapped.error <= swapped.allowed
    assert "gone is none of its 2 choices here" in gone.failed and gone.ms is None
    assert never.failed == "the graph does not tune mm []"
    assert state(captured.cache) == before
    logs = [read_log(log)[0] for log in logs_of(captured.cache)]
    events = [event for log in logs for event in log if isinstance(event, GraphTried)]
    assert [event.trial for event in events] == [result.trial]


def test_what_is_compiled_stays_for_the_next_trial(captured: Captured, worker: Worker) -> None:
    arms = ((), (captured.swap(other(captured)),))
    tried(worker, TrialJob(captured.graph.id, arms, budget=0.5))
    kernels = Layout(captured.cache).graphs / "cache"
    before = {path for path in kernels.rglob("*") if path.is_file()}
    again = tried(worker, TrialJob(captured.graph.id, arms, budget=0.5))
    assert again.ok and {path for path in kernels.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("graph", "said"),
    [("../pins", "that is not an id of a graph"), ("0000000", "cannot be read: No such file")],
)
def test_a_graph_that_is_not_there(worker: Worker, graph: str, said: str) -> None:
    result = tried(worker, TrialJob(graph, ((),)))
    assert not result.ok and said in result.reason


def test_a_file_of_others_is_not_run(captured: Captured, worker: Worker) -> None:
    """Nor one that says something else than a graph."""
    path = captured.text.with_name("1234567.py")
    path.symlink_to(captured.text)
    assert "symlink" in tried(worker, TrialJob("1234567", ((),))).reason
    path.unlink()
    path.write_text(captured.text.read_text() + "import os\n")
    assert "line " in tried(worker, TrialJob("1234567", ((),))).reason
    path.chmod(0o666)
    assert "can write" in tried(worker, TrialJob("1234567", ((),))).reason
    path.unlink()


def _child(cache: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.capture_child", *words],
        env=child_env(cache),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_swap_is_what_a_pin_leads_to(captured: Captured, tmp_path: Path) -> None:
    """Stock PyTorch with the pin generates the code of the arm, and not that of the baseline."""
    pinned = tmp_path / "pinned"
    shutil.copytree(captured.cache, pinned)
    hash = other(captured)
    PinStore(Layout(pinned)).pin(None, captured.key, hash)
    program = _child(pinned, "program", BMM)
    swaps = json.dumps([[*to_json(captured.swap(hash)).values()][:4]])
    with spawn_worker(find_python(), pinned) as worker:
        result = tried(worker, TrialJob(captured.graph.id, ((),), budget=0.5, stock=True))
    assert result.ok and result.trial is not None, result.reason
    assert result.trial.arms[0].kernels == len(kernels_of(program))
    private = Layout(pinned).graphs / "cache"
    copy_unpinned(Layout(pinned), Layout(private))
    assert _child(private, "arm", str(captured.text), swaps) == program
    assert _child(private, "arm", str(captured.text), "[]") != program


OTHERS = """
import torch, torch._inductor.config as config
config.max_autotune = True
with torch.no_grad(), config.patch(freezing=True):
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU()).eval()
    torch.compile(model)(torch.randn(32, 64))
torch._dynamo.reset()

@torch.library.custom_op("foreign::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

twice.register_fake(torch.empty_like)
torch.compile(lambda x: twice(x) + 1)(torch.randn(4))

def step(x, state):
    state.mul_(1.5)
    return torch.nn.functional.dropout(x, 0.5) @ state

torch.compile(step)(torch.randn(8, 8), torch.randn(8, 8))
"""


def test_programs_of_other_kinds(tmp_path: Path) -> None:
    """Weights that become constants; an op of a library, which no text says; a graph that changes
    an input and draws numbers: each pass begins with the same ones."""
    cache = tmp_path / "cache"
    launch_program(OTHERS, cache, env={"ROCM_TUI_CAPTURE": "1"})
    (log,) = logs_of(cache)
    events, _ = read_log(log)
    frozen, foreign, step = {
        event.g: event.graph for event in events if isinstance(event, GraphCompiled)
    }.values()
    assert not foreign.captured
    assert foreign.uncaptured == "foreign.twice.default is not an op of torch itself"
    (file,), _ = read_caches(Layout(cache))
    ((key, times),) = file.entries.items()
    (use,) = frozen.tunings
    (rival,) = [hash for hash in times if hash != use.hash]
    swap = Swap(key.op, key.inputs, key.precision, rival)
    with spawn_worker(find_python(), cache) as worker:
        result = tried(worker, TrialJob(frozen.id, ((), (swap,)), budget=0.5))
        changing = tried(worker, TrialJob(step.id, ((),), budget=0.5))
    assert result.trial is not None, result.reason
    assert result.trial.arms[1].ms and result.trial.arms[1].added + result.trial.arms[1].gone
    assert changing.trial is not None, changing.reason
    assert changing.trial.arms[0].error == 0


def test_a_trial_of_options(captured: Captured, worker: Worker) -> None:
    """An option that makes the graph's loops scalar is slower, with the same outputs; what is no
    option, or is none that decides what is compiled, has failed alone."""
    texts = (
        ("cpp.simdlen", "1"),
        ("epilogue_fusion", "True"),
        ("no_such_option", "1"),
        ("cpp.cxx", "/bin/sh"),
        ("epilogue_fusion", "maybe"),
        ("cpp.simdlen", "default"),
    )
    arms = ((), *((CompileOption(name, value),) for name, value in texts))
    result = tried(worker, TrialJob(captured.graph.id, arms, budget=4.0))
    assert result.ok and result.trial is not None, result.reason
    _, scalar, fused, unknown, program, wrong, own, control = result.trial.arms
    assert control.swaps == (RETUNED,) and result.trial.control == control
    assert control.ms and not control.same, "equal code is timed here"
    assert [arm.retuned for arm in (scalar, fused, own, control)] == [True, False, False, False]
    for arm in (scalar, fused, own):
        assert arm.ms and arm.error is not None and arm.error <= (arm.allowed or 0.0), arm
    assert unknown.failed.endswith("has no Inductor option no_such_option")
    assert program.failed == (
        "cpp.cxx=/bin/sh cannot be tried: it does not decide what is compiled"
    )
    assert wrong.failed == "epilogue_fusion takes values like True, not maybe"


def test_times_that_only_an_option_needs_stay_with_its_arm(
    captured: Captured, worker: Worker
) -> None:
    """Another vector width gives C++ choices other hashes, so Inductor benchmarks them again."""
    private = Layout(Layout(captured.cache).graphs / "cache")
    caches = {path: path.read_bytes() for path in private.autotune.glob("*")}
    narrow = (CompileOption("cpp.simdlen", "1"),)
    result = tried(worker, TrialJob(captured.graph.id, ((), narrow), budget=2.0))
    assert result.trial is not None, result.reason
    assert not result.trial.arms[1].failed
    assert any("again for cpp.simdlen=1, and" in line for line in result.trial.trouble)
    assert caches == {path: path.read_bytes() for path in private.autotune.glob("*")}
    own = [json.loads(path.read_text()) for path in (private.home / "arms").glob("*.times")]
    assert any(captured.key.inputs in name for times in own for name in times)
    swapped = (*narrow, captured.swap(other(captured)))
    beside = tried(worker, TrialJob(captured.graph.id, (narrow, swapped), budget=1.0))
    assert beside.trial is not None, beside.reason
    assert not any("again" in line for line in beside.trial.trouble), "the baseline has it, too"


def test_the_control_takes_no_time_from_the_cache(captured: Captured, tmp_path: Path) -> None:
    """The program's tuning may have been disturbed: here by a millisecond for each choice."""
    cache = shutil.copytree(captured.cache, tmp_path / "cache")
    private = Layout(Layout(cache).graphs / "cache")
    shutil.rmtree(private.root, ignore_errors=True)
    copy_unpinned(Layout(cache), private)
    (path,) = private.autotune.iterdir()
    text = path.read_text()
    for ms in captured.times.values():
        text = text.replace(json.dumps(ms), json.dumps(ms + 1.0))
    path.write_text(text)
    with spawn_worker(find_python(), private.root) as worker:
        result = tried(worker, TrialJob(captured.graph.id, ((), (RETUNED,)), budget=0.5))
    assert result.trial is not None, result.reason
    assert [arm.swaps for arm in result.trial.arms] == [(), (RETUNED,)]
    assert not result.trial.arms[1].failed
    (file,) = (private.home / "arms").glob("*.times")
    (own,) = json.loads(file.read_text()).values()
    assert set(own) == set(captured.times) and all(0 < ms < 1 for ms in own.values()), own
    assert path.read_text() == text


def test_an_arm_that_another_process_compiled_is_loaded(captured: Captured, tmp_path: Path) -> None:
    cache = shutil.copytree(captured.cache, tmp_path / "cache")
    private = Layout(Layout(cache).graphs / "cache")
    shutil.rmtree(private.root, ignore_errors=True)
    copy_unpinned(Layout(cache), private)
    arms = ((), (captured.swap(other(captured)),), (captured.swap("gone"),))

    def entries() -> set[Path]:
        return set((private.root / "fxgraph").rglob("*"))

    with spawn_worker(find_python(), private.root) as compiler:
        job = TrialJob(captured.graph.id, arms, compilers=2, untimed=True)
        assert tried(compiler, job).ok
    compiled = entries()
    assert compiled
    with spawn_worker(find_python(), private.root) as other_worker:
        result = tried(other_worker, TrialJob(captured.graph.id, arms[:2], budget=2.0))
        assert entries() == compiled
        again = tried(other_worker, TrialJob(captured.graph.id, arms[::2], budget=1.0))
    assert result.trial is not None and again.trial is not None, result.reason
    (first, swapped), (_, gone) = result.trial.arms, again.trial.arms
    assert first.kernels and swapped.kernels and not swapped.failed
    assert first.gone == () and (swapped.gone or swapped.added)
    assert "is none of its" in gone.failed, "what was not compiled in is not loaded either"


def test_a_choice_that_inductor_could_not_benchmark_is_in_no_arm(
    captured: Captured, tmp_path: Path
) -> None:
    """Inductor takes another one, so the arm would show something else under its name."""
    cache = shutil.copytree(captured.cache, tmp_path / "cache")
    private = Layout(Layout(cache).graphs / "cache")
    shutil.rmtree(private.root, ignore_errors=True)
    copy_unpinned(Layout(cache), private)
    hash = other(captured)
    (path,) = private.autotune.iterdir()
    text = path.read_text()
    path.write_text(text.replace(json.dumps(captured.times[hash]), "Infinity"))
    assert path.read_text() != text
    with spawn_worker(find_python(), private.root) as worker:
        arms = ((), (captured.swap(hash),))
        result = tried(worker, TrialJob(captured.graph.id, arms, budget=0.5))
    assert result.trial is not None, result.reason
    assert result.trial.arms[1].failed.startswith("Inductor could not benchmark ")


def test_a_stock_process_that_is_fresh_loads_no_compiled_graph(
    captured: Captured, tmp_path: Path
) -> None:
    cache = shutil.copytree(captured.cache, tmp_path / "cache")
    shutil.rmtree(cache / "fxgraph", ignore_errors=True)

    def entries(**kind: bool) -> set[Path]:
        with spawn_worker(find_python(), cache) as worker:
            job = TrialJob(captured.graph.id, ((),), budget=0.2, stock=True, **kind)
            assert tried(worker, job).ok
        return {path for path in (cache / "fxgraph").rglob("*") if path.is_file()}

    assert not entries(fresh=True)
    assert entries()


def test_processes_compile_anew_and_time_in_turn(captured: Captured, worker: Worker) -> None:
    arms = ((), (captured.swap(other(captured)),))
    result = tried(worker, TrialJob(captured.graph.id, arms, budget=2.0, processes=2))
    assert result.ok and result.trial is not None, result.reason
    trials = (result.trial, *result.others)
    assert len({trial.session for trial in trials}) == 2
    assert [len(trial.arms) for trial in trials] == [2, 2]
    assert all(arm.ms and not arm.failed for trial in trials for arm in trial.arms)
    gone = TrialJob("0000000", arms, processes=2)
    assert not (refused := tried(worker, gone)).ok
    assert "cannot be read" in (refused.reason or "")


def test_arms_are_divided_among_gpus(captured: Captured, worker: Worker) -> None:
    """Each process times the baseline and its part of the arms, with its part of the error."""
    before = graphs_tried(captured.cache)
    scalar = CompileOption("cpp.simdlen", "1")
    arms = ((), (captured.swap(other(captured)),), (captured.swap("gone"),), (scalar,))
    job = TrialJob(captured.graph.id, arms, budget=3.0, gpus=("-1", "-1"))
    result = tried(worker, job)
    assert result.ok and result.trial is not None, result.reason
    assert [arm.swaps for arm in result.trial.arms] == [*arms, (RETUNED,)]
    first, swapped, gone, option, control = result.trial.arms
    assert option.retuned and control.ms
    assert (first.ratio, first.verdict) == (1.0, "tied")
    assert swapped.ms and option.ms and "is none of its 2 choices" in gone.failed
    trials = graphs_tried(captured.cache)[len(before) :]
    parts = {tuple(arm.swaps for arm in trial.arms) for trial in trials}
    assert parts == {(arms[0], arms[1], arms[3], (RETUNED,)), (arms[0], arms[2])}
    assert len({trial.session for trial in trials}) == 2
    assert result.trial.rounds == min(trial.rounds for trial in trials)


def test_what_a_dead_process_left_out_is_tried_here(captured: Captured, worker: Worker) -> None:
    before = graphs_tried(captured.cache)
    arms = ((), (captured.swap(other(captured)),), (captured.swap("gone"),))
    job = TrialJob(captured.graph.id, arms, budget=1.0, gpus=("-1", "-2"))
    killed = list[int]()

    def kill() -> None:
        end = time.monotonic() + 200
        while not killed and time.monotonic() < end:
            time.sleep(0.02)
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("CUDA_VISIBLE_DEVICES") == "-2":
                        process.kill()
                        killed.append(process.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    result = tried(worker, job)
    killer.join()
    assert killed and result.ok and result.trial is not None, result.reason
    _, swapped, gone = result.trial.arms
    assert swapped.ms and "is none of its 2 choices" in gone.failed
    (elsewhere, here) = graphs_tried(captured.cache)[len(before) :]
    assert [len(trial.arms) for trial in (elsewhere, here)] == [2, 2]
    assert elsewhere.session != here.session


def test_trials_of_several_gpus_become_one() -> None:
    a, b = Swap("mm", "[]", "highest", "a"), CompileOption("epilogue_fusion", "False")
    control = TrialArm((RETUNED,), ms=1.1, ratio=0.9, ratio_low=0.89, error=0.0)
    failed = TrialArm((RETUNED,), failed="it died")
    arms = TrialArm((), ms=1.0), TrialArm((a,), ms=0.9), failed
    first = Trial("g", 1.0, arms, 30, 2.0, trouble=("x",))
    arms = TrialArm((), ms=1.2), TrialArm((b,), ms=0.8), control
    second = Trial("g", 2.0, arms, 20, 3.0, trouble=("x", "y"))
    trial = merged([first, second], ((), (b,), (a,)))
    assert [arm.ms for arm in trial.arms] == [1.0, 0.8, 0.9, 1.1]
    assert (trial.rounds, trial.seconds, trial.trouble) == (20, 3.0, ("x", "y"))
