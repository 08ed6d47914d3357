"""How MIOpen's databases write a convolution, and what it is to torch. Find-dbs write it as

    576-4-4-1x1-192-4-4-8-0x0-1x1-1x1-0-NCHW-FP32-F

(channels, height and width, filter, channels, height and width of the result, images, padding,
stride, dilation, bias, layout, of three tensors where they differ, type, direction; behind it what
is optional, `_g` groups), perf-dbs of 2024 and later as they name their columns in SQLite, with

    2x576x4x4x1x1x1x1x192x8x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP32xF

(dimensions; channels, height, width, depth; height, width, depth of the filter; channels of the
result, images; padding, stride, dilation, each as the filter; bias, groups, layout, type,
direction). Of a backward one the first channels and sizes are those of the gradient.
Read in MIOpen 3.3: src/conv/problem_description.cpp, src/include/miopen/db_record.hpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.model.convolution import RESULTS, options
from backend.model.problem import Problem, Shape
from backend.tables.gemm import NOT_ITS_FORM, NotAProblem, unknown

DIRECTIONS = {
    "F": "convolution",
    "B": "convolution_bwd_input",
    "W": "convolution_bwd_weight",
}
"""Inductor's names."""
_FOUND = re.compile(
    r"(\d{1,9}(?:-\d{1,9}){2,3})-(\d{1,9}(?:x\d{1,9}){1,2})-(\d{1,9}(?:-\d{1,9}){2,3})-(\d{1,9})"
    r"-(\d{1,9}(?:x\d{1,9})*)-(\d{1,9}(?:x\d{1,9})*)-(\d{1,9}(?:x\d{1,9})*)-(\d{1,2})"
    r"-([A-Zc]{3,6}\d?)((?:-[A-Zc]{3,6}\d?){2})?-([A-Z][A-Z0-9x]{2,40})-([FBW])((?:_\w{1,40})?)",
    re.ASCII,
)
_TUNED = re.compile(
    r"([23]x(?:\d{1,9}x){20})([A-Zc]{3,6}\d?)x([A-Z][A-Z0-9x]{2,40})x([FBW])", re.ASCII
)
_TYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT8": "int8"}
_GROUPS = re.compile(r"_g(\d{1,9})\Z", re.ASCII)
_LAST = {"NHWC", "NDHWC"}
_CASTS = "a convolution with casts"


_OPEN = "a backward convolution with a stride, the size of whose result is not told"


@dataclass(frozen=True, slots=True)
class _Convolution:
    """`image` is what is folded, `result` what comes of it: of a backward one the gradient, and
    what the forward one was given. None where it is not told."""

    direction: str
    images: int
    channels: int
    image: Shape
    features: int
    result: Shape | None
    filter: Shape
    padding: Shape
    stride: Shape
    dilation: Shape
    groups: int
    bias: bool
    layouts: frozenset[str]
    type: str


def direction_of(key: str) -> str:
    """The letter; what stands at its place in another key."""
    return re.split(r"[-x]", key.partition("_")[0])[-1]


def problem_of(key: str) -> Problem:
    """The convolution in torch's words. Raises NotAProblem."""
    if (found := _FOUND.fullmatch(key)) is not None:
        conv = _found(found)
    elif (found := _TUNED.fullmatch(key)) is not None:
        conv = _tuned(found)
    else:
        raise NotAProblem(NOT_ITS_FORM)
    _check(conv)
    op = DIRECTIONS[conv.direction]
    shapes, result = _operands(conv)
    given = {
        "padding": conv.padding,
        "stride": conv.stride,
        "dilation": conv.dilation,
        "transposed": (0,),
        "output_padding": (0,) * len(conv.image),
        "groups": (conv.groups,),
    }
    if op in RESULTS:
        given[RESULTS[op]] = result
    last = conv.layouts <= _LAST
    strides = tuple(_strides(shape, last) for shape in shapes)
    dtypes = (f"torch.{_TYPES[conv.type]}",) * 2
    return Problem(op, shapes, strides, dtypes, options=options(given))


def _check(conv: _Convolution) -> None:
    if conv.bias or len(conv.layouts) > 1:
        raise NotAProblem("a convolution with a bias, or of tensors in several layouts")
    if conv.type not in _TYPES:
        raise unknown("the type", conv.type)
    sizes = (conv.filter, conv.padding, conv.stride, conv.dilation, conv.result or conv.image)
    if any(len(each) != len(conv.image) for each in sizes):
        raise NotAProblem(NOT_ITS_FORM)
    if conv.groups < 1 or conv.channels % conv.groups or conv.features % conv.groups:
        raise NotAProblem(NOT_ITS_FORM)
    (layout,) = conv.layouts
    if layout not in _LAST and layout not in ("NCHW", "NCDHW"):
        raise unknown("the layout", layout)


def _operands(conv: _Convolution) -> tuple[tuple[Shape, ...], Shape]:
    """The tensors that are given, in the order of Inductor's choices (PyTorch 2.13,
    kernel/conv.py), and the sizes of the result of a backward one."""
    given = (conv.images, conv.channels, *conv.image)
    if conv.direction == "F":
        weight = (conv.features, conv.channels // conv.groups, *conv.filter)
        return (given, weight), ()
    image = (conv.images, conv.features, *(conv.result or _folded_from(conv)))
    weight = (conv.channels, conv.features // conv.groups, *conv.filter)
    return ((given, weight), image) if conv.direction == "B" else ((image, given), weight)


def _folded_from(conv: _Convolution) -> Shape:
    """The image that a forward convolution without steps was given. Raises NotAProblem."""
    if set(conv.stride) != {1}:
        raise NotAProblem(_OPEN)
    found = zip(conv.image, conv.filter, conv.padding, conv.dilation, strict=True)
    return tuple(size + dilation * (filter - 1) - 2 * pad for size, filter, pad, dilation in found)


def _found(found: re.Match[str]) -> _Convolution:
    channels, *image = _numbers(found[1], "-")
    features, *result = _numbers(found[3], "-")
    groups = _GROUPS.fullmatch(found[13])
    if found[13] and groups is None:
        raise NotAProblem(_CASTS)
    padding, stride, dilation = (_numbers(found[at], "x") for at in (5, 6, 7))
    return _Convolution(
        direction=found[12],
        images=int(found[4]),
        channels=channels,
        image=tuple(image),
        features=features,
        result=tuple(result),
        filter=_numbers(found[2], "x"),
        padding=padding,
        stride=stride,
        dilation=dilation,
        groups=int(groups[1]) if groups else 1,
        bias=found[8] != "0",
        layouts=frozenset((found[9], *(found[10] or "").split("-")[1:])),
        type=found[11],
    )


def _tuned(found: re.Match[str]) -> _Convolution:
    dims, channels, *rest = _numbers(found[1][:-1], "x")

    def sizes(at: int) -> Shape:
        height, width, depth = rest[at : at + 3]
        return (height, width) if dims == 2 else (depth, height, width)

    return _Convolution(
        direction=found[4],
        images=rest[7],
        channels=channels,
        image=sizes(0),
        features=rest[6],
        result=None,
        filter=sizes(3),
        padding=sizes(8),
        stride=sizes(11),
        dilation=sizes(14),
        groups=rest[18],
        bias=rest[17] != 0,
        layouts=frozenset((found[2],)),
        type=found[3],
    )


def _numbers(text: str, between: str) -> Shape:
    return tuple(map(int, text.split(between)))


def _strides(shape: Shape, channels_last: bool) -> Shape:
    """Of a tensor without gaps."""
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for at in reversed(order):
        strides[at] = step
        step *= shape[at]
    return tuple(strides)
