"""`verify`: an op rebuilt from its inputs key, and what the code generated for it calls."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from rocm_tui.actions.verify import PinToVerify, Verifying
from rocm_tui.environment import find_python
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.cpu_offers import onednn_takes_bfloat16
from tests.support.places import ROOT
from tests.support.terminal_lab import command_line
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

MODEL = """
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 96, 64)
torch.compile(lambda a, b: torch.relu(torch.bmm(a, b.transpose(1, 2))))(a, b)
with torch.no_grad(), config.patch(freezing=True):
    torch.compile(torch.nn.Linear(96, 64).eval())(torch.randn(32, 96))
    torch._dynamo.reset()
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        torch.compile(torch.nn.Linear(96, 64).bfloat16().eval())(torch.randn(32, 96).bfloat16())
    else:
        torch.compile(torch.bmm)(torch.randn(3, 32, 64), torch.randn(3, 64, 96))
"""
KINDS = ["bmm", "packed_linear", "another"]
"""All that this torch tunes on a CPU: `another` is a `linear_unary`, and a second bmm on a CPU on
which oneDNN takes no bfloat16. mm, addmm and baddbmm have one choice there."""


@dataclass(frozen=True)
class Tuned:
    cache: Path
    keys: dict[str, TuningKey]
    times: dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    cache = tmp_path_factory.mktemp("tuned") / "cache"
    subprocess.run([*warm_python(), "-c", MODEL], env=child_env(cache), check=True, timeout=300)
    (file,), _ = read_caches(Layout(cache))
    third = "linear_unary" if onednn_takes_bfloat16() else "bmm"
    assert sorted(key.op for key in file.entries) == sorted(["bmm", "packed_linear", third])
    keys: dict[str, TuningKey] = {}
    for key in file.entries:
        keys["another" if key.op == "linear_unary" or key.op in keys else key.op] = key
    return Tuned(cache, keys, {kind: dict(file.entries[key]) for kind, key in keys.items()})


@pytest.fixture(scope="module")
def worker(tuned: Tuned) -> Iterator[Worker]:
    with spawn_worker(find_python(), tuned.cache) as found:
        yield found


def _cache_file(cache: Path) -> Path:
    (path,) = (p for p in Layout(cache).autotune.iterdir() if not p.name.startswith("."))
    return path


def verify(worker: Worker, key: TuningKey, hash: str, **more: Any) -> dict[str, Any]:
    job = {"job": "verify", "op": key.op, "inputs": key.inputs, "precision": key.precision, **more}
    heard: list[Any] = []
    result = worker.exchange({**job, "hash": hash}, heard.append, 200)
    assert heard[-1]["event"] == "result"
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_the_fastest_is_called_and_a_pin_changes_that(
    worker: Worker, tuned: Tuned, kind: str
) -> None:
    key, times = tuned.keys[kind], tuned.times[kind]
    fast, slow = sorted(times, key=times.__getitem__)
    before = _cache_file(tuned.cache).read_bytes()
    yes = verify(worker, key, fast)
    assert yes["ok"] and yes["hash"] == fast and yes["proof"], yes
    no = verify(worker, key, slow)
    assert not no["ok"] and no["hash"] == fast and "calls" in no["reason"], no
    assert _cache_file(tuned.cache).read_bytes() == before

    pins = PinStore(Layout(tuned.cache))
    pins.pin(None, key, slow)
    held = _cache_file(tuned.cache).read_bytes()
    assert held != before
    pinned = verify(worker, key, slow)
    assert pinned["ok"] and pinned["hash"] == slow, pinned
    assert not verify(worker, key, fast)["ok"]
    assert _cache_file(tuned.cache).read_bytes() == held
    pins.unpin(key)
    assert _cache_file(tuned.cache).read_bytes() == before
    assert verify(worker, key, fast)["ok"]


def test_the_threads_of_one_pin_are_not_those_of_the_next(worker: Worker, tuned: Tuned) -> None:
    key = tuned.keys["bmm"]
    (template,) = [hash for hash in tuned.times["bmm"] if hash.startswith("Cpp")]
    (fast,) = [
        hash for hash, ms in tuned.times["bmm"].items() if ms == min(tuned.times["bmm"].values())
    ]
    other = verify(worker, key, template, threads=3)
    assert not other["ok"] and "is none of the" in other["reason"] and other["conclusive"]
    assert verify(worker, key, fast)["ok"], "with as many as the worker began with"


SAME = f"""
import sys, torch
sys.path.insert(0, {str(ROOT)!r})
from backend.inductor.torch import tuning as torch_api
from backend.model.problem import TuningKey
from backend.worker.problem import rebuild
from backend.worker.problem import specs_of
program = rebuild("bmm", specs_of(TuningKey("bmm", sys.argv[1], "highest")))
with torch_api.compile_settings(torch_api.MODES[0], freezing=False, graph_cache=True):
    with torch.no_grad():
        torch.compile(program.function, dynamic=False)(*program.arguments)
"""
"""A program that compiles the same graph as the worker."""


def _entries(cache: Path) -> dict[str, bytes]:
    layout = Layout(cache)
    folders = (layout.autotune, layout.fxgraph, layout.aotautograd)
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found}


def test_a_warm_graph_is_found_again_in_the_same_process(worker: Worker, tuned: Tuned) -> None:
    """What the worker has compiled before says nothing of what a fresh process would find; and it
    leaves no entry in a cache."""

    def verified(hash: str, how: str) -> dict[str, Any]:
        before = _entries(tuned.cache)
        result = verify(worker, key, hash)
        assert how in result["proof"], result
        assert _entries(tuned.cache) == before
        return result

    key, times = tuned.keys["bmm"], tuned.times["bmm"]
    fast, slow = sorted(times, key=times.__getitem__)
    layout, pins = Layout(tuned.cache), PinStore(Layout(tuned.cache))
    assert verified(fast, "as compiled now")["ok"]
    same = [*warm_python(), "-c", SAME, key.inputs]
    subprocess.run(same, env=child_env(tuned.cache), check=True, timeout=300)
    assert verified(fast, "as found in the compiled-graph cache")["ok"]
    pins.pin(None, key, slow)
    assert verified(slow, "as compiled now")["ok"]
    aside = [path for path in layout.evicted.rglob("fxgraph/*/*/*") if path.is_file()]
    for path in aside:  # what an rsync or a mega-cache would do
        place = tuned.cache / path.relative_to(path.parents[3])
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    hidden = verified(slow, "as found in the compiled-graph cache")
    assert not hidden["ok"] and hidden["hash"] == fast
    pins.unpin(key)


def test_a_worker_that_crashes_takes_one_pin_with_it(tuned: Tuned) -> None:
    """The real worker gets the signal of a crash while it compiles the second pin."""

    def tell(place: int, pin: Pin, what: str) -> None:
        if place == 2 and what.startswith("compiling") and verifying.workers == 1:
            children = psutil.Process().children()
            supervisors = [p for p in children if "rocm_tui_worker" in command_line(p)]
            ours = max(supervisors, key=psutil.Process.create_time)  # the others are other tests'
            (worker,) = (p for p in ours.children() if "rocm_tui_worker" in command_line(p))
            worker.send_signal(signal.SIGSEGV)

    cache = tuned.cache
    pins = PinStore(Layout(cache))
    for kind, key in tuned.keys.items():
        pins.pin(None, key, max(tuned.times[kind], key=tuned.times[kind].__getitem__))
    verifying = Verifying(find_python(), Layout(cache), env=child_env(cache), tell=tell)
    with verifying:
        found = [
            (pin.op, result) for pin, result in verifying.results([*map(PinToVerify, pins.pins())])
        ]
    for key in tuned.keys.values():
        pins.unpin(key)
    assert [result.ok for _, result in found] == [True, False, True], found
    assert "signal 11" in found[1][1].reason and verifying.workers == 2


F32 = "'cpu', 'torch.float32'"


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("mm", f"[({F32}, 64, 128, 128, 1, 0), ({F32}, 128, 96, 1, 128, 0)]"),
        ("mm", f"[({F32}, 64, 128, 128, 1, 256), ({F32}, 128, 96, 96, 1, 0)]"),
        (
            "addmm",
            f"[({F32}, 64, 96, 0, 1, 0), ({F32}, 64, 128, 128, 1, 0), ({F32}, 128, 96, 96, 1, 0)]",
        ),
        (
            "baddbmm",
            f"[({F32}, 2, 8, 12, 96, 12, 1, 0), ({F32}, 2, 8, 16, 128, 16, 1, 0), "
            f"({F32}, 2, 16, 12, 192, 12, 1, 0)]",
        ),
        (
            "int_mm",
            "[('cpu', 'torch.int8', 32, 64, 64, 1, 0), ('cpu', 'torch.int8', 64, 32, 32, 1, 0)]",
        ),
    ],
)
def test_ops_with_one_choice_on_the_cpu_are_rebuilt_to_the_same_key(
    worker: Worker, op: str, inputs: str
) -> None:
    """A hash that is not offered: the answer names the one choice, so the key was the same."""
    result = verify(worker, TuningKey(op, inputs, "highest"), "nothing")
    assert not result["ok"] and result["reason"].startswith("nothing is none of"), result
    name = {"int_mm": "_int_mm"}.get(op, op)
    assert f"1 choice that this torch offers ({name})" in result["reason"]


DYNAMIC = """
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch._dynamo.mark_dynamic(a, 0)
torch._dynamo.mark_dynamic(b, 0)
torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)
"""


def test_choices_of_dynamic_shapes_are_not_called_orphans(tmp_path: Path) -> None:
    """The key is that of fixed shapes; the hash of its C++ choice is another, and tells of the
    program's symbols: it cannot be made again."""
    subprocess.run(
        [*warm_python(), "-c", DYNAMIC], env=child_env(tmp_path), check=True, timeout=300
    )
    (file,), _ = read_caches(Layout(tmp_path))
    ((key, times),) = file.entries.items()
    (cpp,) = [hash for hash in times if hash.startswith("Cpp")]
    pins = PinStore(Layout(tmp_path))
    pins.pin(None, key, cpp)
    with spawn_worker(find_python(), tmp_path) as worker:
        result = verify(worker, key, cpp)
    assert not result["ok"] and "orphan" not in result["reason"], result
    assert "choices of dynamic shapes" in result["reason"]
    assert [status.state for status in pins.status()] != ["orphaned"]


@pytest.mark.parametrize(
    ("op", "inputs", "why"),
    [
        ("convolution", f"[({F32}, 4, 1, 0)]", "convolution cannot be rebuilt"),
        ("mm", f"[({F32}, 4, 4, 4, 1, 0)]", "takes 2 inputs"),
        (
            "mm",
            "[('cuda', 'torch.float16', 4, 4, 4, 1, 0), ('cuda', 'torch.float16', 4, 4, 4, 1, 0)]",
            "cuda",
        ),
        ("mm", f"[({F32}, 4, 4, 4, 1, 0), ('cpu', 'torch.load', 4, 4, 4, 1, 0)]", "no dtype"),
        (
            "bmm",
            f"[({F32}, 4, 4, 4, 1, 0), ({F32}, 4, 4, 4, 1, 0)]",
            "does not compile: TorchRuntimeError",
        ),
        ("mm", "[", "not an inputs key"),
        ("mm", f"[({F32}, 4, 4, 4, 1, 0), ({F32}, 4, 4, 4, 1, 0)]_64", "_64"),
        (
            "mm",
            f"[({F32}, 4, 4, 4, 1, 0), ({F32}, 4, 4, 4, 1, 0)]:benchmark_policy=eager",
            "tuned by another version",
        ),
    ],
)
def test_what_cannot_be_rebuilt_says_why(worker: Worker, op: str, inputs: str, why: str) -> None:
    result = verify(worker, TuningKey(op, inputs, "highest"), "nothing")
    assert not result["ok"] and why in result["reason"] and "\n" not in result["reason"], result


def test_a_tuning_without_times_is_not_benchmarked(worker: Worker, tuned: Tuned) -> None:
    key = tuned.keys["bmm"]
    other = TuningKey(key.op, key.inputs.replace("4, 32, 64, 2048", "4, 16, 64, 1024"), "highest")
    assert other.inputs != key.inputs
    before = _cache_file(tuned.cache).read_bytes()
    (extern,) = [hash for hash in tuned.times["bmm"] if hash.startswith("bmm-")]
    result = verify(worker, other, extern)
    assert not result["ok"] and "lacks a time" in result["reason"], result
    assert _cache_file(tuned.cache).read_bytes() == before


def test_what_does_not_compile_is_not_said_to_have_another_key(
    tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or read-only disk, say: here PyTorch cannot make its locks, for asking the compiler
    what the CPU has, which it does first."""
    monkeypatch.setenv("COMPILE_ANEW", "1")
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK")  # with it only AVX-512 is asked for
    shutil.copytree(tuned.cache / "cache", tmp_path / "cache")
    (tmp_path / "locks").write_text("")
    key = tuned.keys["bmm"]
    hashes = sorted(tuned.times["bmm"])
    asked = {"op": key.op, "inputs": key.inputs, "precision": key.precision}
    with spawn_worker(find_python(), tmp_path) as worker:
        told = verify(worker, key, hashes[0])
        job = {"job": "measure", **asked, "hashes": hashes, "budget": 1.0}
        measured = worker.exchange(job, lambda event: None, 200)
    for reason in (told["reason"], measured["reason"]):
        assert "does not compile: " in reason and "locks" in reason, reason
        assert "rebuilt" not in reason
