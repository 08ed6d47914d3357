// fp16 under HIP's names.
#pragma once
#include <hip/hip_runtime.h>

typedef _Float16 __half;

__device__ __forceinline__ float __half2float(__half value) { return static_cast<float>(value); }
__device__ __forceinline__ __half __float2half(float value) { return static_cast<__half>(value); }
