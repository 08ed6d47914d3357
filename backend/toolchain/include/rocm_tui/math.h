// exp, erf, tanh and the activations, the same arithmetic on every target.
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

RT_FN float exp(float x) {
  if (x != x) return x;
  if (x > 88.8f) return bit_cast<float>(0x7f800000u);
  if (x < -104.0f) return 0.0f;
  const float n = round_to_int(x * 1.442695041f);
  const float high = fma(n, -0.69140625f, x);  // exact: the constant has 8 bits
  const float r = fma(n, -1.7409305600e-3f, high);
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
