"""Every config that the heuristics offer, for any target, computes the right numbers on the CPU.

The kernels are the very sources of the GPUs, with 64 lanes a wave and emulated matrix instructions.
They are compiled without optimizations, which takes a fifth of the time and runs nearly as fast;
those of tests/torch/hip/test_forced.py and test_cpp_ops.py are optimized.
"""

from __future__ import annotations

import pytest

from backend.toolchain import targets
from backend.toolchain.target import Missing, cpu
from tests.support.template_cases import Binary, binaries, check
from tests.support.template_lab import Kernel, build_all

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

BINARIES = binaries()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[Binary, Kernel]:
    built = build_all(BINARIES, tmp_path_factory.mktemp("cache"))
    return dict(zip(BINARIES, built, strict=True))


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_numbers(binary: Binary, kernels: dict[Binary, Kernel]) -> None:
    check(kernels[binary], binary)
