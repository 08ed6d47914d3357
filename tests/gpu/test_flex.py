"""Flex attention on a GPU: its three passes recorded by one program, then measured, tuned, pinned.

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
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
config.max_autotune = True
heads, keys = 8, 2048
slopes = torch.exp2(-torch.arange(1.0, heads + 1, device="cuda")).bfloat16()
documents = torch.arange(keys, device="cuda") * 5 // keys

def rand(heads, rows, **options):
    return torch.randn(2, heads, rows, 64, device="cuda", dtype=torch.bfloat16, **options)

def alibi(score, b, h, q, k):
    return score + (k - q) * slopes[h]

def window(b, h, q, k):
    return (q >= k) & (q - k < keys // 4) & (documents[q] == documents[k])

mask = create_block_mask(window, None, None, keys, keys, device="cuda")
attend = torch.compile(lambda q, k, v: flex_attention(q, k, v, alibi, mask), dynamic=False)
attend(*(rand(heads, keys, requires_grad=True) for _ in "qkv")).sum().backward()

offset = torch.tensor(keys - 1, device="cuda", dtype=torch.int32)
step_mask = create_block_mask(
    lambda b, h, q, k: q + offset >= k, None, None, 1, keys, device="cuda"
)

def step(q, k, v):
    return flex_attention(q, k, v, alibi, step_mask, enable_gqa=True)

with torch.no_grad():
    torch.compile(step, dynamic=False)(rand(heads, 1), rand(2, keys), rand(2, keys))
torch.cuda.synchronize()
"""
OPS = ("flex_attention", "flex_attention_backward", "flex_decoding")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(PROGRAM, tmp_path_factory.mktemp("flex")) as made:
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
    calls.check_pinned(op)
