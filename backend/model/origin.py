"""The origin of a choice, from its name or its hash: which backend of Inductor, which compiler, and
whether it is one of ours."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Literal

from backend.model.choice import Choice, is_subgraph
from backend.model.inductor_kernel import TRITON
from backend.model.tuning import Tuning

_TEMPLATES = (
    ("triton_", "triton"),
    ("rocm_ck", "ck"),
    ("ck_", "ck"),
    ("rocm_", "rocm"),
    ("cutlass_", "cutlass"),
    ("cuda_cutlass", "cutlass"),
    ("cutedsl_", "cutedsl"),
    ("flydsl_", "flydsl"),
    ("_quack_", "quack"),
    ("nv_universal_gemm", "nv_universal_gemm"),
    ("catlass_", "catlass"),
    ("cpp_", "cpp"),
    ("Cpp", "cpp"),
    ("packed_gemm", "cpp"),
    ("pallas_", "pallas"),
    ("decompose_k", "subgraph"),
    ("contiguous_", "subgraph"),
    ("subgraph", "subgraph"),
)
_ATEN = frozenset(
    "mm addmm bias_addmm bmm baddbmm _mm_plus_mm mm_plus_mm addmv mm_dtype bmm_dtype mm_out_dtype "
    "bmm_out_dtype fallback_mixed_mm mixed_mm _int_mm int_mm _scaled_mm scaled_mm scaled_mm_v "
    "_scaled_mm_v _scaled_grouped_mm _grouped_mm _sparse_semi_structured_mm "
    "_sparse_semi_structured_addmm _weight_int8pack_mm _weight_int4pack_mm_for_cpu "
    "_weight_int4pack_mm_cpu_tensor int4mm_packed_weight_cpu _dynamic_quantized_linear "
    "convolution _convolution_pointwise conv1x1_via_mm call_aten_dw call_aten_dx".split()
)
"""Inductor's names of ATen choices, without the number at the end (`_scaled_mm_v2`)."""
_LIBRARIES = re.compile(r"_?(mkl|mkldnn|onednn)_|_?q?linear_(pointwise|unary|binary)")
"""oneDNN's and MKL's kernel names; Inductor counts these kernels as ATen."""

_OURS = {
    "rocm_gemm": "gemm",
    "rocm_conv": "conv",
    "rocm_direct": "direct",
    "rocm_grouped": "grouped",
    "rocm_skinny": "skinny",
    "rocm_ck": "ck",  # no longer offered, but in older pins, sessions and caches
    "rocm_triton": "triton",
}
_COMPILERS = (
    ("triton", "triton"),
    ("cpp", "cpp"),
    ("packed_gemm", "cpp"),
    ("flex_attention", "cpp"),
    ("cuda", "cuda"),
    ("cutlass", "cuda"),
    ("cutedsl", "cutedsl"),
    ("nv_universal_gemm", "nv_universal_gemm"),
    ("flydsl", "flydsl"),
    ("rocm", "rocm"),
    ("ck", "rocm"),
    ("decompose", "subgraph"),
)


def kind_of(choice: str) -> str:
    """Return `triton`, `cpp`, ... for a template's hash; empty for an extern kernel (ATen, MKL)."""
    if is_subgraph(choice):
        return "subgraph"
    name = extern_name(choice).lower()
    return next((kind for start, kind in _COMPILERS if name.startswith(start)), "")


def extern_name(choice: str) -> str:
    """Return `bmm` of `bmm-c5psz...`: the hash of an extern kernel begins with its name."""
    return choice.partition("-")[0]


def own_template(choice: str | None) -> str:
    """Return our template of a hash: `gemm`, `skinny`, `triton`, or empty for other choices."""
    stem, dash, _ = (choice or "").partition("-")
    return _OURS.get(stem, "") if dash else ""


def is_own(choice: str | None) -> bool:
    """Return whether a hash is of one of our templates, which stock PyTorch does not offer."""
    return bool(own_template(choice))


def template_of(choice: Choice) -> str:
    """Return our HIP C++ template of the choice: `gemm`, `skinny`, or empty for other choices."""
    template = own_template(choice.hash)
    return "" if template == "triton" else template


def has_resources(choice: Choice) -> bool:
    """Return whether a cache may have the GPU resources of its kernel: one of ours, or Triton's."""
    return bool(template_of(choice)) or kind_of(choice.hash or "") == "triton"


def kernel_hash(source: str, entry: str, target: str) -> str:
    """Return a hash that is the same wherever the same source is compiled for the same target."""
    return _digest(json.dumps([source, entry, target]))


def choice_hash(template: str, kernel: str, config: str, toolchain: str = "") -> str:
    """Return the hash of a choice of our templates: `rocm_gemm-<source and config>-<toolchain>`.

    `kernel` is its `kernel_hash`, `config` its description with the runtime arguments. `toolchain`
    identifies headers, flags and compiler; a choice's times are valid for one toolchain.
    """
    stem = f"rocm_{template}-{_digest(f'{kernel} {config}')}"
    return f"{stem}-{toolchain}" if toolchain else stem


def toolchain_of(choice: str) -> str:
    """Return the toolchain in the hash of one of our choices; empty if the hash has none."""
    return "".join(choice.split("-", 2)[2:]) if is_own(choice) else ""


def any_toolchain(choice: str) -> str:
    """Return the hash of one of our choices without its toolchain: its source and config."""
    return "-".join(choice.split("-", 2)[:2])


def _digest(text: str) -> str:
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    return hashlib.sha256(text.encode()).hexdigest()[:32]


def provider(choice: Choice) -> str | None:
    """Return `aten`, `triton`, `cpp`, `ck`, `rocm`, ...; None for other names and hashes."""
    for text in (choice.name, choice.hash):
        origin = _provider(_kernel(text)) if text else None
        if origin is not None:
            return origin
    return "subgraph" if is_subgraph(choice.hash or "") else None


def is_library(choice: Choice) -> bool:
    """Return whether the choice is a kernel of oneDNN or MKL, which are libraries for CPUs."""
    return any(text and _library(_kernel(text)) for text in (choice.name, choice.hash))


def _kernel(text: str) -> str:
    """Return a name without its number, or a hash without its digest, for small caches."""
    return extern_name(text).rstrip("0123456789")


@lru_cache(maxsize=4096)
def _provider(kernel: str) -> str | None:
    for prefix, backend in _TEMPLATES:
        if kernel.startswith(prefix):
            return backend
    return "aten" if _function(kernel) in _ATEN or _library(kernel) else None


@lru_cache(maxsize=4096)
def _library(kernel: str) -> bool:
    return _LIBRARIES.match(_function(kernel)) is not None


def _function(kernel: str) -> str:
    """Return `_linear_pointwise` of `mkldnn::_linear_pointwise.binary`."""
    name = kernel.removeprefix("extern_kernels.")
    return name.rpartition("::")[2].partition(".")[0]


DeviceKind = Literal["cpu", "gpu"]

_KINDS: dict[str | None, DeviceKind] = {
    "cpp": "cpu",
    "triton": "gpu",
    "ck": "gpu",
    "cutlass": "gpu",
    "cutedsl": "gpu",
    "flydsl": "gpu",
    "quack": "gpu",
    "nv_universal_gemm": "gpu",
    "catlass": "gpu",
}
_CPU_OPS = frozenset(
    ("packed_linear", "linear_unary", "linear_binary", "qlinear_unary", "qlinear_binary")
)
"""Inductor's ops for a linear layer with packed weights, which only CPUs have."""
_FIRST_DEVICE = re.compile(r"\('(\w+)'")
_TRITON_ONLY = "num_warps="
"""Part of a Triton kernel's configuration, which an MM log prints without a name."""


def device_kind(tuning: Tuning) -> DeviceKind | None:
    """Derive cpu or gpu from the tuning's device, else its inputs key, else its op and choices;
    None if these say nothing or contradict each other. An accelerator of any vendor is a gpu."""
    device = tuning.device
    if not device and tuning.inputs_key:
        first = _FIRST_DEVICE.search(tuning.inputs_key)
        device = first.group(1) if first else None
    if device and device != "meta":
        return "cpu" if device.startswith("cpu") else "gpu"
    if tuning.op == TRITON:  # its choices would give the same, but may not be loaded yet
        return "gpu"
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
