"""What must come of a recorded call of flex attention, against PyTorch's own eager attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense_backward

from backend.inductor.benchmark.errors import WrongResult
from backend.model.problem import TensorSpec
from backend.wire.captured import JOINT, MASK, SCORE, FlexCall, flex_text
from backend.worker.flex_numbers import AttentionCall, FunctionRef, Numbers, TensorRef, read_call
from backend.worker.problem import contiguous

pytestmark = pytest.mark.torch

ALIBI = """
def forward(self, score, b, h, q, k, slopes):
    sub = torch.ops.aten.sub.Tensor(k, q)
    index = torch.ops.aten.index.Tensor(slopes, [h])
    mul = torch.ops.aten.mul.Tensor(sub, index)
    mul_1 = torch.ops.aten.mul.Tensor(score, score)
    add = torch.ops.aten.add.Tensor(mul, mul_1)
    return add
"""
GRADIENT = """
def forward(self, score, b, h, q, k, grad, slopes):
    mul = torch.ops.aten.mul.Tensor(score, grad)
    mul_1 = torch.ops.aten.mul.Tensor(mul, 2)
    return [mul_1, None, None, None, None, None]
"""
WINDOW = """
def forward(self, b, h, q, k, documents):
    ge = torch.ops.aten.ge.Tensor(q, k)
    index = torch.ops.aten.index.Tensor(documents, [q])
    index_1 = torch.ops.aten.index.Tensor(documents, [k])
    eq = torch.ops.aten.eq.Tensor(index, index_1)
    bitwise_and = torch.ops.aten.bitwise_and.Tensor(ge, eq)
    return bitwise_and
"""
ROWS = 192
HEADS, KEY_HEADS, DEPTH = 4, 2, 16


def spec(dtype: str, *sizes: int) -> TensorSpec:
    return TensorSpec("cpu", f"torch.{dtype}", sizes, contiguous(sizes), 0)


BLOCKS = (ROWS + 63) // 64
COUNTS, PLACES = spec("int32", 1, 1, BLOCKS), spec("int32", 1, 1, BLOCKS, BLOCKS)
QUERY, KEY = spec("bfloat16", 1, HEADS, ROWS, DEPTH), spec("bfloat16", 1, KEY_HEADS, ROWS, DEPTH)
LOGS = spec("float32", 1, HEADS, ROWS)
MASKED = f"({ROWS}, {ROWS}, t3, t4, t5, t6, t7, t8, t9, t10, 64, 64, mask_mod)"
INPUTS = (QUERY, KEY, KEY, *(COUNTS, PLACES) * 4, spec("float32", HEADS), spec("int64", ROWS))


def forward(mask: str = WINDOW) -> AttentionCall:
    call = f"flex_attention(t0, t1, t2, score_mod, {MASKED}, 0.25, {{}}, (t11,), (t12,))"
    return read_call(flex_text(FlexCall(call, INPUTS, {SCORE: ALIBI, MASK: mask})))


def backward() -> AttentionCall:
    call = (
        f"flex_attention_backward(t0, t1, t2, t13, t14, t15, None, score_mod, joint, {MASKED}, "
        "0.25, {}, (t11,), (t12,))"
    )
    functions = {SCORE: ALIBI, JOINT: GRADIENT, MASK: WINDOW}
    return read_call(flex_text(FlexCall(call, (*INPUTS, QUERY, LOGS, QUERY), functions)))


def given(call: AttentionCall, numbers: Numbers) -> list[Any]:
    """The arguments of the op."""

    def filled(value: Any) -> Any:
        if isinstance(value, TensorRef):
            return numbers.given(-1, f"t{value.number}")
        if isinstance(value, FunctionRef):
            return call.functions[value.function].module()
        return tuple(map(filled, value)) if isinstance(value, tuple) else value

    return [filled(each) for each in call.arguments]


def test_attention_is_that_of_pytorch_and_with_another_mask_it_is_not() -> None:
    numbers = Numbers("flex_attention", forward())
    truth = numbers.truth("highest")
    truth.check(flex_attention(*given(forward(), numbers))[0])
    other = WINDOW.replace("ge.Tensor(q, k)", "gt.Tensor(q, k)")
    with pytest.raises(WrongResult, match="off by"):
        truth.check(flex_attention(*given(forward(other), numbers))[0])


def test_its_blocks_are_those_that_the_mask_lets_through() -> None:
    """Eight documents of 24 rows each, in blocks of 64."""
    numbers = Numbers("flex_attention", forward())
    mask = given(forward(), numbers)[4]
    assert [mask[at].flatten().tolist() for at in (2, 4, 6, 8)] == [
        [1, 2, 2], [0, 0, 0], [2, 2, 1], [0, 0, 0],
    ]  # fmt: skip
    assert mask[3][0, 0].tolist() == [[0, 1, 2], [0, 1, 2], [1, 2, 0]]
    assert numbers.note.endswith("made up: 56% of the blocks are computed")


def test_gradients_are_those_of_pytorch() -> None:
    call = backward()
    numbers = Numbers("flex_attention_backward", call)
    arguments = given(call, numbers)
    arguments[3] = flex_attention(
        *arguments[:3], *(arguments[at] for at in (7, 9, 10, 11, 12, 13))
    )[0]
    arguments[4] = numbers.given(3, "buf0")
    dq, dk, dv, _ = sdpa_dense_backward(*arguments)
    truth = numbers.truth("highest")
    truth.check(numbers.result([*[dq] * 6, dq, dv, dk]))
    with pytest.raises(WrongResult, match="off by"):
        truth.check(numbers.result([*[dq] * 6, dq, 1.2 * dv, dk]))


def test_parts_of_the_keys_are_joined() -> None:
    """As decoding leaves them: sums that are not divided yet, base 2; a part may be empty."""
    numbers = Numbers("flex_decoding", forward())
    scores, value = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 8, 4)
    parts = [(scores[..., :5], value[..., :5, :]), (scores[..., 5:], value[..., 5:, :])]
    largest = [part.amax(-1) for part, _ in parts] + [torch.full((1, 1, 1), -torch.inf)]
    shares = [torch.exp2(part - part.amax(-1, keepdim=True)) for part, _ in parts]
    sums = [share.sum(-1) for share in shares] + [torch.zeros(1, 1, 1)]
    outs = [share @ v for share, (_, v) in zip(shares, parts, strict=True)]
    outs.append(torch.zeros(1, 1, 1, 4))
    left = [torch.stack(each, 1) for each in (largest, sums, outs)]
    result = numbers.result([value, value, value, *left])
    want = torch.softmax(scores * torch.log(torch.tensor(2.0)), -1) @ value
    torch.testing.assert_close(result, want)
