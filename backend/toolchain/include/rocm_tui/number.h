// Numbers of kernels. fp16 and bf16 to and from fp32: a narrowing rounds to nearest even, arithmetic is
// done in fp32. fp64 and whole numbers are C++'s own.
#pragma once

namespace rt {

template <class To, class From>
RT_FN To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

#if defined(RT_CPU)

using half = __half;
using bf16 = __hip_bfloat16;
RT_FN float to_float(half value) { return __half2float(value); }
RT_FN float to_float(bf16 value) { return __bfloat162float(value); }

#elif defined(RT_CUDA)

using half = __half;
using bf16 = __nv_bfloat16;
RT_FN float to_float(half value) { return __half2float(value); }
RT_FN float to_float(bf16 value) { return __bfloat162float(value); }

#else

using half = _Float16;
struct alignas(2) bf16 {
  uint16_t bits;
};
RT_FN float to_float(half value) { return static_cast<float>(value); }
RT_FN float to_float(bf16 value) { return bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

#endif

RT_FN float to_float(float value) { return value; }

template <class T>
RT_FN T from_float(float value);

template <>
RT_FN float from_float<float>(float value) {
  return value;
}

#if defined(RT_AMDGPU)

template <>
RT_FN half from_float<half>(float value) {
  return static_cast<half>(value);
}

template <>
RT_FN bf16 from_float<bf16>(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return bf16{static_cast<uint16_t>(value != value ? (bits >> 16 & 0x8000u) | 0x7fc0u : rounded)};
}

#elif defined(RT_CUDA)

template <>
RT_FN half from_float<half>(float value) {
  return __float2half_rn(value);
}

template <>
RT_FN bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

#else

template <>
RT_FN half from_float<half>(float value) {
  return half(value);
}

template <>
RT_FN bf16 from_float<bf16>(float value) {
  return bf16(value);
}

#endif

namespace detail {

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;
// C++ itself converts between these.
template <class T>
constexpr bool plain = same<T, float> || same<T, double> || same<T, int8_t> || same<T, int16_t> || same<T, int32_t> ||
                       same<T, int64_t> || same<T, uint8_t> || same<T, bool>;

}  // namespace detail

// From any number to any other. Narrow floats go by way of fp32, as torch's do.
template <class To, class From>
RT_FN To convert(From value) {
  if constexpr (detail::same<To, From>) {
    return value;
  } else if constexpr (detail::plain<To>) {
    if constexpr (detail::plain<From>) {
      return static_cast<To>(value);
    } else {
      return static_cast<To>(to_float(value));
    }
  } else if constexpr (detail::plain<From>) {
    return from_float<To>(static_cast<float>(value));
  } else {
    return from_float<To>(to_float(value));
  }
}

}  // namespace rt
