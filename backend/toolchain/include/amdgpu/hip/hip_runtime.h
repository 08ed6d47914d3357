// HIP's kernel language for a clang that has no ROCm: device code only, host calls only declared.
#pragma once

// A compiler that comes alone has no standard headers either.
typedef __SIZE_TYPE__ size_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))

// (threads) or (threads, waves a SIMD at least): the device's compiler obeys these attributes alone.
#define RT_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define RT_BOUNDS_2(threads, waves) RT_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define RT_BOUNDS_OF(_1, _2, name, ...) name
#define __launch_bounds__(...) RT_BOUNDS_OF(__VA_ARGS__, RT_BOUNDS_2, RT_BOUNDS_1, )(__VA_ARGS__)

struct uint3 {
  unsigned x, y, z;
};

struct dim3 : uint3 {
  __host__ __device__ constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : uint3{x_, y_, z_} {}
};

// Three registers that read like the members of a variable; nothing is ever stored.
#define RT_COORDINATES(Name, X, Y, Z)                      \
  struct Name {                                            \
    __declspec(property(get = get_x)) unsigned x;          \
    __declspec(property(get = get_y)) unsigned y;          \
    __declspec(property(get = get_z)) unsigned z;          \
    __device__ __forceinline__ unsigned get_x() const { return X; } \
    __device__ __forceinline__ unsigned get_y() const { return Y; } \
    __device__ __forceinline__ unsigned get_z() const { return Z; } \
  }
RT_COORDINATES(rt_thread_index, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
               __builtin_amdgcn_workitem_id_z());
RT_COORDINATES(rt_block_index, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
               __builtin_amdgcn_workgroup_id_z());
RT_COORDINATES(rt_block_size, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
               __builtin_amdgcn_workgroup_size_z());
RT_COORDINATES(rt_grid_size, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
               __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
               __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z());
#undef RT_COORDINATES
extern const __device__ __attribute__((weak)) rt_thread_index threadIdx;
extern const __device__ __attribute__((weak)) rt_block_index blockIdx;
extern const __device__ __attribute__((weak)) rt_block_size blockDim;
extern const __device__ __attribute__((weak)) rt_grid_size gridDim;

__device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device__ __forceinline__ int rt_lane() {
#if RT_WAVE == 64
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
#else
  return __builtin_amdgcn_mbcnt_lo(~0u, 0u);
#endif
}

template <class T>
__device__ __forceinline__ T rt_from_lane(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0, "shuffles are of 32 bits");
  int bits[sizeof(T) / 4];
  __builtin_memcpy(bits, &value, sizeof(T));
  for (int& word : bits) word = __builtin_amdgcn_ds_bpermute(lane << 2, word);
  __builtin_memcpy(&value, bits, sizeof(T));
  return value;
}

template <class T>
__device__ __forceinline__ T __shfl_xor(T value, int mask, int width = RT_WAVE) {
  const int self = rt_lane(), from = self ^ mask;
  return rt_from_lane(value, from >= ((self + width) & ~(width - 1)) ? self : from);
}

struct ihipStream_t;
typedef ihipStream_t* hipStream_t;
enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorInvalidConfiguration = 9,
};
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };

extern "C" {
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t error);
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream);
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t lds, hipStream_t stream);
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds = 0, hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* lds, hipStream_t* stream);
}
