"""The math of kernels on a GPU, which has its own 2^x and 1/x, in the bounds of the CPU's tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.torch

PROGRAM = """
from ctypes import c_void_p
import torch
from backend.toolchain import code_cache
from tests.support.functions import ENDS, FUNCTIONS, defect, end_defect, points
from tests.support.gpu_lab import Gpu
from tests.support.toolchain_kernels import build

entry = code_cache.load(build("numbers", Gpu().target).path).entry("math")
def evaluate(number, x):
    x = x.cuda()
    out = torch.zeros_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    at, to, stream = map(c_void_p, (x.data_ptr(), out.data_ptr(), stream))
    assert entry(at, to, x.numel(), number, None, None, stream) == 0
    return out.cpu()
found = []
for number, name in enumerate(FUNCTIONS):
    found.append(defect(name, points(name), evaluate(number, points(name))))
    found.append(end_defect(name, evaluate(number, ENDS)))
print([words for words in found if words])
"""


def test_functions_are_within_a_few_roundings_of_double() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-3000:]
