"""A gfx942 that is not here, in a process that compiles for it and runs nothing there."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
import torch._higher_order_ops.flex_attention
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

PROPERTIES = types.SimpleNamespace(
    name="AMD Instinct MI300X",
    gcnArchName="gfx942:sramecc+:xnack-",
    major=9,
    minor=4,
    multi_processor_count=304,
    warp_size=64,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=65536,
    shared_memory_per_block_optin=65536,
    shared_memory_per_multiprocessor=65536,
    total_memory=192 << 30,
)


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda")


class Compiled(Exception):
    """The code is there; there is nothing to run it on."""


def make_up_a_gpu() -> None:
    driver.set_active(Driver())
    torch.version.hip = "7.1.0"
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_properties = cuda._get_device_properties = lambda device=None: PROPERTIES
    cuda.get_device_capability = lambda device=None: (9, 4)
    cuda.get_rng_state = lambda device=None: torch.zeros(16, dtype=torch.uint8)
    cuda.set_rng_state = lambda state, device=None: None
    cuda._lazy_init = lambda: None
    cuda._exchange_device = lambda device: 0
    cuda._maybe_exchange_device = lambda device: 0
    cuda.synchronize = lambda device=None: None
    # A torch that was built for GPUs would start one, before the first tensor without memory.
    fakes: Any = fake_tensor
    fakes.init_gpu_context = lambda device: None
    # These fill tensors on the GPU, to learn strides and patterns of ATen's attention.
    hop: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    hop._permute_strides = lambda out, strides: out
    for passes in (joint_graph, post_grad):
        passes.lazy_init = lambda *device: None
