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
RT_FN T shfl(T value, int source, int width = RT_WAVE) {
#if defined(RT_CUDA)
  return __shfl_sync(0xffffffffu, value, source, width);
#else
  return __shfl(value, source, width);
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

template <class T>
RT_FN T shfl_down(T value, unsigned delta, int width = RT_WAVE) {
#if defined(RT_CUDA)
  return __shfl_down_sync(0xffffffffu, value, delta, width);
#else
  return __shfl_down(value, delta, width);
#endif
}

RT_FN unsigned long long ballot(bool predicate) {
#if defined(RT_CUDA)
  return __ballot_sync(0xffffffffu, predicate);
#else
  return __ballot(predicate);
#endif
}

// The sum over groups of `width` lanes, a power of two, in each of them; always in the same order.
template <class T>
RT_FN T wave_sum(T value, int width = RT_WAVE) {
  for (int step = width / 2; step > 0; step /= 2) value += shfl_xor(value, step, width);
  return value;
}

}  // namespace rt
