// Numbers of 8 bits to and from fp32, with the bits that torch gives: rt::e4m3fn and rt::e5m2 (OCP),
// rt::e4m3fnuz and rt::e5m2fnuz (MI300). A narrowing rounds to nearest even. What is too large becomes
// infinite in e5m2, NaN in the FNUZ types, and the largest number in e4m3fn, as torch 2.13 has it.
// Arithmetic is done in fp32.
#pragma once

namespace rt {

// IEEE has infinities, FN has none, and FNUZ neither these nor a negative zero: its bits are NaN.
enum class Special { IEEE, FN, FNUZ };

template <int Mantissa, int Bias, Special Kind>
struct alignas(1) fp8 {
  uint8_t bits;
#if defined(RT_CPU)
  operator float() const;
#endif
};
using e4m3fn = fp8<3, 7, Special::FN>;
using e4m3fnuz = fp8<3, 8, Special::FNUZ>;
using e5m2 = fp8<2, 15, Special::IEEE>;
using e5m2fnuz = fp8<2, 16, Special::FNUZ>;

namespace detail {

// 2^exponent, which is that of a normal number.
RT_FN float power_of_two(int exponent) { return bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

template <Special Kind>
RT_FN bool is_nan(uint32_t bits) {
  if (Kind == Special::FNUZ) return bits == 0x80;
  return Kind == Special::FN ? (bits & 0x7f) == 0x7f : (bits & 0x7f) > 0x7c;
}

template <int Mantissa, int Bias, Special Kind>
RT_FN uint8_t narrow(float value) {
  constexpr uint32_t NORMAL = static_cast<uint32_t>(128 - Bias) << 23;
  constexpr uint32_t LARGEST = Kind == Special::IEEE ? 0x7b : Kind == Special::FN ? 0x7e : 0x7f;
  constexpr uint32_t OVER = Kind == Special::IEEE ? 0x7c : Kind == Special::FN ? 0x7e : 0x80;
  const uint32_t whole = bit_cast<uint32_t>(value), magnitude = whole & 0x7fffffff, sign = whole >> 24 & 0x80;
  if (magnitude > 0x7f800000) return Kind == Special::FNUZ ? 0x80 : sign | 0x7f;
  uint32_t bits;
  if (magnitude >= NORMAL) {
    const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - Bias) << 23), drop = 23 - Mantissa;
    bits = (rebased + (1u << (drop - 1)) - 1 + (rebased >> drop & 1)) >> drop;
  } else {
    // One bit of the sum is one of the subnormal: the addition rounds.
    const float shift = power_of_two(24 - Bias - Mantissa);
    bits = bit_cast<uint32_t>(bit_cast<float>(magnitude) + shift) - bit_cast<uint32_t>(shift);
  }
  if (bits > LARGEST) return static_cast<uint8_t>(Kind == Special::FNUZ ? OVER : sign | OVER);
  return static_cast<uint8_t>(Kind == Special::FNUZ && bits == 0 ? 0 : sign | bits);
}

}  // namespace detail

template <int Mantissa, int Bias, Special Kind>
RT_FN float to_float(fp8<Mantissa, Bias, Kind> value) {
  const uint32_t bits = value.bits, magnitude = bits & 0x7f, sign = bits << 24 & 0x80000000;
  if (detail::is_nan<Kind>(bits)) return bit_cast<float>(sign | 0x7fc00000);
  if (Kind == Special::IEEE && magnitude == 0x7c) return bit_cast<float>(sign | 0x7f800000);
  const float subnormal = static_cast<float>(magnitude) * detail::power_of_two(1 - Bias - Mantissa);
  const uint32_t normal = (magnitude << (23 - Mantissa)) + (static_cast<uint32_t>(127 - Bias) << 23);
  const uint32_t size = magnitude >> Mantissa ? normal : bit_cast<uint32_t>(subnormal);
  return bit_cast<float>(sign | size);
}

#if defined(RT_CPU)
template <int Mantissa, int Bias, Special Kind>
fp8<Mantissa, Bias, Kind>::operator float() const {
  return to_float(*this);
}
#endif

#define RT_FROM_FLOAT(Type, ...)                                \
  template <>                                                   \
  RT_FN Type from_float<Type>(float value) {                    \
    return Type{detail::narrow<__VA_ARGS__>(value)};            \
  }
RT_FROM_FLOAT(e4m3fn, 3, 7, Special::FN)
RT_FROM_FLOAT(e4m3fnuz, 3, 8, Special::FNUZ)
RT_FROM_FLOAT(e5m2, 2, 15, Special::IEEE)
RT_FROM_FLOAT(e5m2fnuz, 2, 16, Special::FNUZ)
#undef RT_FROM_FLOAT

}  // namespace rt
