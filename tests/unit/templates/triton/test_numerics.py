"""The Triton product against float64, in Triton's interpreter: no GPU takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.templates.operand import Expr, Operand
from backend.templates.problem import GemmProblem
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm, from_gemm, generate
from backend.templates.triton.heuristics import ARCHES, configs
from tests.support.chains import Function, Term, access, epilogue
from tests.support.triton_lab import Case, TritonChild, triton_child

DTYPES = ("float16", "bfloat16", "float32")


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=True) as process:
        yield process


def contiguous(sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(math.prod(sizes[at + 1 :], start=sympy.Integer(1)) for at in range(len(sizes)))


def tensor(name: str, dtype: str, *sizes: Expr) -> Operand:
    return Operand(name, dtype, sizes, contiguous(sizes))  # type: ignore[arg-type]


def product(m: Expr, n: Expr, k: Expr, dtype: str = "float16", **more: object) -> TritonGemm:
    a, b, out = tensor("a", dtype, m, k), tensor("b", dtype, k, n), tensor("c", dtype, m, n)
    return TritonGemm(a, b, out, **more)  # type: ignore[arg-type]


EPILOGUES: tuple[Function, ...] = (
    lambda x, bias, full: x,
    lambda x, bias, full: x.apply("relu"),
    lambda x, bias, full: (x * 0.1 + bias).apply("gelu"),
    lambda x, bias, full: (x * 0.5).apply("gelu_tanh"),
    lambda x, bias, full: (x + full).apply("silu"),
    lambda x, bias, full: (x - full).apply("maximum", bias * -1.5),
    lambda x, bias, full: (bias * x).apply("tanh") / 2.0,
    lambda x, bias, full: -x.apply("minimum", full).apply("sigmoid") + x * 0.25,
)


@st.composite
def layouts(draw: st.DrawFn, name: str, dtype: str, sizes: tuple[int, ...]) -> Operand:
    """Any order of the dimensions, with gaps: no two elements at one place."""
    strides = [0] * len(sizes)
    step = draw(st.sampled_from([1, 1, 1, 3]))
    for dim in draw(st.permutations(range(len(sizes)))):
        strides[dim] = step
        step = step * max(1, sizes[dim]) + draw(st.sampled_from([0, 0, 1, 8]))
    return Operand(name, dtype, sizes, tuple(strides))  # type: ignore[arg-type]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    m, n = (draw(st.sampled_from([1, 2, 7, 16, 31, 32, 33, 64, 97])) for _ in range(2))
    k = draw(st.sampled_from([0, 1, 5, 16, 32, 33, 61, 64, 128]))
    batch = draw(st.sampled_from([None, None, 1, 3]))
    dtype = draw(st.sampled_from(DTYPES))
    lead = () if batch is None else (batch,)
    bias = tensor("bias", draw(st.sampled_from(DTYPES)), *draw(st.sampled_from([(n,), (m, 1)])))
    out, other, full = (
        draw(layouts(name, draw(st.sampled_from(DTYPES)), (*lead, m, n)))
        for name in ("c", "other", "full")
    )
    function, loads = draw(st.sampled_from(EPILOGUES)), (access(bias), access(full))
    made = epilogue(function, (access(out),), loads)
    others: tuple[Operand, ...] = ()
    if draw(st.booleans()):  # what becomes of it, and it

        def both(x: Term, *loaded: Term) -> tuple[Term, Term]:
            return function(x, *loaded), x

        made, others = epilogue(both, (access(other), access(out)), loads), (other,)
    problem = TritonGemm(
        draw(layouts("a", dtype, (*lead, m, k))),
        draw(layouts("b", dtype, (*lead, k, n))),
        out,
        made,
    )
    config = TritonGemmConfig(
        draw(st.sampled_from([16, 32])),
        draw(st.sampled_from([16, 32, 64])),
        draw(st.sampled_from([16, 32, 64])),
        group_m=draw(st.sampled_from([1, 2, 8])),
        xcds=draw(st.sampled_from([1, 8])),
        split_k=draw(st.sampled_from([1, 1, 2, 3])),
    )
    index = draw(st.sampled_from(["int32", "int64"]))
    choice = generate(problem, config, "gfx942", index=index)  # type: ignore[arg-type]
    return Case(choice, problem, {}, draw(st.integers(0, 99)), (bias, full), others)


@settings(max_examples=60)
@given(case=cases())
def test_any_shape_stride_dtype_and_epilogue(child: TritonChild, case: Case) -> None:
    numbers = child.run(case)
    assert numbers.stray == 0
    assert numbers.error <= 1, case.choice.source


@pytest.mark.parametrize(("arch", "dtype"), zip(ARCHES, DTYPES, strict=True))
def test_configs_of_the_heuristics(child: TritonChild, arch: str, dtype: str) -> None:
    """Ragged in M, N and K: every mask and every split works."""
    problem = product(40, 100, 270, dtype)
    relu = epilogue(lambda x: x.apply("relu"), (access(problem.out),))
    problem = replace(problem, epilogue=relu)
    offered = configs(problem, arch)
    assert len(offered) == 12
    for config in offered:
        numbers = child.run(Case(generate(problem, config, arch), problem))
        assert (numbers.stray, numbers.error <= 1) == (0, True), config


def test_decoding(child: TritonChild) -> None:
    problem = product(3, 64, 4096)
    offered = configs(problem, "gfx942", budget=4)
    assert any(config.split_k > 1 for config in offered)
    for config in offered:
        assert child.run(Case(generate(problem, config, "gfx942"), problem)).error <= 1


def test_sizes_at_run_time(child: TritonChild) -> None:
    """One source for every M and K, the padded row of `a` included."""
    m, k = sympy.symbols("s0 s1", integer=True, positive=True)
    a = Operand("a", "float16", (m, k), (k + 3, 1))
    bias = tensor("bias", "float32", m, 1)
    problem = replace(product(m, 48, k), a=a)
    added = epilogue(lambda x, bias: x + bias, (access(problem.out),), (access(bias),))
    problem = replace(problem, epilogue=added)
    for split in (1, 2):
        choice = generate(problem, TritonGemmConfig(32, 32, 32, xcds=8, split_k=split), "gfx950")
        assert {str(symbol) for symbol in choice.sizes} == {"s0", "s1"}
        for numbers in ({"s0": 33, "s1": 70}, {"s0": 1, "s1": 32}, {"s0": 0, "s1": 5}):
            result = child.run(Case(choice, problem, numbers, extras=(bias,)))
            assert (result.stray, result.error <= 1) == (0, True), numbers


def test_problem_with_bias_and_activation(child: TritonChild) -> None:
    """`addmm` and `baddbmm` as the other templates state them."""
    for lead in ((), (2,)):
        a, b = tensor("x", "bfloat16", *lead, 20, 40), tensor("w", "bfloat16", *lead, 40, 30)
        out, bias = tensor("y", "bfloat16", *lead, 20, 30), tensor("z", "bfloat16", 30)
        for activation in ("none", "relu", "gelu", "gelu_tanh", "silu"):
            problem = from_gemm(
                GemmProblem(a, b, out, bias, activation, alpha=0.7, beta=-1.25)  # type: ignore[arg-type]
            )
            choice = generate(problem, TritonGemmConfig(16, 32, 32), "gfx90a")
            assert choice.extras == ("bias",)
            case = Case(choice, problem, extras=(replace(bias, name="bias"),))
            assert child.run(case).error <= 1, activation


def test_beta_zero_reads_no_bias() -> None:
    a, b, out = (
        tensor("x", "float16", 8, 8),
        tensor("w", "float16", 8, 8),
        tensor("y", "float16", 8, 8),
    )
    problem = from_gemm(GemmProblem(a, b, out, tensor("z", "float16", 8), beta=0))
    assert generate(problem, TritonGemmConfig(16, 16, 16), "gfx942").extras == ()


def test_cast_rounds_in_the_middle(child: TritonChild) -> None:
    """10,000.3 is 9,984 in bfloat16."""
    plain = product(16, 16, 16, "float32")

    def made(rounded: bool) -> TritonGemm:
        def function(x: Term) -> Term:
            return (x * 0.0 + 10000.3).to("bfloat16", rounded) + x * 0.0

        return replace(plain, epilogue=epilogue(function, (access(plain.out),)))

    problem = made(True)
    assert (
        child.run(Case(generate(problem, TritonGemmConfig(16, 16, 16), "gfx942"), problem)).error
        <= 1
    )
    wrong = generate(made(False), TritonGemmConfig(16, 16, 16), "gfx942")
    assert child.run(Case(wrong, problem)).error > 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("& (k_a < K)", ""),
        ("(m < M) & (n < N))", "(m < M + 1) & (n < N))"),
        ("in_group % rows", "in_group % GROUP_M"),
        ("tl.minimum(die, programs % NUM_XCDS)", "0"),
    ],
    ids=["mask of K", "mask of the store", "last group", "uneven dies"],
)
def test_a_planted_error_is_found(child: TritonChild, old: str, new: str) -> None:
    problem = product(70, 50, 40)
    choice = generate(problem, TritonGemmConfig(32, 32, 32, group_m=2, xcds=4), "gfx942")
    assert child.run(Case(choice, problem)).error <= 1
    assert old in choice.source
    planted = child.run(Case(replace(choice, source=choice.source.replace(old, new)), problem))
    assert planted.error > 1 or planted.stray > 0
