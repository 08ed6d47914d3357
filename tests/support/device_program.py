"""Products, a convolution and flex attention as stock PyTorch offers them on GPUs that are missing.

`python -m tests.support.device_program KIND INDEX...`, KIND `hip` or `cuda`: a line of stdout for
each INDEX, `{"index": 1, "offered": {"mm": [hash, ...], ...}}`. The modules of the choices are left
below Inductor's cache dir. Made up: that there are GPUs, and what they are. Nothing is run.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch._higher_order_ops
from torch._inductor import config, select_algorithm
from torch._inductor.kernel import bmm, conv, mm, mm_plus_mm
from torch._inductor.kernel.flex import flex_attention as flex
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from triton.backends.compiler import GPUTarget

from tests.support import made_up_gpu
from tests.support.flex_program import INDICES, KEYS
from tests.support.made_up_gpu import Compiled, make_up_a_gpu


def make_up_h100s() -> None:
    """Let the made-up GPU be NVIDIA's."""
    facts = made_up_gpu.PROPERTIES
    facts.name, facts.major, facts.minor = "NVIDIA H100", 9, 0
    facts.multi_processor_count, facts.warp_size = 132, 32
    del facts.gcnArchName
    target = GPUTarget("cuda", 90, 32)
    made_up_gpu.Driver.get_current_target = lambda self: target  # type: ignore[method-assign]
    make_up_a_gpu()
    torch.version.hip = None
    torch.version.cuda = "13.0"
    torch.cuda.get_device_capability = lambda device=None: (9, 0)


def tensor(device: str, *sizes: int) -> torch.Tensor:
    return torch.empty(*sizes, device=device, dtype=torch.float16)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((256, 128), (128, 512))),
    "addmm": (torch.addmm, ((512,), (256, 128), (128, 512))),
    "bmm": (torch.bmm, ((4, 256, 128), (4, 128, 512))),
    "mm_plus_mm": (lambda a, b, c, d: a @ b + c @ d, ((256, 128), (128, 512)) * 2),
    "convolution": (
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        ((8, 64, 28, 28), (128, 64, 3, 3)),
    ),
}


def attend(device: str) -> None:
    """Compile flex attention. Its mask is made on the CPU: it fills tensors."""
    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, KEYS, KEYS, device="cpu")
    with FakeTensorMode():
        blocks = (getattr(causal, name) for name in INDICES)
        mask = BlockMask(
            causal.seq_lengths,
            *(torch.empty(each.shape, dtype=each.dtype, device=device) for each in blocks),
            BLOCK_SIZE=causal.BLOCK_SIZE,
            mask_mod=causal.mask_mod,
        )
        q, k, v = (tensor(device, 2, 8, KEYS, 64) for _ in "qkv")
        torch.compile(flex_attention)(q, k, v, block_mask=mask)


def offered(device: str) -> dict[str, list[str]]:
    """The hashes of what is offered to each program on a device."""
    hashes: dict[str, list[str]] = {}

    def select(name: str, choices: list[Any], *args: Any, **options: Any) -> Any:
        hashes[name] = [str(choice.hash_key()) for choice in choices]
        raise Compiled

    for module in (mm, bmm, conv, mm_plus_mm, flex, select_algorithm):
        if hasattr(module, "autotune_select_algorithm"):
            module.autotune_select_algorithm = select  # type: ignore[attr-defined]
    settings = {
        "max_autotune": True,
        "max_autotune_gemm_backends": "ATEN,TRITON",
        "max_autotune_conv_backends": "ATEN,TRITON",
    }
    for function, sizes in PROGRAMS.values():
        torch._dynamo.reset()
        with FakeTensorMode(), config.patch(settings):
            tensors = [tensor(device, *each) for each in sizes]
            with contextlib.suppress(Exception):  # Inductor makes an error of its own of ours
                torch.compile(function)(*tensors)
    torch._dynamo.reset()
    with config.patch(settings), contextlib.suppress(Exception):
        attend(device)
    return hashes


if __name__ == "__main__":
    kind, *indices = sys.argv[1:]
    make_up_h100s() if kind == "cuda" else make_up_a_gpu()
    torch.cuda.device_count = lambda: 8
    config.compile_threads = 1
    for index in map(int, indices):
        torch.cuda.current_device = lambda index=index: index
        answer = {"index": index, "offered": offered(f"cuda:{index}")}
        print(json.dumps(answer), flush=True)
