// What differs between the targets: the wave, the matrix cores, LDS and launches.
#pragma once

#if defined(__HIP_PLATFORM_CPU__)
#define RT_CPU 1
#elif defined(__CUDACC__)
#define RT_CUDA 1
#else
#define RT_AMDGPU 1
#endif

#if !defined(RT_WAVE)
#if defined(RT_CUDA)
#define RT_WAVE 32
#else
#error "say -DRT_WAVE=64 (gfx9) or -DRT_WAVE=32 (gfx10 and later): the host code must know it too"
#endif
#endif

// Matrix units: the compiler is told which one the device has; the CPU emulates those of its wave.
#define RT_NO_MATRIX 0
#define RT_MFMA 1
#define RT_WMMA_GFX11 2
#define RT_WMMA_GFX12 3
#define RT_MMA 4
#define RT_EMULATED 5
#if !defined(RT_MATRIX)
#if defined(RT_CPU)
#define RT_MATRIX RT_EMULATED
#else
#define RT_MATRIX RT_NO_MATRIX
#endif
#endif
#define RT_HAS(unit) (RT_MATRIX == (unit) || (RT_MATRIX == RT_EMULATED && (RT_WAVE == 64) == ((unit) == RT_MFMA)))

#define RT_EXPORT extern "C" __attribute__((visibility("default")))

// What an entry's error number means, for whoever loads the library.
extern "C" __attribute__((weak, used, visibility("default"))) const char* rocm_tui_error_text(int error) {
  return hipGetErrorString(static_cast<hipError_t>(error));
}

#define RT_FN __device__ __forceinline__
#define RT_PRAGMA(text) _Pragma(#text)

#if defined(RT_CPU)

#define RT_UNROLL RT_PRAGMA(GCC unroll 16)
#define RT_LDS(type, name, dims) \
  auto& name = *static_cast<type(*) dims>(::rt_cpu::block_lds(sizeof(type dims)))
#define RT_DYNAMIC_LDS(type, name) type* const name = reinterpret_cast<type*>(::rt_cpu::machine.lds)
#define RT_LAUNCH(kernel, grid, block, lds_bytes, stream, ...) \
  ((void)(stream), ::rt_cpu::launch(kernel, grid, block, lds_bytes, ##__VA_ARGS__))

#else

#define RT_UNROLL RT_PRAGMA(unroll)
#define RT_LDS(type, name, dims) __shared__ __attribute__((aligned(16))) type name dims
#define RT_DYNAMIC_LDS(type, name)                                                   \
  extern __shared__ __attribute__((aligned(1024))) unsigned char rt_dynamic_lds_bytes[]; \
  type* const name = reinterpret_cast<type*>(rt_dynamic_lds_bytes)

namespace rt {

// More dynamic LDS than every device has must be asked for, kernel by kernel.
inline hipError_t allow_lds(const void* kernel, size_t bytes) {
#if defined(RT_CUDA)
  constexpr size_t always = 48 * 1024;
#else
  constexpr size_t always = 64 * 1024;
#endif
  if (bytes <= always) return hipSuccess;
  return hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace rt

#define RT_LAUNCH(kernel, grid, block, lds_bytes, stream, ...)                         \
  __extension__({                                                                      \
    const size_t rt_lds_bytes = (lds_bytes);                                           \
    hipError_t rt_error = ::rt::allow_lds(reinterpret_cast<const void*>(kernel), rt_lds_bytes); \
    if (rt_error == hipSuccess) {                                                      \
      kernel<<<(grid), (block), rt_lds_bytes, (stream)>>>(__VA_ARGS__);                \
      rt_error = hipGetLastError();                                                    \
    }                                                                                  \
    static_cast<int>(rt_error);                                                        \
  })

#endif

// A kernel launched by RT_LAUNCH_EARLY may be on the device before the one before it has ended; it calls
// wait_for_previous before it reads what that one wrote. That one says next_may_start when all that is
// left to do is little.
#if defined(RT_CUDA) && CUDART_VERSION >= 12030 && defined(__CUDA_ARCH_LIST__)
#if __CUDA_ARCH_LIST__ >= 900
#define RT_HAS_EARLY 1
#endif
#endif

namespace rt {

#if defined(RT_HAS_EARLY)
template <class... Args>
int launch_early(void (*kernel)(Args...), dim3 grid, dim3 block, hipStream_t stream, Args... args) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.stream = stream;
  config.attrs = &early, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args...);
}
#define RT_LAUNCH_EARLY(kernel, grid, block, stream, ...) ::rt::launch_early(kernel, grid, block, stream, __VA_ARGS__)
#else
#define RT_LAUNCH_EARLY(kernel, grid, block, stream, ...) RT_LAUNCH(kernel, grid, block, 0, stream, __VA_ARGS__)
#endif

RT_FN void wait_for_previous() {
#if defined(RT_HAS_EARLY)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
RT_FN void next_may_start() {
#if defined(RT_HAS_EARLY)
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace rt
