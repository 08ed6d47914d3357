"""Triton's code objects, executed: products of ours and PyTorch's template, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.amd_executor import triton
from tests.amd_executor.trials import try_triton
from tests.support.triton_lab import Case, TritonChild, triton_child


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=False) as process:
        yield process


@pytest.mark.parametrize("arch", triton.DTYPES)
def test_products(child: TritonChild, arch: str) -> None:
    """Every seventh case: types, splits, configs and epilogues."""
    outcomes = list(try_triton(child, arch, "triton", every=7))
    assert len(outcomes) >= 3
    assert [(outcome.name, outcome.wrong) for outcome in outcomes if outcome.wrong] == []


def test_the_template_of_pytorch(child: TritonChild) -> None:
    outcomes = list(islice(try_triton(child, "gfx942", "inductor"), 0, None, 3))
    assert len(outcomes) == 2
    assert [(outcome.name, outcome.wrong) for outcome in outcomes if outcome.wrong] == []
    assert all(outcome.executed["s_barrier"] for outcome in outcomes)


def right(compiled: triton.Compiled) -> bool:
    try:
        numbers = compiled.run()
    except AssertionError:
        return False
    return numbers.error <= 1 and numbers.stray == 0


def case(arch: str, start: str) -> Case:
    return next(found for name, found in triton.cases(arch) if name.startswith(start))


# With three stages Triton has barriers on gfx942 and gfx1201 that no buffer needs.
@pytest.mark.parametrize(
    ("arch", "name"),
    [("gfx942", "float16 split 1"), ("gfx950", "three stages"), ("gfx1201", "float16 split 1")],
)
def test_planted_mistakes_are_found(child: TritonChild, arch: str, name: str) -> None:
    tried = case(arch, name)
    compiled = triton.Compiled(tried, child.compile(tried.choice))
    assert right(compiled)
    [program] = compiled.programs
    barriers, waits, units = program.barriers(), program.waits(), program.matrix_instructions()
    assert barriers and len(waits) > 4 and units
    for at in barriers:
        with program.without(at):
            assert not right(compiled), program.line(at)
    for at in units[:3]:
        with program.exchanged(at):
            assert not right(compiled), program.line(at)
    missed = []
    for at in waits:
        with program.without(at):
            missed += [program.line(at)] * right(compiled)
    assert len(missed) <= len(waits) // 3, missed
