// What the lanes of a wave do together. Every lane of the wave must take part.
#pragma once

namespace rt {

// The lane within its wave, for blocks of one dimension.
RT_FN int lane() { return static_cast<int>(threadIdx.x % RT_WAVE); }
RT_FN int wave() { return static_cast<int>(threadIdx.x / RT_WAVE); }

// LDS written by a lane before is seen by the other lanes of its wave after.
RT_FN void wave_sync() {
#if defined(RT_CUDA)
  __syncwarp();
#elif defined(RT_CPU)
  __builtin_amdgcn_wave_barrier();
#else
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#endif
}

template <class T>
RT_FN T shfl_xor(T value, int mask, int width = RT_WAVE) {
#if defined(RT_CUDA)
  return __shfl_xor_sync(0xffffffffu, value, mask, width);
#else
  return __shfl_xor(value, mask, width);
#endif
}

}  // namespace rt
