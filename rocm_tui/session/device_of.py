"""Whether a tuning was made on a CPU or on a GPU, where its source does not say so.

A stderr log names no device, but most kernels run on one kind alone: Inductor's C++ templates and
the kernels of oneDNN and MKL on a CPU, Triton, Composable Kernel and CUTLASS on a GPU. ATen's are
called alike on both, and so are our templates, whose source is compiled for either.
"""

from __future__ import annotations

import re
from typing import Literal

from backend.model.choice import Choice
from backend.model.origin import is_library, provider
from backend.model.tuning import Tuning

DeviceKind = Literal["cpu", "gpu"]

_KINDS: dict[str | None, DeviceKind] = {
    "cpp": "cpu",
    "triton": "gpu",
    "ck": "gpu",
    "cutlass": "gpu",
    "cutedsl": "gpu",
    "nv_universal_gemm": "gpu",
    "catlass": "gpu",
}
_CPU_OPS = frozenset(
    ("packed_linear", "linear_unary", "linear_binary", "qlinear_unary", "qlinear_binary")
)
"""What Inductor makes of a linear layer with packed weights, which only a CPU has."""
_FIRST_DEVICE = re.compile(r"\('(\w+)'")
_TRITON_ONLY = "num_warps="
"""Stands in the configuration of a Triton kernel, which an MM log tells without a name."""


def device_kind(tuning: Tuning) -> DeviceKind | None:
    """Told by its device, else its inputs key, else its op and its choices; None where those say
    nothing, or contradict each other. An accelerator of any maker counts as a GPU."""
    device = tuning.device
    if not device and tuning.inputs_key:
        first = _FIRST_DEVICE.search(tuning.inputs_key)
        device = first.group(1) if first else None
    if device and device != "meta":
        return "cpu" if device.startswith("cpu") else "gpu"
    kinds = {"cpu"} if tuning.op in _CPU_OPS else set()
    kinds |= {kind for choice in tuning.choices if (kind := _kind(choice))}
    if len(kinds) != 1:
        return None
    return "cpu" if "cpu" in kinds else "gpu"


def _kind(choice: Choice) -> DeviceKind | None:
    backend = provider(choice)
    if backend == "aten":
        return "cpu" if is_library(choice) else None
    kind = _KINDS.get(backend)
    return "gpu" if backend is None and _TRITON_ONLY in choice.description else kind
