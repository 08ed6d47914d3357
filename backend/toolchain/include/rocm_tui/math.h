// exp, log, erf, tanh, the activations and what else pointwise expressions are made of: the same
// arithmetic on every target.
//
// A device compiler without ROCm has no math library, and equal code gives comparable numbers.
// Polynomials by Chebyshev interpolation; errors against double are in tests/unit/toolchain/test_numbers.py.
#pragma once

namespace rt {

RT_FN float fma(float a, float b, float c) {
#if defined(RT_CUDA)
  return ::fmaf(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

RT_FN double fma(double a, double b, double c) {
#if defined(RT_CUDA)
  return ::fma(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

RT_FN int32_t fma(int32_t a, int32_t b, int32_t c) { return a * b + c; }

RT_FN float round_to_int(float value) {
#if defined(RT_CUDA)
  return ::rintf(value);
#else
  return __builtin_rintf(value);
#endif
}

namespace detail {

// e^r * 2^n for a small r and a whole n.
RT_FN float exp_of(float r, float n) {
  float p = 1.394110843e-3f;
  p = fma(p, r, 8.375126398e-3f);
  p = fma(p, r, 4.166635290e-2f);
  p = fma(p, r, 1.666641551e-1f);
  p = fma(p, r, 5.000000047e-1f);
  p = fma(p, r, 1.000000038f);
  p = fma(p, r, 1.0f);
  // 2^n in two factors, so that neither overflows nor is subnormal.
  const int whole = static_cast<int>(n), first = whole / 2, second = whole - first;
  return p * bit_cast<float>(static_cast<uint32_t>(first + 127) << 23) *
         bit_cast<float>(static_cast<uint32_t>(second + 127) << 23);
}

}  // namespace detail

RT_FN float exp(float x) {
  if (x != x) return x;
  if (x > 88.8f) return bit_cast<float>(0x7f800000u);
  if (x < -104.0f) return 0.0f;
  const float n = round_to_int(x * 1.442695041f);
  const float high = fma(n, -0.69140625f, x);  // exact: the constant has 8 bits
  return detail::exp_of(fma(n, -1.7409305600e-3f, high), n);
}

RT_FN float exp2(float x) {
  if (x != x) return x;
  if (x >= 128.0f) return bit_cast<float>(0x7f800000u);
  if (x < -150.0f) return 0.0f;
  const float n = round_to_int(x);
  return detail::exp_of((x - n) * 0.6931471806f, n);
}

namespace detail {

// x = (1 + rest) * 2^exponent with 1 + rest from sqrt(1/2) to sqrt(2); x is positive and finite.
struct Scaled {
  float rest, exponent;
};

RT_FN Scaled scaled(float x) {
  int exponent = 0;
  if (x < 1.1754944e-38f) x *= 8388608.0f, exponent = -23;  // subnormal
  const uint32_t bits = bit_cast<uint32_t>(x), above = bits - 0x3f3504f3u;
  exponent += static_cast<int>(above) >> 23;
  return {bit_cast<float>((above & 0x7fffffu) + 0x3f3504f3u) - 1.0f, static_cast<float>(exponent)};
}

// log(1 + f) - f for such a rest; the polynomial is that of Cephes' logf.
RT_FN float log_beyond(float f) {
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = fma(p, f, -1.1514610310e-1f);
  p = fma(p, f, 1.1676998740e-1f);
  p = fma(p, f, -1.2420140846e-1f);
  p = fma(p, f, 1.4249322787e-1f);
  p = fma(p, f, -1.6668057665e-1f);
  p = fma(p, f, 2.0000714765e-1f);
  p = fma(p, f, -2.4999993993e-1f);
  p = fma(p, f, 3.3333331174e-1f);
  return fma(p * f, z, -0.5f * z);
}

RT_FN bool is_ordinary(float x) { return 0.0f < x && x < bit_cast<float>(0x7f800000u); }

// log(x) where x is not both positive and finite.
RT_FN float log_of_odd(float x) {
  if (x == 0.0f) return bit_cast<float>(0xff800000u);
  return x < 0.0f ? bit_cast<float>(0x7fc00000u) : x;
}

}  // namespace detail

RT_FN float log(float x) {
  if (!detail::is_ordinary(x)) return detail::log_of_odd(x);
  const auto of = detail::scaled(x);
  const float beyond = fma(of.exponent, -2.12194440e-4f, detail::log_beyond(of.rest));
  return fma(of.exponent, 0.693359375f, of.rest + beyond);
}

RT_FN float log2(float x) {
  if (!detail::is_ordinary(x)) return detail::log_of_odd(x);
  const auto of = detail::scaled(x);
  return fma(of.rest + detail::log_beyond(of.rest), 1.442695041f, of.exponent);
}

// W. Kahan's: what 1 + x loses of x, the quotient puts back.
RT_FN float log1p(float x) {
  const float near = 1.0f + x;
  if (near == 1.0f || !detail::is_ordinary(near)) return near == 1.0f ? x : log(near);
  return log(near) * (x / (near - 1.0f));
}

RT_FN float expm1(float x) {
  const float near = exp(x);
  if (near == 1.0f) return x;
  const float less = near - 1.0f;
  return less == -1.0f || !detail::is_ordinary(near) || x > 1.0f ? less : less * (x / log(near));
}

RT_FN float erf(float x) {
  const float a = x < 0.0f ? -x : x;
  if (a < 0.875f) {
    const float u = x * x;
    float p = 8.565391198e-5f;
    p = fma(p, u, -8.187615426e-4f);
    p = fma(p, u, 5.204885546e-3f);
    p = fma(p, u, -2.686091304e-2f);
    p = fma(p, u, 1.128372223e-1f);
    p = fma(p, u, -3.761263545e-1f);
    p = fma(p, u, 1.128379167f);
    return p * x;
  }
  if (a >= 4.0f) return x < 0.0f ? -1.0f : 1.0f;
  float q = 2.552009980e-8f;
  q = fma(q, a, -2.158171635e-6f);
  q = fma(q, a, 5.058791593e-5f);
  q = fma(q, a, -6.186288339e-4f);
  q = fma(q, a, 4.822977853e-3f);
  q = fma(q, a, -2.653378920e-2f);
  q = fma(q, a, 1.101975834e-1f);
  q = fma(q, a, 6.317639637e-1f);
  q = fma(q, a, 1.130241532f);
  q = fma(q, a, -3.165785341e-4f);
  const float magnitude = 1.0f - exp(-q);
  return x < 0.0f ? -magnitude : x != x ? x : magnitude;
}

RT_FN float tanh(float x) {
  const float a = x < 0.0f ? -x : x;
  if (a < 0.6f) {
    const float u = x * x;
    float p = -5.849643910e-3f;
    p = fma(p, u, 2.075134911e-2f);
    p = fma(p, u, -5.376798351e-2f);
    p = fma(p, u, 1.333167963e-1f);
    p = fma(p, u, -3.333328283e-1f);
    p = fma(p, u, 0.9999999975f);
    return p * x;
  }
  const float magnitude = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return x < 0.0f ? -magnitude : magnitude;
}

#if defined(RT_CUDA)
RT_FN float sqrt(float x) { return ::sqrtf(x); }
RT_FN float floor(float x) { return ::floorf(x); }
RT_FN float ceil(float x) { return ::ceilf(x); }
RT_FN float trunc(float x) { return ::truncf(x); }
#else
RT_FN float sqrt(float x) { return __builtin_sqrtf(x); }
RT_FN float floor(float x) { return __builtin_floorf(x); }
RT_FN float ceil(float x) { return __builtin_ceilf(x); }
RT_FN float trunc(float x) { return __builtin_truncf(x); }
#endif

template <class T>
RT_FN T infinity() {
  return static_cast<T>(bit_cast<float>(0x7f800000u));
}
template <class T>
RT_FN T not_a_number() {
  return static_cast<T>(bit_cast<float>(0x7fc00000u));
}
template <class T>
RT_FN bool is_inf(T x) {
  return x == infinity<T>() || x == -infinity<T>();
}
template <class T>
RT_FN T abs(T x) {
  return x < 0 ? -x : x == 0 ? T(0) : x;
}
template <class T>
RT_FN T sign(T x) {
  return static_cast<T>((x > 0) - (x < 0));
}
// A NaN of either stays.
template <class T>
RT_FN T maximum(T x, T y) {
  return x != x || x > y ? x : y;
}
template <class T>
RT_FN T minimum(T x, T y) {
  return x != x || x < y ? x : y;
}
RT_FN bool signbit(float x) { return bit_cast<uint32_t>(x) >> 31; }
RT_FN float copysign(float size, float sign) {
  return bit_cast<float>((bit_cast<uint32_t>(size) & 0x7fffffffu) | (bit_cast<uint32_t>(sign) & 0x80000000u));
}

// Whole numbers wrap around, as those of tensors do.
template <class T>
RT_FN T wrapping_add(T x, T y) {
  return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}
template <class T>
RT_FN T wrapping_sub(T x, T y) {
  return static_cast<T>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
}
template <class T>
RT_FN T wrapping_mul(T x, T y) {
  return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}
template <class T>
RT_FN T wrapping_neg(T x) {
  return static_cast<T>(-static_cast<uint64_t>(x));
}

// A shift by less than nothing or by all bits is what torch has for it, not what the hardware does.
template <class T>
RT_FN bool shifts_all(T by) {
  return by < 0 || static_cast<uint64_t>(by) >= 8 * sizeof(T);
}
template <class T>
RT_FN T shift_left(T x, T by) {
  return shifts_all(by) ? T{} : static_cast<T>(static_cast<uint64_t>(x) << by);
}
template <class T>
RT_FN T shift_right(T x, T by) {
  return shifts_all(by) ? static_cast<T>(x < 0 ? -1 : 0) : static_cast<T>(x >> by);
}

RT_FN float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
template <class T>
RT_FN T relu(T x) {
  return x < T{} ? T{} : x;
}
RT_FN float silu(float x) { return x / (1.0f + exp(-x)); }
RT_FN float gelu(float x) { return 0.5f * x * (1.0f + erf(x * 0.7071067812f)); }
RT_FN float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanh(0.7978845608f * fma(0.044715f * x * x, x, x)));
}

}  // namespace rt
