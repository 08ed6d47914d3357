"""The same sources for every target; what a kernel takes of its GPU; compilers that are missing."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend.errors import MissingCompilerError
from backend.toolchain import code_cache
from backend.toolchain.code_cache import compile
from backend.toolchain.resources import (
    Occupancy,
    Resources,
    Unknown,
    code_objects,
    from_file,
    occupancy,
    resources,
)
from backend.toolchain.target import (
    CompileOptions,
    Compiler,
    Missing,
    Target,
    amdgpu,
    cpu,
    cuda,
    parse_target,
)
from backend.toolchain.targets import (
    DEFAULT_TARGETS,
    candidates,
    commands,
    find_compiler,
    knows,
    report,
    require,
)
from tests.support.toolchain_kernels import KERNELS, available, build, cache_root, source

CUDA_HERE = Path("/usr/local/cuda/bin/nvcc").exists()
SOURCES = ["gemm", "numbers", "waves", "matrix"]
GPUS = [target for target in DEFAULT_TARGETS if target.kind != "cpu"]


def device_compilers(target: Target) -> list[Compiler]:
    found = [find_compiler(target)] if target.kind == "cuda" else candidates(target)
    compilers = [compiler for compiler in found if isinstance(compiler, Compiler)]
    return [c for c in compilers if target.kind == "cuda" or knows(c)]


def some_compilers(target: Target) -> list[Compiler]:
    """At least one; the test is skipped where there is none."""
    compilers = device_compilers(target)
    if not compilers:
        pytest.skip(f"no compiler for {target}")
    return compilers


@pytest.mark.parametrize("target", GPUS, ids=str)
@pytest.mark.parametrize("name", SOURCES)
def test_one_source_compiles_for_every_gpu(name: str, target: Target) -> None:
    for compiler in some_compilers(target):
        compiled = build(name, target, compiler=compiler)
        assert compiled.loadable == (compiled.path.suffix == ".so")
        if name == "matrix" and not target.matrix:
            continue
        found = resources(compiled)
        assert isinstance(found, tuple) and found
        for kernel in found:
            assert kernel.vgpr_spills == 0, kernel
            assert kernel.scratch == 0, kernel
            assert kernel.wave == target.wave
            assert kernel.vgprs is not None
            assert 0 < kernel.vgprs <= 512


INSTRUCTIONS = {
    "gfx90a": (r"v_mfma_f32_\w+", 6),
    "gfx942": (r"v_mfma_f32_\w+", 6),
    "gfx950": (r"v_mfma_f32_\w+", 6),
    "gfx1100": (r"v_wmma_\w+", 3),  # fp16, bf16, int8
    "gfx1201": (r"v_wmma_\w+", 5),  # and both fp8
}


@pytest.mark.parametrize("arch", INSTRUCTIONS)
@pytest.mark.parametrize("name", ["matrix", "builtins"])
def test_each_matrix_instruction_is_used(name: str, arch: str, tmp_path: Path) -> None:
    target = amdgpu(arch)
    compiler = next((c for c in device_compilers(target) if not c.loadable), None)
    if compiler is None:
        pytest.skip(f"no compiler for {target}")
    if name == "builtins" and target.matrix != "mfma":
        pytest.skip("the builtins are those of CDNA")
    first = commands(
        compiler, KERNELS / f"{name}.hip", tmp_path / "k.s", CompileOptions(flags=("-S",))
    )[0]
    assembly = tmp_path / ("k.s" if compiler.driver == "clang" else "k.s.s")
    subprocess.run(first, check=True, capture_output=True)
    pattern, count = INSTRUCTIONS[arch]
    if name == "matrix" and arch == "gfx950":
        count += 4  # the wide ones
    used = set(re.findall(pattern, assembly.read_text()))
    assert len(used) == count, used


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_what_the_gemm_takes_of_each_gpu(target: Target) -> None:
    for compiler in some_compilers(target):
        (kernel,) = resources(build("gemm", target, compiler=compiler))
        assert kernel.lds == 2 * (64 * 20 + 16 * 72) * 2
        assert "gemm_kernel" in kernel.kernel
        if target.kind == "amdgpu":
            assert kernel.max_threads == 256
            assert kernel.sgprs is not None
            assert 8 < kernel.sgprs < 103
        held = occupancy(target, kernel, 256)
        assert held is not None
        assert 4 <= held.waves_per_simd <= held.of


PROBE = """
extern "C" __global__ void __launch_bounds__(THREADS) NAME(float* x, int n) {
  RT_LDS(float, lds, [LDS]);
  float v[REGISTERS];
  RT_UNROLL
  for (int i = 0; i < REGISTERS; ++i) v[i] = x[i * 1024 + threadIdx.x];
  lds[threadIdx.x % LDS] = v[0];
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    RT_UNROLL
    for (int i = 0; i < REGISTERS; ++i) {
      v[i] = v[i] * v[(i * 7 + 1) % REGISTERS] + lds[(threadIdx.x + k + i) % LDS];
    }
  }
  RT_UNROLL
  for (int i = 0; i < REGISTERS; ++i) x[i * 1024 + threadIdx.x] = v[i];
}
"""


def probes(*kernels: dict[str, object]) -> str:
    """A source with a kernel for each: its NAME, REGISTERS, elements of LDS, and THREADS."""
    found = ["#include <rocm_tui/gpu.h>"]
    for kernel in kernels:
        text = PROBE
        for name, value in kernel.items():
            text = re.sub(rf"\b{name}\b", str(value), text)
        found.append(text)
    return "\n".join(found)


@pytest.mark.parametrize(
    "arch", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1102", "gfx1151", "gfx1201"]
)
def test_occupancy_is_what_llvm_says(arch: str) -> None:
    target = amdgpu(arch)
    compiler = next((c for c in device_compilers(target) if not c.loadable), None)
    if compiler is None:
        pytest.skip(f"no compiler for {target}")
    shapes = [
        (8, 64, 256), (40, 64, 512), (100, 2048, 64), (200, 64, 256), (8, 6000, 256),
        (40, 12000, 512), (100, 6000, 256),
    ]  # fmt: skip
    named = {f"kernel_{at}": shape for at, shape in enumerate(shapes)}
    source = probes(
        *(
            {"NAME": name, "REGISTERS": registers, "LDS": lds, "THREADS": threads}
            for name, (registers, lds, threads) in named.items()
        )
    )
    options = CompileOptions(flags=("-Rpass-analysis=kernel-resource-usage",))
    compiled = compile(source, target, options, cache_root=cache_root(), compiler=compiler)
    said = dict(
        re.findall(
            r"Function Name: (\w+).*?Occupancy \[waves/SIMD\]: (\d+)", compiled.log, re.DOTALL
        )
    )
    found = {kernel.kernel: kernel for kernel in resources(compiled)}
    assert found.keys() == said.keys() == named.keys()
    for name, (_, lds, threads) in named.items():
        kernel = found[name]
        assert (kernel.lds, kernel.max_threads) == (lds * 4, threads)
        held = occupancy(target, kernel, threads)
        assert held is not None
        # LLVM counts registers by the wave; only whole blocks are ever there.
        block = -(-threads // target.wave)
        whole = int(said[name]) * 4 // block * block
        assert held.waves_per_simd == -(-whole // 4), (kernel, named[name])


def test_a_spill_is_seen() -> None:
    target = amdgpu("gfx942")
    compilers = device_compilers(target)
    if not compilers:
        pytest.skip(f"no compiler for {target}")
    source = probes({"NAME": "kernel", "REGISTERS": 200, "LDS": 64, "THREADS": 1024})
    compiled = compile(source, target, cache_root=cache_root(), compiler=compilers[0])
    (kernel,) = resources(compiled)
    assert kernel.vgprs == 128
    assert kernel.vgpr_spills > 50
    assert kernel.scratch >= 4 * 50


SCALARS = Occupancy(7, 8, "scalar registers")


@pytest.mark.parametrize(
    ("arch", "kernel", "threads", "want"),
    [
        ("gfx90a", Resources("k", vgprs=64, lds=0), 256, Occupancy(8, 8, "waves")),
        ("gfx90a", Resources("k", vgprs=65, lds=0), 256, Occupancy(7, 8, "registers")),
        ("gfx90a", Resources("k", vgprs=512, lds=0), 256, Occupancy(1, 8, "registers")),
        ("gfx942", Resources("k", vgprs=64, lds=32768), 256, Occupancy(2, 8, "LDS")),
        ("gfx950", Resources("k", vgprs=64, lds=32768), 256, Occupancy(4, 8, "LDS")),
        ("gfx942", Resources("k", vgprs=8, sgprs=102, lds=0), 64, SCALARS),
        ("gfx1100", Resources("k", vgprs=97, lds=0), 32, Occupancy(12, 16, "registers")),
        ("gfx1102", Resources("k", vgprs=97, lds=0), 32, Occupancy(9, 16, "registers")),
    ],
)  # fmt: skip
def test_occupancy_by_hand(arch: str, kernel: Resources, threads: int, want: Occupancy) -> None:
    assert occupancy(amdgpu(arch), kernel, threads) == want


def test_occupancy_of_nvidia_by_hand() -> None:
    # 64 registers of 65,536: 1,024 threads, 32 of 64 warps. 60 KB and 1 KB of 228: three blocks.
    assert occupancy(cuda("9.0"), Resources("k", vgprs=64, lds=0), 256) == Occupancy(
        8, 16, "registers"
    )
    assert occupancy(cuda("sm_90"), Resources("k", vgprs=32, lds=60 * 1024), 256) == Occupancy(
        6, 16, "LDS"
    )


def test_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    assert occupancy(amdgpu("gfx906"), Resources("k", vgprs=8, lds=0), 64) is None
    assert occupancy(amdgpu("gfx942"), Resources("k"), 64) is None
    nothing = tmp_path / "empty.so"
    nothing.write_bytes(b"")
    assert isinstance(from_file(nothing), Unknown)
    assert isinstance(resources(build("waves")), Unknown)


def test_damaged_code_objects_are_unknown(tmp_path: Path) -> None:
    target = amdgpu("gfx90a")
    for compiler in some_compilers(target):
        content = build("gemm", target, compiler=compiler).path.read_bytes()
        assert len(list(code_objects(content))) == 1
        damaged = tmp_path / "damaged"
        damaged.write_bytes(content)
        whole = from_file(damaged)
        assert not isinstance(whole, Unknown)
        for length in range(0, len(content), 211):
            damaged.write_bytes(content[:length])
            found = from_file(damaged)  # the notes may stand before the cut
            assert isinstance(found, Unknown) or found == whole
            damaged.write_bytes(content[:length] + b"\xff" * 64 + content[length + 64 :])
            from_file(damaged)


def test_without_the_readers_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    target = amdgpu("gfx90a")
    compiled = build("gemm", target, compiler=some_compilers(target)[0])
    monkeypatch.setitem(sys.modules, "msgpack", None)
    found = resources(compiled)
    assert isinstance(found, Unknown)
    assert "pip install" in found.reason


def test_debians_hipcc_makes_a_library_that_finds_no_gpu() -> None:
    target = amdgpu("gfx90a")
    compiler = next((c for c in device_compilers(target) if c.driver == "hipcc"), None)
    if compiler is None:
        pytest.skip("no hipcc")
    compiled = build("gemm", target, compiler=compiler)
    assert compiled.loadable
    lib = code_cache.load(compiled.path)
    size = ctypes.c_size_t(99)
    entry = lib.entry("gemm", code_cache.argtypes(3, 3))
    assert entry(None, None, None, 8, 8, 8, ctypes.byref(size), None, None) == 0
    assert size.value == 0
    assert entry(None, None, None, 8, 8, 8, None, None, None) == 1
    if Path("/dev/kfd").exists():
        pytest.skip("there is a GPU")
    code = entry(256, 256, 256, 8, 8, 8, None, None, None)
    assert code in (100, 101)  # hipErrorNoDevice, hipErrorInvalidDevice
    assert "Device" in lib.error_text(code)


def test_a_rocm_box_is_asked_before_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ROCm's folders, made of Debian's parts."""
    debian = Path("/usr/lib/x86_64-linux-gnu")
    clang = Path("/usr/bin/clang++-15")
    if not (clang.exists() and (debian / "libamdhip64.so").exists()):
        pytest.skip("no HIP runtime")
    for name, to in {
        "include": Path("/usr/include"),
        "amdgcn": debian / "amdgcn",
        "lib/libamdhip64.so": debian / "libamdhip64.so",
        "llvm/bin/clang++": clang,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(to)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    target = amdgpu("gfx90a")
    compiler = require(target)
    assert (compiler.driver, compiler.loadable) == ("rocm", True)
    compiled = build("gemm", target)
    assert compiled.command.startswith(f"{tmp_path}/llvm/bin/clang++ -x hip --offload-arch=gfx90a")
    lib = code_cache.load(compiled.path)
    assert (
        lib.entry("gemm", code_cache.argtypes(3, 3))(None, None, None, 8, 8, 8, None, None, None)
        == 1
    )
    assert isinstance(resources(compiled), tuple)


def test_nvccs_library_loads_and_answers() -> None:
    target = cuda("sm_90")
    if not available(target):
        pytest.skip("no nvcc")
    lib = code_cache.load(build("gemm", target).path)
    entry = lib.entry("gemm", code_cache.argtypes(3, 3))
    assert entry(None, None, None, 8, 8, 8, None, None, None) == 1
    assert "invalid" in lib.error_text(1)


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_an_arch_is_always_named(target: Target) -> None:
    for compiler in some_compilers(target):
        assert target.arch in build("gemm", target, compiler=compiler).command


def test_targets_are_what_runtimes_call_them() -> None:
    assert amdgpu("gfx942:sramecc+:xnack-") == Target("amdgpu", "gfx942")
    assert cuda("9.0") == cuda("sm_90")
    for target in DEFAULT_TARGETS:
        assert parse_target(str(target)) == target
    for text in ["gpu", "amdgpu:--help", "cuda:sm_90;rm", "cpu:x", "amdgpu", "amdgpu:gfx 90a"]:
        with pytest.raises(ValueError, match="target"):
            parse_target(text)
    waves = {str(target): target.wave for target in DEFAULT_TARGETS}
    assert waves == {
        "cpu": 64, "cuda:sm_90a": 32, "amdgpu:gfx90a": 64, "amdgpu:gfx942": 64,
        "amdgpu:gfx950": 64, "amdgpu:gfx1100": 32, "amdgpu:gfx1201": 32,
    }  # fmt: skip


def test_a_missing_compiler_disables_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    targets = [t for t in DEFAULT_TARGETS if t.kind != "cuda" or not CUDA_HERE]
    for row in report(targets):
        assert not row.available
        assert "install" in row.reason
        assert "\n" not in row.reason
        assert isinstance(find_compiler(row.target), Missing)
    with pytest.raises(MissingCompilerError, match=r"target cpu is off: no g\+\+"):
        require(cpu())


def test_a_clang_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path("/usr/lib/llvm-15/bin")
    if not ((old / "clang++").exists() and (old / "lld").exists()):
        pytest.skip("no clang-15")
    monkeypatch.setenv("PATH", str(old))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(find_compiler(amdgpu("gfx90a")), Missing)


def test_an_unknown_arch_is_said_to_be_unknown() -> None:
    if not device_compilers(amdgpu("gfx90a")):
        pytest.skip("no compiler for AMD GPUs")
    missing = find_compiler(amdgpu("gfx999"))
    assert isinstance(missing, Missing)
    assert missing.reason.startswith("gfx999 is unknown to ")


def test_the_toolchain_works_without_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, backend.toolchain as t\n"
        "for m in pkgutil.walk_packages(t.__path__, 'backend.toolchain.'):\n"
        "    importlib.import_module(m.name)\n"
        "print(sorted({'torch', 'elftools', 'msgpack'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sources_need_no_standard_header() -> None:
    """A device compiler that comes alone has none."""
    for name in SOURCES:
        assert re.findall(r"#include <(.+)>", source(name)) == ["rocm_tui/gpu.h"]
