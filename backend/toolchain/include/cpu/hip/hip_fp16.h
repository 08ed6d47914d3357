// IEEE binary16 as a storage type: arithmetic happens in float, a store rounds to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

// The builtins, not <immintrin.h>: that header alone takes half of a kernel's compile time.
#if defined(__F16C__) && !defined(RT_CPU_SOFT_HALF)
#define RT_CPU_F16C 1
#else
#define RT_CPU_F16C 0
#endif

namespace rt_cpu {

inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

#if RT_CPU_F16C
typedef short short8 __attribute__((vector_size(16)));
typedef float float4 __attribute__((vector_size(16)));
constexpr int nearest_even = 0;

inline float half_to_float(uint16_t half) {
  return __builtin_ia32_vcvtph2ps(short8{static_cast<short>(half)})[0];
}

inline uint16_t float_to_half(float value) {
  return static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(float4{value}, nearest_even)[0]);
}

#else

inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00) {  // infinite, or a NaN made quiet
    const uint32_t quiet = magnitude > 0x7c00 ? 0x00400000u : 0;
    return float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
  }
  if (magnitude >= 0x0400) return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -value : value;
}

inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00 | (magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {
    const uint32_t rebased = magnitude - (112u << 23);
    return sign | static_cast<uint16_t>((rebased + 0xfffu + (rebased >> 13 & 1)) >> 13);
  }
  // Adding 0.5 leaves the subnormal's bits, rounded to nearest even, at the end of the mantissa.
  const float shifted = float_of_bits(magnitude) + 0.5f;
  return sign | static_cast<uint16_t>(bits_of_float(shifted) - 0x3f000000u);
}

#endif

}  // namespace rt_cpu

struct alignas(2) __half {
  uint16_t bits;

  __half() = default;
  __half(float value) : bits(rt_cpu::float_to_half(value)) {}
  operator float() const { return rt_cpu::half_to_float(bits); }
};

using half = __half;

inline float __half2float(__half value) { return value; }
