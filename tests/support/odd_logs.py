"""Tables as older and newer Tritons print them."""

from __future__ import annotations

NEW_TRITON = """Triton autotuning for function matmul_kernel,
with key as (512, 256, 'torch.float16'),
finished after 1.23s,
best config selected: BLOCK_M: 64, BLOCK_N: 32, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;
"""  # noqa: E501

OLD_TRITON = (
    "Triton autotuning for function add_kernel finished after 0.48s; best config selected: "
    "BLOCK_SIZE: 128, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None;\n"
)
