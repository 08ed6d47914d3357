// RDNA's matrix instructions, 16 x 16 x 16 with fp32 sums, of int8 int32.
#pragma once
#include <rt_cpu/product.h>

namespace rt_cpu {

// AMD RDNA3 ISA guide, "Wave Matrix Multiply Accumulate": lane l has row l % 16 of A and column l % 16 of B, all of K, twice;
// register r of D is row 2 r + l / 16 of column l % 16.
struct WmmaGfx11 {
  static constexpr int M = 16, N = 16, K = 16, values_a = 16, values_b = 16, values_d = 8, copies = 16;
  static int row_of_a(int l, int) { return l % 16; }
  static int k_of_a(int, int i) { return i; }
  static int k_of_b(int, int i) { return i; }
  static int col_of_b(int l, int) { return l % 16; }
  static int row_of_d(int l, int r) { return 2 * r + l / 16; }
  static int col_of_d(int l, int) { return l % 16; }
};

// AMD RDNA4 ISA guide, "Wave Matrix Multiply Accumulate": lanes 0 to 15 have K 0 to 7, the others 8 to 15; register r of D is
// row r + 8 (l / 16) of column l % 16.
struct WmmaGfx12 {
  static constexpr int M = 16, N = 16, K = 16, values_a = 8, values_b = 8, values_d = 8, copies = 0;
  static int row_of_a(int l, int) { return l % 16; }
  static int k_of_a(int l, int i) { return 8 * (l / 16) + i; }
  static int k_of_b(int l, int i) { return 8 * (l / 16) + i; }
  static int col_of_b(int l, int) { return l % 16; }
  static int row_of_d(int l, int r) { return r + 8 * (l / 16); }
  static int col_of_d(int l, int) { return l % 16; }
};

template <class T>
void wmma_gfx11(const void* a, const void* b, typename SumOf<T>::type* d) {
  product<WmmaGfx11, T>(a, b, d);
}

template <class T>
void wmma_gfx12(const void* a, const void* b, typename SumOf<T>::type* d) {
  product<WmmaGfx12, T>(a, b, d);
}

}  // namespace rt_cpu
