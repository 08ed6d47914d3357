"""The entry of a kernel: one binary for all sizes, and an error in place of a wrong access."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backend.errors import ConfigError
from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.problem import Sizes
from backend.templates.rendering import render
from backend.toolchain import targets
from backend.toolchain.target import Missing, cpu
from tests.support.template_lab import Kernel, Run, build, failure, memory_for
from tools.resources_table import plain_problem

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

CONFIG = GemmConfig(32, 32, 32, 16, 16, unit="mfma16", kpack=2, vec_a=4, vec_b=4, vec_c=4)
DYNAMIC = [(1, 4, 4), (7, 4, 1), (64, 64, 64), (33, 68, 97), (129, 36, 200), (2, 132, 1028)]


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _run(m: int, n: int, k: int, split_k: int = 1) -> Run:
    tensors, numbers = {}, {"M": m, "N": n, "K": k, "split_k": split_k}
    for name, suffix, sizes in (("X", "a", (m, k)), ("W", "b", (k, n)), ("Y", "out", (m, n))):
        ld = _padded(sizes[1])
        memory, tensors[name] = memory_for(torch.float16, sizes, (ld, 1))
        if name != "Y":
            tensors[name].copy_(torch.randn(sizes))
        numbers[f"ld_{suffix}"] = ld
    return Run(tensors, numbers, memory)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    rendered = render(plain_problem("float16", Sizes(64, 64, 64)), CONFIG, "rt_kernel")
    return build(rendered, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("split_k", [1, 4])
def test_one_binary_serves_every_size(kernel: Kernel, split_k: int) -> None:
    for m, n, k in DYNAMIC:
        assert failure(kernel, _run(m, n, k, split_k)) is None, (m, n, k)


def test_the_source_knows_no_size_and_no_runtime_argument() -> None:
    def source(sizes: Sizes, split_k: int) -> str:
        config = replace(CONFIG, split_k=split_k)
        return render(plain_problem("float16", sizes), config, "rt_kernel").source

    assert source(Sizes(64, 64, 64), 1) == source(Sizes(1024, 8, 256), 8)
    skinny = [
        render(plain_problem("float16", Sizes(4, n, 512)), config, "rt_kernel").source
        for n, config in ((64, SkinnyConfig(4, 16)), (128, SkinnyConfig(4, 16, split_k=2)))
    ]
    assert skinny[0] == skinny[1]


def test_a_config_that_does_not_fit_is_not_rendered() -> None:
    odd = plain_problem("float16", Sizes(64, 63, 64))
    with pytest.raises(ConfigError, match="vec_b: the operand's alignment allows 1"):
        render(odd, CONFIG, "rt_kernel")


def _call(kernel: Kernel, run: Run, **instead: Any) -> int:
    values: dict[str, Any] = {name: t.data_ptr() for name, t in run.tensors.items()}
    values |= {**run.numbers, **instead}
    arguments = [values[arg.name] for arg in kernel.rendered.args]
    return kernel.call(*arguments, None, values.get("workspace"), None)


@pytest.mark.parametrize(
    "instead",
    [
        {"split_k": 0},
        {"split_k": 2},  # needs a workspace that is not given
        {"M": -1},
        {"K": 2**31 - 1},
        {"N": 2**62},
        {"split_k": -(2**40)},
        {"X": None},
        {"W": None},
        {"Y": None},
        {"ld_a": 66},
        {"ld_out": 65},
    ],
    ids=str,
)
def test_what_cannot_be_right_is_refused(kernel: Kernel, instead: dict[str, Any]) -> None:
    run = _run(64, 64, 64)
    before = run.output.bytes.clone()
    assert _call(kernel, run, **instead) == 1
    assert torch.equal(run.output.bytes, before)


def test_a_misaligned_pointer_is_refused(kernel: Kernel) -> None:
    run = _run(64, 64, 64)
    assert _call(kernel, run, X=run.tensors["X"].data_ptr() + 2) == 1


def test_nothing_to_do_needs_no_pointers(kernel: Kernel) -> None:
    assert _call(kernel, _run(0, 64, 64), X=None, Y=None) == 0
    assert _call(kernel, _run(64, 0, 64), W=None, Y=None) == 0


def test_a_split_adds_up_the_same_way_every_time(kernel: Kernel) -> None:
    run = _run(40, 36, 500, split_k=3)
    workspace = (ctypes.c_uint8 * (kernel.rendered.workspace_bytes(Sizes(40, 36, 500), 3) + 16))()
    aligned = (ctypes.addressof(workspace) + 15) // 16 * 16
    results = []
    for _ in range(2):
        assert _call(kernel, run, workspace=aligned) == 0
        results.append(run.tensors["Y"].clone())
    assert torch.equal(*results)


def test_the_cpu_offers_run_a_decoding_step(tmp_path: Path) -> None:
    """The list of the CPU itself, on the shape of a linear layer with one token."""
    sizes = Sizes(1, 256, 512)
    problem = plain_problem("float16", sizes)
    tiled = [render(problem, c, "rt_kernel") for c in gemm_configs(problem, cpu(), sizes)]
    skinny = [render(problem, c, "rt_kernel") for c in skinny_configs(problem, cpu(), sizes)]
    for rendered in (*tiled, *skinny):
        assert failure(build(rendered, tmp_path), _run(1, 256, 512)) is None
