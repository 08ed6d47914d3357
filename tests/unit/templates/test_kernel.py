"""What a template sees as `kernel`: signature, sizes and strides, and C++ of sizes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import sympy

from backend.errors import ConfigError, RenderError, UnsupportedProblemError
from backend.templates.config import GemmConfig
from backend.templates.operand import ArgInfo, Operand, SizeArg, power_of_two_factor
from backend.templates.problem import GemmProblem, widest_access
from backend.templates.rendering import (
    RUNTIME_ARGS,
    TemplateKernel,
    cexpr,
    jinja_environment,
    literal,
    render,
)
from backend.toolchain import code_cache, targets
from backend.toolchain.target import Missing, cpu

S, T = sympy.symbols("s t", integer=True)
X = Operand("X", "float16", (S, 4 * T), (4 * T, 1))
Y = Operand("Y", "float32", (S, S), (S, 1))
SIZES = (
    SizeArg("M", S, sizes=(("X", 0), ("Y", 0))),
    SizeArg("K", 4 * T, sizes=(("X", -1),)),
    SizeArg("ld_x", 4 * T, strides=(("X", 0),)),
)


def test_signature_is_the_abi() -> None:
    bias = Operand("bias", "bfloat16", (S,), (1,))
    kernel = TemplateKernel("entry", RUNTIME_ARGS, (3,))
    text = kernel.def_kernel([X, None, bias], [Y], SIZES, input_reorder=[2, 0, 1])
    assert text == (
        "RT_EXPORT int entry(const rt::bf16* bias, const rt::half* X, float* Y, "
        "int64_t M, int64_t K, int64_t ld_x, int64_t split_k, "
        "size_t* workspace_size, uint8_t* workspace, hipStream_t stream)"
    )
    values = [(arg.kind, arg.name, arg.value) for arg in kernel.call_args()]
    assert values[:2] == [("input", "bias", bias), ("input", "X", X)]
    assert values[-2:] == [("size", "ld_x", 4 * T), ("runtime", "split_k", 3)]


def test_sizes_come_from_arguments_not_from_numbers() -> None:
    kernel = TemplateKernel("entry")
    kernel.def_kernel([X], [Y], SIZES)
    assert kernel.size(X, 0) == "int64_t{M}"
    assert kernel.size(X, 0, -1) == "(int64_t{M} * int64_t{K})"
    assert kernel.stride(X, -2) == "int64_t{ld_x}"
    assert kernel.stride(X, -1) == "int64_t{1}"
    assert kernel.size(Y, 1) == "int64_t{M}"  # the caller's s is our M
    assert kernel.size(None, 0) == "0"
    assert kernel.arg_name(X) == "X"
    assert kernel.arg_name(Operand("Z", "float32", (S,), (1,))) is None
    assert kernel.check_not_null(X) == (
        "if (X == nullptr && (int64_t{M} * int64_t{K}) > 0) return hipErrorInvalidValue;"
    )


def test_wrong_use_is_an_error() -> None:
    with pytest.raises(RenderError, match="values"):
        TemplateKernel("entry", (ArgInfo("a", "int"),), ())
    kernel = TemplateKernel("entry")
    with pytest.raises(RenderError, match="input_reorder"):
        kernel.def_kernel([X], [Y], (), input_reorder=[1])
    kernel = TemplateKernel("entry")
    kernel.def_kernel([X], [Y])
    with pytest.raises(RenderError, match="no argument of entry has the value of s"):
        kernel.size(X, 0)
    with pytest.raises(RenderError, match="dimension 2"):
        kernel.size(X, 2)
    with pytest.raises(RenderError, match="two parameters named X"):
        TemplateKernel("entry").def_kernel([X], [X])
    with pytest.raises(RenderError, match="no C\\+\\+ for"):
        cexpr(sympy.sin(S))


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """As torch names it."""


class ModularIndexing(sympy.Function):  # type: ignore[misc]
    """As torch names it: (a // b) % c."""


def test_cexpr_computes_what_sympy_says(tmp_path: Path) -> None:
    if isinstance(missing := targets.find_compiler(cpu()), Missing):
        pytest.skip(missing.reason)
    cases = [
        (S + 2 * T - 7, lambda s, t: s + 2 * t - 7),
        (sympy.floor((S - 5) / 3), lambda s, t: (s - 5) // 3),
        (sympy.ceiling(S / 4), lambda s, t: -(-s // 4)),
        (sympy.Mod(S - 20, 7), lambda s, t: (s - 20) % 7),
        (sympy.Min(S, T, 9), lambda s, t: min(s, t, 9)),
        (sympy.Max(S, T - 4), lambda s, t: max(s, t - 4)),
        (FloorDiv(S - 9, T), lambda s, t: (s - 9) // t),
        (ModularIndexing(S, 3, T), lambda s, t: s // 3 % t),
        (S**2 * T * 100000, lambda s, t: s * s * t * 100000),
        (sympy.Integer(2**40) + S, lambda s, t: 2**40 + s),
    ]
    lines = "\n".join(f"  out[{i}] = {cexpr(expr)};" for i, (expr, _) in enumerate(cases))
    source = (
        "#include <rocm_tui/gpu.h>\n"
        f"RT_EXPORT int all(int s, int t, int64_t* out) {{\n{lines}\n  return 0;\n}}\n"
    )
    library = code_cache.load(code_cache.compile(source, cpu(), cache_root=tmp_path).path)
    entry = library.entry("all", [ctypes.c_int, ctypes.c_int, ctypes.c_void_p])
    out = (ctypes.c_int64 * len(cases))()
    for s, t in ((1, 1), (17, 5), (4096, 3), (70000, 999), (8, 64)):
        entry(s, t, out)
        assert list(out) == [int(value(s, t)) for _, value in cases], (s, t)


def test_power_of_two_factor() -> None:
    assert [power_of_two_factor(e, 8) for e in (12, 0, S, 8 * S, 6 * S * (2 * T), 4 * S + 2)] == [
        *(4, 8, 1, 8, 4, 2)
    ]


def test_operands_say_how_wide_they_may_be_read() -> None:
    def width(sizes: tuple[int, ...], strides: tuple[int, ...], **more: int) -> int:
        return widest_access(Operand("X", "float16", sizes, strides, **more))

    assert width((8, 64), (64, 1)) == 8
    assert width((8, 61), (61, 1)) == 1
    assert width((8, 61), (66, 1)) == 2
    assert width((64, 8), (1, 64), offset=4) == 4
    assert width((2, 8, 64), (516, 64, 1)) == 4
    assert width((8, 64), (64, 1), base_bytes=4) == 2


def _square(**more: object) -> GemmProblem:
    X, W, Y = (Operand(name, "float16", (64, 64), (64, 1)) for name in "XWY")
    return GemmProblem(**{"a": X, "b": W, "out": Y, **more})  # type: ignore[arg-type]


def test_unsupported_problems_are_refused() -> None:
    strided = Operand("X", "float16", (64, 64), (128, 2))
    with pytest.raises(UnsupportedProblemError, match="X: neither rows nor columns"):
        _square(a=strided)
    with pytest.raises(UnsupportedProblemError, match="float32 times float16"):
        _square(a=Operand("X", "float32", (64, 64), (64, 1)))
    with pytest.raises(UnsupportedProblemError, match="not both finite"):
        _square(alpha=float("inf"))
    with pytest.raises(ConfigError, match="vec_a: the operand's alignment allows 1"):
        odd = Operand("X", "float16", (64, 64), (67, 1))
        render(_square(a=odd), GemmConfig(64, 64, 32, 32, 32, vec_a=2), "entry")
    with pytest.raises(ConfigError, match="not a multiple of the matrix instruction"):
        render(_square(), GemmConfig(64, 64, 32, 8, 32, unit="mfma16"), "entry")


def test_an_undefined_name_in_a_template_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'nothing' is undefined"):
        jinja_environment().from_string("{{ nothing }}").render()


def test_float_literals_keep_their_bits() -> None:
    assert [literal("float32", v) for v in (1.0, -0.1)] == [
        "0x1.0000000000000p+0f",
        "-0x1.999999999999ap-4f",
    ]


def test_templates_import_no_torch() -> None:
    code = "import sys, tools.resources_table; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
