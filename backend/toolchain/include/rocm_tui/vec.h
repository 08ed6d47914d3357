// N values side by side in registers, and loads and stores of up to 16 bytes at once.
#pragma once

namespace rt {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vec {
  static_assert((N & (N - 1)) == 0, "a power of two");
  T v[N];
  RT_FN T& operator[](int i) { return v[i]; }
  RT_FN const T& operator[](int i) const { return v[i]; }
};

template <class T, int N>
RT_FN vec<T, N> fill(T value) {
  vec<T, N> out;
  RT_UNROLL
  for (int i = 0; i < N; ++i) out[i] = value;
  return out;
}

// Each converted; to fp16 and bf16 two in one instruction, where there is one.
template <class To, class From, int N>
RT_FN vec<To, N> convert_all(const vec<From, N>& values) {
  vec<To, N> out;
#if defined(RT_CUDA)
  if constexpr (detail::same<From, float> && N % 2 == 0 && (detail::same<To, half> || detail::same<To, bf16>)) {
    RT_UNROLL
    for (int i = 0; i < N; i += 2) {
      uint32_t pair;
      if constexpr (detail::same<To, half>) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(values[i + 1]), "f"(values[i]));
      } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(values[i + 1]), "f"(values[i]));
      }
      __builtin_memcpy(&out[i], &pair, sizeof pair);
    }
    return out;
  }
#endif
  RT_UNROLL
  for (int i = 0; i < N; ++i) out[i] = convert<To>(values[i]);
  return out;
}

namespace detail {

template <int bytes>
struct word;
template <>
struct word<1> {
  using type = uint8_t;
};
template <>
struct word<2> {
  using type = uint16_t;
};
template <>
struct word<4> {
  using type = uint32_t;
};
#if defined(RT_AMDGPU)
template <>
struct word<8> {
  typedef uint32_t type __attribute__((ext_vector_type(2)));
};
template <>
struct word<16> {
  typedef uint32_t type __attribute__((ext_vector_type(4)));
};
#elif defined(RT_CUDA)
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};
#endif

RT_FN void check_aligned(const void* address, size_t bytes) {
#if defined(RT_CPU)
  if (reinterpret_cast<uintptr_t>(address) % bytes) ::rt_cpu::fail("a vector access at a misaligned address");
#else
  (void)address, (void)bytes;
#endif
}

}  // namespace detail

// `from` is aligned to the whole vector, which has 1, 2, 4, 8 or 16 bytes. In one instruction.
template <int N, class T>
RT_FN vec<T, N> load(const T* from) {
  static_assert(sizeof(T) * N <= 16, "16 bytes at most");
  detail::check_aligned(from, sizeof(vec<T, N>));
#if defined(RT_CPU)
  vec<T, N> out;
  ::rt_cpu::trace_lds(from, sizeof out, false);
  __builtin_memcpy(&out, from, sizeof out);
  return out;
#else
  // A value of its own: nvcc would copy what a reference to memory is cast from byte by byte.
  using word = typename detail::word<sizeof(T) * N>::type;
  const word whole = *reinterpret_cast<const word*>(from);
  return bit_cast<vec<T, N>>(whole);
#endif
}

template <class T, int N>
RT_FN void store(T* to, const vec<T, N>& value) {
  static_assert(sizeof(T) * N <= 16, "16 bytes at most");
  detail::check_aligned(to, sizeof(vec<T, N>));
#if defined(RT_CPU)
  ::rt_cpu::trace_lds(to, sizeof value, true);
  __builtin_memcpy(to, &value, sizeof value);
#else
  using word = typename detail::word<sizeof(T) * N>::type;
  *reinterpret_cast<word*>(to) = bit_cast<word>(value);
#endif
}

// The first `count` of N values, one by one, and zeros for the rest; any alignment.
template <int N, class T>
RT_FN vec<T, N> load_part(const T* from, int count) {
  vec<T, N> out;
  RT_UNROLL
  for (int i = 0; i < N; ++i) out[i] = i < count ? from[i] : T{};
  return out;
}

}  // namespace rt
