"""The template's hooks, the module of a choice, its hash and its words."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import sympy

from backend.errors import (
    ConfigError,
    HookError,
    TemplateError,
    UnsupportedProblemError,
)
from backend.model.choice import parse_config
from backend.templates.fusion import Epilogue
from backend.templates.operand import Operand
from backend.templates.triton.choice import TritonChoice, TritonGemmConfig, TritonTemplate
from backend.templates.triton.gemm import TritonGemm, generate, index_dtype
from backend.templates.triton.kernel import TritonTemplateKernel
from tests.support.chains import access, epilogue
from tests.support.places import ROOT

S0 = sympy.Symbol("s0", integer=True, positive=True)
X = Operand("x", "float16", (S0, 8), (8 * S0, 1))
OUT = Operand("y", "bfloat16", (S0, 8), (8, 1))
BIAS = access(Operand("bias", "float32", (1, 8), (8, 1)))
COPY = """{{ def_kernel("X") }}
    i = tl.arange(0, 8)[:, None]
    j = tl.arange(0, 8)[None, :]
    rows = {{ size("X", 0) }}
    value = {{ make_load("X", ("i", "j"), "i < rows") }}
    {{ store_output(("0", "i", "j"), "value", "i < rows") }}
"""


ADDED = epilogue(lambda x, bias: x + bias, (access(OUT),), (BIAS,))


def kernel(epilogue: Epilogue = ADDED) -> TritonTemplateKernel:
    return TritonTemplateKernel("copy", [X], OUT, epilogue=epilogue)


def test_arguments_come_from_what_the_late_hooks_use() -> None:
    made = kernel()
    partial = TritonTemplate("copy", COPY).render(made)
    assert partial.open_hooks == ("STORE_OUTPUT", "DEF_KERNEL")
    text = partial.finalize_all()
    assert "def copy(arg_X, in_bias, out, ks0):" in text
    assert "    rows = ks0\n" in text
    assert "tl.load(X + (i * (8 * ks0) + j), mask=i < rows, other=0.0)" in text
    assert "    fused_1 = tl.load(in_bias + (0 * 0 + i * 0 + j), mask=i < rows, other=0.0)" in text
    assert "tl.store(out + (0 * 0 + i * 8 + j), fused_2.to(tl.bfloat16), mask=i < rows)" in text
    kinds = [(a.name, a.kind, a.source, a.triton_type) for a in made.arguments()]
    assert kinds == [
        ("arg_X", "input", "x", "*fp16"),
        ("in_bias", "extra", "bias", "*fp32"),
        ("out", "output", "y", "*bf16"),
        ("ks0", "size", "s0", "i32"),
    ]
    compile(text, "copy", "exec")


def test_an_epilogue_of_two_results_brings_its_operands() -> None:
    other = access(Operand("mask", "bool", (S0, 8), (1, S0)))
    function = lambda x, bias: ((x - bias).apply("relu"), x.apply("lt", bias))  # noqa: E731
    made = kernel(epilogue(function, (access(OUT), other), (BIAS,)))
    text = TritonTemplate("copy", COPY).render(made).finalize_all()
    assert "def copy(arg_X, in_bias, out, out_mask, ks0):" in text
    assert "    fused_3 = tl.where(fused_2 < 0, 0.0, fused_2)\n" in text
    assert "fused_3.to(tl.bfloat16)" in text
    assert "tl.store(out_mask + (0 * 0 + i + j * ks0), fused_4.to(tl.int1), mask=i < rows)" in text


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ size('X', 0) }}", "has no input X; named inputs: none before def_kernel"),
        ("nothing", "never calls def_kernel"),
        ("{{ def_kernel('X', 'Y') }}", "def_kernel names 2 inputs; copy has 1"),
        ("{{ def_kernel('X') }}{{ def_kernel('X') }}", "@@DEF_KERNEL@@ twice"),
        ("{{ def_kernel('X') }}{{ stride('X', 2) }}", "X has 2 dimensions: no strides 2"),
        ("{{ def_kernel('X') }}{{ make_load('X', ('i',), None) }}", "x has 2 dimensions, not 1"),
        ("{{ def_kernel('X') }}{{ BLOCK }}", "template t: 'BLOCK' is undefined"),
        ("{{ def_kernel('X') }}{{ store_output(('i',), 'v', None) }}", "bias has 3 dimensions"),
    ],
)
def test_hooks_say_what_is_wrong(template: str, said: str) -> None:
    with pytest.raises(HookError, match=said.replace("(", r"\(")):
        TritonTemplate("t", template).render(kernel()).finalize_all()


def gemm(m: int = 256, n: int = 256, k: int = 512, dtype: str = "float16") -> TritonGemm:
    return TritonGemm(
        Operand("a", dtype, (m, k), (k, 1)),  # type: ignore[arg-type]
        Operand("b", dtype, (k, n), (n, 1)),  # type: ignore[arg-type]
        Operand("c", dtype, (m, n), (n, 1)),  # type: ignore[arg-type]
    )


CONFIG = TritonGemmConfig(64, 64, 32)
RELU = epilogue(lambda x: x.apply("relu"), (access(gemm().out),))
NARROW = access(Operand("e", "float8_e5m2", (1,), (1,)))


def test_even_blocks_need_no_mask() -> None:
    assert "mask" not in generate(gemm(), CONFIG, "gfx942").source
    ragged = generate(gemm(k=500), CONFIG, "gfx942")
    assert "mask=(k_a < K)" in ragged.source and "m < M" not in ragged.source
    assert parse_config(ragged.description)["EVEN_K"] == "False"


def test_the_description_is_of_inductors_form() -> None:
    choice = generate(gemm(), replace(CONFIG, kpack=2, waves_per_eu=2, xcds=8), "gfx942")
    found = parse_config(choice.description)
    assert found == choice.meta
    assert found["BLOCK_M"] == "64" and found["matrix_instr_nonkdim"] == "16"
    assert (found["kpack"], found["waves_per_eu"], found["NUM_XCDS"]) == ("2", "2", "8")
    assert choice.info["tile_shape"] == "(64, 32, 64)"
    assert choice.grid == (16, 1, 1)
    assert pickle.loads(pickle.dumps(choice)) == choice


def test_amds_knobs_are_for_amd() -> None:
    assert "waves_per_eu=0" in generate(gemm(), CONFIG, "gfx942").source
    assert "waves_per_eu" not in generate(gemm(), CONFIG, "sm_90").source


def test_hashes_tell_choices_apart() -> None:
    choices: list[TritonChoice] = [
        generate(gemm(), CONFIG, "gfx942"),
        generate(gemm(), CONFIG, "gfx950"),
        generate(gemm(), replace(CONFIG, waves_per_eu=2), "gfx942"),
        generate(gemm(k=1024), CONFIG, "gfx942"),
        generate(gemm(dtype="bfloat16"), CONFIG, "gfx942"),
        generate(replace(gemm(), epilogue=RELU), CONFIG, "gfx942"),
    ]
    choices.append(replace(choices[0], source=choices[0].source + "# another\n"))
    assert len({choice.hash for choice in choices}) == len(choices)


def test_a_hash_is_the_same_in_every_process_without_torch() -> None:
    code = (
        "import sys, sympy\n"
        "from backend.templates.operand import Operand\n"
        "from backend.templates.triton.gemm import TritonGemm, generate\n"
        "from backend.templates.triton.heuristics import configs\n"
        "m, k = sympy.symbols('s0 s1')\n"
        "a = Operand('a', 'float16', (m, k), (k, 1))\n"
        "b = Operand('b', 'float16', (k, 64), (64, 1))\n"
        "problem = TritonGemm(a, b, Operand('c', 'float16', (m, 64), (64, 1)))\n"
        "sizes = {m: 100, k: 9000}\n"
        "found = configs(problem, 'gfx942', hint=lambda e: int(sympy.sympify(e).subs(sizes)))\n"
        "print([generate(problem, config, 'gfx942').hash for config in found])\n"
        "assert not {'torch', 'triton'} & set(sys.modules)\n"
    )
    said = set()
    for seed in ("1", "2", "3"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        said.add(done.stdout)
    assert len(said) == 1 and said.pop().count("rocm_triton_mm-") == 12


def test_a_workspace_only_where_k_is_split() -> None:
    whole = generate(gemm(), CONFIG, "gfx942")
    assert whole.workspace_bytes == 0 and "def launch(a, b, out):" in whole.source
    split = generate(gemm(), replace(CONFIG, split_k=4), "gfx942")
    assert split.workspace_bytes == 4 * 256 * 256 * 4
    assert "def launch(a, b, out, workspace):" in split.source
    assert [made.name for made in split.kernels] == ["triton_gemm", "triton_splitk_sum"]


def test_offsets_are_as_wide_as_they_must_be() -> None:
    assert index_dtype(gemm()) == "int32"
    big = gemm()
    far = replace(big, a=replace(big.a, strides=(2**31 // 255 + 1, 1)))
    assert index_dtype(far) == "int64"
    assert "INDEX_DTYPE: tl.constexpr = tl.int64" in generate(far, CONFIG, "gfx942").source
    assert index_dtype(replace(big, a=replace(big.a, strides=(S0, 1)))) == "int64"
    with pytest.raises(ConfigError, match="partial sums need 64-bit offsets"):
        wide = gemm(2**14, 2**14, 64)
        generate(wide, replace(CONFIG, split_k=16), "gfx942")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"b": Operand("b", "float16", (500, 256), (256, 1))}, "K is 512 and 500"),
        ({"b": Operand("b", "float32", (512, 256), (256, 1))}, "float16 times float32"),
        ({"a": Operand("a", "float16", (1, 256, 512), (0, 512, 1))}, "all have 2 dimensions"),
        ({"epilogue": epilogue(lambda x, e: x, (access(gemm().out),), (NARROW,))}, "of 8 bits"),
    ],
)
def test_problems_that_are_none(change: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedProblemError, match=said):
        replace(gemm(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"block_m": 48}, "block_m is 48: a power of two from 16 on"),
        ({"num_warps": 3}, "num_warps is 3"),
        ({"matrix_instr_nonkdim": 4}, "matrix_instr_nonkdim is 4: 0, 16 or 32"),
        ({"block_n": 16, "matrix_instr_nonkdim": 32}, "wider than the block"),
        ({"kpack": 3}, "kpack is 3"),
        ({"split_k": 0}, "split_k is 0"),
        ({"waves_per_eu": -1}, "waves_per_eu is -1"),
    ],
)
def test_configs_that_are_none(change: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(CONFIG, **change)


def test_one_root() -> None:
    assert issubclass(HookError, TemplateError)
