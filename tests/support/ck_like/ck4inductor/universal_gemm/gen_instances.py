"""The instances: those that fit, one that nothing fits, and one whose numbers are wrong."""

from __future__ import annotations

from ck4inductor.universal_gemm.op import CKGemmOperation  # type: ignore[import-not-found]


def _operation(dtype: str, padding: str, k_per_block: int, version: str) -> CKGemmOperation:
    return CKGemmOperation(
        *("Row", "Row", (), "Row", dtype, dtype, dtype, "PassThrough", "PassThrough"),
        *("PassThrough", f"GemmSpecialization::{padding}", 64, 16, 16, k_per_block, 8, 8),
        *(16, 16, 1, 1, (4, 16, 1), 1, True, 1, (1,)),
        "BlockGemmPipelineScheduler::Intrawave",
        f"BlockGemmPipelineVersion::{version}",
    )


def gen_ops_library() -> list[CKGemmOperation]:
    return [
        _operation("F32", "MNKPadding", 32, "v1"),
        _operation("F32", "MNKPadding", 32, "wrong"),
        _operation("F32", "Default", 16, "v3"),
        _operation("F16", "MNKPadding", 32, "v1"),
    ]


def gen_ops_preselected() -> list[CKGemmOperation]:
    """PyTorch imports it."""
    return []
