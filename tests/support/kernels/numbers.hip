// Conversions and math, one thread a value: what the host's float and torch are compared with.
#include <rocm_tui/gpu.h>

namespace {

template <class T>
__global__ void widen(const T* from, float* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = rt::to_float(from[i]);
}

template <class T>
__global__ void narrow(const float* from, T* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = rt::from_float<T>(from[i]);
}

__global__ void evaluate(const float* from, float* to, int n, int function) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = from[i];
  switch (function) {
    case 0: to[i] = rt::exp(x); break;
    case 1: to[i] = rt::erf(x); break;
    case 2: to[i] = rt::tanh(x); break;
    case 3: to[i] = rt::sigmoid(x); break;
    case 4: to[i] = rt::silu(x); break;
    case 5: to[i] = rt::gelu(x); break;
    case 6: to[i] = rt::gelu_tanh(x); break;
    case 7: to[i] = rt::exp2(x); break;
    case 8: to[i] = rt::expm1(x); break;
    case 9: to[i] = rt::log(x); break;
    case 10: to[i] = rt::log2(x); break;
    case 11: to[i] = rt::log1p(x); break;
    case 12: to[i] = rt::sqrt(x); break;
    case 13: to[i] = rt::rsqrt(x); break;
    case 14: to[i] = rt::divide(1.0f, x); break;
    default: to[i] = rt::relu(x);
  }
}

}  // namespace

#define CONVERT(name, kernel, From, To)                                                           \
  RT_EXPORT int name(const void* from, void* to, int n, size_t*, uint8_t*, hipStream_t stream) {  \
    return RT_LAUNCH((kernel), (n + 255) / 256, 256, 0, stream, static_cast<const From*>(from),   \
                     static_cast<To*>(to), n);                                                    \
  }
CONVERT(half_to_float, widen<rt::half>, rt::half, float)
CONVERT(bf16_to_float, widen<rt::bf16>, rt::bf16, float)
CONVERT(float_to_half, narrow<rt::half>, float, rt::half)
CONVERT(float_to_bf16, narrow<rt::bf16>, float, rt::bf16)
#define CONVERT_BOTH(name)                              \
  CONVERT(name##_to_float, widen<rt::name>, rt::name, float) \
  CONVERT(float_to_##name, narrow<rt::name>, float, rt::name)
CONVERT_BOTH(e4m3fn)
CONVERT_BOTH(e4m3fnuz)
CONVERT_BOTH(e5m2)
CONVERT_BOTH(e5m2fnuz)

RT_EXPORT int math(const void* from, void* to, int n, int function, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(evaluate, (n + 255) / 256, 256, 0, stream, static_cast<const float*>(from),
                   static_cast<float*>(to), n, function);
}
