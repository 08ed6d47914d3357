"""The CPU target runs kernels as a GPU would, and shows what a GPU hides."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from backend.errors import KernelError, LoadError
from backend.toolchain import code_cache
from backend.toolchain.code_cache import compile
from backend.toolchain.target import Compiler, cpu, first_on_path, version_of
from tests.support.toolchain_kernels import available, build, cache_root, call, library

pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")

ORDERS = ["forward", "reverse", "shuffle:1", "shuffle:20260101"]
SHAPES = [(64, 64, 16), (128, 96, 80), (1, 1, 1), (65, 67, 33), (3, 130, 17), (127, 5, 64)]
GUARD = 4096
CORES = ("RT_NO_MATRIX", "RT_EMULATED")


def gemm(lib: code_cache.Library, m: int, n: int, k: int) -> float:
    """The largest error over the bound that rounding allows; infinity for a write outside."""
    torch.manual_seed(m * 1_000_003 + n * 1009 + k)
    # A read past the end meets a NaN, a write past it changes the guard.
    memory = [torch.full((size + GUARD,), float("nan")).half() for size in (m * k, k * n, m * n)]
    a, b, c = (whole[:size] for whole, size in zip(memory, (m * k, k * n, m * n), strict=True))
    a.copy_(torch.randn(m * k).half())
    b.copy_(torch.randn(k * n).half())
    assert call(lib, "gemm", *memory, m, n, k) == 0
    if not memory[2][m * n :].isnan().all():
        return float("inf")
    exact = a.view(m, k).double() @ b.view(k, n).double()
    size = a.view(m, k).double().abs() @ b.view(k, n).double().abs()
    bound = exact.abs() * 2**-10 + size * k * 2**-24 + 2**-24
    error = ((c.view(m, n).double() - exact).abs() / bound).max().item()
    return error if error == error else float("inf")


@pytest.mark.parametrize("matrix_cores", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_a_tiled_gemm_is_right_in_every_order(
    matrix_cores: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_TUI_CPU_ORDER", order)
    lib = library("gemm", RT_MATRIX=CORES[matrix_cores])
    for shape in SHAPES:
        assert gemm(lib, *shape) <= 1, shape


def test_without_assembly_the_fibers_are_the_same() -> None:
    lib = library("gemm", RT_CPU_UCONTEXT=1)
    assert gemm(lib, 65, 67, 33) <= 1


def test_clang_compiles_the_same_kernels() -> None:
    path = first_on_path(["clang++", "clang++-19", "clang++-15"])
    if path is None:
        pytest.skip("no clang++")
    compiler = Compiler(cpu(), "g++", (path,), version_of((path,)) or "clang")
    lib = code_cache.load(build("gemm", compiler=compiler).path)
    assert gemm(lib, 65, 67, 33) <= 1


@pytest.mark.parametrize("barrier", ["NO_FIRST_BARRIER", "NO_SECOND_BARRIER"])
@pytest.mark.parametrize("matrix_cores", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_wrong_every_time(
    barrier: str, matrix_cores: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_TUI_CPU_ORDER", order)
    lib = library("gemm", RT_MATRIX=CORES[matrix_cores], **{barrier: 1})
    assert all(gemm(lib, 64, 64, 64) > 100 for _ in range(5))


@pytest.mark.parametrize("matrix_cores", [0, 1])
def test_a_wrong_mask_is_caught(matrix_cores: int) -> None:
    lib = library("gemm", RT_MATRIX=CORES[matrix_cores], WRONG_MASK=1)
    assert gemm(lib, 65, 67, 33) == float("inf")


def test_sums_by_shuffles_and_lds() -> None:
    lib = library("waves")
    for rows, columns in [(1, 1), (3, 255), (5, 1000)]:
        x = torch.randint(-9, 9, (rows, columns)).float()
        sums = torch.full((rows,), float("nan"))
        assert call(lib, "row_sum", x, sums, rows, columns) == 0
        assert torch.equal(sums, x.sum(1))


def test_shuffles() -> None:
    out = torch.zeros(2, 64)
    assert call(library("waves"), "shuffle", out) == 0
    lanes = range(64)
    assert out[0].tolist() == [lane ^ 5 for lane in lanes]
    assert out[1].tolist() == [lane ^ 17 if lane // 16 % 2 else lane for lane in lanes]


def test_lanes_exchange_through_lds(monkeypatch: pytest.MonkeyPatch) -> None:
    for order in ORDERS:
        monkeypatch.setenv("ROCM_TUI_CPU_ORDER", order)
        out = torch.zeros(64)
        assert call(library("waves"), "neighbour", out) == 0
        assert out.tolist() == [lane ^ 1 for lane in range(64)]


def test_dynamic_lds() -> None:
    lib = library("waves")
    out = torch.zeros(1000)
    assert call(lib, "dynamic_lds", out, 1000) == 0
    assert out.tolist() == [999 - i for i in range(1000)]
    assert call(lib, "dynamic_lds", out, 16 * 1024 + 1) == 9


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("barriers", "different __syncthreads"),
        ("divergent", "all 64 lanes"),
        ("lds", "more LDS"),
        ("alignment", "misaligned"),
    ],
)
def test_a_mistake_is_an_error_in_words(entry: str, words: str) -> None:
    lib = library("mistakes")
    out = torch.zeros(256)
    code = call(lib, entry, out, 64)
    assert code == 719
    with pytest.raises(KernelError, match=words) as caught:
        lib.check(entry, code)
    assert caught.value.code == code
    # The library works on after it.
    assert call(lib, "unwritten", out, 64) == 0


def test_unwritten_lds_is_not_a_number() -> None:
    out = torch.zeros(64)
    assert call(library("mistakes"), "unwritten", out, 64) == 0
    assert out.isnan().all()


def test_a_block_that_no_gpu_takes() -> None:
    lib = library("mistakes")
    for threads in (0, 1025):
        code = call(lib, "block_size", torch.zeros(64), threads)
        assert code == 9
        assert f"{threads} threads" in lib.error_text(code)


def test_two_host_threads_may_call_at_once() -> None:
    lib = library("gemm")
    worst: list[float] = []
    threads = [
        threading.Thread(target=lambda: worst.extend(gemm(lib, 70, 70, 70) for _ in range(10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 40
    assert max(worst) <= 1


def test_libraries_do_not_share_their_kernels() -> None:
    sources = [
        f'#include <rocm_tui/gpu.h>\nnamespace k {{ template <class T> __global__ void f(T* x) {{ '
        f'__shared__ T s[1]; s[0] = {value}; x[threadIdx.x] = s[0]; }} }}\n'
        f'RT_EXPORT int run(void* x, size_t*, uint8_t*, hipStream_t stream) '
        f'{{ return RT_LAUNCH(k::f<float>, 1, 64, 0, stream, static_cast<float*>(x)); }}\n'
        for value in (1, 2)
    ]  # fmt: skip
    libs = [code_cache.load(compile(text, cpu(), cache_root=cache_root()).path) for text in sources]
    for value, lib in itertools.product((1, 2), repeat=2):
        out = torch.zeros(64)
        assert call(libs[lib - 1], "run", out) == 0
        assert set(out.tolist()) == {lib}, value


def test_a_library_is_loaded_once() -> None:
    path = build("waves").path
    first = code_cache.load(path)
    assert code_cache.load(path) is first


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"waves|has no entry absent"):
        library("waves").entry("absent")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(LoadError, match=r"broken\.so"):
        code_cache.load(broken)


def test_a_stack_overflow_ends_the_process_not_the_numbers() -> None:
    text = (
        "#include <rocm_tui/gpu.h>\n"
        "__global__ void deep(char* x) { volatile char big[200000]; big[threadIdx.x] = 1;"
        " x[0] = big[threadIdx.x]; }\n"
        "RT_EXPORT int run(void* x, size_t*, uint8_t*, hipStream_t stream)"
        " { return RT_LAUNCH(deep, 1, 64, 0, stream, static_cast<char*>(x)); }\n"
    )
    path = compile(text, cpu(), cache_root=cache_root()).path
    code = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); x = ctypes.create_string_buffer(8);"
        " lib.run(x, None, None, None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode < 0
