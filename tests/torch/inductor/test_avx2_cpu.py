"""TEST_CPU=avx2 makes PyTorch answer as on a CPU without AVX-512, in a process and its children."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 CPUs are emulated"),
]

ANSWERS = """
import torch
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
mkldnn = torch.ops.mkldnn
print(mkldnn._is_mkldnn_bf16_supported(), mkldnn._is_mkldnn_fp16_supported())
print(torch.backends.cpu.get_cpu_capability(), *map(str, valid_vec_isa_list()))
found = torch.cpu.get_capabilities()
print(*(name for name, has in found.items() if has and name.startswith(("avx", "amx"))))
"""
CHILD = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {ANSWERS!r}]))"


@pytest.mark.parametrize("program", [ANSWERS, CHILD], ids=["process", "child"])
def test_pytorch_sees_avx2_and_nothing_wider(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "TEST_CPU": "avx2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    half, kernels, features = done.stdout.splitlines()
    assert half == "False False" and kernels == "AVX2 avx2"
    assert set(features.split()) == {"avx", "avx2"}
