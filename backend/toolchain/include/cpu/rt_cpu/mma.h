// NVIDIA's tensor cores: mma.sync with fp32 sums, and the loads of their factors.
#pragma once
#include <rt_cpu/copy.h>
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

// "Matrix Fragments for mma.m16n8k32": the same with four values of a byte in place of two of two.
struct MmaM16N8K32 : MmaM16N8K16 {
  static constexpr int K = 32, values_a = 16, values_b = 8;
  static int row_of_a(int l, int i) { return l / 4 + (i % 8 < 4 ? 0 : 8); }
  static int k_of_a(int l, int i) { return l % 4 * 4 + i % 4 + (i < 8 ? 0 : 16); }
  static int k_of_b(int l, int i) { return l % 4 * 4 + i % 4 + (i < 4 ? 0 : 16); }
};

template <bool Bytes>
struct MmaOf {
  using type = MmaM16N8K16;
};
template <>
struct MmaOf<true> {
  using type = MmaM16N8K32;
};

template <class T>
void mma(const void* a, const void* b, typename SumOf<T>::type* d) {
  product<typename MmaOf<sizeof(T) == 1>::type, T>(a, b, d);
}

struct Matrices {
  const void* line;
  void* values;
};

// PTX ISA, "ldmatrix": lane 8 j + r has the address of line r of matrix j; lane l gets the values
// 2 (l % 4) and the next of line l / 4, or of column l / 4 with .trans.
template <bool Turned>
const char* do_load_matrices(Fiber* const* lanes, uint64_t active) {
  if (active != whole_wave) return "a load of matrices needs all lanes of the wave";
  uint16_t lines[32][8];
  for (int l = 0; l < 32; ++l) memcpy(lines[l], static_cast<Matrices*>(lanes[l]->slot)->line, 16);
  for (int l = 0; l < 32; ++l) {
    uint16_t values[8];
    for (int i = 0; i < 8; ++i) {
      const int slow = l / 4, fast = l % 4 * 2 + i % 2, matrix = i / 2 * 8;
      values[i] = Turned ? lines[matrix + fast][slow] : lines[matrix + slow][fast];
    }
    memcpy(static_cast<Matrices*>(lanes[l]->slot)->values, values, 16);
  }
  return nullptr;
}

template <bool Turned>
void load_matrices(const void* line, void* values) {
  if (reinterpret_cast<uintptr_t>(line) % 16) fail("a line of a matrix at a misaligned address");
  Matrices slot{line, values};
  wave_collective(do_load_matrices<Turned>, &slot);
}

}  // namespace rt_cpu
