"""The model of LDS banks, on patterns whose conflicts are known, and on a kernel that was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.templates.config import GemmConfig
from backend.templates.legality import staged_line
from backend.templates.problem import Sizes
from backend.templates.rendering import render
from tools.inner_loop import UNITS, LdsAccess, bank_conflicts, conflicts
from tools.resources_table import plain_problem

WAVE = range(64)


def reads(step: int, size: int, write: bool = False) -> list[LdsAccess]:
    return [LdsAccess(lane, lane * step, size, write) for lane in WAVE]


@pytest.mark.parametrize(
    ("step", "size", "banks", "factor"),
    [
        (16, 16, 32, 1.0),  # one after the other
        (4, 4, 32, 1.0),
        (8, 4, 32, 2.0),  # every second bank
        (128, 4, 32, 32.0),  # one bank
        (128, 16, 32, 8.0),  # the same four banks for all lanes of a phase
        (128 + 16, 16, 32, 1.0),  # lines that are padded by an access
        (128, 16, 64, 4.0),  # every second line in other banks
        (0, 16, 32, 1.0),  # one word for all
    ],
)
def test_steps_between_lanes(step: int, size: int, banks: int, factor: float) -> None:
    written = conflicts(reads(step, size, write=True), banks=banks)
    assert written.writes == factor and written.reads is None


def test_reads_of_16_bytes_go_in_phases_of_their_own() -> None:
    """Lanes 0 to 3 go with 20 to 23, which have the other half of the banks; 4 to 7 have not."""
    halves = [(lane, lane // 4 * 512 + lane % 4 * 16 + lane // 16 % 2 * 64) for lane in WAVE]
    assert conflicts(LdsAccess(lane, at, 16, False) for lane, at in halves).reads == 1.0
    assert conflicts(LdsAccess(lane, at, 16, True) for lane, at in halves).writes == 2.0


def test_a_kernel_that_ran(tmp_path: Path) -> None:
    problem = plain_problem("float16", Sizes(4096, 4096, 4096), b_k_fast=True)
    config = GemmConfig(32, 32, 32, 16, 16, unit="mfma16", kpack=2, vec_a=8, vec_b=8, vec_c=4)
    rendered = render(problem, config, "rt_kernel")
    seen = bank_conflicts(rendered, config, UNITS["gfx942"], tmp_path)
    assert seen.reads is not None and seen.reads >= 1
    assert seen.writes is not None and seen.writes >= 1


@pytest.mark.parametrize("wave_n", [64, 128, 256])
def test_a_tile_s_sums_go_through_all_banks(wave_n: int) -> None:
    """As sums.hip.jinja has them: pairs by 16 x 8 tiles in, eight neighbours a lane out."""
    line, lanes = 4 * staged_line(wave_n), range(32)
    written = [LdsAccess(at, at // 4 * line + at % 4 * 8, 8, True) for at in lanes]
    across = wave_n // 8
    cols = [at % across * 8 for at in lanes]
    read = [
        LdsAccess(at, at // across * line + 4 * (cols[at] + cols[at] // 32 * 4), 16, False)
        for at in lanes
    ]
    found = conflicts(written + read, wave=32)
    assert found.writes == found.reads == 1.0
