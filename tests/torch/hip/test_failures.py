"""A choice of ours that is broken fails alone, and everyone learns why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.model.events import ChoiceFailed, ChoiceSelected, ChoiceTimed
from tests.support.rocm_programs import Ran, last_session, run
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

BROKEN = r'''
import copy, dataclasses
from torch._inductor import select_algorithm

ENTRY = """#include <rocm_tui/gpu.h>
#include <unistd.h>
RT_EXPORT int rocm_gemm(const float* a, const float* b, float* out,
    int64_t M, int64_t N, int64_t K, int64_t B,
    int64_t ld_a, int64_t ld_b, int64_t ld_out,
    int64_t batch_a, int64_t batch_b, int64_t batch_out, int64_t split_k,
    size_t* workspace_size, uint8_t* workspace, hipStream_t stream) {
  if (workspace_size) { *workspace_size = 0; return 0; }
  BODY
}
"""
BODIES = {
    "segfault": "*(volatile int*)nullptr = 1; return 0;",
    "endless": "for (;;) pause(); return 0;",
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

def almost_bmm(a, b, *, out):
    return torch.bmm(a, b, out=out).mul_(1.01)

rival = select_algorithm.ExternKernelChoice(almost_bmm)

def plant(choices):
    ours = next(choice for choice in choices if choice.name.startswith("rocm_gemm"))
    twins = [broken(ours, name, BODIES[name]) for name in planted]
    rivals = [rival.bind(choices[0].input_nodes, choices[0].layout)] if with_rival else []
    return [*twins, *([] if alone else choices), *rivals]

planted, alone, with_rival = [*BODIES], False, False
select_algorithm.add_preprocessing_fn(plant)

part("each")
agree("bmm", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 24))

part("alone")
planted, alone = ("wrong", "no_code"), True
try:
    agree("alone", torch.bmm, torch.randn(2, 20, 33), torch.randn(2, 33, 24))
except Exception as error:
    print("told:", str(error).splitlines()[0], flush=True)

part("unchecked")
planted, alone, with_rival = (), False, True
agree("unchecked", torch.bmm, torch.randn(2, 20, 34), torch.randn(2, 34, 24), tolerance=9)

part("torchs")
planted, with_rival = ("segfault", "wrong", "no_code"), False
config.autotune_in_subproc = True
agree("torchs", torch.bmm, torch.randn(2, 20, 35), torch.randn(2, 35, 24))
config.autotune_in_subproc = False

part("checked")
os.environ["ROCM_TUI_CHECK"] = "1"
planted, with_rival = (), True
agree("checked", torch.bmm, torch.randn(2, 20, 36), torch.randn(2, 36, 24))
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


class Tuning(NamedTuple):
    """What happened to the choices of one tuning, by name."""

    choices: set[str]
    failed: dict[str, str]
    timed: set[str]
    selected: list[str]


class Broken(NamedTuple):
    """One process that tuned `bmm` five times."""

    cache: Path
    ran: Ran
    tunings: list[Tuning]


def tunings(cache: Path) -> list[Tuning]:
    """Of the last session."""
    found = []
    for start, events in last_session(cache):
        names = {choice.hash: str(choice.name) for choice in start.choices}
        failed = {names[e.hash]: e.reason for e in events if isinstance(e, ChoiceFailed)}
        timed = {names[e.hash] for e in events if isinstance(e, ChoiceTimed)}
        selected = [names[e.hash] for e in events if isinstance(e, ChoiceSelected)]
        found.append(Tuning(set(names.values()), failed, timed, selected))
    return found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    cache = tmp_path_factory.mktemp("broken") / "cache"
    ran = run(BROKEN, cache, {"ROCM_TUI_BENCHMARK_SECONDS": "5"}, code=False)
    found = tunings(cache)
    assert len(found) == 5
    return Broken(cache, ran, found)


def listed(cache: Path) -> dict[str, dict[str, object]]:
    """The choices of the first tuning, by name, as `ls --json` prints them."""
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "ls", "--json"],
        env=child_env(cache),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    tunings = json.loads(done.stdout)["tunings"]
    assert {tuning["op"] for tuning in tunings} == {"bmm"}
    (first,) = [tuning for tuning in tunings if tuning["shapes"][0] == [2, 20, 32]]
    return {choice["name"]: choice for choice in first["choices"]}


def test_each_fails_alone_with_its_reason(broken: Broken) -> None:
    each, ran = broken.tunings[0], broken.ran.part("each")
    assert "bmm agrees" in ran.stdout
    assert each.failed.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert reason in each.failed[name], (name, each.failed[name])
    assert each.timed == {"bmm", "rocm_gemm_0"}
    (selected,) = each.selected
    assert selected in each.timed
    for name, choice in listed(broken.cache).items():
        assert choice["failed"] == (name in REASONS)
        assert not choice["failed"] or REASONS[name] in choice["reason"]
    assert "ErrorFromChoice" in each.failed["rocm_wrong"]
    assert "2x20x32, 2x32x24 -> 2x20x24" in ran.stderr  # torch's log names the inputs


def test_no_choice_left_says_what_each_died_of(broken: Broken) -> None:
    ran = broken.ran.part("alone")
    (told,) = [line for line in ran.stdout.splitlines() if line.startswith("told:")]
    assert "no choice for bmm(2x20x33, 2x33x24) can be used" in told
    assert "rocm_wrong: ErrorFromChoice: wrong result: max error" in told
    assert "rocm_no_code: ErrorFromChoice: cannot compile" in told


def test_in_torchs_own_subprocess(broken: Broken) -> None:
    assert "SubProcess AUTOTUNE" in broken.ran.part("torchs").stderr
    tuning = broken.tunings[3]
    assert tuning.failed.keys() == {"rocm_segfault", "rocm_wrong", "rocm_no_code"}
    assert "wrong result: max error" in tuning.failed["rocm_wrong"]
    assert "cannot compile" in tuning.failed["rocm_no_code"]
    assert "rocm_gemm_0" in tuning.timed


def test_another_choice_is_not_checked_unasked(broken: Broken) -> None:
    assert "unchecked agrees" in broken.ran.stdout
    assert broken.tunings[2].failed == {}
    assert broken.tunings[2].timed == {"bmm", "rocm_gemm_0", "almost_bmm"}


def test_every_choice_is_checked_if_wanted(broken: Broken) -> None:
    assert "checked agrees" in broken.ran.part("checked").stdout
    tuning = broken.tunings[4]
    assert tuning.failed.keys() == {"almost_bmm"}
    assert "further off than rounding explains" in tuning.failed["almost_bmm"]
    assert tuning.timed == {"bmm", "rocm_gemm_0"}


CHECKED = """
from torch._inductor import select_algorithm
from torch._inductor.select_algorithm import ExternKernelChoice

def drops_terms(a, b, *, out):
    "64 of 16,384: less than the type could lose, were it summed up in that"
    return torch.bmm(a[:, :, 64:], b[:, 64:], out=out)

def off_by_one(c, a, b, *, out):
    torch.addmm(c, a, b, alpha=0.5, beta=2.0, out=out)
    out[0, 0] += 1
    return out

def rounded_once(c, a, b, *, out):
    return out.copy_(0.5 * (a.double() @ b.double()) + 2 * c.double())

rivals = {2: [ExternKernelChoice(drops_terms)],
          3: [ExternKernelChoice(off_by_one), ExternKernelChoice(rounded_once)]}
select_algorithm.add_preprocessing_fn(lambda choices: [*choices, *(
    rival.bind(choices[0].input_nodes, choices[0].layout)
    for rival in rivals[len(choices[0].input_nodes)])])
a, b = torch.randn(1, 64, 16384).bfloat16(), torch.randn(1, 16384, 64).bfloat16()
agree("bmm", torch.bmm, a, b, tolerance=9)
bias, a, b = torch.randn(64, 64), torch.randn(64, 256), torch.randn(256, 64)
agree("addmm", lambda *x: torch.addmm(*x, alpha=0.5, beta=2.0), bias, a, b)
"""


def test_a_check_without_templates(tmp_path: Path) -> None:
    env = {"ROCM_TUI_CHECK": "1", "ROCM_TUI_TEMPLATES": "0"}
    run(CHECKED, tmp_path / "cache", env, code=False)
    tuning, scaled = tunings(tmp_path / "cache")
    names = tuning.choices | scaled.choices
    assert not any(name.startswith("rocm_") for name in names)
    assert "rounded_once" in scaled.timed and scaled.failed.keys() == {"off_by_one"}
    assert tuning.failed.keys() == {"drops_terms"}
    assert "further off than rounding explains, the worst by" in tuning.failed["drops_terms"]
