"""A few kernels of each template on each target; `python -m tests.amd_executor` tries all."""

from __future__ import annotations

import re

import pytest

from backend.toolchain import targets
from backend.toolchain.target import Missing, amdgpu
from tests.amd_executor.__main__ import main, of_kind
from tests.amd_executor.trials import hip_cases, try_hip

SAMPLE = {
    "gfx90a": ("grouped",),
    "gfx942": ("skinny", "prologue", "epilogue", "conv", "direct", "grouped"),
    "gfx950": ("prologue",),
    "gfx1100": ("conv",),
    "gfx1201": ("skinny",),
}
UNITS = {
    "gfx90a": ("mfma32-.*bfloat16", "mfma_f64-"),
    "gfx942": ("mfma32-.*float32", "mfma_f64-", "mfma16-.*int8", "mfma32-.*float8_e4m3fnuz"),
    "gfx950": ("mfma16_wide-.*bfloat16", "mfma32_wide-.*float16", "mfma16-.*float8_e5m2"),
    "gfx1100": ("wmma_gfx11-.*bfloat16", "wmma_gfx11-.*int8"),
    "gfx1201": ("wmma_gfx12-.*bfloat16", "wmma_gfx12-.*int8", "wmma_gfx12-.*float8_e4m3fn"),
}
"""Matrix instructions with their types, as names of products have them."""


def check(arch: str, number: int) -> None:
    if isinstance(compiler := targets.find_compiler(amdgpu(arch)), Missing):
        pytest.skip(compiler.reason)
    outcome = try_hip(arch, number, seed=1)
    assert outcome.wrong is None, outcome.name
    assert outcome.calls >= 4


@pytest.mark.parametrize(
    ("arch", "kind"), [(a, kind) for a, kinds in SAMPLE.items() for kind in kinds]
)
def test_templates(arch: str, kind: str) -> None:
    check(arch, of_kind(arch, kind)[0])


@pytest.mark.parametrize(
    ("arch", "unit"), [(a, unit) for a, units in UNITS.items() for unit in units]
)
def test_matrix_units(arch: str, unit: str) -> None:
    names = [case.name if case.kind in ("gemm", "dtypes") else "" for case in hip_cases(arch)]
    check(arch, next(at for at, name in enumerate(names) if re.search(unit, name)))


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    if isinstance(compiler := targets.find_compiler(amdgpu("gfx942")), Missing):
        pytest.skip(compiler.reason)
    assert main("--targets gfx942 --kinds skinny --every 40 --jobs 1".split()) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^gfx942 +skinny +2 +16 +0 ", printed, re.MULTILINE)
    assert re.search(r"^gfx942: [\d,]+ instructions of \d+ kinds executed", printed, re.MULTILINE)
