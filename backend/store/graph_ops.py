"""The ops that Inductor tunes, as compiled graphs hold them: one row an op.

What the autotune cache calls an op, the graph and the wrapper may call otherwise, and not every
input of its key is an operand of its node: buffers for intermediate results are none, nor are
numbers. An op that has no row, or whose row is not `proven`, is never said to be absent on the word
of the reader: see `graph_match.may_hold_loosely`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.model.problem import TensorSpec


@dataclass(frozen=True, slots=True)
class OpForm:
    """`nodes` are the names in the printed graph, `externs` those of its library kernels in the
    wrapper besides. `operands` are the places in the key of the inputs that are operands too,
    None for all; with `integers`, index tensors (int32) are as well. `exact_strides` is False
    where Inductor may bring operands into another memory format first; `reshaped` says that the
    first input is the first operand in another shape."""

    nodes: tuple[str, ...]
    externs: tuple[str, ...] = ()
    operands: tuple[int, ...] | None = None
    integers: bool = False
    exact_strides: bool = True
    reshaped: bool = False
    proven: bool = True

    def read(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Those inputs of a key that its node or extern call must have, in order."""
        if self.operands is None:
            return tuple(specs)
        return tuple(
            spec
            for at, spec in enumerate(specs)
            if at in self.operands or (self.integers and spec.dtype == "torch.int32")
        )


OPS: dict[str, OpForm] = {
    "mm": OpForm(("mm", "convolution"), ("mm", "_sparse_semi_structured_mm", "mm_dtype")),
    "addmm": OpForm(("addmm", "convolution"), ("addmm", "bias_addmm")),
    "bmm": OpForm(("bmm",), ("bmm", "bmm_dtype")),
    "baddbmm": OpForm(("baddbmm",), ("baddbmm",)),
    "int_mm": OpForm(("_int_mm",), ("_int_mm",)),
    "scaled_mm": OpForm(("_scaled_mm",), ("_scaled_mm",)),
    "grouped_mm": OpForm(("_grouped_mm",), ("_grouped_mm",)),
    "mm_plus_mm": OpForm(("mm_plus_mm",), ("_mm_plus_mm",)),
    "convolution": OpForm(("convolution",), ("convolution",), exact_strides=False),
    "flex_attention": OpForm(("flex_attention",), (), (0, 1, 2), integers=True),
    "flex_attention_backward": OpForm(("flex_attention_backward",), (), (0, 1, 2), integers=True),
    "flex_decoding": OpForm(("flex_attention",), (), (1, 2), integers=True, reshaped=True),
    "_weight_int8pack_mm": OpForm(("_weight_int8pack_mm",), ("_weight_int8pack_mm",)),
    "_weight_int4pack_mm_for_cpu": OpForm(
        ("_weight_int4pack_mm_for_cpu",), ("int4mm_packed_weight_cpu",), (0, 1, 3)
    ),
    # Their packed weights keep these out of the graph cache; only AOTInductor writes them down.
    "packed_linear": OpForm(("_mkl_linear", "_linear_pointwise"), ("_mkl_linear",)),
    "linear_unary": OpForm(("_linear_pointwise",)),
    "linear_binary": OpForm(("_linear_pointwise",)),
    # Read in PyTorch's source, in no graph: what may hold them is told as such.
    "scaled_grouped_mm": OpForm(("_scaled_grouped_mm",), ("_scaled_grouped_mm",), proven=False),
    "convolution_bwd_weight": OpForm(("convolution_backward",), proven=False),
    "convolution_bwd_input": OpForm(("convolution_backward",), proven=False),
    "sparse_semi_structured_mm": OpForm(("_sparse_semi_structured_mm",), proven=False),
    "flex_flash_attention": OpForm(("flex_attention",), proven=False),
    "flex_flash_attention_backward": OpForm(("flex_attention_backward",), proven=False),
    "flex_gemm_epilogue": OpForm(("flex_gemm",), proven=False),
    "b2b_gemm": OpForm(("mm", "b2b_gemm"), proven=False),
    "qlinear_unary": OpForm(("qlinear_pointwise",), proven=False),
    "qlinear_binary": OpForm(("qlinear_pointwise",), ("qlinear_pointwise_binary",), proven=False),
    "grouped_gemm": OpForm(("grouped_gemm", "_linear_pointwise", "_mkl_linear"), proven=False),
}


def form_of(op: str) -> OpForm:
    """The row of an op; of one that has none, what its own name suggests."""
    return OPS.get(op) or OpForm((op, f"_{op}"), (op, f"_{op}"), proven=False)
