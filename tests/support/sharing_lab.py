"""Pins, options and mega-caches that tests of sharing use, with torch and without."""

from __future__ import annotations

import ast
import zlib
from typing import Any

import pytest

from backend.model.choice import Choice
from backend.sharing.share import Machine, SharedPin
from rocm_tui.cli.entry import main

GPU = "gfx942:sramecc+:xnack-"
MACHINE = Machine(arch=GPU, hip="7.1.0", device="AMD Instinct MI300X", compute_units=304)
A = "('cuda', 'torch.float16', 64, 128, 128, 1, 0)"
B = "('cuda', 'torch.float16', 128, 96, 1, 128, 0)"
BIAS = "('cuda', 'torch.float16', 64, 96, 0, 1, 0)"
BATCHED = (
    "[('cuda', 'torch.bfloat16', 4, 64, 128, 8192, 128, 1, 0), "
    "('cuda', 'torch.bfloat16', 4, 128, 96, 12288, 96, 1, 0)]"
)
DESCRIPTION = (
    "ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=64, BLOCK_N=32, EVEN_K=True, "
    "GROUP_M=8, USE_FAST_ACCUM=False, kpack=2, matrix_instr_nonkdim=16, waves_per_eu=0, "
    "num_stages=2, num_warps=4"
)
"""As torch 2.13 prints a Triton choice on ROCm."""
VALUES = {
    "ACC_TYPE": "tl.float32",
    "BLOCK_K": 32,
    "BLOCK_M": 64,
    "BLOCK_N": 32,
    "EVEN_K": True,
    "GROUP_M": 8,
    "USE_FAST_ACCUM": False,
    "kpack": 2,
    "matrix_instr_nonkdim": 16,
    "waves_per_eu": 0,
    "num_stages": 2,
    "num_warps": 4,
}
TRITON_HASH, ADDMM_HASH = "triton_mm-cabc", "addmm-alpha=1-beta=1-cdef"
PIN = SharedPin(
    op="mm",
    inputs=f"[{A}, {B}]",
    precision="highest",
    hash=TRITON_HASH,
    label="triton_mm_3",
    machine=MACHINE,
    config=Choice(description=DESCRIPTION).config,
)

FORWARD = {"BLOCK_M": "64", "BLOCK_N": "32", "num_warps": "4", "num_stages": "2"}
BACKWARD = {
    "BLOCK_M1": "32",
    "BLOCK_N1": "64",
    "BLOCK_M2": "64",
    "BLOCK_N2": "32",
    "num_warps": "8",
    "num_stages": "1",
}
ROCM = {"kpack": "1", "matrix_instr_nonkdim": "0", "waves_per_eu": "0"}


def eval_options(text: str) -> list[dict[str, Any]]:
    """The values of all `kernel_options` of a text, which has nothing else."""
    nodes = ast.parse(text).body
    assert all(isinstance(node, ast.Assign) for node in nodes)
    return [ast.literal_eval(node.value) for node in nodes if isinstance(node, ast.Assign)]


def doctor(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main(["doctor", *map(str, words)])
    return code, capsys.readouterr().out


def with_checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "big") + body
