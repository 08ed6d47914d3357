"""Do the operands of a call fit the inputs of a tuning? The ops, one row each, and the comparison.

What the autotune cache calls an op, the graph and the wrapper may call otherwise, and not every
input of its key is an operand of its node: buffers for intermediate results are none, nor are
numbers. An op that has no row, or whose row is not `proven`, is never said to be absent on the word
of the reader: see `match.may_hold_loosely`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from backend.model.problem import TensorSpec
from backend.pins.graphs.parts import Call, Dim, GraphTensor, TemplateKernel


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


Layout = tuple[tuple[Dim, Dim], ...]


def serves(
    operands: Iterable[GraphTensor],
    specs: Sequence[TensorSpec],
    any_strides: bool,
    layouts: Collection[Layout] = (),
) -> bool:
    """`operands` are `specs`, in order; more of them (a bias) may stand between.

    The layout of a computed operand is decided after the graph was printed: it may also be one of
    `layouts`, those of the wrapper's buffers.
    """
    left = iter(operands)
    return all(any(_is(operand, spec, any_strides, layouts) for operand in left) for spec in specs)


def node_serves(
    call: Call,
    specs: Sequence[TensorSpec],
    form: OpForm,
    any_strides: bool,
    layouts: Collection[Layout] = (),
) -> bool:
    """Whether a node of the printed graph is the op with the inputs `specs`."""
    if call.name not in form.nodes and call.name not in form.externs:
        return False
    operands = call.operands
    if call.name == "convolution" and "mm" in form.nodes[0]:
        operands = _as_product(operands)
    if form.reshaped and specs:
        count = operands and _count(operands[0].sizes)
        if count not in (None, math.prod(specs[0].sizes)):
            return False
    return serves(operands, form.read(specs), any_strides or not form.exact_strides, layouts)


def node_may_serve(
    call: Call, specs: Sequence[TensorSpec], form: OpForm, layouts: Collection[Layout] = ()
) -> bool:
    """Whether a node that lacks operands, because their sizes are not printed, may be the op."""
    required = form.read(specs)
    missing = len(required) - len(call.operands)
    return (
        call.name in form.nodes
        and 0 < missing <= call.unsized
        and bool(call.operands)
        and all(
            any(_is(operand, spec, not form.exact_strides, layouts) for spec in required)
            for operand in call.operands
        )
    )


def launch_fits(kernel: TemplateKernel, specs: Sequence[TensorSpec]) -> bool:
    """Whether a kernel may read the first inputs of a tuning, as far as its calls say: views of
    them are others by shape, packed weights also by size. A convolution's weight is no view."""
    if not kernel.calls:
        return True
    wanted = specs[:2] if len(specs[0].sizes) > 3 else specs[:1]
    return any(all(_reads(call, spec) for spec in wanted) for call in kernel.calls)


def _reads(call: Sequence[GraphTensor], spec: TensorSpec) -> bool:
    count = math.prod(spec.sizes)
    return any(
        operand.dtype in (None, spec.dtype) and _count(operand.sizes) in (None, count)
        for operand in call
    )


def _as_product(operands: Sequence[GraphTensor]) -> tuple[GraphTensor, ...]:
    """The two operands of the product that a convolution with a kernel of one point becomes."""
    if len(operands) < 2:
        return ()
    image, weight = operands[0], operands[1]
    if len(weight.sizes) < 3 or any(size != 1 for size in weight.sizes[2:]):
        return ()
    rows = _count((*image.sizes[:1], *image.sizes[2:]))
    inner, outer = image.sizes[1], weight.sizes[0]
    return (
        GraphTensor((rows, inner), (inner, 1), image.dtype, image.device),
        GraphTensor((inner, outer), (1, inner), weight.dtype, weight.device),
    )


def _count(sizes: Sequence[Dim]) -> Dim:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _is(
    operand: GraphTensor, spec: TensorSpec, any_strides: bool, layouts: Collection[Layout]
) -> bool:
    if operand.dtype not in (None, spec.dtype) or operand.device not in (None, spec.device):
        return False
    missing = len(spec.sizes) - len(operand.sizes)
    if missing < 0:
        return False
    same_strides = True
    for at, (size, stride) in enumerate(zip(spec.sizes, spec.strides, strict=True)):
        mine = operand.sizes[at - missing] if at >= missing else 1
        if at < missing or (mine == 1 and size != 1):
            # A bias is expanded to the sizes of the output before it is tuned.
            if stride != 0:
                return False
        elif mine not in (None, size):
            return False
        elif size != 1 and operand.strides[at - missing : at - missing + 1] not in (
            (None,),
            (stride,),
        ):
            same_strides = False
    if any_strides or same_strides or spec.dtype == "torch.int32":
        return True
    return operand.computed and layout_of(spec.sizes, spec.strides) in layouts


def layout_of(sizes: Sequence[Dim], strides: Sequence[Dim]) -> Layout:
    """Sizes and strides without dimensions of size 1, and with those merged that lie as one."""
    merged: list[tuple[Dim, Dim]] = []
    for size, stride in zip(sizes, strides, strict=False):
        if size == 1:
            continue
        if merged and size is not None and stride is not None:
            outer, step = merged[-1]
            if outer is not None and step == size * stride:
                merged[-1] = (outer * size, stride)
                continue
        merged.append((size, stride))
    return tuple(merged)
