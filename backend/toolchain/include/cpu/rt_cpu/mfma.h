// CDNA's matrix instructions as collectives of a full wave of 64 lanes.
//
// Lane l holds, for an M x M result with K products in all:
//   A: row l % M,    k = (K / (64 / M)) * (l / M) + i
//   B: column l % M, the same k
//   D, register r: row 8 * (r / 4) + 4 * (l / 32) + r % 4 of 32x32, or 4 * (l / 16) + r of 16x16,
//      column l % M
// (AMD Instinct MI300 ISA guide, chapter 7, and AMD's matrix instruction calculator.) Sums are fp32,
// of int8 int32, k ascending, rounded after each product. Subnormals are kept, as gfx942 does; gfx90a flushes them
// in the fp16 and bf16 instructions.
#pragma once
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <rt_cpu/machine.h>

namespace rt_cpu {

struct Mfma {
  const void *a, *b;
  void* acc;
};

template <class T>
struct SumOf {
  using type = float;
};
template <>
struct SumOf<int8_t> {
  using type = int32_t;
};
template <>
struct SumOf<double> {
  using type = double;
};

template <class T, int count>
void widen(const void* from, typename SumOf<T>::type* to) {
#if RT_CPU_F16C
  if constexpr (__is_same(T, __half) && count == 4) {
    long long four;
    memcpy(&four, from, 8);
    typedef long long pair __attribute__((vector_size(16)));
    const float4 wide = __builtin_ia32_vcvtph2ps(reinterpret_cast<short8>(pair{four, 0}));
    memcpy(to, &wide, 16);
    return;
  }
#endif
  for (int i = 0; i < count; ++i) to[i] = static_cast<const T*>(from)[i];
}

// A product of two narrow values is exact in the type of sums; that of two fp32 values needs a real fma.
template <class T, class Sum>
inline Sum multiply_add(Sum x, Sum y, Sum sum) {
  if constexpr (sizeof(T) == 4) return __builtin_fmaf(x, y, sum);
  return sum + x * y;
}

// The registers of a lane, in fours, are neighbours of a column: the tile is kept transposed.
template <int M>
constexpr int mfma_row(int lane, int r) {
  return M == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
}

template <class T, int M, int K>
const char* do_mfma(Fiber* const* lanes, uint64_t active) {
  constexpr int per_lane = K * M / 64, registers = M * M / 64;
  if (active != whole_wave) return "a matrix instruction needs all 64 lanes of the wave";
  using Sum = typename SumOf<T>::type;
  alignas(64) Sum a[K][M], b[M][K], d[M][M];
  for (int l = 0; l < 64; ++l) {
    const Mfma& slot = *static_cast<Mfma*>(lanes[l]->slot);
    const int outer = l % M, k = per_lane * (l / M);
    Sum row[per_lane];
    widen<T, per_lane>(slot.a, row);
    widen<T, per_lane>(slot.b, &b[outer][k]);
    for (int i = 0; i < per_lane; ++i) a[k + i][outer] = row[i];
    for (int r = 0; r < registers; r += 4) memcpy(&d[outer][mfma_row<M>(l, r)], static_cast<Sum*>(slot.acc) + r, 16);
  }
  for (int n = 0; n < M; ++n) {
    for (int k = 0; k < K; ++k) {
      const Sum y = b[n][k];
#pragma GCC ivdep
      for (int m = 0; m < M; ++m) d[n][m] = multiply_add<T>(a[k][m], y, d[n][m]);
    }
  }
  for (int l = 0; l < 64; ++l) {
    Sum* acc = static_cast<Sum*>(static_cast<Mfma*>(lanes[l]->slot)->acc);
    for (int r = 0; r < registers; r += 4) memcpy(acc + r, &d[l % M][mfma_row<M>(l, r)], 16);
  }
  return nullptr;
}

// `a` and `b` hold K * M / 64 values of this lane, `acc` holds M * M / 64; `acc` += the products.
template <class T, int M, int K>
void mfma(const void* a, const void* b, typename SumOf<T>::type* acc) {
  Mfma slot{a, b, acc};
  wave_collective(do_mfma<T, M, K>, &slot);
}

template <int bytes, class Scalar>
struct Native {
  typedef Scalar type __attribute__((vector_size(bytes)));
};

template <class T, int M, int K, class In, class Acc>
Acc mfma_builtin(In a, In b, Acc c, int cbsz, int abid, int blgp) {
  if (cbsz | abid | blgp) fail("a matrix instruction with cbsz, abid or blgp");
  mfma<T, M, K>(&a, &b, reinterpret_cast<float*>(&c));
  return c;
}

struct alignas(8) half4 {
  __half v[4];
  __half& operator[](int i) { return v[i]; }
};
using short4 = Native<8, short>::type;
using floatx4 = Native<16, float>::type;
using floatx16 = Native<64, float>::type;

}  // namespace rt_cpu

#define RT_CPU_MFMA(name, In, Acc, T, M, K)                                                     \
  inline rt_cpu::Acc __builtin_amdgcn_mfma_f32_##name(rt_cpu::In a, rt_cpu::In b, rt_cpu::Acc c, \
                                                      int cbsz, int abid, int blgp) {            \
    return rt_cpu::mfma_builtin<T, M, K>(a, b, c, cbsz, abid, blgp);                             \
  }
namespace rt_cpu { using float1 = float; }
RT_CPU_MFMA(16x16x16f16, half4, floatx4, __half, 16, 16)
RT_CPU_MFMA(16x16x16bf16_1k, short4, floatx4, __hip_bfloat16, 16, 16)
RT_CPU_MFMA(16x16x4f32, float1, floatx4, float, 16, 4)
RT_CPU_MFMA(32x32x8f16, half4, floatx16, __half, 32, 8)
RT_CPU_MFMA(32x32x8bf16_1k, short4, floatx16, __hip_bfloat16, 32, 8)
RT_CPU_MFMA(32x32x2f32, float1, floatx16, float, 32, 2)
#undef RT_CPU_MFMA
