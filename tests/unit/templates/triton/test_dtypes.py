"""Products of fp64, fp8 and int8 in Triton: numbers in its interpreter, code objects for AMD."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backend.errors import UnsupportedProblemError
from backend.templates.operand import Operand
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm, generate
from backend.templates.triton.heuristics import configs
from tests.support.chains import access, epilogue
from tests.support.triton_lab import Case, TritonChild, triton_child

OUT = {
    "float64": "float64",
    "int8": "int32",
    "float8_e4m3fn": "bfloat16",
    "float8_e4m3fnuz": "float32",
    "float8_e5m2": "float16",
    "float8_e5m2fnuz": "float32",
}
"""Of the factors -> of the result."""


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=True) as process:
        yield process


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=False) as process:
        yield process


def product(dtype: str, m: int = 40, n: int = 33, k: int = 150) -> TritonGemm:
    """Padded rows of `a`, a transposed `b`; relu of a sum with a bias where that is legal."""
    out = OUT[dtype]
    a = Operand("a", dtype, (m, k), (k + 3, 1))  # type: ignore[arg-type]
    b = Operand("b", dtype, (k, n), (1, k))  # type: ignore[arg-type]
    c = Operand("c", out, (m, n), (n, 1))  # type: ignore[arg-type]
    if dtype == "int8":
        return TritonGemm(a, b, c)
    sums = "float64" if dtype == "float64" else "float32"
    bias = access(_bias(dtype, n))
    made = epilogue(lambda x, bias: (x * 0.3 + bias).apply("relu"), (access(c),), (bias,), sums)
    return TritonGemm(a, b, c, made)


def _bias(dtype: str, n: int) -> Operand:
    return Operand("bias", OUT[dtype], (n,), (1,))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", OUT)
def test_numbers(child: TritonChild, dtype: str) -> None:
    problem = product(dtype)
    for split in (1, 3):
        config = TritonGemmConfig(32, 16, 32, split_k=split)
        extras = () if problem.epilogue is None else (_bias(dtype, 33),)
        numbers = child.run(Case(generate(problem, config, "gfx942"), problem, {}, 0, extras))
        assert (numbers.stray, numbers.error <= 1) == (0, True), (numbers, config)


MATRIX = {
    ("float64", "gfx90a"): "v_mfma_f64_16x16x4",
    ("float64", "gfx942"): "v_mfma_f64_16x16x4",
    ("int8", "gfx942"): "v_mfma_i32_",
    ("int8", "gfx950"): "v_mfma_i32_",
    ("float8_e4m3fnuz", "gfx942"): "_fp8_fp8",
    ("float8_e5m2fnuz", "gfx942"): "_bf8_bf8",
    ("float8_e4m3fn", "gfx950"): "_f8f6f4",
    ("float8_e5m2", "gfx950"): "_f8f6f4",
    # Converted to fp16, which has every value of it.
    ("float8_e5m2", "gfx90a"): "f16",
}
"""What the first config of each is compiled to."""


@pytest.mark.parametrize(("dtype", "arch"), MATRIX)
def test_matrix_units_are_used(compiler: TritonChild, dtype: str, arch: str) -> None:
    problem = product(dtype, 512, 512, 512)
    config = configs(problem, arch, budget=1)[0]
    (code, *_) = compiler.compile(generate(problem, config, arch))
    assert MATRIX[dtype, arch] in code.amdgcn


@pytest.mark.parametrize(
    ("dtype", "out"), [("int8", "float32"), ("float64", "float32"), ("float8_e5m2", "int32")]
)
def test_other_results_are_refused(dtype: str, out: str) -> None:
    a = Operand("a", dtype, (8, 8), (8, 1))  # type: ignore[arg-type]
    b = Operand("b", dtype, (8, 8), (8, 1))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedProblemError):
        TritonGemm(a, b, Operand("c", out, (8, 8), (8, 1)))  # type: ignore[arg-type]
