"""Calls of flex attention recorded and built again by stock PyTorch for a gfx942 that is not here.

A line of stdout for each: its op, the inputs key and the hashes of the choices as the model's call
led to them, as the rebuilt one does, and as the captured graph does. Made up: that there is a GPU,
and what it is (`flex_program`). Nothing is run.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._inductor import compile_fx, config, select_algorithm
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.flex import flex_attention as lowering
from torch._inductor.kernel.flex import flex_decoding
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention as attention
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from backend.inductor.torch.captured import graph_text
from backend.inductor.torch.compiling import call_text, compile_call
from backend.inductor.torch.tuning import tuning_key
from backend.worker.flex_numbers import read_call
from backend.worker.jobs.trial import compile_arm
from backend.worker.trial.drawn import drawn_constants
from backend.worker.trial.program import program_of
from tests.support.flex_program import INDICES, KEYS
from tests.support.made_up_gpu import Compiled, make_up_a_gpu

Asked = tuple[str, str, list[str], str]
"""Op, inputs key, hashes of the choices, and the call as text."""


def asked(compiles: Callable[[], object]) -> Asked:
    """What the selector is asked first."""
    found: list[Asked] = []

    def select(name: str, choices: list[Any], inputs: list[Any], layout: Any, **rest: Any) -> Any:
        key = tuning_key(name, inputs, layout, {}).inputs
        found.append((name, key, [choice.hash_key() for choice in choices], call_text()))
        return select_algorithm.autotune_select_algorithm(name, choices[:1], inputs, layout, **rest)

    lowering.autotune_select_algorithm = flex_decoding.autotune_select_algorithm = select
    torch._dynamo.reset()
    with (
        contextlib.suppress(Compiled),
        _captured(),
        config.patch(max_autotune=True, force_disable_caches=True),
    ):
        compiles()
    return found[0]


texts: list[str] = []
"""Of the graphs that were compiled last."""


@contextlib.contextmanager
def _captured() -> Iterator[None]:
    """Keep the text of the graphs that Inductor gets."""
    stock = compile_fx._compile_fx_inner

    def inner(graph: Any, inputs: Any, **options: Any) -> Any:
        texts[:] = [graph_text(graph, inputs, options)]
        return stock(graph, inputs, **options)

    with unittest.mock.patch.object(compile_fx, "_compile_fx_inner", inner):
        yield


def compile_to_module(graph: Any) -> Any:
    graph.codegen()

    def call(inputs: object) -> None:
        raise Compiled

    return types.SimpleNamespace(call=call, __file__=__file__)


def on_gpu(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*sizes, device="cuda", dtype=dtype)


def masked(causal: BlockMask, function: Callable[..., Any]) -> BlockMask:
    """As sparse as a causal one."""
    tensors = [getattr(causal, name) for name in INDICES]
    return BlockMask(
        causal.seq_lengths,
        *(torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in tensors),
        BLOCK_SIZE=causal.BLOCK_SIZE,
        mask_mod=function,
    )


def forward(causal: BlockMask, queries: int, heads: int) -> None:
    """ALiBi that fades out, a window within documents; the query is a part of a projection."""
    slopes, documents = on_gpu(8), on_gpu(KEYS, dtype=torch.int64)

    def alibi(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return torch.where(q - k < 900, score + (k - q) * slopes[h], score - 80.0)

    def window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 256) & (documents[q] == documents[k])

    mask = masked(causal, window)

    def attend(both: Any, k: Any, v: Any) -> Any:
        q = both.select(2, 1).transpose(1, 2)
        k = k * 2  # made in the graph before the call
        return flex_attention(q, k, v, alibi, mask, enable_gqa=heads < 8)

    k, v = on_gpu(2, heads, KEYS, 64), on_gpu(2, heads, KEYS, 64)
    torch.compile(attend)(on_gpu(2, queries, 2, 8, 64), k, v)


def backward(causal: BlockMask) -> None:
    """The graph of the backward alone: autograd itself asks for the device."""
    hop: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    q, k, v = (on_gpu(2, 8, KEYS, 64) for _ in "qkv")
    slopes = on_gpu(8)
    full = attention._apply_kernel_options(q, k, v, False, {})

    def alibi(score: Any, b: Any, h: Any, q: Any, k: Any, slopes: Any) -> Any:
        return score / (1 + score * score / 400) + (k - q) * torch.ops.aten.index(slopes, [h])

    zeros = [torch.zeros(()).requires_grad_(), *(torch.zeros((), dtype=torch.int) for _ in "bhqk")]
    on_cpu = torch.zeros(8, dtype=torch.bfloat16)  # autograd would ask for the device
    score, joint = hop.create_fw_bw_graph(alibi, tuple(zeros), (on_cpu,))
    mask = masked(causal, lambda b, h, q, k: q >= k)
    rows = on_gpu(2, 8, KEYS, dtype=torch.float32)

    def gradients(
        q: Any, k: Any, v: Any, out: Any, rows: Any, grad: Any, slopes: Any, *parts: Any
    ) -> Any:
        places = iter(parts)
        told = [next(places) if isinstance(x, torch.Tensor) else x for x in mask.as_tuple()]
        given = (q, k, v, out, rows, grad, None, score, joint, tuple(told), 0.125, full)
        return hop.flex_attention_backward(*given, (slopes,), ())[:3]

    parts = [x for x in mask.as_tuple() if isinstance(x, torch.Tensor)]
    inputs = [q, k, v, q, rows, q, slopes, *parts]
    compile_fx.compile_fx_inner(make_fx(gradients)(*inputs), inputs)


def rebuilt(text: str) -> None:
    call = read_call(text)
    memory = [on_gpu(_length(spec), dtype=_dtype(spec)) for spec in call.tensors]
    views = [
        base if spec.offset else base.as_strided(spec.sizes, spec.strides)
        for base, spec in zip(memory, call.tensors, strict=True)
    ]
    compile_call(call.module(), views, backward=call.backward)(views)


def replayed(text: str) -> None:
    program = program_of(text)
    compile_arm(program, drawn_constants(program), (), (), stock=True)


def _length(spec: Any) -> int:
    reach = sum((n - 1) * step for n, step in zip(spec.sizes, spec.strides, strict=True))
    return int(spec.offset + reach + 1)


def _dtype(spec: Any) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype.removeprefix("torch."))
    return dtype


if __name__ == "__main__":
    make_up_a_gpu()
    config.compile_threads = 1
    GraphLowering.compile_to_module = compile_to_module  # type: ignore[method-assign]
    masks = {
        rows: create_block_mask(lambda b, h, q, k: q >= k, None, None, rows, KEYS, device="cpu")
        for rows in (1, KEYS)
    }
    programs: list[Callable[[], None]] = [
        lambda: forward(masks[KEYS], KEYS, 8),
        lambda: forward(masks[1], 1, 2),
        lambda: backward(masks[KEYS]),
    ]
    for program in programs:
        with FakeTensorMode():
            first = asked(program)
        (text,) = texts
        with FakeTensorMode():
            again = asked(lambda: rebuilt(first[3]))  # noqa: B023
        with FakeTensorMode():
            tried = asked(lambda: replayed(text))  # noqa: B023
        print(json.dumps([first, again, tried]), flush=True)
