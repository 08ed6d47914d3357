"""Whatever of the hooks raises, the program ends as under stock PyTorch, with one line on stderr.

Each function by which torch enters our code is made to raise in turn, in a real compile. In the
everyday suite these are the outermost ones, with the installed torch; `ROCM_TUI_TORCHES`,
interpreters with torch divided by `:`, runs all of them with each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.hooked import launch
from tests.support.places import ROOT

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "raising_program.py"
TORCHES = [name for name in os.environ.get("ROCM_TUI_TORCHES", "").split(os.pathsep) if name]

SELECTING = {
    "preprocessing_fns": "hooks.selector:Selector._to_run",
    "__call__": "hooks.selector:Selector._select",
    "make_precompile_fn": "hooks.selector:Selector._make_precompile_fn",
    "prescreen_choices": "hooks.selector:Selector._prescreened",
    "lookup": "hooks.selector:Selector._lookup",
    "get_local_cache": "hooks.lookup:TunedLookup._view",
    "update_local_cache": "hooks.lookup:TunedLookup._insert",
    "benchmark_choice": "hooks.selector:Selector._benchmarked",
    "benchmark_collective_choice": "hooks.selector:Selector._benchmarked",
    "benchmark_in_sub_process": "torch.tuning:watch_tuning_processes",
    "system": "torch.tuning:LazySystem.system",
    "get_inputs": "hooks.templates:CheckingSelector._with_expected",
    "benchmark_in_current_process": "hooks.templates:compile_ahead",
    "log_results": "hooks.templates:CheckingSelector._logged",
}
"""What our selectors replace, and the function of ours behind it."""

REPLACED = (
    "hooks.selector:Selector._to_run",
    "hooks.selector:Selector._select",
    "hooks.selector:Selector._make_precompile_fn",
    "hooks.selector:Selector._lookup",
    "hooks.selector:Selector._benchmarked",
    "hooks.lookup:TunedLookup._view",
    "hooks.lookup:TunedLookup._insert",
    "torch.tuning:LazySystem.system",
)
"""Of these, what a tuning on the CPU comes to."""

BEHIND = (
    "hooks.lookup:TunedLookup._undisturbed",
    "hooks.lookup:TunedLookup._without_folding",
    "hooks.lookup:TunedLookup._tuned",
    "hooks.selector:Selector._offer",
    "hooks.selector:_Precompile._compile",
    "hooks.selector:_close",
    "hooks.tuning_watch:started",
    "hooks.tuning_watch:TuningWatch.compiled",
    "hooks.tuning_watch:TuningWatch.looked_up",
    "hooks.pins:PinLookup.find",
    "hooks.recording:Recorder.write",
    "hooks.recording:_hooked_session",
    "hooks.environment:Home.places",
)
"""What they call."""

EARLY = (
    "hooks.activation:activate",
    "torch.versions:known",
    "hooks.recording:Recorder.__init__",
    "hooks.pins:PinLookup.__init__",
    "torch.versions:watch_fresh_caches",
)
"""What runs when torch is imported, or Inductor. Each takes the import of Inductor."""

OFFERING = (
    "hooks.templates:schedule",
    "hooks.templates:_offered",
    "hooks.templates:compile_ahead",
    "hooks.templates:CheckingSelector._with_expected",
    "hooks.templates:CheckingSelector._checked",
    "hip.scheduling:ROCmCPPScheduling._concerns",
    "hip.scheduling:ROCmCPPScheduling._call",
    "hip.caller:ROCmTemplateCaller.hash_key",
    "hip.caller:ROCmTemplateCaller._output_node",
)
"""Where torch enters the templates."""

OFFERED = (
    "hooks.templates:with_templates",
    "hip.scheduling:_rendered",
    "hip.template:ROCmTemplateKernel.call_kernel",
    "hip.caller:ROCmTemplateBuffer.get_workspace_size",
    "hip.caller:ROCmTemplateCaller.kernel_hash_key",
    "hip.caller:ROCmTemplateCaller.info_dict",
    "hip.caller:ROCmTemplateCaller.call_name",
)
"""What that calls."""

CHOICE = ("benchmark.request:ROCmBenchmarkRequest.benchmark",)
"""What fails one choice: torch's own line says so."""

TEMPLATES = {
    "ROCM_TUI_TEMPLATES": "1",
    "ROCM_TUI_TEMPLATE_BUDGET": "1",
    "ROCM_TUI_BENCHMARK_SECONDS": "0",
}


@dataclass(frozen=True)
class Ended:
    point: str
    status: int
    reached: bool
    stderr: str

    @property
    def told(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("rocm-tui: ")]


def ended(python: str, folder: Path, points: Sequence[str], templates: bool) -> dict[str, Ended]:
    """What became of the program with each of `points` raising."""
    flags = ["--replaced", *(["--templates"] if templates else [])]
    done = launch(
        [python, "-W", "ignore", str(PROGRAM), *flags, *points],
        folder / "cache",
        env=TEMPLATES if templates else {},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (names,) = (each["replaced"] for each in said if "replaced" in each)
    found = [each for each in said if "point" in each]
    assert len(found) == len(points)
    told = {"replaced": Ended("replaced", 0, True, " ".join(names))}
    return told | {
        each["point"]: Ended(each["point"], each["status"], each["reached"], each["stderr"])
        for each in found
    }


def as_under_stock(found: Ended, lines: int) -> None:
    assert found.status == 0, (found.point, found.stderr[-4000:])
    assert "Traceback" not in found.stderr, (found.point, found.stderr[-4000:])
    assert len(found.told) == lines, (found.point, found.told)


INTERRUPT = "hooks.selector:Selector._lookup=Interrupt"


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    points = ["nothing", *REPLACED, *OFFERING, *CHOICE, INTERRUPT]
    return ended(sys.executable, tmp_path_factory.mktemp("raising"), points, templates=True)


@pytest.mark.parametrize("point", (*REPLACED, *OFFERING))
def test_a_hook_that_raises_leaves_the_program_to_stock(
    everyday: dict[str, Ended], point: str
) -> None:
    assert everyday[point].reached
    as_under_stock(everyday[point], lines=1)
    assert "LookupError" in everyday[point].told[0] and "injected" in everyday[point].told[0]


def test_nothing_is_said_where_nothing_raises(everyday: dict[str, Ended]) -> None:
    as_under_stock(everyday["nothing"], lines=0)


def test_an_interrupt_is_no_failure_of_the_hooks(everyday: dict[str, Ended]) -> None:
    assert everyday[INTERRUPT].status == 130 and everyday[INTERRUPT].told == []


@pytest.mark.parametrize("point", CHOICE)
def test_a_choice_that_raises_fails_alone(everyday: dict[str, Ended], point: str) -> None:
    assert everyday[point].reached
    as_under_stock(everyday[point], lines=0)
    assert "Ignoring this choice" in everyday[point].stderr


def test_every_method_that_we_replace_is_known(everyday: dict[str, Ended]) -> None:
    assert set(everyday["replaced"].stderr.split()) == set(SELECTING)


@pytest.mark.skipif(not TORCHES, reason="ROCM_TUI_TORCHES names no interpreters")
@pytest.mark.parametrize("python", TORCHES)
@pytest.mark.parametrize("templates", [False, True])
def test_other_torches(python: str, templates: bool, tmp_path: Path) -> None:
    """The numbers are right with any point raising; where the hooks do not fit, that is a line
    too."""
    offering = (*OFFERING, *OFFERED, *CHOICE, "benchmark.request:ROCmBenchmarkRequest.precompile")
    points = ["nothing", *(offering if templates else (*EARLY, *REPLACED, *BEHIND))]
    told = ended(python, tmp_path, points, templates)
    unfit = len(told["nothing"].told)
    assert unfit <= 1
    for found in told.values():
        assert found.status == 0, (found.point, found.stderr[-4000:])
        assert "Traceback" not in found.stderr, (found.point, found.stderr[-4000:])
        assert len(found.told) <= 1 + unfit, (found.point, found.told)
