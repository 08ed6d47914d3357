// Matrix instructions of 32 lanes as collectives of a full wave, each by the layout of its registers.
//
// A layout tells M, N, K, how many values of A, B and D a lane holds, and where they stand. Sums are
// fp32, of int8 int32, k ascending, rounded after each product; a device may keep more bits or add in another order.
#pragma once
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <rt_cpu/machine.h>
#include <rt_cpu/mfma.h>

namespace rt_cpu {

struct Factors {
  const void *a, *b;
  void* sums;
};

template <class Layout, class T>
const char* do_product(Fiber* const* lanes, uint64_t active) {
  using L = Layout;
  if (active != whole_wave) return "a matrix instruction needs all lanes of the wave";
  using Sum = typename SumOf<T>::type;
  Sum a[L::K][L::M], b[L::N][L::K], d[L::N][L::M];
  for (int l = 0; l < static_cast<int>(wave_size); ++l) {
    const Factors& slot = *static_cast<Factors*>(lanes[l]->slot);
    const T *left = static_cast<const T*>(slot.a), *right = static_cast<const T*>(slot.b);
    if (L::copies && l >= L::copies) {
      const Factors& first = *static_cast<Factors*>(lanes[l - L::copies]->slot);
      if (memcmp(slot.a, first.a, L::values_a * sizeof(T)) || memcmp(slot.b, first.b, L::values_b * sizeof(T))) {
        return "the upper lanes of a matrix instruction must hold the factors of the lower ones";
      }
    }
    for (int i = 0; i < L::values_a; ++i) a[L::k_of_a(l, i)][L::row_of_a(l, i)] = left[i];
    for (int i = 0; i < L::values_b; ++i) b[L::col_of_b(l, i)][L::k_of_b(l, i)] = right[i];
    for (int r = 0; r < L::values_d; ++r) d[L::col_of_d(l, r)][L::row_of_d(l, r)] = static_cast<Sum*>(slot.sums)[r];
  }
  for (int n = 0; n < L::N; ++n) {
    for (int k = 0; k < L::K; ++k) {
#pragma GCC ivdep
      for (int m = 0; m < L::M; ++m) d[n][m] += a[k][m] * b[n][k];
    }
  }
  for (int l = 0; l < static_cast<int>(wave_size); ++l) {
    Sum* sums = static_cast<Sum*>(static_cast<Factors*>(lanes[l]->slot)->sums);
    for (int r = 0; r < L::values_d; ++r) sums[r] = d[L::col_of_d(l, r)][L::row_of_d(l, r)];
  }
  return nullptr;
}

template <class Layout, class T>
void product(const void* a, const void* b, typename SumOf<T>::type* sums) {
  Factors slot{a, b, sums};
  wave_collective(do_product<Layout, T>, &slot);
}

}  // namespace rt_cpu
