// bfloat16 as a storage type: the upper half of a float, rounded to nearest even on a store.
#pragma once
#include <hip/hip_fp16.h>

struct alignas(2) __hip_bfloat16 {
  uint16_t bits;

  __hip_bfloat16() = default;
  __hip_bfloat16(float value) {
    const uint32_t whole = rt_cpu::bits_of_float(value);
    const bool nan = (whole & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? 0x7fc0 | (whole >> 16 & 0x8000u) : static_cast<uint16_t>((whole + 0x7fffu + (whole >> 16 & 1)) >> 16);
  }
  operator float() const { return rt_cpu::float_of_bits(uint32_t{bits} << 16); }
};

inline float __bfloat162float(__hip_bfloat16 value) { return value; }
