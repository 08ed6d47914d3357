// Matrix instructions of fp64, with sums of fp64.
#pragma once
#include <rt_cpu/product.h>

namespace rt_cpu {

// AMD Instinct MI300 ISA guide, chapter 7, and AMD's matrix instruction calculator, v_mfma_f64_16x16x4_f64: lane l has
// K l / 16 of row and column l % 16; register r of D is row 4 r + l / 16 of column l % 16.
struct MfmaF64 {
  static constexpr int M = 16, N = 16, K = 4, values_a = 1, values_b = 1, values_d = 4, copies = 0;
  static int row_of_a(int l, int) { return l % 16; }
  static int k_of_a(int l, int) { return l / 16; }
  static int k_of_b(int l, int) { return l / 16; }
  static int col_of_b(int l, int) { return l % 16; }
  static int row_of_d(int l, int r) { return 4 * r + l / 16; }
  static int col_of_d(int l, int) { return l % 16; }
};

// PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64 floating point type".
template <int Depth>
struct MmaF64 {
  static constexpr int M = 8, N = 8, K = 4, values_a = 1, values_b = 1, values_d = 2, copies = 0;
  static int row_of_a(int l, int) { return l / 4; }
  static int k_of_a(int l, int) { return l % 4; }
  static int k_of_b(int l, int) { return l % 4; }
  static int col_of_b(int l, int) { return l / 4; }
  static int row_of_d(int l, int) { return l / 4; }
  static int col_of_d(int l, int r) { return l % 4 * 2 + r; }
};

// "Matrix Fragments for mma.m16n8k16" of .f64.
template <>
struct MmaF64<16> {
  static constexpr int M = 16, N = 8, K = 16, values_a = 8, values_b = 4, values_d = 4, copies = 0;
  static int row_of_a(int l, int i) { return l / 4 + (i % 2 == 0 ? 0 : 8); }
  static int k_of_a(int l, int i) { return i / 2 * 4 + l % 4; }
  static int k_of_b(int l, int i) { return i * 4 + l % 4; }
  static int col_of_b(int l, int) { return l / 4; }
  static int row_of_d(int l, int r) { return l / 4 + (r < 2 ? 0 : 8); }
  static int col_of_d(int l, int r) { return l % 4 * 2 + r % 2; }
};

inline void mfma_f64(const void* a, const void* b, double* d) { product<MfmaF64, double>(a, b, d); }

template <int Depth>
void mma_f64(const void* a, const void* b, double* d) {
  product<MmaF64<Depth>, double>(a, b, d);
}

}  // namespace rt_cpu
