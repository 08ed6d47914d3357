"""Products of other types than fp16, bf16 and fp32 in real compiles on the CPU."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

from backend.disk.layout import Layout
from backend.model.events import TuningStarted
from backend.model.problem import TuningKey, parse_inputs_key
from backend.pins.store import PinReport, PinStore
from backend.templates import reproducer
from backend.toolchain.target import cpu
from backend.worker.problem import rebuild
from tests.support.rocm_programs import Ran, last_session, pin_ours, run, selections

pytestmark = pytest.mark.torch

PROGRAM = """
part("int_mm")
def whole(rows, columns):
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
agree("int_mm", torch._int_mm, whole(37, 64), whole(64, 96), tolerance=0.5)
agree("int_mm transposed", lambda a, b: torch._int_mm(a, b.t()) + 1, whole(20, 48), whole(40, 48),
      tolerance=0.5)

part("double")
def wide(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)
agree("mm", lambda a, b: torch.relu(a @ b), wide(37, 64), wide(64, 96), tolerance=1e-12)
agree("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2.0),
      wide(96), wide(33, 64), wide(64, 96), tolerance=1e-12)
agree("bmm", torch.bmm, wide(3, 20, 30), wide(3, 30, 25), tolerance=1e-12)

part("plus")
agree("mm_plus_mm", lambda a, b, c, d: torch.relu(a @ b + c @ d), torch.randn(20, 48),
      torch.randn(48, 40), torch.randn(20, 48), torch.randn(48, 40), tolerance=1e-3)

part("scaled")
def scaled(a, b, scale_a, scale_b, bias=None):
    return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16)
def fp8(dtype, rows, columns):
    return torch.randn(rows, columns).to(dtype)
e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
agree("one", scaled, fp8(e4m3, 37, 64), fp8(e4m3, 96, 64).t(), torch.tensor(2.0),
      torch.tensor(0.25), tolerance=0.2)
agree("bias", scaled, fp8(e5m2, 32, 64), fp8(e5m2, 96, 64).t(), torch.tensor([0.5]),
      torch.tensor([[0.5]]), torch.randn(96).bfloat16(), tolerance=0.2)
agree("lines", scaled, fp8(e4m3, 37, 64), fp8(e4m3, 96, 64).t(), torch.rand(37, 1),
      torch.rand(1, 96), tolerance=0.2)
"""
OPS = {"int_mm": 2, "mm": 1, "addmm": 1, "bmm": 1, "mm_plus_mm": 1, "scaled_mm": 3}


class Story(NamedTuple):
    """A program run cold, and again after each of its tunings was pinned to ours; then to ATen."""

    cold: Ran
    offered: list[TuningStarted]
    again: Ran
    to_aten: list[PinReport]


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory,
) -> Story:
    cache = tmp_path_factory.mktemp("dtypes") / "cache"
    cold = run(PROGRAM, cache, code=False)
    offered = [start for start, _ in last_session(cache)]
    pinned = pin_ours(cache)
    again = run(PROGRAM, cache)
    # A warm graph that called ours already is not compiled again.
    assert all(pinned[key] == hash for key, (hash, _) in selections(cache).items())
    store = PinStore(Layout(cache))
    assert {status.state for status in store.status()} == {"active"}
    to_aten = [
        store.pin(None, TuningKey(start.op, start.inputs, start.precision), choice.hash)
        for start in offered
        for choice in start.choices
        if not choice.name.startswith("rocm_")
    ]
    return Story(cold, offered, again, to_aten)


def test_ours_are_offered_and_right(
    story: Story,
) -> None:
    cold, offered = story.cold, story.offered
    assert Counter(start.op for start in offered) == OPS
    for start in offered:
        assert [c for c in start.choices if c.name.startswith("rocm_gemm_")], start
    assert "wrong result" not in cold.stderr


def test_pinned_they_are_called(story: Story) -> None:
    cold, offered, again = story.cold, story.offered, story.again
    assert again.agreed == cold.agreed
    assert len(again.calls) == len(offered)
    assert "int32_t" in again.part("int_mm").stderr
    assert "using Acc = double;" in again.part("double").stderr
    assert "args.a2" in again.part("plus").stderr
    assert again.part("scaled").stderr.count("scale_b_values[i]") >= 3


def test_a_pin_finds_their_graphs(story: Story) -> None:
    assert len(story.to_aten) == len(story.offered)
    assert {report.status.state for report in story.to_aten} == {"active"}
    assert [report.moved for report in story.to_aten] == [1] * len(story.to_aten)


def test_a_worker_builds_them_again(story: Story) -> None:
    """The ops that were new to it, from their keys."""
    assert story.offered
    for start in story.offered:
        specs = parse_inputs_key(start.inputs).specs
        program = rebuild(start.op, specs)
        a, b = specs[start.op in ("addmm",) :][:2]
        result = program.function(*program.arguments)
        assert (*result.shape,) == (*a.sizes[:-1], b.sizes[-1])
        if start.op == "int_mm":
            assert str(result.dtype) == "torch.int32"


def test_the_source_follows_from_what_a_session_has(story: Story) -> None:
    """But where the op has numbers beside its inputs, which no key has."""
    for start in story.offered:
        for choice in start.choices:
            if not choice.name.startswith("rocm_"):
                continue
            given = start.op, start.inputs, choice.description, str(choice.hash), cpu()
            if start.op == "addmm":
                with pytest.raises(reproducer.ReproducerError, match="factors that its inputs"):
                    reproducer.rebuild(*given)
            else:
                assert reproducer.rebuild(*given).source.split()[:1] == ["//"]
