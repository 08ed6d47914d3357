// exp, log, erf, tanh, the activations and what else pointwise expressions are made of: the same
// arithmetic on every target.
//
// A device compiler without ROCm has no math library, and equal code gives comparable numbers; only 2^x
// and 1/x are the device's own instructions, good to two roundings. No function branches: the elements
// of a store are computed side by side, which one that branches would keep from the others.
// Results below 2^-125 may be zeros. Minimax polynomials; errors against double are in
// tests/unit/toolchain/test_numbers.py.
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

// The quotient within two roundings, as Triton's.
RT_FN float divide(float over, float under) {
#if defined(RT_CUDA)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(over), "f"(under));
  return quotient;
#else
  return over / under;
#endif
}
RT_FN double divide(double over, double under) { return over / under; }

#if defined(RT_CUDA)
RT_FN float sqrt(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
RT_FN float rsqrt(float x) { return ::rsqrtf(x); }
RT_FN float floor(float x) { return ::floorf(x); }
RT_FN float ceil(float x) { return ::ceilf(x); }
RT_FN float trunc(float x) { return ::truncf(x); }
#else
RT_FN float sqrt(float x) { return __builtin_sqrtf(x); }
RT_FN float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
RT_FN float floor(float x) { return __builtin_floorf(x); }
RT_FN float ceil(float x) { return __builtin_ceilf(x); }
RT_FN float trunc(float x) { return __builtin_truncf(x); }
#endif

namespace detail {

// A NaN stays.
RT_FN float at_most(float x, float most) {
#if defined(RT_CUDA)
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x), "f"(most));
  return least;
#else
  return x > most ? most : x;
#endif
}
RT_FN float at_least(float x, float least) { return -at_most(-x, -least); }

RT_FN float size(float x) {
#if defined(RT_CUDA)
  return ::fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
RT_FN float with_sign(float size, float sign) {
  return bit_cast<float>(bit_cast<uint32_t>(size) | (bit_cast<uint32_t>(sign) & 0x80000000u));
}

// 1 / x; zero where that is subnormal.
RT_FN float reciprocal(float x) {
#if defined(RT_CUDA)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(RT_AMDGPU)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

#if defined(RT_AMDGPU) && defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_exp2f)
#define RT_AMDGPU_EXP2 1
#endif
#endif

}  // namespace detail

// 2^x; zero where that is subnormal.
RT_FN float exp2(float x) {
#if defined(RT_CUDA)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(RT_AMDGPU_EXP2)
  return __builtin_amdgcn_exp2f(x);
#else
  const float within = detail::at_least(detail::at_most(x, 129.0f), -127.0f);
  const float n = round_to_int(within), r = (within - n) * 0.6931471806f;
  float p = 1.394110843e-3f;
  p = fma(p, r, 8.375126398e-3f);
  p = fma(p, r, 4.166635290e-2f);
  p = fma(p, r, 1.666641551e-1f);
  p = fma(p, r, 5.000000047e-1f);
  p = fma(p, r, 1.000000038f);
  p = fma(p, r, 1.0f);
  // 2^n in two factors, so that 2^128 is none.
  const int whole = x == x ? static_cast<int>(n) : 0;
  const uint32_t scale = static_cast<uint32_t>(whole + 126) << 23;
  return p * 2.0f * bit_cast<float>(whole < -126 ? 0u : scale);
#endif
}

// 2^t where t is x * log2(e) rounded, and what the rounding left, which is so small that e^left is
// 1 + left. Where e^x overflows, so does 2^128 + left * 2^128.
RT_FN float exp(float x) {
  const float within = detail::at_least(x, -87.5f), t = detail::at_most(within * 1.442695041f, 127.99999f);
  const float left = fma(t, -0.6931471806f, within), power = exp2(t);
  return fma(power, left, power);
}

namespace detail {

// x = (1 + rest) * 2^exponent with 1 + rest from sqrt(1/2) to sqrt(2); x is positive and finite.
struct Scaled {
  float rest, exponent;
};

RT_FN Scaled scaled(float x) {
  const bool subnormal = x < 1.1754944e-38f;
  const float larger = x * 8388608.0f;
  const uint32_t bits = bit_cast<uint32_t>(subnormal ? larger : x), above = bits - 0x3f3504f3u;
  const int exponent = (static_cast<int>(above) >> 23) - (subnormal ? 23 : 0);
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
  const auto of = detail::scaled(x);
  const float beyond = fma(of.exponent, -2.12194440e-4f, detail::log_beyond(of.rest));
  const float ordinary = fma(of.exponent, 0.693359375f, of.rest + beyond);
  return detail::is_ordinary(x) ? ordinary : detail::log_of_odd(x);
}

RT_FN float log2(float x) {
  const auto of = detail::scaled(x);
  const float ordinary = fma(of.rest + detail::log_beyond(of.rest), 1.442695041f, of.exponent);
  return detail::is_ordinary(x) ? ordinary : detail::log_of_odd(x);
}

// W. Kahan's: what 1 + x loses of x, the quotient puts back.
RT_FN float log1p(float x) {
  const float near = 1.0f + x, of_near = log(near);
  const float mended = of_near * divide(x, near - 1.0f);
  const float any = detail::is_ordinary(near) ? mended : of_near;
  return near == 1.0f ? x : any;
}

RT_FN float expm1(float x) {
  const float near = exp(x), less = near - 1.0f;
  const float mended = less * divide(x, log(near));
  const float any = less == -1.0f || !detail::is_ordinary(near) || x > 1.0f ? less : mended;
  return near == 1.0f ? x : any;
}

RT_FN float erf(float x) {
  const float a = detail::at_most(detail::size(x), 4.0f), u = a * a;
  float p = 4.717966542e-3f;
  p = fma(p, u, -2.675717510e-2f);
  p = fma(p, u, 1.128282249e-1f);
  p = fma(p, u, -3.761260808e-1f);
  p = fma(p, u, 1.128379107f);
  // The base-2 logarithm of 1 - erf(a).
  float q = 3.227897105e-4f;
  q = fma(q, a, -4.757684655e-3f);
  q = fma(q, a, 3.342749178e-2f);
  q = fma(q, a, -1.525561363e-1f);
  q = fma(q, a, -9.165092707e-1f);
  q = fma(q, a, -1.628396392f);
  q = fma(q, a, 5.252396659e-5f);
  const float near = p * a, far = 1.0f - exp2(q);
  return detail::with_sign(a < 0.5f ? near : far, x);
}

RT_FN float tanh(float x) {
  const float a = detail::size(x), u = a * a;
  float p = 1.713495702e-2f;
  p = fma(p, u, -5.298605189e-2f);
  p = fma(p, u, 1.332477927e-1f);
  p = fma(p, u, -3.333306909e-1f);
  p = fma(p, u, 1.0f);
  // An exponential that is not exact is so where 1 - tanh is small beside 1.
  const float near = p * a, far = fma(-2.0f, detail::reciprocal(exp2(a * 2.885390082f) + 1.0f), 1.0f);
  return detail::with_sign(a < 0.5f ? near : far, x);
}

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

RT_FN float sigmoid(float x) { return detail::reciprocal(1.0f + exp(-x)); }
template <class T>
RT_FN T relu(T x) {
  return x < T{} ? T{} : x;
}
RT_FN float silu(float x) { return x * sigmoid(x); }

// x * (1 + erf(x / sqrt(2))) / 2 is max(x, 0) less half of |x| * (1 - erf(|x| / sqrt(2))).
RT_FN float gelu(float x) {
  const float a = detail::at_most(detail::size(x), 16.0f), half = 0.5f * x;
  float q = -1.099433916e-6f;  // as in erf
  q = fma(q, a, 1.896739195e-5f);
  q = fma(q, a, -9.351649351e-5f);
  q = fma(q, a, -3.447536146e-4f);
  q = fma(q, a, 7.307360880e-3f);
  q = fma(q, a, -5.264180154e-2f);
  q = fma(q, a, -4.591690898e-1f);
  q = fma(q, a, -1.151108623f);
  q = fma(q, a, -1.0f);
  return fma(-a, exp2(q), half + detail::size(half));
}

// (1 + tanh(y)) / 2 is 1 / (1 + e^-2y).
RT_FN float gelu_tanh(float x) {
  const float exponent = x * fma(x * x, -0.1029432397f, -2.302208198f);
  return x * detail::reciprocal(1.0f + exp2(exponent));
}

}  // namespace rt
