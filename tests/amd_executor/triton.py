"""Runs Triton's code objects on the executor: products of ours, and PyTorch's own template."""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import sympy
import torch

from backend.templates.operand import Operand
from backend.templates.triton.choice import CodeObject, RenderedKernel, TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm, generate
from backend.templates.triton.heuristics import ARCHES, configs
from tests.amd_executor.library import Program, core, watch
from tests.support.chains import access, epilogue
from tests.support.triton_child import compare
from tests.support.triton_lab import Case, Numbers
from tests.unit.templates.triton import test_dtypes, test_numerics

_FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = {
    "gfx90a": (*_FLOATS, "float8_e5m2"),
    "gfx942": (*_FLOATS, "int8", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    "gfx950": (*_FLOATS, "int8", "float8_e4m3fn", "float8_e5m2"),
    "gfx1100": _FLOATS,
    "gfx1201": _FLOATS,
}


def cases(arch: str) -> Iterator[tuple[str, Case]]:
    """Yield products of each type, ragged and even, with epilogues and split along K."""
    for dtype in DTYPES[arch]:
        for split in (1, 3):
            config = TritonGemmConfig(32, 32, 32, split_k=split)
            yield f"{dtype} split {split}", _typed(dtype, config, arch)
    ragged = test_numerics.product(40, 100, 270)
    relu = epilogue(lambda x: x.apply("relu"), (access(ragged.out),))
    even = test_numerics.product(64, 64, 64)
    for problem in (replace(ragged, epilogue=relu), even) if arch in ARCHES else ():
        for config in configs(problem, arch, budget=4):
            yield f"{problem.out.sizes} {config}", Case(generate(problem, config, arch), problem)
    # On gfx950 tiles go to LDS directly, and are transposed where they are read.
    deep = test_numerics.product(64, 64, 256)
    stages = TritonGemmConfig(64, 64, 64, num_stages=3)
    yield "three stages", Case(generate(deep, stages, arch), deep)
    batched = _batched("bfloat16")
    config = TritonGemmConfig(32, 64, 32, matrix_instr_nonkdim=32, kpack=2)
    yield "bmm", Case(generate(batched, config, arch), batched)
    problem = test_numerics.product(33, 48, 70)
    bias = Operand("bias", "float32", (48,), (1,))
    for at, function in enumerate(test_numerics.EPILOGUES):
        full = replace(problem.out, name="full")
        chain = epilogue(function, (access(problem.out),), (access(bias), access(full)))
        whole = replace(problem, epilogue=chain)
        choice = generate(whole, TritonGemmConfig(32, 32, 32), arch)
        yield f"epilogue {at}", Case(choice, whole, extras=(bias, full))


def _typed(dtype: str, config: TritonGemmConfig, arch: str) -> Case:
    if dtype in test_dtypes.OUT:
        problem = test_dtypes.product(dtype)
        extras = () if problem.epilogue is None else (Operand("bias", _out(dtype), (33,), (1,)),)
        return Case(generate(problem, config, arch), problem, {}, 0, extras)
    problem = test_numerics.product(40, 33, 150, dtype)
    return Case(generate(problem, config, arch), problem)


def _out(dtype: str) -> Any:
    return test_dtypes.OUT[dtype]


def _batched(dtype: str) -> TritonGemm:
    shapes = {"a": (3, 33, 65), "b": (3, 65, 40), "c": (3, 33, 40)}
    operands = [test_numerics.tensor(name, dtype, *shape) for name, shape in shapes.items()]
    return TritonGemm(*operands)


# ---- PyTorch's own template ---------------------------------------------------------------------

_HEAD = """import triton
import triton.language as tl

@triton.jit
def inductor_mm(arg_A, arg_B, out):
    INDEX_DTYPE: tl.constexpr = tl.int32
"""


def inductor_text(m: int, n: int, k: int, constants: dict[str, Any]) -> str:
    """Render PyTorch's mm template for row-major fp16 factors, as `torch._inductor` does."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "_inductor" / "kernel" / "templates"
    names = ("triton_mm_rocm.py.jinja", "triton_mm.py.jinja")
    path = next(folder / name for name in names if (folder / name).is_file())
    sizes, strides = {"A": (m, k), "B": (k, n)}, {"A": (k, 1), "B": (n, 1)}

    def def_kernel(*names: str) -> str:
        lines = (f"    {name}: tl.constexpr = {value}" for name, value in constants.items())
        return _HEAD + "\n".join(lines)

    def load_input(name: str, result: str, index: Sequence[str], mask: str | None, **_: Any) -> str:
        row, column = index
        where = f", mask={mask}, other=0.0" if mask else ""
        return f"{result} = tl.load(arg_{name} + {row} * {strides[name][0]} + {column}{where})"

    def store_output(index: Sequence[str], value: str, mask: str, **_: Any) -> str:
        row, column = index
        return f"tl.store(out + {row} * {n} + {column}, {value}, {mask})"

    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(path.read_text())
    return template.render(
        def_kernel=def_kernel,
        size=lambda name, dim: sizes[name][dim],
        stride=lambda name, dim: strides[name][dim],
        load_input=load_input,
        store_output=store_output,
        **{name: value for name, value in constants.items() if name != "ACC_TYPE"},
    )


def inductor_cases(arch: str) -> Iterator[tuple[str, Case]]:
    """Yield PyTorch's mm with settings that Inductor tries on ROCm."""
    for m, n, k in ((64, 64, 64), (70, 50, 90)):
        for block, warps, stages in ((32, 2, 2), (64, 4, 2), (32, 4, 1)):
            problem = test_numerics.product(m, n, k)
            config = TritonGemmConfig(block, block, 32, num_warps=warps, num_stages=stages)
            constants = {
                "EVEN_K": k % 32 == 0,
                "USE_FAST_ACCUM": False,
                "ALLOW_TF32": False,
                "ACC_TYPE": "tl.float32",
                "GROUP_M": 8,
                **{
                    f"BLOCK_{side}": size
                    for side, size in zip("MNK", (block, block, 32), strict=True)
                },
            }
            choice = generate(problem, config, arch)
            text = inductor_text(m, n, k, constants)
            kernel = RenderedKernel(
                "inductor_mm",
                text,
                choice.kernels[0].arguments,
                (),
                sympy.Integer(-(-m // block) * -(-n // block)),
                choice.kernels[0].options,
            )
            own = replace(choice, kernels=(kernel,), source=text)
            yield f"{m} x {n} x {k}, {block}, {warps} warps", Case(own, problem)


# ---- launches -----------------------------------------------------------------------------------


class _Size(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in "xyz"]


@dataclass
class Compiled:
    """A case with its code objects; `programs` are theirs."""

    case: Case
    objects: Sequence[CodeObject]

    def __post_init__(self) -> None:
        self.programs = [Program(made.amdgcn) for made in self.objects]

    def run(self) -> Numbers:
        """Launch the kernels and compare with float64. Raises AssertionError, which has a line."""
        return compare(self.case, self._launch)

    def _launch(self, *arguments: torch.Tensor | int) -> None:
        choice = self.case.choice
        workspace = () if choice.workspace is None else (choice.workspace.name,)
        names = (*choice.inputs, *choice.extras, *choice.outputs, *workspace, *choice.sizes)
        values = dict(zip(map(str, names), arguments, strict=True))
        watch(values.values())
        for kernel, made, program in zip(choice.kernels, self.objects, self.programs, strict=True):
            count = sympy.sympify(kernel.programs).subs(
                {symbol: self.case.sizes[str(symbol)] for symbol in choice.sizes}
            )
            given = [values[argument.source] for argument in kernel.arguments]
            launch(program, given, int(count), made.threads, made.lds)


def launch(
    program: Program, arguments: Sequence[torch.Tensor | int], groups: int, threads: int, lds: int
) -> None:
    """Launch the only kernel of a program; arguments beyond those given are 0."""
    words = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in arguments]
    (kernel,) = program.assembly.kernels
    words += [0] * (len(kernel.arguments) - len(words))
    boxes = [ctypes.create_string_buffer(struct.pack("<q", word), 8) for word in words]
    pointers = (ctypes.c_void_p * len(boxes))(*map(ctypes.addressof, boxes))
    code = core().amd_launch(
        ctypes.byref(program.native),
        program.native.kernels,
        _Size(groups, 1, 1),
        _Size(threads, 1, 1),
        pointers,
        ctypes.c_size_t(lds),
    )
    assert code == 0, core().amd_message().decode()
