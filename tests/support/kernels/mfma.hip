// D += A B with one matrix instruction: A is M x K, B is K x M, D is M x M, all row-major.
#include <rocm_tui/gpu.h>

#if RT_HAS_MFMA
namespace {

template <class T, int M>
__global__ void __launch_bounds__(64) tile(const T* A, const T* B, float* D) {
  using Mfma = rt::mfma<T, M>;
  const int lane = rt::lane(), outer = Mfma::outer(lane);
  typename Mfma::operand a, b;
  RT_UNROLL
  for (int i = 0; i < Mfma::operands; ++i) {
    a[i] = A[outer * Mfma::K + Mfma::k(lane, i)];
    b[i] = B[Mfma::k(lane, i) * M + outer];
  }
  typename Mfma::result d;
  RT_UNROLL
  for (int r = 0; r < Mfma::registers; ++r) d[r] = D[Mfma::row(lane, r) * M + outer];
  Mfma::run(a, b, d);
  RT_UNROLL
  for (int r = 0; r < Mfma::registers; ++r) D[Mfma::row(lane, r) * M + outer] = d[r];
}

}  // namespace

#define ENTRY(name, T, M)                                                                          \
  RT_EXPORT int name(const void* A, const void* B, void* D, size_t*, uint8_t*, hipStream_t stream) { \
    return RT_LAUNCH((tile<T, M>), 1, 64, 0, stream, static_cast<const T*>(A), static_cast<const T*>(B), \
                     static_cast<float*>(D));                                                      \
  }
ENTRY(half16, rt::half, 16)
ENTRY(half32, rt::half, 32)
ENTRY(bf16_16, rt::bf16, 16)
ENTRY(bf16_32, rt::bf16, 32)
ENTRY(float16, float, 16)
ENTRY(float32, float, 32)

#else
RT_EXPORT int none() { return 0; }
#endif
