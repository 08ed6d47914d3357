// Matrix instructions. The layouts are those of AMD's "Matrix Instruction Calculator".
#include "lanes.h"

namespace amd {
namespace {

struct fp8 { uint8_t bits; };
struct bf8 { uint8_t bits; };

template <class T, class Sum>
Sum value(const Wave& w, T element) {
  if constexpr (std::is_same_v<T, fp8>) return from_fp8(element.bits, 3, w.group->fnuz);
  else if constexpr (std::is_same_v<T, bf8>) return from_fp8(element.bits, 2, w.group->fnuz);
  else return static_cast<Sum>(element);
}

// Element `at` of those that a lane holds of an operand, in the order of its registers.
template <class T>
T element(const Wave& w, const Operand& o, int lane, int at) {
  T result;
  const int byte = at * sizeof(T);
  if constexpr (sizeof(T) == 8) {
    const u64 bits = w.v.at(o.index + 2 * at)[lane] | u64{w.v.at(o.index + 2 * at + 1)[lane]} << 32;
    std::memcpy(&result, &bits, 8);
  } else {
    const u32 word = w.v.at(o.index + byte / 4)[lane] >> 8 * (byte % 4);
    std::memcpy(&result, &word, sizeof(T));
  }
  return result;
}

template <class Sum, class A, class B, int M, int N, int K>
struct Product {
  Sum a[M][K], b[K][N], c[M][N];

  void multiply() {
    for (int row = 0; row < M; ++row)
      for (int k = 0; k < K; ++k)
        for (int column = 0; column < N; ++column) c[row][column] += a[row][k] * b[k][column];
  }

  // `place(lane, at)` is the row of the result that register `at` of a lane holds.
  template <class Place>
  void result(Wave& w, const Instruction& i, int registers, Place place, bool load) {
    const Operand& o = i.operands[load ? 3 : 0];
    constexpr int words = sizeof(Sum) / 4;
    for (int at = 0; at < registers; ++at)
      for (int lane = 0; lane < w.lanes; ++lane) {
        Sum& sum = c[place(lane, at)][lane % N];
        if (load) {
          if (o.kind == VECTOR) {
            sum = element<Sum>(w, o, lane, at);
          } else if (o.kind == INTEGER && o.integer == 0) {
            sum = 0;
          } else if (o.kind == REAL) {
            sum = o.real;
          } else {
            fail("the third operand of a matrix instruction");
          }
        } else {
          u32 bits[words];
          std::memcpy(bits, &sum, sizeof(Sum));
          for (int word = 0; word < words; ++word) w.v.at(o.index + at * words + word)[lane] = bits[word];
        }
      }
  }
};

// A lane has K / (64 / M) neighbours along K of one row of A, and of one column of B; of the result,
// runs of four rows (of fp64: single rows) of one column.
template <class Sum, class A, class B, int M, int N, int K>
void mfma(Wave& w, const Instruction& i) {
  static_assert(M == N);
  if (i.cbsz || i.blgp || i.neg_lo || i.neg_hi) fail("a modifier of a matrix instruction");
  constexpr int groups = LANES / M, each = K / groups, run = sizeof(Sum) == 8 ? 1 : 4;
  const auto place = [](int lane, int at) { return at / run * run * groups + lane / N * run + at % run; };
  static thread_local Product<Sum, A, B, M, N, K> product;
  for (int lane = 0; lane < LANES; ++lane)
    for (int at = 0; at < each; ++at) {
      product.a[lane % M][lane / M * each + at] = value<A, Sum>(w, element<A>(w, i.operands[1], lane, at));
      product.b[lane / M * each + at][lane % N] = value<B, Sum>(w, element<B>(w, i.operands[2], lane, at));
    }
  product.result(w, i, M * N / LANES, place, true);
  product.multiply();
  product.result(w, i, M * N / LANES, place, false);
}

// Bytes in any two of the eight-bit formats; `cbsz` and `blgp` say which A and B have.
template <int M, int K>
void mfma_eight(Wave& w, const Instruction& i) {
  if (i.cbsz > 1 || i.blgp > 1) fail("a matrix instruction of less than eight bits");
  constexpr Handler formats[2][2] = {{mfma<f32, fp8, fp8, M, M, K>, mfma<f32, fp8, bf8, M, M, K>},
                                     {mfma<f32, bf8, fp8, M, M, K>, mfma<f32, bf8, bf8, M, M, K>}};
  Instruction plain = i;
  plain.cbsz = plain.blgp = 0;
  formats[i.cbsz][i.blgp](w, plain);
}

// RDNA3: both halves of a wave hold the whole of A and B, and every second row of the result.
template <class Sum, class A, class B>
void wmma_11(Wave& w, const Instruction& i) {
  if (i.neg_lo & ~3) fail("a modifier of a matrix instruction");
  if (w.lanes != 32) fail("WMMA of a wave of 64");
  static thread_local Product<Sum, A, B, 16, 16, 16> product;
  const auto place = [](int lane, int at) { return 2 * at + lane / 16; };
  for (int lane = 0; lane < 32; ++lane)
    for (int at = 0; at < 16; ++at) {
      const A a = element<A>(w, i.operands[1], lane, at);
      const B b = element<B>(w, i.operands[2], lane, at);
      const A first = element<A>(w, i.operands[1], lane % 16, at);
      const B second = element<B>(w, i.operands[2], lane % 16, at);
      if (std::memcmp(&a, &first, sizeof(A)) || std::memcmp(&b, &second, sizeof(B)))
        fail("lanes 16 to 31 do not repeat lanes 0 to 15");
      product.a[lane % 16][at] = value<A, Sum>(w, a);
      product.b[at][lane % 16] = value<B, Sum>(w, b);
    }
  product.result(w, i, 8, place, true);
  product.multiply();
  product.result(w, i, 8, place, false);
}

// RDNA4: each half of a wave holds half of K, and eight neighbouring rows of the result.
template <class Sum, class A, class B>
void wmma_12(Wave& w, const Instruction& i) {
  if (i.neg_lo & ~3) fail("a modifier of a matrix instruction");
  if (w.lanes != 32) fail("WMMA of a wave of 64");
  static thread_local Product<Sum, A, B, 16, 16, 16> product;
  const auto place = [](int lane, int at) { return 8 * (lane / 16) + at; };
  for (int lane = 0; lane < 32; ++lane)
    for (int at = 0; at < 8; ++at) {
      product.a[lane % 16][lane / 16 * 8 + at] = value<A, Sum>(w, element<A>(w, i.operands[1], lane, at));
      product.b[lane / 16 * 8 + at][lane % 16] = value<B, Sum>(w, element<B>(w, i.operands[2], lane, at));
    }
  product.result(w, i, 8, place, true);
  product.multiply();
  product.result(w, i, 8, place, false);
}

template <class A, class B = A>
void wmma_float(Wave& w, const Instruction& i) {
  if (w.group->gfx == 11) wmma_11<f32, A, B>(w, i); else wmma_12<f32, A, B>(w, i);
}
void wmma_int8(Wave& w, const Instruction& i) {
  if (i.neg_lo != 3) fail("WMMA of unsigned bytes");  // neg_lo says which factors are signed
  if (w.group->gfx == 11) wmma_11<i32, int8_t, int8_t>(w, i); else wmma_12<i32, int8_t, int8_t>(w, i);
}

}  // namespace

Table matrix_table() {
  return {
      {"v_mfma_f32_16x16x4_f32", mfma<f32, f32, f32, 16, 16, 4>},
      {"v_mfma_f32_32x32x2_f32", mfma<f32, f32, f32, 32, 32, 2>},
      {"v_mfma_f32_16x16x16_f16", mfma<f32, f16, f16, 16, 16, 16>},
      {"v_mfma_f32_32x32x8_f16", mfma<f32, f16, f16, 32, 32, 8>},
      {"v_mfma_f32_16x16x32_f16", mfma<f32, f16, f16, 16, 16, 32>},
      {"v_mfma_f32_32x32x16_f16", mfma<f32, f16, f16, 32, 32, 16>},
      {"v_mfma_f32_16x16x16_bf16", mfma<f32, bf16, bf16, 16, 16, 16>},
      {"v_mfma_f32_32x32x8_bf16", mfma<f32, bf16, bf16, 32, 32, 8>},
      {"v_mfma_f32_16x16x32_bf16", mfma<f32, bf16, bf16, 16, 16, 32>},
      {"v_mfma_f32_32x32x16_bf16", mfma<f32, bf16, bf16, 32, 32, 16>},
      {"v_mfma_f32_16x16x32_fp8_fp8", mfma<f32, fp8, fp8, 16, 16, 32>},
      {"v_mfma_f32_16x16x32_fp8_bf8", mfma<f32, fp8, bf8, 16, 16, 32>},
      {"v_mfma_f32_16x16x32_bf8_fp8", mfma<f32, bf8, fp8, 16, 16, 32>},
      {"v_mfma_f32_16x16x32_bf8_bf8", mfma<f32, bf8, bf8, 16, 16, 32>},
      {"v_mfma_f32_32x32x16_fp8_fp8", mfma<f32, fp8, fp8, 32, 32, 16>},
      {"v_mfma_f32_32x32x16_fp8_bf8", mfma<f32, fp8, bf8, 32, 32, 16>},
      {"v_mfma_f32_32x32x16_bf8_fp8", mfma<f32, bf8, fp8, 32, 32, 16>},
      {"v_mfma_f32_32x32x16_bf8_bf8", mfma<f32, bf8, bf8, 32, 32, 16>},
      {"v_mfma_f32_16x16x128_f8f6f4", mfma_eight<16, 128>},
      {"v_mfma_f32_32x32x64_f8f6f4", mfma_eight<32, 64>},
      {"v_mfma_i32_16x16x16_i8", mfma<i32, int8_t, int8_t, 16, 16, 16>},
      {"v_mfma_i32_32x32x8_i8", mfma<i32, int8_t, int8_t, 32, 32, 8>},
      {"v_mfma_i32_16x16x32_i8", mfma<i32, int8_t, int8_t, 16, 16, 32>},
      {"v_mfma_i32_32x32x16_i8", mfma<i32, int8_t, int8_t, 32, 32, 16>},
      {"v_mfma_i32_16x16x64_i8", mfma<i32, int8_t, int8_t, 16, 16, 64>},
      {"v_mfma_i32_32x32x32_i8", mfma<i32, int8_t, int8_t, 32, 32, 32>},
      {"v_mfma_f64_16x16x4_f64", mfma<f64, f64, f64, 16, 16, 4>},
      {"v_wmma_f32_16x16x16_f16", wmma_float<f16>},
      {"v_wmma_f32_16x16x16_bf16", wmma_float<bf16>},
      {"v_wmma_f32_16x16x16_fp8_fp8", wmma_float<fp8>},
      {"v_wmma_f32_16x16x16_fp8_bf8", wmma_float<fp8, bf8>},
      {"v_wmma_f32_16x16x16_bf8_fp8", wmma_float<bf8, fp8>},
      {"v_wmma_f32_16x16x16_bf8_bf8", wmma_float<bf8>},
      {"v_wmma_i32_16x16x16_iu8", wmma_int8},
  };
}

}  // namespace amd
