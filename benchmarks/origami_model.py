"""AMD's analytical model of matrix products, for predicted_times.py.

Origami is compiled from its source distribution (MIT), with the few names that it needs of HIP.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from amd_tunings import Kernel, Problem

DEVICES = {  # LDS and L2 in bytes, kHz
    ("gfx90a", 104): (65536, 8 << 20, 1_700_000),
    ("gfx942", 304): (65536, 4 << 20, 2_100_000),
    ("gfx942", 80): (65536, 4 << 20, 1_420_000),
    ("gfx950", 256): (163840, 4 << 20, 2_400_000),
}
HIP = """#include <string>
typedef int hipError_t;
struct hipDeviceProp_t { std::string gcnArchName; size_t sharedMemPerBlock;
  int multiProcessorCount, l2CacheSize, clockRate, memoryClockRate; };
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t*, int) { return 1; }
inline const char* hipGetErrorString(hipError_t) { return "no device"; }
"""
PREDICT = """
#include <algorithm>
#include <cmath>
#include "origami/gemm.hpp"
#include "origami/origami.hpp"
using namespace origami;
using gpu_t = hardware_t;
extern "C" void predict(const char* arch, const char* type, const size_t* x, long count,
                        const size_t* kernel, double* us) {
  auto gpu = gpu_t::get_hardware_for_arch(gpu_t::arch_name_to_enum(arch), x[0], x[1], x[2], x[3]);
  bool fnuz = gpu.arch == gpu_t::architecture_t::gfx942 && std::string(type) == "f8";
  problem_t p;
  p.size = {x[4], x[5], x[6]};
  p.batch = x[7];
  p.a_transpose = x[8] ? transpose_t::T : transpose_t::N;
  p.a_dtype = p.b_dtype = p.mi_dtype = fnuz ? data_type_t::Float8_fnuz : string_to_datatype(type);
  p.c_dtype = p.d_dtype = x[9] == 32 ? data_type_t::Float : data_type_t::BFloat16;
  config_t c;
  c.mi = gpu.get_recommended_matrix_instruction(p.mi_dtype);
  c.occupancy = 1;
  for (; count--; kernel += 4, us++) {
    auto [m, n, k, split] = std::tie(kernel[0], kernel[1], kernel[2], kernel[3]);
    c.mt = {m, n, k};
    *us = 1e300;
    if (split) {
      c.workgroup_mapping = p.batch > 1 ? 1 : std::ceil(std::sqrt(gpu.N_CU / gpu.NUM_XCD));
      size_t groups = (x[4] + m - 1) / m * ((x[5] + n - 1) / n) * p.batch * split;
      *us = compute_timestep_latency(p, gpu, c, std::min(groups, gpu.N_CU), split);
      *us *= (groups + gpu.N_CU - 1) / gpu.N_CU;
    } else for (int hints : {0, 1, 2}) {
      c.cache_hints_a = hints == 1 ? 4 : 0, c.cache_hints_b = hints == 2 ? 4 : 0;
      *us = std::min(*us, compute_total_latency(p, gpu, c, gpu.N_CU));
    }
    *us *= 1e3 / x[3];
  }
}
"""


class Model:
    """Origami, compiled in the folder of its source distribution."""

    def __init__(self, source: Path) -> None:
        library = source / "predict.so"
        if not library.exists():
            (source / "hip").mkdir(exist_ok=True)
            (source / "hip/hip_runtime.h").write_text(f"#pragma once\n{HIP}")
            (source / "predict.cpp").write_text(PREDICT)
            code = [*map(str, source.glob("src/**/*.cpp")), str(source / "predict.cpp")]
            flags = ["-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", f"-I{source}"]
            paths = [f"-I{source / 'include'}", *code, "-o", str(library)]
            subprocess.run(["g++", *flags, *paths], check=True)
        self._predict = ctypes.CDLL(str(library.resolve())).predict

    def us(self, p: Problem, kernels: Sequence[Kernel]) -> list[float]:
        """Return predicted microseconds."""
        x = (p.units, *DEVICES[p.arch, p.units], p.m, p.n, p.k, p.batch, p.transposed, p.out)
        tiles = [size for c in kernels for size in (c.m, c.n, c.k, c.split)]
        sizes, flat = (ctypes.c_size_t * len(x))(*x), (ctypes.c_size_t * len(tiles))(*tiles)
        times = (ctypes.c_double * len(kernels))()
        self._predict(p.arch.encode(), p.type.encode(), sizes, len(kernels), flat, times)
        return list(times)
