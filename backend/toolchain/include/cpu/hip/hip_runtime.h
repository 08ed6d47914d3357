// The part of HIP that kernels and their host code need, on the CPU. See rt_cpu/machine.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <rt_cpu/machine.h>
#include <rt_cpu/trace.h>
#include <rt_cpu/wave.h>

#define __HIP_PLATFORM_CPU__ 1
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

#define threadIdx (::rt_cpu::machine.current->thread)
#define blockIdx (::rt_cpu::machine.block_index)
#define blockDim (::rt_cpu::machine.block)
#define gridDim (::rt_cpu::machine.grid)

inline void __syncthreads(int site = __builtin_LINE()) { rt_cpu::block_barrier(site); }

struct ihipStream_t;
using hipStream_t = ihipStream_t*;
using hipError_t = int;
enum : int {
  hipSuccess = 0,
  hipErrorInvalidValue = rt_cpu::invalid_value,
  hipErrorOutOfMemory = rt_cpu::out_of_memory,
  hipErrorInvalidConfiguration = rt_cpu::invalid_configuration,
};
enum hipMemcpyKind { hipMemcpyHostToDevice, hipMemcpyDeviceToHost };

inline hipError_t hipGetLastError() {
  const int error = rt_cpu::machine.last_error;
  rt_cpu::machine.last_error = hipSuccess;
  return error;
}

inline const char* hipGetErrorString(hipError_t error) {
  if (error == hipSuccess) return "no error";
  if (error == hipErrorInvalidValue) return "invalid value";
  return *rt_cpu::machine.message ? rt_cpu::machine.message : "unknown error";
}

inline hipError_t hipDeviceSynchronize() { return hipSuccess; }

template <class T>
hipError_t hipMalloc(T** memory, size_t bytes) {
  *memory = static_cast<T*>(aligned_alloc(256, (bytes + 255) & ~size_t{255}));
  return *memory || !bytes ? hipSuccess : hipErrorOutOfMemory;
}

inline hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind) {
  return memcpy(to, from, bytes), hipSuccess;
}
inline hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t = nullptr) {
  return memset(to, value, bytes), hipSuccess;
}

// Events are points in time: everything before them is already done.
struct rt_cpu_event {
  timespec when;
};
using hipEvent_t = rt_cpu_event*;

inline hipError_t hipEventCreate(hipEvent_t* event) { return *event = new rt_cpu_event{}, hipSuccess; }
inline hipError_t hipEventDestroy(hipEvent_t event) { return delete event, hipSuccess; }
inline hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t = nullptr) {
  return clock_gettime(CLOCK_MONOTONIC, &event->when), hipSuccess;
}
inline hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  *milliseconds = static_cast<float>((to->when.tv_sec - from->when.tv_sec) * 1e3 +
                                     (to->when.tv_nsec - from->when.tv_nsec) * 1e-6);
  return hipSuccess;
}

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#if RT_WAVE == 64
#include <rt_cpu/mfma.h>
#else
#include <rt_cpu/boxes.h>
#include <rt_cpu/mma.h>
#include <rt_cpu/warpgroup.h>
#include <rt_cpu/wmma.h>
#endif
#include <rt_cpu/double.h>
