"""A choice of ours that is broken fails alone, and everyone learns why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.events import ChoiceFailed, ChoiceSelected, ChoiceTimed
from tests.rocm_programs import Ran, last_session
from tests.torch_models import child_env

pytestmark = pytest.mark.torch

BROKEN = r'''
import copy, dataclasses
from torch._inductor import select_algorithm

ENTRY = """#include <rocm_tui/gpu.h>
RT_EXPORT int rocm_gemm(const float* a, const float* b, float* out, int M, int N, int K, int B,
    int ld_a, int ld_b, int ld_out, int batch_a, int batch_b, int batch_out, int split_k,
    size_t* workspace_size, uint8_t* workspace, hipStream_t stream) {
  if (workspace_size) { *workspace_size = 0; return 0; }
  BODY
}
"""
BODIES = {
    "segfault": "*(volatile int*)nullptr = 1; return 0;",
    "endless": "volatile int forever = 1; while (forever) {} return 0;",
    "wrong": "for (int i = 0; i < B * M * N; ++i) out[i] = 1.0f; return 0;",
    "unwritten": "return 0;",
    "outside": "for (int i = 0; i < B * M * N; ++i) out[i] = right(a, b, i, M, N, K); "
               "out[-1] = 0.0f; out[B * M * N] = 0.0f; return 0;",
    "no_code": "this is no C++;",
    "refused": "return hipErrorInvalidValue;",
}
RIGHT = """namespace { float right(const float* a, const float* b, int i, int M, int N, int K) {
  const int batch = i / (M * N), row = i / N % M, column = i % N;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[(batch * M + row) * K + k] * b[(batch * K + k) * N + column];
  return sum; } }
"""

def broken(choice, name, body):
    twin = copy.copy(choice)
    twin.name = f"rocm_{name}"
    twin.bmreq = copy.copy(choice.bmreq)
    source = ENTRY.replace("RT_EXPORT", RIGHT + "RT_EXPORT").replace("BODY", body)
    twin.bmreq.spec = dataclasses.replace(choice.bmreq.spec, source=source)
    return twin

def plant(choices):
    ours = next(choice for choice in choices if choice.name.startswith("rocm_gemm"))
    return [*(broken(ours, name, body) for name, body in BODIES.items()), *choices]

select_algorithm.add_preprocessing_fn(plant)
agree("bmm", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 24))
'''

REASONS = {
    "rocm_segfault": "died of SIGSEGV",
    "rocm_endless": "no result within 5 s: its process was stopped",
    "rocm_wrong": "wrong result: max error",
    "rocm_unwritten": "elements are NaN",
    "rocm_outside": "2 elements outside of the output were written",
    "rocm_no_code": "error:",
    "rocm_refused": "returned error 1",
}


def listed(cache: Path) -> dict[str, dict[str, object]]:
    """The choices of the one tuning, by name, as `ls --json` prints them."""
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "ls", "--json"],
        env=child_env(cache),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    tunings = json.loads(done.stdout)["tunings"]
    assert [tuning["op"] for tuning in tunings] == ["bmm"]
    return {choice["name"]: choice for choice in tunings[0]["choices"]}


def test_each_fails_alone_with_its_reason(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ran = Ran(BROKEN, cache, {"ROCM_TUI_BENCHMARK_SECONDS": "5"}, code=False)
    assert "bmm agrees" in ran.done.stdout
    ((start, events),) = last_session(cache)
    names = {choice.hash: choice.name for choice in start.choices}
    failed = {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)}
    assert failed.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert reason in failed[name], (name, failed[name])
    timed = {names[e.hash] for e in events if isinstance(e, ChoiceTimed)}
    assert timed == {"bmm", "rocm_gemm_0"}
    (selected,) = [e for e in events if isinstance(e, ChoiceSelected)]
    assert names[selected.hash] in timed
    for name, choice in listed(cache).items():
        assert choice["failed"] == (name in REASONS)
        assert not choice["failed"] or REASONS[name] in choice["reason"]
    assert "ErrorFromChoice" in failed["rocm_wrong"]
    assert "2x20x32, 2x32x24 -> 2x20x24" in ran.done.stderr  # torch's log names the inputs


ALONE = (
    BROKEN.replace(
        "return [*(broken(ours, name, body) for name, body in BODIES.items()), *choices]",
        'return [broken(ours, name, BODIES[name]) for name in ("wrong", "no_code")]',
    ).replace("agree(", "try:\n    agree(")
    + """
except Exception as error:
    print("told:", str(error).splitlines()[0], flush=True)
"""
)


def test_no_choice_left_says_what_each_died_of(tmp_path: Path) -> None:
    ran = Ran(ALONE, tmp_path / "cache", code=False)
    (told,) = [line for line in ran.done.stdout.splitlines() if line.startswith("told:")]
    assert "no choice for bmm(2x20x32, 2x32x24) can be used" in told
    assert "rocm_wrong: ErrorFromChoice: wrong result: max error" in told
    assert "rocm_no_code: ErrorFromChoice: cannot compile" in told


IN_TORCHS_PROCESS = BROKEN.replace(
    "for name, body in BODIES.items()",
    'for name, body in BODIES.items() if name in ("segfault", "wrong", "no_code")',
).replace("agree(", "config.autotune_in_subproc = True\nagree(")


def test_in_torchs_own_subprocess(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ran = Ran(IN_TORCHS_PROCESS, cache, code=False)
    assert "SubProcess AUTOTUNE" in ran.done.stderr
    ((start, events),) = last_session(cache)
    names = {choice.hash: choice.name for choice in start.choices}
    failed = {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)}
    assert failed.keys() == {"rocm_segfault", "rocm_wrong", "rocm_no_code"}
    assert "wrong result: max error" in failed["rocm_wrong"]
    assert "cannot compile" in failed["rocm_no_code"]
    assert "rocm_gemm_0" in {names[e.hash] for e in events if isinstance(e, ChoiceTimed)}


CHECKED = """
from torch._inductor import select_algorithm
from torch._inductor.select_algorithm import ExternKernelChoice

def almost_bmm(a, b, *, out):
    return torch.bmm(a, b, out=out).mul_(1.01)

rival = ExternKernelChoice(almost_bmm)
select_algorithm.add_preprocessing_fn(
    lambda choices: [*choices, rival.bind(choices[0].input_nodes, choices[0].layout)])
agree("bmm", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 24), tolerance=9)
"""


@pytest.mark.parametrize("check", ["0", "1"])
def test_every_choice_is_checked_if_wanted(tmp_path: Path, check: str) -> None:
    cache = tmp_path / "cache"
    Ran(CHECKED, cache, {"ROCM_TUI_CHECK": check}, code=False)
    ((start, events),) = last_session(cache)
    names = {choice.hash: choice.name for choice in start.choices}
    failed = {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)}
    if check == "0":
        assert failed == {}
    else:
        assert failed.keys() == {"almost_bmm"}
        assert "wrong result: max error" in failed["almost_bmm"]
        timed = {names[e.hash] for e in events if isinstance(e, ChoiceTimed)}
        assert timed == {"bmm", "rocm_gemm_0"}


def test_a_check_without_templates(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    Ran(CHECKED, cache, {"ROCM_TUI_CHECK": "1", "ROCM_TUI_TEMPLATES": "0"}, code=False)
    ((start, events),) = last_session(cache)
    names = {choice.hash: choice.name for choice in start.choices}
    assert not any(name and name.startswith("rocm_") for name in names.values())
    assert {names[e.hash] for e in events if isinstance(e, ChoiceFailed)} == {"almost_bmm"}
