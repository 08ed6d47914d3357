"""Our Triton product in real compiles on the CPU, by Triton's interpreter; and its absence.

The programs run in a Python that has Triton; without one, those tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
import types
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.disk.layout import Layout
from backend.model.events import ChoiceFailed, ChoiceSelected, ChoiceTimed, TuningStarted
from backend.pins.store import PinStore
from tests.support.places import ROOT
from tests.support.rocm_programs import BEGIN, Ran, last_session, pin_ours, run, selections
from tests.support.torch_models import child_env
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

INTERPRETED = {"TRITON_INTERPRET": "1"}

MODELS = """
agree("mm", lambda a, b: torch.relu(a.sin() @ b), torch.randn(20, 40), torch.randn(40, 24))
agree("bmm", lambda a, b: torch.bmm(a, b).sin() * 2, torch.randn(2, 20, 40), torch.randn(2, 40, 24))
agree("addmm", lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=2),
      torch.randn(24), torch.randn(20, 40), torch.randn(40, 24))
"""


@pytest.fixture(scope="module")
def python() -> str:
    return triton_python()


class Story(NamedTuple):
    """A program run cold, again after its tunings were pinned to Triton, and without our hooks."""

    cache: Path
    offered: list[tuple[TuningStarted, list[object]]]
    cold: Ran
    pinned: dict[str, str]
    after_pin: Ran
    selected: dict[str, tuple[str, str]]
    unhooked: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, python: str) -> Story:
    cache = tmp_path_factory.mktemp("triton") / "cache"
    cold = run(MODELS, cache, INTERPRETED, python=python)
    offered = last_session(cache)
    pinned = pin_ours(cache, "rocm_triton")
    after_pin = run(MODELS, cache, INTERPRETED, python=python)
    selected = selections(cache)
    shutil.rmtree(Layout(cache).home / "triton")
    return Story(cache, offered, cold, pinned, after_pin, selected, _unhooked(cache, python))


def _unhooked(cache: Path, python: str) -> subprocess.CompletedProcess[str]:
    """The program as it stands, but for the name under which graphs with our kernels are kept."""
    tag = "from backend.inductor.hooks.environment import separate_graphs\nseparate_graphs()\n"
    told = "import sys\nprint('ours:', *(m for m in sys.modules if m.startswith('backend.')))\n"
    program = cache.parent / "unhooked.py"
    program.write_text(tag + textwrap.dedent(BEGIN + MODELS) + told)
    log = str(cache.parent / "compiler.log")
    more = {**INTERPRETED, "COMPILE_LOG": log, "TORCH_LOGS": "output_code", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [python, "-W", "ignore", str(program)],
        env=child_env(cache, more),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_triton_stands_beside_the_others(story: Story) -> None:
    assert [start.op for start, _ in story.offered] == ["mm", "bmm", "addmm"]
    for start, events in story.offered:
        names = {choice.name for choice in start.choices}
        assert {start.op, "rocm_gemm_0", "rocm_triton_0"} <= names
        (ours,) = [choice for choice in start.choices if choice.name == "rocm_triton_0"]
        assert ours.hash.startswith("rocm_triton-")
        assert "BLOCK_M=" in ours.description and "matrix_instr_nonkdim=" in ours.description
        assert ours.hash in {event.hash for event in events if isinstance(event, ChoiceTimed)}
    assert "rocm_triton_0" in story.cold.stderr  # PyTorch's own table


def test_pinned_it_is_called_and_agrees(story: Story) -> None:
    assert story.selected == {key: (hash, "pin") for key, hash in story.pinned.items()}
    called = [call.split("(")[0] for call in story.after_pin.calls]
    assert [name[: name.rindex("_")] for name in called] == [
        "rocm_triton_mm",
        "rocm_triton_bmm",
        "rocm_triton_mm",
    ]
    assert "extern_kernels." not in story.after_pin.stderr
    # relu is in the store
    assert re.search(r"tl.where\((fused_\d) < 0, 0.0, \1\)", story.after_pin.stderr)
    for name in ("mm", "bmm", "addmm"):
        assert f"{name} agrees" in story.after_pin.stdout
    store = PinStore(Layout(story.cache))
    assert {(status.state, status.detail) for status in store.status()} == {("active", "")}


def test_next_process_needs_no_hooks_and_tunes_nothing(story: Story) -> None:
    done = story.unhooked
    assert "AUTOTUNE" not in done.stderr
    assert "bmm agrees" in done.stdout and "addmm agrees" in done.stdout
    (modules,) = [line for line in done.stdout.splitlines() if line.startswith("ours:")]
    assert "backend.inductor.triton.runtime" in modules
    assert "backend.inductor.hooks.selector" not in modules
    written = sorted(path.stem for path in (Layout(story.cache).home / "triton").glob("*.py"))
    assert len(written) == 3  # taken from the graphs


FORCED = """
from torch._inductor import select_algorithm

maker, wanted = "rocm_triton", "SPLIT_K=1,"

def ours_alone(choices):
    ours = [c for c in choices if c.name.startswith(maker) and wanted in c.description]
    assert ours, [(c.name, c.description) for c in choices]
    if maker != "rocm_triton":
        return ours[:1]
    told = ours[0].info_dict()
    assert told["backend"] == "Triton" and told["BLOCK_M"] in told["tile_shape"]
    return ours[:1]

select_algorithm.add_preprocessing_fn(ours_alone)
R = torch.randn
agree("sliced", lambda a, b: (a + 1)[2:20, 8:40] @ b[8:40].sin(), R(24, 64), R(64, 24))
agree("transposed", lambda a, b: a.t() @ b.t(), R(40, 20), R(24, 40))
agree("grad", torch.bmm, R(2, 18, 20), R(2, 20, 17), grad=True)
agree("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b).cos(), R(2, 1, 24), R(2, 20, 40),
      R(2, 40, 24))
agree("gelu", lambda a, b: torch.nn.functional.gelu(a @ b), R(20, 40), R(40, 24))
agree("half", torch.mm, R(20, 40).half(), R(40, 24).half(), tolerance=0.02)
frozen = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU()).eval()
with torch.no_grad(), config.patch(freezing=True):
    agree("frozen", frozen, R(32, 64))
wanted = "SPLIT_K=4,"
agree("split", lambda a, b: a @ b + 1, R(20, 512), R(512, 24))
wanted = "SPLIT_K=1,"
torch._dynamo.reset()
graphs = torch._dynamo.utils.counters["stats"]
before = graphs["unique_graphs"]
compiled = torch.compile(lambda a, b: torch.relu(a @ b), dynamic=True)
for m, k, n in ((20, 40, 24), (19, 33, 40), (50, 8, 5)):
    a, b = R(m, k), R(k, n)
    error = (compiled(a, b) - torch.relu(a @ b)).abs().max().item()
    assert error < 1e-4, error
    print("right", m, k, n, flush=True)
print("graphs", graphs["unique_graphs"] - before)
"""


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory, python: str) -> Ran:
    """A process in which our choices alone are offered."""
    env = {**INTERPRETED, "ROCM_TUI_TEMPLATE_BUDGET": "40"}
    parts = {"forced": FORCED, "epilogues": EPILOGUES, "profiled": PROFILED}
    program = "\n".join(f'part("{name}")\n{source}' for name, source in parts.items())
    return run(program, tmp_path_factory.mktemp("forced") / "cache", env, python=python)


def test_layouts_splits_and_dynamic_shapes(forced: Ran) -> None:
    ran = forced.part("forced")
    assert len(ran.agreed) == 8
    assert ran.stdout.count("right") == 3 and "graphs 1" in ran.stdout
    assert ran.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`
    assert len(ran.calls) == 11  # bmm and its two gradients are three
    assert sum("workspace_0.view(torch.float32)" in call for call in ran.calls) == 1
    assert any("reinterpret_tensor(" in call for call in ran.calls)
    assert " s" in ran.calls[-1]  # sizes by name


EPILOGUES = """
torch._dynamo.reset()
F = torch.nn.functional
a, b, r = R(20, 40), R(40, 24), R(20, 24)
agree("residual", lambda a, b, r, s: F.gelu((a @ b) * s) + r, a, b, r, R(20, 1))
agree("swiglu", lambda a, g, u: F.silu(a @ g) * (a @ u), a, b, R(40, 24))
agree("viewed", lambda x, w, r: (x.reshape(-1, 40) @ w).view(2, 10, 24) * 2 + r,
      R(2, 10, 40), b, R(2, 10, 24))
agree("chosen", lambda a, b, r: torch.where((y := a @ b) > r, y.clamp(-1, 1), r), a, b, r)
agree("dynamic", lambda a, b, r: torch.sigmoid(a @ b) * r, a, b, r, dynamic=True)

def results(a, b):
    return (y := a @ b), y.half(), y > 0

for one, other in zip(torch.compile(results)(a, b), results(a, b)):
    assert one.dtype == other.dtype and (one.double() - other.double()).abs().max() < 0.01
print("results agrees 0")
"""


def test_what_stands_behind_is_in_the_store(forced: Ran) -> None:
    ran = forced.part("epilogues")
    assert ran.agreed == ["residual", "swiglu", "viewed", "chosen", "dynamic", "results"]
    assert len(ran.calls) == 7 and "async_compile.cpp_pybinding" not in ran.stderr
    assert ran.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`


PROFILED = """
from torch._inductor.runtime.triton_heuristics import collected_calls

def summary(n):
    torch._dynamo.reset()
    compiled = torch.compile(lambda c, a, b: torch.addmm(c, a, b).relu() * a.sum())
    given = R(n), R(20, 40), R(40, n)
    for _ in "12":
        error = (compiled(*given) - torch.addmm(*given).relu() * given[1].sum()).abs().max().item()
        assert error < 1e-3, error
        yield list(collected_calls)

with config.patch(profile_bandwidth=True, profile_bandwidth_regex=""):
    for maker, wanted, n in (("rocm_triton", "SPLIT_K=1,", 24), ("rocm_gemm", "", 25)):
        (first,), (again,) = summary(n)
        milliseconds, gigabytes, rate, name = first
        assert again == first and abs(gigabytes / rate * 1e3 - milliseconds) < 1e-9
        print("profiled", name, round(gigabytes * 1e9))
    with config.patch(profile_bandwidth_regex="another"):
        print("left out", *summary(26))
"""


def test_inductors_summary_of_bandwidth_has_our_kernels(forced: Ran) -> None:
    """What it lists is what a call moves: the bias is a row, and the sum's scalar is read, too."""
    ran = forced.part("profiled")

    def moved(n: int) -> int:
        return 4 * (n + 20 * 40 + 40 * n + 20 * n + 1)

    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("profiled ")]
    assert [(re.sub(r"_\d+$", "", name), int(size)) for _, name, size in lines] == [
        ("rocm_triton_mm", moved(24)),
        ("rocm_gemm", moved(25)),
    ]
    assert "left out [] []" in ran.stdout


BROKEN = r"""
import copy, dataclasses
from torch._inductor import select_algorithm

LAUNCH = "import triton, ctypes\ndef launch(a, b, out):\n    "

def broken(choice, name, source):
    twin = copy.copy(choice)
    twin.name = f"rocm_{name}"
    twin.bmreq = copy.copy(choice.bmreq)
    twin.bmreq.spec = dataclasses.replace(choice.bmreq.spec, source=source, name=name)
    return twin

def plant(choices):
    ours = next(choice for choice in choices if choice.name.startswith("rocm_triton"))
    source = ours.bmreq.spec.source
    wrong = source.replace("range(0, tl.cdiv(K", "range(1, tl.cdiv(K")
    outside = source.replace("(tl.float32), mask=(m < M)", "(tl.float32), mask=(m < M + 1)")
    assert source not in (wrong, outside), source
    return [*choices, broken(ours, "wrong", wrong), broken(ours, "outside", outside),
            broken(ours, "unwritten", LAUNCH + "pass\n"),
            broken(ours, "segfault", LAUNCH + "ctypes.string_at(0)\n"),
            broken(ours, "endless", LAUNCH + "import time; time.sleep(600)\n"),
            broken(ours, "raising", LAUNCH + "raise ValueError('no')\n"),
            broken(ours, "no_code", "this is no Python\n")]

select_algorithm.add_preprocessing_fn(plant)
agree("bmm", torch.bmm, torch.randn(2, 20, 128), torch.randn(2, 128, 16))
"""

REASONS = {
    "rocm_wrong": "wrong result: max error",
    "rocm_outside": "elements outside of the output were written",
    "rocm_unwritten": "elements are NaN",
    "rocm_segfault": "died of SIGSEGV",
    "rocm_endless": "no result within 6 s: its process was stopped",
    "rocm_raising": "ValueError: no",
    "rocm_no_code": "invalid syntax",
}


def test_each_broken_one_fails_alone(tmp_path: Path, python: str) -> None:
    cache = tmp_path / "cache"
    env = {**INTERPRETED, "ROCM_TUI_BENCHMARK_SECONDS": "6"}
    ran = run(BROKEN, cache, env, code=False, python=python)
    assert "bmm agrees" in ran.stdout
    ((start, events),) = last_session(cache)
    names = {choice.hash: choice.name for choice in start.choices}
    failed = {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)}
    assert failed.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert reason in failed[name], (name, failed[name])
    timed = {names[e.hash] for e in events if isinstance(e, ChoiceTimed)}
    assert timed == {"bmm", "rocm_gemm_0", "rocm_triton_0"}
    (selected,) = [e for e in events if isinstance(e, ChoiceSelected)]
    assert names[selected.hash] in timed


AHEAD = """
import dataclasses, os, sys
import torch, triton
from pathlib import Path
from torch._inductor.autotune_process import TensorMeta
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from backend.inductor.benchmark.errors import CompileFailed
from backend.inductor.benchmark.request import TritonBenchmarkRequest, TritonSpec
from backend.inductor.triton.runtime import load_triton
from backend.templates.operand import (Operand)
from backend.templates.problem import (GemmProblem)
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import from_gemm, generate

class Absent:
    "The driver of a GPU that is not there: enough of it to ask for code, not to run it."
    def get_current_target(self): return GPUTarget("hip", "gfx942", 64)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

class Asking:
    "A kernel that is launched up to the point where its code is there."
    def __init__(self, kernel): self.kernel = kernel
    def __getitem__(self, grid):
        return lambda *args, **options: self.kernel.warmup(*args, grid=grid, **options)

def made():
    return {path.name for path in Path(os.environ["TRITON_CACHE_DIR"]).glob("*")}

def operand(name, *sizes):
    return Operand(name, "float16", sizes, (*sizes[1:], 1))

def request(choice, target="gfx942"):
    spec = TritonSpec(choice.source, choice.hash, target)
    return TritonBenchmarkRequest(spec, choice, metas[:-1], metas[-1], [], 0, None)

shapes = (130, 512), (512, 256), (256,), (130, 256)
metas = [TensorMeta(torch.device("cpu"), torch.float16, s, torch.empty(s).stride(), 0)
         for s in shapes]
operands = dict(zip(("a", "b", "bias", "out"), shapes))
problem = from_gemm(GemmProblem(**{name: operand(name, *s) for name, s in operands.items()}))
config = TritonGemmConfig(32, 64, 32)
for split in (1, 4):
    choice = generate(problem, dataclasses.replace(config, split_k=split), "gfx942")
    before = made()
    request(choice).precompile()
    assert len(made() - before) == len(choice.kernels) == (1 if split == 1 else 2)
    driver.set_active(Absent())
    launch = load_triton(choice.source, name=choice.hash, target="gfx942")
    for kernel in choice.kernels:
        launch.__globals__[kernel.name] = Asking(launch.__globals__[kernel.name])
    before = made()
    memory = [torch.empty(int(choice.workspace_bytes) // 4)] if split > 1 else []
    launch(*(torch.zeros(s, dtype=torch.float16) for s in shapes), *memory)
    assert made() == before
    print("asked for what was there", flush=True)

wrong = dataclasses.replace(choice, source=choice.source.replace("tl.dot(a, b,", "tl.dot(a, k,"))
for attempt in range(2):
    try:
        request(wrong).precompile()
    except CompileFailed as error:
        print("refused", error, flush=True)
"""


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory, python: str) -> tuple[Ran, set[str]]:
    """A process with Triton where its interpreter is off, and the names that `MODELS` was offered.

    It compiles for a GPU that is not there, after the models.
    """
    folder = tmp_path_factory.mktemp("compiling")
    (folder / "triton").mkdir()
    env = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "triton")}
    program = f'part("models")\n{MODELS}\npart("ahead")\n{AHEAD}'
    ran = run(program, folder / "cache", env, code=False, python=python)
    tunings = last_session(folder / "cache")
    return ran, {str(choice.name) for start, _ in tunings for choice in start.choices}


def test_not_offered_where_the_interpreter_is_off(compiling: tuple[Ran, set[str]]) -> None:
    ran, names = compiling
    assert "rocm_gemm_0" in names
    assert not [name for name in names if "triton" in name]
    assert ran.part("models").stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`


def test_what_is_compiled_ahead_is_what_a_launch_asks_for(
    compiling: tuple[Ran, set[str]],
) -> None:
    ahead = compiling[0].part("ahead").stdout
    assert ahead.count("asked for what was there") == 2
    refused = [line for line in ahead.splitlines() if line.startswith("refused")]
    assert len(refused) == 2 and refused[0] == refused[1]
    assert "triton_gemm for gfx942" in refused[0]


@pytest.mark.parametrize(
    ("arch", "interpret", "expected"),
    [
        ("gfx942:sramecc+:xnack-", "0", "gfx942"),
        ("gfx950", "", "gfx950"),
        ("gfx1100", "0", None),
        ("gfx90a", "1", None),
    ],
)
def test_what_a_rocm_device_is_offered(
    monkeypatch: pytest.MonkeyPatch, arch: str, interpret: str, expected: str | None
) -> None:
    torch = pytest.importorskip("torch")
    from backend.inductor.triton import template as targets

    device = types.SimpleNamespace(gcnArchName=arch)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    monkeypatch.setattr(targets, "why_no_triton", lambda: "")
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    targets._target.cache_clear()
    try:
        target = targets.target_of(torch.device("cuda", 0))
    finally:
        targets._target.cache_clear()
    assert (None if target is None else str(target)) == expected
