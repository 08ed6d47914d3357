"""The parameters of an instance, in the order of those of its C++ type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class CKGemmOperation:
    """As many of the parameters of `DeviceGemmMultiD_Xdl_CShuffle_V3` as this library has."""

    a_layout: str
    b_layout: str
    ds_layouts: tuple[str, ...]
    c_layout: str
    a_element_dtype: str
    b_element_dtype: str
    c_element_dtype: str
    a_elementwise_op: str
    b_elementwise_op: str
    c_elementwise_op: str
    gemm_specialization: str
    block_size: int
    m_per_block: int
    n_per_block: int
    k_per_block: int
    a_k1: int
    b_k1: int
    m_per_xdl: int
    n_per_xdl: int
    m_xdl_per_wave: int
    n_xdl_per_wave: int
    a_block_transfer_thread_cluster_lengths_ak0_m_ak1: tuple[int, int, int]
    a_block_transfer_src_scalar_per_vector: int
    a_block_lds_extra_m: bool
    b_block_transfer_src_scalar_per_vector: int
    c_shuffle_block_transfer_scalar_per_vector_n_per_block: tuple[int, ...]
    block_gemm_pipeline_scheduler: str
    block_gemm_pipeline_version: str
    a_compute_dtype: str | None = None

    def name(self) -> str:
        """PyTorch calls the C++ type after it."""
        return "ck_like_" + "_".join(str(value) for value in asdict(self).values())

    def dict_items(self) -> Iterable[tuple[str, Any]]:
        """As PyTorch asks for them."""
        return asdict(self).items()
