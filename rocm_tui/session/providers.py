"""Which backend of Inductor a choice comes from, told by its name or its hash."""

from __future__ import annotations

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
    ("pallas_", "pallas"),
    ("decompose_k", "subgraph"),
    ("subgraph", "subgraph"),
)
_ATEN = frozenset(
    "mm addmm bias_addmm bmm baddbmm convolution conv1x1_via_mm fallback_mixed_mm mixed_mm "
    "_int_mm int_mm _scaled_mm scaled_mm scaled_mm_v2 _scaled_mm_v2 _scaled_grouped_mm "
    "_grouped_mm _mkl_linear "
    "_linear_pointwise mkldnn_linear qlinear_unary qlinear_binary _sparse_semi_structured_mm "
    "_sparse_semi_structured_addmm _weight_int8pack_mm _weight_int4pack_mm_for_cpu "
    "_weight_int4pack_mm_cpu_tensor mm_dtype bmm_dtype mm_out_dtype bmm_out_dtype addmv "
    "_dynamic_quantized_linear".split()
)

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
        if text.split("-", 1)[0] in _ATEN:
            return "aten"
    return None
