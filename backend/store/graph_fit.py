"""Do the operands of a call fit the inputs of a tuning?"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from backend.model.problem import TensorSpec
from backend.store.graph_ops import OpForm
from backend.store.graph_parts import Call, Dim, GraphTensor, TemplateKernel

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


def launch_fits(kernel: TemplateKernel, specs: Sequence[TensorSpec]) -> bool:
    """Whether a kernel may read the first inputs of a tuning, as far as its calls say: views of
    them are others by shape, packed weights also by size."""
    if not kernel.calls:
        return True
    wanted = (specs[0].dtype, math.prod(specs[0].sizes))
    return any(
        operand.dtype in (None, wanted[0]) and _count(operand.sizes) in (None, wanted[1])
        for call in kernel.calls
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
