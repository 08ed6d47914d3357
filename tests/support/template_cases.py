"""Which binaries the template tests build, and the calls that they are tried with."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sympy
import torch
from hypothesis import strategies as st

from backend.model.ops import ITEM_BYTES
from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.legality import takes_boxes
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation, GemmProblem
from backend.templates.rendering import Rendered, render
from backend.toolchain.target import Target
from backend.toolchain.targets import DEFAULT_TARGETS
from tests.support.template_lab import Kernel, Memory, Run, check_drawn, memory_for
from tools.resources_table import SHAPES

M, N, K, B, P = sympy.symbols("m n k b p", integer=True, positive=True)


@dataclass(frozen=True)
class Class:
    """What a binary is compiled for: all but the sizes. `vector` is what the strides are a multiple
    of, in elements."""

    dtype: DType
    a_k_fast: bool = True
    b_k_fast: bool = False
    vector: int = 8
    batched: bool = False
    out_row_major: bool = True
    bias: bool = False
    activation: Activation = "none"
    alpha: float = 1.0
    beta: float = 1.0
    out: DType | None = None
    scales: Literal["none", "one", "lines"] = "none"
    """Of the factors: one number each, or one a row of the left and a column of the right one."""
    second: bool = False
    fast_sums: bool = False
    """Of fp8. Then factors are small whole numbers, of which every unit's sums are exact."""

    @property
    def bias_dtype(self) -> DType:
        return self.out if self.out and self.dtype.startswith("float8") else self.dtype

    def problem(self) -> GemmProblem:
        """With symbols for everything that comes at run time."""
        ld = self.vector * P

        def operand(name: str, dtype: DType, rows: Any, cols: Any, row_major: bool) -> Operand:
            sizes, strides = (rows, cols), (ld, 1) if row_major else (1, ld)
            if self.batched:
                sizes, strides = (B, *sizes), (self.vector * M * P, *strides)
            return Operand(name, dtype, sizes, strides)

        bias = Operand("bias", self.bias_dtype, (N,), (P,)) if self.bias else None
        scales: tuple[Operand, ...] = ()
        if self.scales == "one":
            one = Operand("scale_a", "float32", (1,), (1,))
            scales = one, Operand("scale_b", "float32", (), ())
        elif self.scales == "lines":
            rows = Operand("scale_a", "float32", (M, 1), (P, 1))
            scales = rows, Operand("scale_b", "float32", (1, N), (N, 1))
        second = (
            operand("C", self.dtype, M, K, self.a_k_fast),
            operand("D", self.dtype, K, N, not self.b_k_fast),
        )
        return GemmProblem(
            operand("X", self.dtype, M, K, self.a_k_fast),
            operand("W", self.dtype, K, N, not self.b_k_fast),
            operand("Y", self.out or self.dtype, M, N, self.out_row_major),
            bias,
            self.activation,
            self.alpha,
            self.beta,
            scales=scales,
            second=second if self.second else None,
            fast_sums=self.fast_sums,
        )


CLASSES = (
    Class("float16"),
    Class("float32", bias=True, activation="silu", alpha=0.5, beta=2.0),
    Class("float16", b_k_fast=True, bias=True, activation="gelu"),
    Class("float32", b_k_fast=True, vector=2, batched=True, bias=True),
    Class("bfloat16", a_k_fast=False, vector=2, bias=True, activation="relu"),
    Class("float32", a_k_fast=False, b_k_fast=True, vector=1),
    Class("bfloat16", b_k_fast=True, batched=True, alpha=-1.5),
    Class("float32", out_row_major=False, activation="gelu_tanh"),
    Class("float16", a_k_fast=False, batched=True, bias=True, activation="gelu_tanh"),
    Class("float32", b_k_fast=True),
    Class("float16", vector=1, out_row_major=False, bias=True),
    Class("float32", a_k_fast=False, vector=4, bias=True, beta=0.0, activation="relu"),
    Class("bfloat16", out_row_major=False, bias=True, activation="silu", beta=-0.5),
    Class("float16", a_k_fast=False, b_k_fast=True, vector=4, out="float32"),
)


@dataclass(frozen=True)
class Binary:
    problem_class: Class
    config: GemmConfig | SkinnyConfig

    def render(self) -> Rendered:
        return render(self.problem_class.problem(), self.config, "rt_kernel")

    @property
    def name(self) -> str:
        c, k = self.config, self.problem_class
        lay = "".join("NT"[x] for x in (not k.a_k_fast, k.b_k_fast, not k.out_row_major))
        kind = f"{k.dtype}{lay}{k.vector}"
        if isinstance(c, GemmConfig):
            tile = f"{c.block_m}x{c.block_n}x{c.block_k}-{c.wave_m}x{c.wave_n}"
            return f"gemm-{tile}-{c.unit}-stages{c.stages}-{kind}"
        ahead = f"unroll{c.unroll}" if c.stages == 1 else f"stages{c.stages}"
        return f"skinny-{c.unit}-{c.rows}x{c.cols}-{c.waves_n}x{c.waves_k}-{ahead}-{kind}"


def _key(offered: Binary) -> tuple[Any, ...]:
    """What makes two configs different programs: alignment and layout are the class's part."""
    c, item = offered.config, ITEM_BYTES[offered.problem_class.dtype]
    if isinstance(c, GemmConfig):
        if c.unit == "wgmma" and not takes_boxes(c, offered.problem_class.problem()):
            return "gemm", "wgmma", "narrow copies"  # by threads, as those of mma: one will do
        tile = (c.block_m, c.block_n, c.block_k, c.wave_m, c.wave_n)
        return "gemm", *tile, c.unit, c.kpack, c.stages, item
    if c.unit != "fma":
        k_fast = offered.problem_class.b_k_fast
        return "skinny", c.unit, c.waves_k, c.cols, c.vec_b, c.stages, k_fast
    lanes = c.cols if offered.problem_class.b_k_fast else c.cols // c.vec_b
    return "skinny", c.rows, c.waves_n, c.waves_k, lanes, offered.problem_class.b_k_fast


def _offered(targets: Sequence[Target]) -> Iterable[Binary]:
    for target in targets:
        for sizes in SHAPES:
            for problem_class in CLASSES:
                problem = problem_class.problem()
                for gemm in gemm_configs(problem, target, sizes, budget=99):
                    yield Binary(problem_class, gemm.binary)
                for skinny in skinny_configs(problem, target, sizes, budget=99):
                    yield Binary(problem_class, skinny.binary)


@functools.cache
def binaries(targets: Sequence[Target] = DEFAULT_TARGETS) -> tuple[Binary, ...]:
    """Every tile and every skinny arrangement that any target is offered, each in one of the
    classes that it is offered for, in turn, so that all classes come up."""
    groups: dict[tuple[Any, ...], dict[Binary, None]] = {}
    for offered in _offered(targets):
        groups.setdefault(_key(offered), {})[offered] = None
    chosen = []
    for number, key in enumerate(sorted(groups, key=str)):
        candidates = list(groups[key])
        chosen.append(candidates[number * 7 % len(candidates)])
    return tuple(chosen)


_RAGGED = (1, 2, 3, 5, 13, 16, 17, 31, 37, 61, 64, 67, 97, 131)


def _sizes(tile: int) -> st.SearchStrategy[int]:
    """Small and ragged ones, and those at the edge of a tile; seldom none at all."""
    near = (tile - 1, tile, tile + 1, tile + 3, tile + 8)
    return st.sampled_from([*_RAGGED, *(2 * [n for n in near if n > 0]), 0])


def _size_strategies(binary: Binary) -> tuple[st.SearchStrategy[int], ...]:
    """Of M, N and K."""
    config = binary.config
    if isinstance(config, SkinnyConfig):
        rows, cols = st.integers(1, max(16, config.rows + 1)), _sizes(config.cols * config.waves_n)
        depth = st.sampled_from([*_RAGGED, 0, 255, 256, 257, 300, 512, 515, 1031])
    else:
        rows, cols = _sizes(config.block_m), _sizes(config.block_n)
        block = config.block_k
        depths = [2 * block, 2 * block + 1, 4 * block - 3, 300]
        # Each buffer of a ring twice and more.
        depths += 2 * [(2 * config.stages + 1) * block - 3] if config.pipelined else []
        depth = _sizes(block) | st.sampled_from(depths)
    return (rows, cols, depth) if binary.problem_class.out_row_major else (cols, rows, depth)


def _rounded(size: int, to: int) -> int:
    return -(-max(size, 1) // to) * to


@st.composite
def runs(draw: st.DrawFn, binary: Binary, near: tuple[int, int, int] | None = None) -> Run:
    """A call with drawn sizes, padding, broadcasts, split and numbers; with `near`, M, N and K are
    a little above that."""
    c = binary.problem_class
    if near is None:
        m, n, k = map(draw, _size_strategies(binary))
    else:
        m, n, k = (size + draw(st.integers(0, 9)) for size in near)
    batch = draw(st.sampled_from([1, 2, 2, 3, 3, 0])) if c.batched else 1
    torch.manual_seed(draw(st.integers(0, 2**31)))
    numbers = {"M": m, "N": n, "K": k, "B": batch, "split_k": draw(st.sampled_from([1, 2, 3, 16]))}
    tensors: dict[str, torch.Tensor] = {}
    memories: dict[str, Memory] = {}
    for name, suffix, rows, cols, row_major, dtype in (
        ("X", "a", m, k, c.a_k_fast, c.dtype),
        ("W", "b", k, n, not c.b_k_fast, c.dtype),
        ("Y", "out", m, n, c.out_row_major, c.out or c.dtype),
        ("C", "c", m, k, c.a_k_fast, c.dtype),
        ("D", "d", k, n, not c.b_k_fast, c.dtype),
    ):
        if name in ("C", "D") and not c.second:
            continue
        fast, slow = (cols, rows) if row_major else (rows, cols)
        ld = _rounded(fast, c.vector) + c.vector * draw(st.sampled_from([0, 0, 1, 3]))
        step = _rounded(ld * max(slow, 1), c.vector) + c.vector * draw(st.sampled_from([0, 1]))
        if name != "Y" and draw(st.booleans()):
            step = 0  # the same matrix for the whole batch
        sizes, strides = (rows, cols), (ld, 1) if row_major else (1, ld)
        if c.batched:
            sizes, strides = (batch, *sizes), (step, *strides)
        memories[name], tensors[name] = memory_for(getattr(torch, dtype), sizes, strides)
        if name != "Y":
            _fill(tensors[name])
            if c.fast_sums:
                tensors[name].copy_(torch.randint(-2, 3, tensors[name].shape))
        numbers |= {f"ld_{suffix}": ld, f"batch_{suffix}": step}
    if c.bias:
        numbers |= _add_bias(draw, c, (batch, m, n), tensors)
    if c.scales != "none":
        gap = draw(st.integers(1, 3))
        layouts = {"scale_a": ((1,), (1,)), "scale_b": ((), ())}
        if c.scales == "lines":
            layouts = {"scale_a": ((m, 1), (gap, 1)), "scale_b": ((1, n), (max(n, 1), 1))}
        for name, (sizes, strides) in layouts.items():
            _, tensors[name] = memory_for(torch.float32, sizes, strides)
            _fill(tensors[name])
        numbers["scale_a_row"] = gap
    return Run(tensors, numbers, memories["Y"])


def _fill(tensor: torch.Tensor) -> None:
    """Random values, each element of the memory written once."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0:
            tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    if tensor.dtype.is_floating_point:
        tensor.copy_(torch.randn(tensor.shape))
    else:
        limits = torch.iinfo(tensor.dtype)
        tensor.random_(limits.min, limits.max + 1)


def _add_bias(
    draw: st.DrawFn, c: Class, whole: tuple[int, int, int], tensors: dict[str, torch.Tensor]
) -> dict[str, int]:
    """A bias of any rank, broadcast by a missing dimension, by size 1 or by stride 0."""
    shape = whole if c.batched else whole[1:]
    rank = draw(st.integers(1, len(shape)))
    sizes = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in shape[-rank:])
    gap, step, strides = draw(st.integers(1, 2)), 1, []
    for n in reversed(sizes):
        flat = draw(st.integers(0, 4)) == 0
        strides.insert(0, 0 if flat else step * gap)
        step *= 1 if flat else max(n, 1) * gap
    _, bias = memory_for(getattr(torch, c.bias_dtype), sizes, tuple(strides))
    _fill(bias)
    whole_bias = bias.expand(shape)
    tensors["bias"] = whole_bias
    names = ("bias_batch", "bias_row", "bias_col")[-len(shape) :]
    return dict(zip(names, whole_bias.stride(), strict=True))


def check(
    kernel: Kernel,
    binary: Binary,
    shrink: bool = True,
    number: int = 0,
    near: tuple[int, int, int] | None = None,
    examples: int = 8,
) -> None:
    """The kernel gives the right numbers for every drawn call. Raises AssertionError."""
    check_drawn(
        kernel,
        runs(binary, near),
        binary.config.description,
        examples=examples,
        shrink=shrink,
        number=number,
    )
