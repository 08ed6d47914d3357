"""Which backend of Inductor a choice comes from, told by its name or its hash."""

from __future__ import annotations

import re

from backend.records import Choice

_TEMPLATES = (
    ("triton_", "triton"),
    ("rocm_ck", "ck"),
    ("ck_", "ck"),
    ("rocm_", "rocm"),
    ("cutlass_", "cutlass"),
    ("cuda_cutlass", "cutlass"),
    ("cutedsl_", "cutedsl"),
    ("nv_universal_gemm", "nv_universal_gemm"),
    ("catlass_", "catlass"),
    ("cpp_", "cpp"),
    ("Cpp", "cpp"),
    ("packed_gemm", "cpp"),
    ("pallas_", "pallas"),
    ("decompose_k", "subgraph"),
    ("subgraph", "subgraph"),
)
_ATEN = frozenset(
    "mm addmm bias_addmm bmm baddbmm _mm_plus_mm mm_plus_mm addmv mm_dtype bmm_dtype mm_out_dtype "
    "bmm_out_dtype fallback_mixed_mm mixed_mm _int_mm int_mm _scaled_mm scaled_mm scaled_mm_v2 "
    "_scaled_mm_v2 _scaled_grouped_mm _grouped_mm _sparse_semi_structured_mm "
    "_sparse_semi_structured_addmm _weight_int8pack_mm _weight_int4pack_mm_for_cpu "
    "_weight_int4pack_mm_cpu_tensor int4mm_packed_weight_cpu _dynamic_quantized_linear "
    "convolution _convolution_pointwise conv1x1_via_mm call_aten_dw call_aten_dx".split()
)
"""What Inductor calls outside of its own kernels: ATen, and the libraries below it."""
_LIBRARIES = re.compile(r"_?(mkl|mkldnn|onednn)_|_?q?linear_(pointwise|unary|binary)")
"""What oneDNN and MKL call their kernels, which Inductor counts to ATen."""

_OURS = {"rocm_gemm": "gemm", "rocm_skinny": "skinny"}


def template_of(choice: Choice) -> str:
    """Which template of ours made the choice, by its hash: `gemm`, `skinny`, or empty for none."""
    stem, dash, _ = (choice.hash or "").partition("-")
    return _OURS.get(stem, "") if dash else ""


def provider(choice: Choice) -> str | None:
    """`aten`, `triton`, `cpp`, `ck`, `rocm`, ...; None where neither name nor hash tells."""
    for text in (choice.name, choice.hash):
        if not text:
            continue
        for prefix, backend in _TEMPLATES:
            if text.startswith(prefix):
                return backend
        stem = _stem(text)
        if stem in _ATEN or _LIBRARIES.match(stem):
            return "aten"
    return None


def is_library(choice: Choice) -> bool:
    """Whether it is a kernel of oneDNN or MKL, which are libraries for CPUs."""
    texts = (choice.name, choice.hash)
    return any(text and _LIBRARIES.match(_stem(text)) for text in texts)


def _stem(text: str) -> str:
    """The function of a name or hash: `_linear_pointwise` of `mkldnn::_linear_pointwise.binary`."""
    name = text.split("-", 1)[0].removeprefix("extern_kernels.")
    return name.rpartition("::")[2].partition(".")[0]
