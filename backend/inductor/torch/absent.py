"""A GPU of AMD's that is not here: enough of it for Inductor to ask which choices there are.

Tensors on it have no memory (torch's fake tensors), and nothing is run. Once a process has been
told of such a GPU it takes it for real to its end.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import torch
from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor.fx_passes import joint_graph
from torch._subclasses.fake_tensor import FakeTensorMode

from backend.toolchain.target import amdgpu

SETTINGS: Mapping[str, object] = {
    "max_autotune_gemm_backends": "ATEN",
    "max_autotune_conv_backends": "ATEN",
    "shape_padding": False,
}
"""Of Inductor's: no choices of torch's own are made, nor is anything timed before the selector is
asked. A key is that of what is padded already."""

_HIP = "0.0"
"""For a torch that knows no HIP itself."""


def pretend(arch: str, compute_units: int) -> None:
    """Let this process take `cuda` for a GPU of that kind, by the name that ROCm's runtime gives
    (`gfx942:sramecc+:xnack-`)."""
    target = amdgpu(arch)
    numbers = re.fullmatch(r"gfx(\d+)([0-9a-f])[0-9a-f]", target.arch)
    major, minor = (int(numbers[1]), int(numbers[2], 16)) if numbers else (0, 0)
    facts = SimpleNamespace(
        name=target.arch,
        gcnArchName=arch,
        multi_processor_count=compute_units,
        major=major,
        minor=minor,
        warp_size=target.wave,
        total_memory=1 << 36,
    )
    torch.version.hip = torch.version.hip or _HIP
    torch.cuda.get_device_properties = lambda device=None: facts
    interface = get_interface_for_device("cuda")
    interface.get_device_properties = staticmethod(torch.cuda.get_device_properties)
    register = joint_graph.lazy_init  # its patterns are made of real tensors on that device
    joint_graph.lazy_init = lambda device=None: register(None)


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Tensors that are made here have a device, sizes and strides, no numbers and no gradients."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        yield
