"""mm, addmm, bmm and baddbmm in Triton."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sympy

from backend.errors import ConfigError, UnsupportedProblemError
from backend.templates.expressions import ChainBuilder
from backend.templates.fusion import Access, Epilogue, Prologue, Store, plain
from backend.templates.operand import ACC as SUMS
from backend.templates.operand import LARGEST_SIZE, DType, Expr, Operand
from backend.templates.problem import GemmProblem, broadcast_strides, check_factors, check_sums
from backend.templates.triton.choice import (
    RenderedKernel,
    TritonChoice,
    TritonGemmConfig,
    TritonTemplate,
    module_text,
)
from backend.templates.triton.kernel import DTYPES, TritonTemplateKernel, ceildiv, divides, symbols

IndexDtype = Literal["int32", "int64"]


@dataclass(frozen=True, slots=True)
class TritonGemm:
    """`out = epilogue(a @ b)`, in `acc` until the store, for any strides.

    `a` is (M, K) or (B, M, K), `b` (K, N) or (B, K, N), `out` (M, N) or (B, M, N). An `epilogue`
    has its own stores, and `out` is stored only if one of them has that name. A factor with a
    prologue is not a tensor, but computed while loading. The product of `second`, with the types
    and sizes of a and b, is added. Raises UnsupportedProblemError.
    """

    a: Operand
    b: Operand
    out: Operand
    epilogue: Epilogue | None = None
    a_prologue: Prologue | None = None
    b_prologue: Prologue | None = None
    second: tuple[Operand, Operand] | None = None

    def __post_init__(self) -> None:
        check_factors(self.a, self.b, self.out)
        check_sums(self.acc, self.out)
        accesses = self.epilogue.accesses if self.epilogue else ()
        if any(source.dtype.startswith("float8") for source in self.sources):
            raise UnsupportedProblemError("a factor computed from floats of 8 bits")
        tensors: list[Operand | Access] = [self.a, self.b, self.out, *accesses, *self.sources]
        for factor, other in zip((self.a, self.b), self.second or (), strict=False):
            if (factor.dtype, factor.sizes) != (other.dtype, other.sizes):
                raise UnsupportedProblemError(
                    f"{other.name} differs from {factor.name} in type or size"
                )
        for tensor in tensors:
            if tensor.dtype not in DTYPES:
                raise UnsupportedProblemError(f"{tensor.name} is {tensor.dtype}")
        if any(access.dtype.startswith("float8") for access in accesses):
            raise UnsupportedProblemError("an epilogue with numbers of 8 bits")
        for what, left, right in self._equal_sizes():
            if left != right and not symbols(left) and not symbols(right):
                raise UnsupportedProblemError(f"{what} is {left} and {right}")

    @property
    def prologues(self) -> dict[str, Prologue]:
        """The prologues by the name of the factor in the kernel."""
        named = zip("AB", (self.a_prologue, self.b_prologue), strict=True)
        return {name: prologue for name, prologue in named if prologue is not None}

    @property
    def sources(self) -> tuple[Operand, ...]:
        """The tensors from which factors are computed."""
        return tuple(x.operand for p in self.prologues.values() for x in p.sources)

    @property
    def factors(self) -> dict[str, Operand]:
        """The factors by their names in the kernel."""
        return dict(zip("ABCD", (self.a, self.b, *(self.second or ())), strict=False))

    @property
    def plain(self) -> dict[str, str]:
        """The factors that are tensors: their names, and those of the parameters."""
        named = self.factors.items()
        return {x.name: name.lower() for name, x in named if name not in self.prologues}

    def _equal_sizes(self) -> list[tuple[str, Expr, Expr]]:
        a, b, out = self.a.sizes, self.b.sizes, self.out.sizes
        pairs = [("M", a[-2], out[-2]), ("N", b[-1], out[-1]), ("K", a[-1], b[-2])]
        if len(out) == 3:
            pairs += [("the batch", a[0], out[0]), ("the batch", b[0], out[0])]
        return pairs

    @property
    def acc(self) -> DType:
        """The type of sums, and of partial sums."""
        return SUMS[self.a.dtype]

    @property
    def batched(self) -> bool:
        return len(self.out.sizes) == 3 and self.out.sizes[0] != 1

    @property
    def batch(self) -> Expr:
        return self.out.sizes[0] if len(self.out.sizes) == 3 else 1


def from_gemm(problem: GemmProblem) -> TritonGemm:
    """Return it with an epilogue of bias and activation. Raises UnsupportedProblemError."""
    chain = ChainBuilder()
    value = chain.value(problem.acc)
    if problem.alpha != 1:
        value = chain.apply("mul", value, chain.constant(problem.alpha, problem.acc))
    loads: tuple[Access, ...] = ()
    for scale in problem.scales:
        loads += (_access(scale),)
        value = chain.apply("mul", value, chain.load(scale.name, scale.dtype))
    if problem.bias is not None and problem.beta != 0:
        loads += (replace(_access(problem.bias), name="bias"),)
        added = chain.load("bias", problem.bias.dtype)
        if problem.beta != 1:
            added = chain.apply("mul", added, chain.constant(problem.beta, problem.acc))
        value = chain.apply("add", value, added)
    if problem.activation != "none":
        value = chain.apply(problem.activation, value)
    last = problem.epilogue or _plain(problem.out, problem.acc)
    values = chain.extend(last.steps, value)
    stores = tuple(Store(store.to, values[store.step].step) for store in last.stores)
    epilogue = Epilogue(chain.steps, stores, loads + last.loads)
    prologues = problem.a_prologue, problem.b_prologue
    return TritonGemm(problem.a, problem.b, problem.out, epilogue, *prologues, problem.second)


def _access(tensor: Operand) -> Access:
    """Return the access to a tensor at each element of the result."""
    batch, row, col = broadcast_strides(tensor, 3)
    return Access(tensor.name, tensor.dtype, (batch, row, col))


def _plain(out: Operand, acc: DType) -> Epilogue:
    return plain(_access(out), acc)


def index_dtype(problem: TritonGemm) -> IndexDtype:
    """Return int32 if it can certainly address every operand, else int64."""
    sizes = _padded(problem.out).sizes
    accesses = problem.epilogue.accesses if problem.epilogue else ()
    operands = (
        *problem.factors.values(),
        problem.out,
        *problem.sources,
        *(Operand(access.name, access.dtype, sizes, access.strides) for access in accesses),
    )
    return "int32" if all(_reach(operand) < 2**31 for operand in operands) else "int64"


def generate(
    problem: TritonGemm,
    config: TritonGemmConfig,
    arch: str,
    *,
    index: IndexDtype | None = None,
) -> TritonChoice:
    """Render one choice. `arch` only determines which launch options Triton knows.

    `index` is the integer type of offsets; None uses `index_dtype`, which for dynamic shapes is the
    slower int64: a caller that guards on the sizes may pass int32. Raises ConfigError.
    """
    dtype = index or index_dtype(problem)
    kernels = _split(problem, config, arch, dtype) if config.split_k > 1 else None
    kernels = kernels or (_product(problem, config, arch, dtype, _padded(problem.out)),)
    last = problem.epilogue or _plain(problem.out, problem.acc)
    used = [a.source for k in kernels for a in k.arguments if a.kind == "extra"]
    extras = tuple(dict.fromkeys(used))
    outputs = tuple(store.to.name for store in last.stores)
    parameters = {("input", name): parameter for name, parameter in problem.plain.items()}
    names = [factor.name for factor in problem.factors.values()]
    if len(set(names)) < len(names):
        raise UnsupportedProblemError(f"factors named {', '.join(names)}: name them apart")
    parameters |= {("extra", name): f"in_{name}" for name in extras}
    parameters |= {
        ("output", name): "out" if name == problem.out.name else f"out_{name}" for name in outputs
    }
    workspace = _partials(problem, config) if config.split_k > 1 else None
    if workspace is not None:
        parameters |= {(kind, workspace.name): "workspace" for kind in ("output", "input")}
    source, sizes = module_text(kernels, parameters)
    return TritonChoice(
        name="rocm_triton_bmm" if len(problem.out.sizes) == 3 else "rocm_triton_mm",
        op="bmm" if len(problem.out.sizes) == 3 else "mm",
        arch=arch,
        config=config,
        constants=_constants(problem, config, dtype),
        kernels=kernels,
        source=source,
        inputs=tuple(problem.plain),
        extras=extras,
        outputs=outputs,
        sizes=sizes,
        workspace=workspace,
        limits=_limits(problem, config, kernels),
    )


_MOST_THREADS, _WIDEST_WAVE = 2**32 - 1, 64
"""AMD counts the threads of a launch in 32 bits."""


def _limits(
    problem: TritonGemm, config: TritonGemmConfig, kernels: Sequence[RenderedKernel]
) -> tuple[tuple[Expr, int], ...]:
    """Return the sizes up to which tiles fit into 32 bits, and programs into one launch."""
    m, n, k = *problem.out.sizes[-2:], problem.a.sizes[-1]
    limits = [(size, LARGEST_SIZE) for size in (m, n, k)]
    tiles = [(config.block_m, config.block_n, config.split_k), (_SUM_BLOCK, _SUM_BLOCK, 1)]
    for (rows, cols, times), kernel in zip(tiles, kernels, strict=False):
        most = _MOST_THREADS // (_WIDEST_WAVE * kernel.options["num_warps"]) * rows * cols
        covered = (sympy.sympify(m) + rows - 1) * (sympy.sympify(n) + cols - 1)
        limits.append((covered * problem.batch * times, most))
    return tuple(limits)


@functools.cache
def _template(name: str) -> TritonTemplate:
    return TritonTemplate.from_file(name)


def _product(
    problem: TritonGemm, config: TritonGemmConfig, arch: str, dtype: IndexDtype, out: Operand
) -> RenderedKernel:
    """Return the kernel that multiplies; `out` is the result, or the partial sums of the splits."""
    kernel = TritonTemplateKernel(
        "triton_gemm",
        [_padded(factor) for factor in problem.factors.values()],
        out,
        epilogue=problem.epilogue if config.split_k == 1 else None,
        prologues=problem.prologues,
        defines=config.defines(),
        index_dtype=dtype,
    )
    even_m, even_n, even_k = _even(problem, config)
    return _template("gemm").generate(
        kernel,
        _tiles(problem, config.block_m, config.block_n) * config.split_k,
        config.options(arch),
        FACTORS=tuple(problem.factors),
        ACC=problem.acc,
        BATCHED=problem.batched,
        SPLIT_K=config.split_k,
        NUM_XCDS=config.xcds,
        A_MASK=_mask(("m < M", not even_m), ("k_a < K", not even_k)),
        B_MASK=_mask(("k_b < K", not even_k), ("n < N", not even_n)),
        OUT_MASK=_mask(("m < M", not even_m), ("n < N", not even_n)),
    )


_SUM_BLOCK = 32
"""Rows and columns that one program of the second kernel adds up: enough to fill wide loads."""


def _split(
    problem: TritonGemm, config: TritonGemmConfig, arch: str, dtype: IndexDtype
) -> tuple[RenderedKernel, ...]:
    """Return two kernels: each split writes its own partial sums, the second adds them. Without
    atomics, the result is the same in every run, and the epilogue gets the whole sum."""
    partials = _partials(problem, config)
    if dtype == "int32" and _reach(partials) >= 2**31:
        raise ConfigError(f"split_k {config.split_k}: the partial sums need 64-bit offsets")
    out = _padded(problem.out)
    kernel = TritonTemplateKernel(
        "triton_splitk_sum",
        [partials],
        out,
        epilogue=problem.epilogue,
        defines={"BLOCK_M": _SUM_BLOCK, "BLOCK_N": _SUM_BLOCK, "SPLIT_K": config.split_k},
        index_dtype=dtype,
    )
    options = replace(config, num_warps=4, num_stages=1).options(arch)
    total = _template("splitk_sum").generate(
        kernel, _tiles(problem, _SUM_BLOCK, _SUM_BLOCK), options, ACC=problem.acc
    )
    return _product(problem, config, arch, dtype, partials), total


def _partials(problem: TritonGemm, config: TritonGemmConfig) -> Operand:
    """Return the sums of each split, (split, batch, M, N), contiguous."""
    sizes = (config.split_k, problem.batch, *problem.out.sizes[-2:])
    strides = [math.prod(map(sympy.sympify, sizes[at + 1 :])) for at in range(4)]
    return Operand("workspace", problem.acc, sizes, tuple(strides))


def _padded(operand: Operand) -> Operand:
    """Return the operand with three dimensions, missing ones in front; size 1 broadcasts."""
    missing = 3 - len(operand.sizes)
    sizes = (1,) * missing + operand.sizes
    return replace(operand, sizes=sizes, strides=broadcast_strides(operand, 3))


def _tiles(problem: TritonGemm, block_m: int, block_n: int) -> sympy.Expr:
    m, n = problem.out.sizes[-2:]
    return sympy.sympify(problem.batch) * ceildiv(m, block_m) * ceildiv(n, block_n)


def _even(problem: TritonGemm, config: TritonGemmConfig) -> tuple[bool, bool, bool]:
    """Return whether blocks cover M, N and K exactly, whatever the symbols are."""
    m, n = problem.out.sizes[-2:]
    return (
        divides(config.block_m, m),
        divides(config.block_n, n),
        divides(config.block_k, problem.a.sizes[-1]),
    )


def _mask(*parts: tuple[str, bool]) -> str | None:
    needed = [f"({text})" for text, needs_mask in parts if needs_mask]
    return " & ".join(needed) or None


def _reach(operand: Operand) -> float:
    """Return the furthest element from the first, or infinity if that depends on symbols."""
    dims: Sequence[tuple[Expr, Expr]] = list(zip(operand.sizes, operand.strides, strict=True))
    if any(symbols(size) or symbols(stride) for size, stride in dims):
        return math.inf
    return sum(max(0, int(size) - 1) * abs(int(stride)) for size, stride in dims)


def _constants(
    problem: TritonGemm, config: TritonGemmConfig, dtype: IndexDtype
) -> tuple[tuple[str, str], ...]:
    even = dict(zip(("EVEN_M", "EVEN_N", "EVEN_K"), _even(problem, config), strict=True))
    constants = {"ACC_TYPE": f"'tl.{problem.acc}'", "INDEX_DTYPE": f"'tl.{dtype}'"}
    return tuple((constants | {name: str(value) for name, value in even.items()}).items())
