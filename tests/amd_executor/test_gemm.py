"""Machine code of the fp16 product, executed: right numbers, and planted mistakes that show."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backend.templates.heuristics import gemm_configs
from backend.templates.problem import Sizes
from backend.toolchain import targets
from backend.toolchain.target import Missing, Target, amdgpu
from tests.amd_executor.assembly import AssemblyError
from tests.amd_executor.library import Executor, Program
from tests.support.template_cases import Binary, Class
from tests.support.template_lab import Kernel, Run, failure, memory_for

TARGETS = tuple(amdgpu(arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"))
GFX942 = TARGETS[1]


def executor(target: Target = GFX942) -> Executor:
    """Skips the tests where no compiler knows the target."""
    if isinstance(compiler := targets.find_compiler(target), Missing):
        pytest.skip(compiler.reason)
    return Executor(target)


def product(m: int, n: int, k: int) -> Run:
    """Dense fp16 operands, all row-major."""
    torch.manual_seed(1)
    shapes = {"X": (m, k), "W": (k, n), "Y": (m, n)}
    made = {name: memory_for(torch.float16, shape, (shape[1], 1)) for name, shape in shapes.items()}
    for name in ("X", "W"):
        made[name][1].copy_(torch.randn(shapes[name]))
    numbers = {"M": m, "N": n, "K": k, "B": 1, "split_k": 1, "ld_a": k, "ld_b": n, "ld_out": n}
    numbers |= {"batch_a": 0, "batch_b": 0, "batch_out": 0}
    return Run({name: tensor for name, (_, tensor) in made.items()}, numbers, made["Y"][0])


def build(tried: Executor, root: Path) -> Kernel:
    """Compile the first tile of several waves that has matrix instructions."""
    problem_class = Class("float16")
    offered = gemm_configs(problem_class.problem(), tried.target, Sizes(64, 64, 64), 99)
    config = next(
        config.binary
        for config in offered
        if config.binary.unit != "fma" and config.binary.block_m > config.binary.wave_m
    )
    return tried.build(Binary(problem_class, config).render(), root)


def test_a_product_of_64_in_two_seconds(tmp_path: Path) -> None:
    tried = executor()
    kernel, run = build(tried, tmp_path), product(64, 64, 64)
    begin = time.monotonic()
    assert failure(kernel, run) is None
    assert time.monotonic() - begin < 2
    executed = tried.programs[0].executed()
    assert executed["s_barrier"] and executed["s_waitcnt"]
    assert any(count for name, count in executed.items() if name.startswith("v_mfma"))


LONG = (64, 64, 296)
"""Sizes with which the loop over K starts, repeats and ends."""


def missed(program: Program, kernel: Kernel, mistakes: list[AbstractContextManager[None]]) -> int:
    """Return with how many of the mistakes the product is still right."""
    right = 0
    for mistake in mistakes:
        with mistake:
            right += failure(kernel, product(*LONG)) is None
    return right


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_planted_mistakes_are_found(target: Target, tmp_path: Path) -> None:
    """Each missing barrier; a matrix instruction with its factors exchanged; missing waits, but for
    those whose accesses a later wait completes before their use: LLVM inserts some."""
    tried = executor(target)
    kernel = build(tried, tmp_path)
    assert failure(kernel, product(*LONG)) is None
    [program] = tried.programs
    barriers, waits = program.barriers(), program.waits()
    units = program.matrix_instructions()[:3]
    assert len(barriers) >= 2 and len(waits) > 10 and units
    assert missed(program, kernel, [program.without(at) for at in barriers]) == 0
    assert missed(program, kernel, [program.exchanged(at) for at in units]) == 0
    assert missed(program, kernel, [program.without(at) for at in waits]) <= len(waits) // 3


def test_a_wait_is_named_by_the_first_use_of_its_result(tmp_path: Path) -> None:
    tried = executor()
    kernel = build(tried, tmp_path)
    assert failure(kernel, product(64, 64, 64)) is None
    with tried.programs[0].without(tried.programs[0].waits()[0]):
        wrong = failure(kernel, product(64, 64, 64))
    assert wrong is not None and "is used before the wait for its load" in wrong


def test_a_load_beyond_an_operand_is_named(tmp_path: Path) -> None:
    """The kernel is called for one row more than its left factor has."""
    run = product(64, 64, 64)
    run.tensors["X"] = run.tensors["X"][:63]  # type: ignore[index]
    kernel = build(executor(), tmp_path)
    wrong = failure(kernel, replace(run, product=lambda x, w: torch.zeros(64, 64).double()))
    assert wrong is not None and "a load of" in wrong and "outside of every buffer" in wrong


def test_an_unknown_instruction_is_named() -> None:
    text = '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\tv_new_thing_f32 v0, v1\n'
    with pytest.raises(AssemblyError, match=r"v_new_thing_f32 is unknown: line 2"):
        Program(text)
