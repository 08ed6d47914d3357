// The matrix instructions under clang's own names, on the native vectors of each compiler, with the
// lanes' layout written out here rather than taken from rt::mfma.
#include <rocm_tui/gpu.h>

namespace {

#if defined(RT_CPU)
using half4 = rt_cpu::half4;
using short4 = rt_cpu::short4;
using float4v = rt_cpu::floatx4;
using float16v = rt_cpu::floatx16;
#else
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef short short4 __attribute__((ext_vector_type(4)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float16v __attribute__((ext_vector_type(16)));
#endif

template <class To>
RT_FN To word(uint16_t bits) { return rt::bit_cast<To>(bits); }

#if defined(__HIP_DEVICE_COMPILE__) || defined(RT_CPU)
#define BUILTIN(name, a, b, c) __builtin_amdgcn_mfma_f32_##name(a, b, c, 0, 0, 0)
#else
#define BUILTIN(name, a, b, c) (c)
#endif

// 16-bit operands: four values of k a lane.
#define KERNEL16(NAME, builtin, Element, Operand, Result, M, REGISTERS, ROW)                     \
  __global__ void __launch_bounds__(64) k_##NAME(const uint16_t* A, const uint16_t* B, float* D) { \
    const int l = threadIdx.x, K = 256 / M;                                                      \
    Operand a, b;                                                                                \
    Result d;                                                                                    \
    RT_UNROLL                                                                                    \
    for (int i = 0; i < 4; ++i) {                                                                \
      const int k = 4 * (l / M) + i;                                                             \
      a[i] = word<Element>(A[(l % M) * K + k]);                                                  \
      b[i] = word<Element>(B[k * M + l % M]);                                                    \
    }                                                                                            \
    RT_UNROLL                                                                                    \
    for (int r = 0; r < REGISTERS; ++r) d[r] = D[(ROW) * M + l % M];                             \
    d = BUILTIN(builtin, a, b, d);                                                               \
    RT_UNROLL                                                                                    \
    for (int r = 0; r < REGISTERS; ++r) D[(ROW) * M + l % M] = d[r];                             \
  }
// fp32 operands: one value of k a lane.
#define KERNEL32(NAME, builtin, Result, M, REGISTERS, ROW)                                       \
  __global__ void __launch_bounds__(64) k_##NAME(const float* A, const float* B, float* D) {     \
    const int l = threadIdx.x, K = 64 / M, k = l / M;                                            \
    Result d;                                                                                    \
    RT_UNROLL                                                                                    \
    for (int r = 0; r < REGISTERS; ++r) d[r] = D[(ROW) * M + l % M];                             \
    d = BUILTIN(builtin, A[(l % M) * K + k], B[k * M + l % M], d);                               \
    RT_UNROLL                                                                                    \
    for (int r = 0; r < REGISTERS; ++r) D[(ROW) * M + l % M] = d[r];                             \
  }
#define ROW16 (l / 16 * 4 + r)
#define ROW32 (r / 4 * 8 + l / 32 * 4 + r % 4)
KERNEL16(half16, 16x16x16f16, rt::half, half4, float4v, 16, 4, ROW16)
KERNEL16(half32, 32x32x8f16, rt::half, half4, float16v, 32, 16, ROW32)
KERNEL16(bf16_16, 16x16x16bf16_1k, short, short4, float4v, 16, 4, ROW16)
KERNEL16(bf16_32, 32x32x8bf16_1k, short, short4, float16v, 32, 16, ROW32)
KERNEL32(float16, 16x16x4f32, float4v, 16, 4, ROW16)
KERNEL32(float32, 32x32x2f32, float16v, 32, 16, ROW32)

}  // namespace

#define ENTRY(name, T)                                                                               \
  RT_EXPORT int name(const void* A, const void* B, void* D, size_t*, uint8_t*, hipStream_t stream) { \
    return RT_LAUNCH(k_##name, 1, 64, 0, stream, static_cast<const T*>(A), static_cast<const T*>(B), \
                     static_cast<float*>(D));                                                        \
  }
ENTRY(half16, uint16_t)
ENTRY(half32, uint16_t)
ENTRY(bf16_16, uint16_t)
ENTRY(bf16_32, uint16_t)
ENTRY(float16, float)
ENTRY(float32, float)
