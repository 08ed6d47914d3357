"""Products with factors that are computed where they are loaded, and calls to try them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy
import torch
from hypothesis import strategies as st

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.expressions import ChainBuilder, Value
from backend.templates.fusion import FactorSource, Prologue, place_value
from backend.templates.operand import DType, Expr, Operand
from backend.templates.problem import GemmProblem
from backend.templates.rendering import Rendered, render
from tests.support.template_lab import Kernel, Memory, Run, check_drawn, memory_for

M, N, K, B, P = sympy.symbols("m n k b p", integer=True, positive=True)


@dataclass(frozen=True)
class Stored:
    """A source: what it depends on, how many neighbours along K share an element, after how many
    lines and places along K it begins anew, what it holds.

    `bits` is how many the mantissas of its floats have, so that the products of a test are exact.
    """

    name: str
    dtype: DType
    lines: bool = True
    k: bool = True
    group: int = 1
    bits: int = 8
    periods: tuple[int, int] = (0, 0)

    def values(self, sizes: tuple[int, ...]) -> torch.Tensor:
        dtype = getattr(torch, self.dtype)
        if dtype.is_floating_point:
            mantissa, exponent = torch.frexp(torch.randn(sizes))
            scale = 2.0**self.bits
            return torch.ldexp((mantissa * scale).round() / scale, exponent).to(dtype)
        least = -128 if self.dtype == "int8" else 0
        return torch.randint(least, least + 256, sizes, dtype=torch.int32).to(dtype)


@dataclass(frozen=True)
class Computed:
    """How a factor is computed: in steps and in torch, of the sources' elements, and of k."""

    name: str
    sources: tuple[Stored, ...]
    steps: Callable[..., Value]
    value: Callable[..., torch.Tensor]

    def prologue(self, sources: tuple[FactorSource, ...]) -> Prologue:
        chain = ChainBuilder()
        loads = [chain.load(stored.name, stored.dtype) for stored in self.sources]
        result = self.steps(chain, *loads)
        return Prologue(sources, chain.steps, result.step)


def _scaled(chain: ChainBuilder, w: Value, s: Value) -> Value:
    return chain.apply("mul", chain.cast(w, "float32"), s)


def _grouped(chain: ChainBuilder, w: Value, s: Value, z: Value) -> Value:
    wide = chain.apply("sub", chain.cast(w, "int16"), chain.cast(z, "int16"))
    return _scaled(chain, wide, s)


def _nibble(chain: ChainBuilder, w: Value, s: Value, z: Value) -> Value:
    return _grouped(chain, _bits(chain, w, place_value(chain, "k", 1, 2)), s, z)


def _bits(chain: ChainBuilder, w: Value, high: Value) -> Value:
    shift = chain.apply("mul", high, chain.constant(4, "int32"))
    low = chain.apply("bitwise_right_shift", w, chain.cast(shift, "uint8"))
    return chain.apply("bitwise_and", low, chain.constant(15, "uint8"))


def _dequantized(
    w: torch.Tensor, s: torch.Tensor, z: torch.Tensor, k: torch.Tensor
) -> torch.Tensor:
    return ((w.int() >> 4 * (k % 2)) % 16 - z.int()) * s.float()


def _one_more(chain: ChainBuilder, x: Value) -> Value:
    return chain.apply("add", x, chain.constant(1, "float32"))


CAST = Computed("cast", (Stored("x", "float32", bits=24),), lambda c, x: x, lambda x, k: x)
CAST_B = Computed("cast b", (Stored("y", "float32", bits=24),), lambda c, y: y, lambda y, k: y)
INT8 = Computed(
    "int8",
    (Stored("w", "int8"), Stored("s", "bfloat16", k=False)),
    _scaled,
    lambda w, s, k: w.float() * s.float(),
)
GROUPS = Computed(
    "groups",
    (Stored("w", "int8"), Stored("s", "bfloat16", group=32), Stored("z", "int8", group=32)),
    _grouped,
    lambda w, s, z, k: (w.float() - z.float()) * s.float(),
)
ODD_GROUPS = replace(
    GROUPS,
    name="odd groups",
    sources=tuple(replace(s, group=min(s.group, 12)) for s in GROUPS.sources),
)
NIBBLES = Computed(
    "nibbles",
    (
        Stored("w", "uint8", group=2),
        Stored("s", "float16", group=64),
        Stored("z", "uint8", group=64),
    ),
    _nibble,
    _dequantized,
)
HALVES = Computed(
    "halves",
    (Stored("w", "uint8", periods=(0, 64)), Stored("s", "float16", group=32)),
    lambda c, w, s: _scaled(c, _bits(c, w, place_value(c, "k", 64, 2)), s),
    lambda w, s, k: ((w.int() >> 4 * (k // 64 % 2)) % 16) * s.float(),
)
HALF_LINES = Computed(
    "half lines",
    (Stored("w", "uint8", periods=(16, 0)), Stored("s", "float16", k=False)),
    lambda c, w, s: _scaled(c, _bits(c, w, place_value(c, "line", 16, 2)), s),
    lambda w, s, k: (
        ((w.int() >> 4 * (torch.arange(w.shape[1])[:, None] // 16 % 2)) % 16) * s.float()
    ),
)
NORM = Computed(
    "norm",
    (
        Stored("x", "float16", bits=11),
        Stored("r", "float32", k=False),
        Stored("g", "float16", lines=False, bits=4),
    ),
    lambda c, x, r, g: c.apply("mul", c.apply("mul", x, r), g),
    lambda x, r, g, k: x.float() * r * g.float(),
)
ONE = Computed("one", (Stored("x", "float32", bits=24),), _one_more, lambda x, k: x + 1)
ONE_B = Computed("one b", (Stored("y", "float32", bits=24),), _one_more, lambda y, k: y + 1)
"""Of nothing they make something: what is beyond an edge has to be zero all the same."""


@dataclass(frozen=True)
class Case:
    """`vector` is what strides are a multiple of, in elements."""

    dtype: DType
    a: Computed | None = None
    b: Computed | None = None
    a_k_fast: bool = True
    b_k_fast: bool = True
    vector: int = 8
    batched: bool = False
    out_row_major: bool = True

    @property
    def name(self) -> str:
        layout = "".join(
            "NT"[x] for x in (not self.a_k_fast, self.b_k_fast, not self.out_row_major)
        )
        names = [x.name for x in (self.a, self.b) if x is not None]
        return f"{'-'.join(names)}-{self.dtype}{layout}{self.vector}"

    def problem(self) -> GemmProblem:
        """With symbols for everything that comes at run time."""

        def operand(name: str, rows: Expr, cols: Expr, row_major: bool) -> Operand:
            ld = self.vector * P
            sizes, strides = (rows, cols), (ld, 1) if row_major else (1, ld)
            if self.batched:
                sizes, strides = (B, *sizes), (self.vector * M * P, *strides)
            return Operand(name, self.dtype, sizes, strides)

        return GemmProblem(
            operand("X", M, K, self.a_k_fast),
            operand("W", K, N, not self.b_k_fast),
            operand("Y", M, N, self.out_row_major),
            a_prologue=self._prologue(self.a, self.a_k_fast),
            b_prologue=self._prologue(self.b, self.b_k_fast),
        )

    def _prologue(self, computed: Computed | None, k_fast: bool) -> Prologue | None:
        if computed is None:
            return None
        ld = self.vector * P
        sources = []
        for stored in computed.sources:
            line, k = (ld, 1) if k_fast else (1, ld)
            strides = (ld if self.batched else 0, line * int(stored.lines), k * int(stored.k))
            operand = Operand(stored.name, stored.dtype, (B, M, K), strides)
            sources.append(FactorSource(operand, stored.group, stored.periods))
        return computed.prologue(tuple(sources))


@dataclass(frozen=True)
class Binary:
    case: Case
    config: GemmConfig | SkinnyConfig
    entry: str = "rt_kernel"

    @property
    def name(self) -> str:
        c = self.config
        if isinstance(c, GemmConfig):
            return f"gemm-{c.block_m}x{c.block_n}x{c.block_k}-{c.unit}-{self.case.name}"
        return f"skinny-{c.rows}x{c.cols}-{c.waves_n}x{c.waves_k}-{self.case.name}"

    def render(self) -> Rendered:
        return render(self.case.problem(), self.config, self.entry)


_RAGGED = (1, 2, 3, 5, 16, 31, 37, 64, 67, 97)
_GAPS = st.sampled_from([0, 0, 1, 3])


@st.composite
def runs(draw: st.DrawFn, binary: Binary) -> Run:
    """A call with drawn sizes, padding, broadcasts over the batch, split and numbers."""
    case, config = binary.case, binary.config
    few = st.integers(1, 16) if isinstance(config, SkinnyConfig) else st.sampled_from(_RAGGED)
    many, depth = st.sampled_from(_RAGGED), st.sampled_from([*_RAGGED, 0, 128, 192, 257, 300])
    m, n, k = draw(few), draw(many), draw(depth)
    if not case.out_row_major:
        m, n = n, m
    batch = draw(st.sampled_from([1, 2, 3])) if case.batched else 1
    torch.manual_seed(draw(st.integers(0, 2**31)))
    numbers = {"M": m, "N": n, "K": k, "B": batch, "split_k": draw(st.sampled_from([1, 2, 3]))}
    tensors: dict[str, torch.Tensor] = {}

    def pad(size: int) -> int:
        return -(-max(size, 1) // case.vector) * case.vector + case.vector * draw(_GAPS)

    def plain(name: str, suffix: str, rows: int, cols: int, row_major: bool) -> Memory:
        ld = pad(cols if row_major else rows)
        step = pad(ld * max(1, rows if row_major else cols))
        sizes, strides = (rows, cols), (ld, 1) if row_major else (1, ld)
        if case.batched:
            sizes, strides = (batch, *sizes), (step, *strides)
        memory, tensors[name] = memory_for(getattr(torch, case.dtype), sizes, strides)
        numbers.update({f"ld_{suffix}": ld, f"batch_{suffix}": step})
        return memory

    def computed(by: Computed, lines: int, k_fast: bool) -> torch.Tensor:
        """The factor as (batch, lines, K), in the type in which it is multiplied."""
        elements = []
        for stored in by.sources:
            rows, deep = (
                min(size, period or size)
                for size, period in zip((lines, k), stored.periods, strict=True)
            )
            sizes = (
                batch,
                rows if stored.lines else 1,
                -(-deep // stored.group) if stored.k else 1,
            )
            ld = pad(sizes[2] if k_fast else sizes[1])
            step = pad(ld * max(1, sizes[1] if k_fast else sizes[2])) if case.batched else 0
            strides = (step, ld, 1) if k_fast else (step, 1, ld)
            _, tensor = memory_for(getattr(torch, stored.dtype), sizes, strides)
            tensors[stored.name] = tensor.copy_(stored.values(sizes))
            of = zip(("batch", "line", "k"), (True, stored.lines, stored.k), strides, strict=True)
            numbers.update({f"{stored.name}_{what}": step for what, any, step in of if any})
            if stored.k:
                tensor = tensor.repeat_interleave(stored.group, 2)[..., :deep]
            for dim, size, period in zip((1, 2), (lines, k), stored.periods, strict=True):
                if period:
                    tensor = tensor.index_select(dim, torch.arange(size) % period)
            elements.append(tensor.expand(batch, lines, k))
        value = by.value(*elements, k=torch.arange(k))
        factor = value.to(getattr(torch, case.dtype))
        return factor if case.batched else factor[0]

    if case.a is None:
        plain("X", "a", m, k, case.a_k_fast)
        tensors["X"].copy_(torch.randn(tensors["X"].shape))
    else:
        tensors["X"] = computed(case.a, m, case.a_k_fast)
    if case.b is None:
        plain("W", "b", k, n, not case.b_k_fast)
        tensors["W"].copy_(torch.randn(tensors["W"].shape))
    else:
        tensors["W"] = computed(case.b, n, case.b_k_fast).transpose(-1, -2)
    return Run(tensors, numbers, plain("Y", "out", m, n, case.out_row_major))


def check(kernel: Kernel, binary: Binary, number: int = 0) -> None:
    """The kernel gives the right numbers for every drawn call. Raises AssertionError."""
    check_drawn(kernel, runs(binary), binary.config.description, number=number)
