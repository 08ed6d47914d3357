"""The inner loop of a kernel, from assembly."""

from __future__ import annotations

import re

import pytest

from backend.toolchain import targets
from backend.toolchain.target import CompileOptions, Missing, Target
from backend.toolchain.targets import assembly
from tools.amd_loops import bytes_of, functions, kind_of, main_loop

LOOP = """
	.section	.text,"ax"
kernel:                                 ; @kernel
; %bb.0:
	s_load_dwordx4 s[0:3], s[4:5], 0x0
	v_mov_b32_e32 v0, 0
.LBB0_1:                                ; the loop over K
	s_cbranch_scc1 .LBB0_3
; %bb.2:                                ; the middle of the matrix
	global_load_dwordx4 v[0:3], v[8:9], off
	s_branch .LBB0_4
.LBB0_3:                                ; an edge: element by element
	global_load_ushort v0, v[8:9], off
	global_load_ushort v1, v[8:9], off offset:2
	v_perm_b32 v0, v1, v0, s6
	global_load_dwordx3 v[1:3], v[8:9], off offset:4
.LBB0_4:
	s_waitcnt vmcnt(0)
	ds_write_b128 v10, v[0:3]
	s_barrier
	ds_read2_b64 v[4:7], v11 offset1:1
	v_mfma_f32_32x32x8_f16 a[0:15], v[4:5], v[6:7], a[0:15]
	v_mfma_f32_32x32x8_f16 a[0:15], v[6:7], v[4:5], a[0:15]
	s_add_i32 s7, s7, 1
	s_cmp_lt_i32 s7, s8
	s_cbranch_scc1 .LBB0_1
; %bb.5:                                ; a loop without products, and the end
.LBB0_6:
	v_fma_f32 v0, v1, v2, v0
	v_add_f32_e32 v0, v0, v1
	s_cbranch_vccnz .LBB0_6
	s_endpgm
.Lfunc_end0:
	.section	.rodata,"a"
data:
	.long	1
"""


def test_the_way_of_a_whole_tile_is_counted() -> None:
    lines = functions(LOOP)["kernel"]
    trip = main_loop(lines, needed=16)
    assert trip is not None
    assert trip.kinds["matrix"] == trip.products == 2
    assert (trip.loaded, trip.lds_written, trip.lds_read) == (16, 16, 16)
    assert trip.names["global_load_dwordx4"] == 1 and trip.names["v_perm_b32"] == 0
    assert trip.kinds["vector"] == 0 and trip.kinds["wait"] == 2
    assert trip.total == 12


def test_what_loops_nowhere_has_no_loop() -> None:
    assert main_loop(["\tv_fma_f32 v0, v1, v2, v0", "\ts_endpgm"]) is None


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("global_load_dwordx4", 16),
        ("global_load_b128", 16),
        ("buffer_load_dwordx2", 8),
        ("ds_read2st64_b64", 16),
        ("ds_load_2addr_b32", 8),
        ("ds_read_u16_d16_hi", 2),
        ("ds_write_b8", 1),
        ("global_load_d16_b16", 2),
        ("buffer_load_ubyte", 1),
        ("v_add_f32_e32", 0),
    ],
)
def test_bytes_of_an_access(name: str, size: int) -> None:
    assert kind_of(name) == "vector" if size == 0 else bytes_of(name) == size


def test_a_word_of_another_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="movaps is no instruction"):
        kind_of("movaps")


SOURCE = """
#include <rocm_tui/gpu.h>
__global__ void dot(const float* a, const float* b, float* out, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum = rt::fma(a[i], b[i * 7 + threadIdx.x], sum);
  out[threadIdx.x] = sum;
}
RT_EXPORT int entry(const float* a, const float* b, float* out, int count) {
  return RT_LAUNCH(dot, dim3(1), dim3(64), 0, nullptr, a, b, out, count);
}
"""


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_compiler_is_asked(arch: str) -> None:
    target = Target("amdgpu", arch)
    if isinstance(missing := targets.find_compiler(target), Missing):
        pytest.skip(missing.reason)
    (kernel,) = (
        v for k, v in functions(assembly(SOURCE, target, CompileOptions(1))).items() if "dot" in k
    )
    trip = main_loop(kernel)
    assert trip is not None and trip.kinds["fma"] >= 1 and trip.loaded >= 4


COPY = """
#include <rocm_tui/gpu.h>
__global__ void copy(const rt::half* from, rt::half* to) {
  rt::store(to + threadIdx.x * 8, rt::load<8>(from + threadIdx.x * 8));
}
RT_EXPORT int entry(const rt::half* from, rt::half* to) {
  return RT_LAUNCH(copy, dim3(1), dim3(32), 0, nullptr, from, to);
}
"""


@pytest.mark.parametrize(
    ("target", "load", "store"),
    [
        (Target("amdgpu", "gfx942"), "global_load_dwordx4", "global_store_dwordx4"),
        (Target("amdgpu", "gfx1100"), "global_load_b128", "global_store_b128"),
        (Target("cuda", "sm_90"), "ld.global.v4.u32", "st.global.v4.u32"),
    ],
    ids=str,
)
def test_16_bytes_are_one_access(target: Target, load: str, store: str) -> None:
    """nvcc made sixteen of it where values were taken from memory by reference."""
    if isinstance(missing := targets.find_compiler(target), Missing):
        pytest.skip(missing.reason)
    text = assembly(COPY, target)
    words = re.findall(r"\s(?:global_(?:load|store)|(?:ld|st)\.global)\S+", text)
    assert [word.strip() for word in words] == [load, store]
