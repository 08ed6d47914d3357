"""Flex attention compiled by stock PyTorch for a gfx942 that is not here.

Each line of stdin is one compile, `{"options": {...}, "queries": 1024, "max_autotune": true}`; a
line of stdout says of each what was offered, `[name, hash, description]`, and the kernels of the
generated code. `{"rows": 28}` is a convolution, of which there is no code. Made up: that there is
a GPU, what it is, and the times of the choices, which count up in the order in which they are
offered. Nothing is run.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import types
from typing import Any

import torch
import torch._higher_order_ops
from torch._inductor import compile_fx, config, select_algorithm
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import conv
from torch._inductor.kernel.flex import flex_attention as lowering
from torch._inductor.kernel.flex import flex_decoding
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention as attention
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from tests.support.made_up_gpu import Compiled, make_up_a_gpu

KEYS = 1024
INDICES = [
    f"{full}{side}_{what}"
    for side in ("kv", "q")
    for full in ("", "full_")
    for what in ("num_blocks", "indices")
]


def compile_backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: BlockMask, options: dict[str, Any]
) -> None:
    """The graph of the backward alone: autograd itself asks for the device."""
    hop: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    full = attention._apply_kernel_options(q, k, v, False, options)
    zeros = [torch.zeros(()).requires_grad_(), *(torch.zeros((), dtype=torch.int) for _ in "bhqk")]
    forward, joint = hop.create_fw_bw_graph(lambda score, b, h, q, k: score, tuple(zeros), ())
    rows = torch.empty(q.shape[:3], device="cuda", dtype=torch.float32)

    def gradients(
        q: Any, k: Any, v: Any, out: Any, rows: Any, grad: Any, *mask_tensors: Any
    ) -> Any:
        places = iter(mask_tensors)
        tensors = [next(places) if isinstance(x, torch.Tensor) else x for x in mask.as_tuple()]
        return hop.flex_attention_backward(
            q, k, v, out, rows, grad, None, forward, joint, tuple(tensors), 0.125, full
        )[:3]

    inputs = [q, k, v, q, rows, q, *(x for x in mask.as_tuple() if isinstance(x, torch.Tensor))]
    graph = make_fx(gradients)(*inputs)
    compile_fx.compile_fx_inner(graph, inputs)


def convolution(rows: int) -> dict[str, Any]:
    """What is offered for one; PyTorch logs it with times."""
    offered: list[list[str]] = []

    def select(name: str, choices: list[Any], inputs: list[Any], layout: Any, **rest: Any) -> Any:
        offered.extend([choice.name, choice.hash_key(), choice.description] for choice in choices)
        times = {choice: 1.0 + at for at, choice in enumerate(choices)}
        select_algorithm.AlgorithmSelectorCache.maybe_log_conv_results(name, inputs, times)
        raise Compiled

    conv.autotune_select_algorithm = select
    torch._dynamo.reset()
    with (
        FakeTensorMode(),
        config.patch(max_autotune=True, max_autotune_conv_backends="ATEN,TRITON"),
    ):
        x, weight = (
            torch.empty(*sizes, device="cuda", dtype=torch.bfloat16)
            for sizes in ((8, 64, rows, 28), (128, 64, 3, 3))
        )
        with contextlib.suppress(Exception):  # Inductor makes an error of its own of ours
            torch.compile(torch.nn.functional.conv2d)(x, weight, padding=1)
    return {"offered": offered}


def compile_one(
    options: dict[str, Any], queries: int, max_autotune: bool, backward: bool = False
) -> dict[str, Any]:
    offered: list[list[str]] = []
    codes: list[str] = []

    def select(name: str, choices: list[Any], inputs: list[Any], layout: Any, **rest: Any) -> Any:
        offered.extend([choice.name, choice.hash_key(), choice.description] for choice in choices)
        times = {choice: 1.0 + at for at, choice in enumerate(choices)}
        select_algorithm.AlgorithmSelectorCache.maybe_log_flex_attention_results(
            name, inputs, times
        )
        return select_algorithm.autotune_select_algorithm(name, choices[:1], inputs, layout, **rest)

    def compile_to_module(graph: Any) -> Any:
        codes.append(graph.codegen()[0].value)

        def call(inputs: object) -> None:
            raise Compiled

        return types.SimpleNamespace(call=call, __file__=__file__)

    lowering.autotune_select_algorithm = flex_decoding.autotune_select_algorithm = select
    GraphLowering.compile_to_module = compile_to_module  # type: ignore[method-assign]
    torch._dynamo.reset()
    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, queries, KEYS, device="cpu")
    with FakeTensorMode(), config.patch(max_autotune=max_autotune, force_disable_caches=True):
        tensors = [getattr(causal, name) for name in INDICES]
        mask = BlockMask(
            causal.seq_lengths,
            *(torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in tensors),
            BLOCK_SIZE=causal.BLOCK_SIZE,
            mask_mod=causal.mask_mod,
        )
        q, k, v = (
            torch.empty(2, 8, rows, 64, device="cuda", dtype=torch.bfloat16)
            for rows in (queries, KEYS, KEYS)
        )
        with contextlib.suppress(Compiled):
            if backward:
                compile_backward(q, k, v, mask, options)
            else:
                torch.compile(flex_attention)(q, k, v, block_mask=mask, kernel_options=options)
    return {"offered": offered, "kernels": [kernel for code in codes for kernel in kernels(code)]}


def kernels(code: str) -> list[dict[str, str]]:
    """The parameters of each template's kernel in generated code."""
    found = []
    for source in re.findall(r"async_compile\.triton\('triton_tem_.*?'''(.*?)'''", code, re.DOTALL):
        values = dict(re.findall(r"^    (\w+) : tl\.constexpr = (.+)$", source, re.MULTILINE))
        values |= re.findall(r"^(num_warps|num_stages)=(\d+),", source, re.MULTILINE)
        found.append(values)
    return found


if __name__ == "__main__":
    make_up_a_gpu()
    config.compile_threads = 1
    for line in sys.stdin:
        words = json.loads(line)
        answer = convolution(**words) if "rows" in words else compile_one(**words)
        print(json.dumps(answer), flush=True)
