"""Ops that Inductor tunes on a GPU: recorded by one program, then measured, tuned, pinned, tried.

Skipped where torch sees no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.recorded_calls import Recorded, recorded

pytestmark = pytest.mark.torch

PROGRAM = """
import torch
from torch._inductor import config
config.max_autotune = True
device = "cuda" if torch.cuda.is_available() else "cpu"

def half(*sizes):
    return torch.randn(sizes, device=device, dtype=torch.float16)

def go(function, *inputs):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, dynamic=False)(*inputs)

go(torch.mm, half(256, 512), half(512, 128))
go(torch.addmm, half(128), half(256, 256), half(256, 128))
go(torch.bmm, half(4, 128, 256), half(4, 256, 128))
"""
OPS = ("mm", "addmm", "bmm")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(PROGRAM, tmp_path_factory.mktemp("ops")) as made:
        yield made


@pytest.mark.parametrize("op", OPS)
def test_two_choices_are_measured_and_right(calls: Recorded, op: str) -> None:
    calls.check_measured(op)


@pytest.mark.parametrize("op", OPS)
def test_its_graph_is_tried_with_two_choices(calls: Recorded, op: str) -> None:
    calls.check_tried(op)


@pytest.mark.parametrize("op", OPS)
def test_it_is_tuned_under_its_key(calls: Recorded, op: str) -> None:
    calls.check_tuned(op)


@pytest.mark.parametrize("op", OPS)
def test_it_is_pinned_and_verified(calls: Recorded, op: str) -> None:
    """After it was tuned: where a choice had failed, the cache lacks its time before."""
    calls.check_pinned(op)
