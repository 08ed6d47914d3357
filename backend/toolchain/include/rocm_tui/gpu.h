// What a kernel template may use: one source for AMD GPUs, NVIDIA GPUs and the CPU.
//
// Macros  RT_WAVE         threads of a wave: 64 on gfx9, 32 on RDNA and CUDA; on the CPU 64, or what a
//                         source defines before it includes this
//         RT_HAS(unit)    whether a matrix unit is there: RT_MFMA, RT_WMMA_GFX11, RT_WMMA_GFX12, RT_MMA;
//                         the CPU has those of its wave
//         RT_EXPORT       before the entry: extern "C", visible in the library
//         RT_LDS          RT_LDS(float, tile, [16][64]); a block's array, at the top of a kernel
//         RT_DYNAMIC_LDS  RT_DYNAMIC_LDS(char, name); the bytes that RT_LAUNCH asked for
//         RT_LAUNCH       error = RT_LAUNCH(kernel, grid, block, lds_bytes, stream, arguments...)
//         RT_UNROLL       before a loop over registers
//         RT_FN           before a device function
// Types   rt::half, rt::bf16, rt::e4m3fn, rt::e4m3fnuz, rt::e5m2, rt::e5m2fnuz, rt::vec<T, N>,
//         the units of rocm_tui/matrix.h
// HIP     __global__, __launch_bounds__, threadIdx, blockIdx, blockDim, gridDim, __syncthreads,
//         dim3, hipStream_t, hipError_t, hipSuccess, hipErrorInvalidValue, hipMemsetAsync,
//         hipGetLastError
//
// Write rt::half in full: newer HIP headers have a `half` of their own. A kernel that is
// `extern "C" __global__` keeps its plain name in profilers and in the resources that are read back.
//
// No standard header may be included beside this one: a device compiler without ROCm has none.
#pragma once
#include <hip/hip_runtime.h>
#include <rocm_tui/target.h>

#include <rocm_tui/number.h>
#include <rocm_tui/fp8.h>
#include <rocm_tui/vec.h>

#include <rocm_tui/math.h>
#include <rocm_tui/matrix.h>
#include <rocm_tui/copy.h>
#include <rocm_tui/warpgroup.h>
#include <rocm_tui/boxes.h>
#include <rocm_tui/wave.h>
