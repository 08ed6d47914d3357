// NVIDIA's tensor cores: mma.sync with fp32 sums, and the loads of their factors.
#pragma once
#include <rt_cpu/product.h>

namespace rt_cpu {

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
struct MmaM16N8K16 {
  static constexpr int M = 16, N = 8, K = 16, values_a = 8, values_b = 4, values_d = 4, copies = 0;
  static int row_of_a(int l, int i) { return l / 4 + (i % 4 < 2 ? 0 : 8); }
  static int k_of_a(int l, int i) { return l % 4 * 2 + i % 2 + (i < 4 ? 0 : 8); }
  static int k_of_b(int l, int i) { return l % 4 * 2 + i % 2 + (i < 2 ? 0 : 8); }
  static int col_of_b(int l, int) { return l / 4; }
  static int row_of_d(int l, int r) { return l / 4 + (r < 2 ? 0 : 8); }
  static int col_of_d(int l, int r) { return l % 4 * 2 + r % 2; }
};

template <class T>
void mma_m16n8k16(const void* a, const void* b, float* d) {
  product<MmaM16N8K16, T>(a, b, d);
}

}  // namespace rt_cpu
