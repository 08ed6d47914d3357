// Matrix units: D += A B of one wave, D of M x N, with K products an element a step; sums in fp32,
// of int8 in int32, of double in double.
//
// rt::mfma<T, side>   CDNA (gfx90a, gfx942, gfx950), side 16 or 32, T half, bf16, float or of a byte,
//                     double with side 16; 64 lanes
// rt::mfma<T, side, 2>   gfx950: twice the K, T half or bf16
// rt::wmma_gfx11<T>   RDNA3, 16 x 16 x 16, T half, bf16 or int8; 32 lanes
// rt::wmma_gfx12<T>   RDNA4, the same shape with other lanes, T fp8 (OCP) too
// rt::mma<T>          NVIDIA from sm_80 on, 16 x 8 x 16, T half or bf16, x 32 of a byte; 32 lanes
// rt::mma_f64<K>      8 x 8 x 4 from sm_80 on, 16 x 8 x 16 from sm_90 on, of double; 32 lanes
// A unit is there where RT_HAS(RT_MFMA), RT_HAS(RT_WMMA_GFX11), ... says so.
//
// What each tells, so that a template needs to know no more:
//   M, N, K           the shape
//   groups, terms     K = groups * terms: lanes that share a line divide K; lane l has the `terms`
//                     products from group(l) * terms on. The order of K is the unit's own, the same for
//                     both factors.
//   left, right       a lane's values of A and B: of the rows left_line(l, i) of A for i < left_lines, of
//                     the column right_line(l) of B; term t of row i stands at left_at(i, t), that of
//                     the column at t
//   result            a lane's `registers` values of D; r stands at row(l, r), col(l, r); `run` of them
//                     are neighbours of a row
//   run(a, b, d)      every lane of the wave takes part
#pragma once

namespace rt {

namespace detail {

#if defined(RT_AMDGPU)
typedef _Float16 halfx4 __attribute__((ext_vector_type(4)));
typedef _Float16 halfx8 __attribute__((ext_vector_type(8)));
typedef _Float16 halfx16 __attribute__((ext_vector_type(16)));
typedef short shortx4 __attribute__((ext_vector_type(4)));
typedef short shortx8 __attribute__((ext_vector_type(8)));
typedef short shortx16 __attribute__((ext_vector_type(16)));
typedef __bf16 bfloatx8 __attribute__((ext_vector_type(8)));
typedef float floatx4 __attribute__((ext_vector_type(4)));
typedef float floatx8 __attribute__((ext_vector_type(8)));
typedef float floatx16 __attribute__((ext_vector_type(16)));
typedef double doublex4 __attribute__((ext_vector_type(4)));
typedef int intx2 __attribute__((ext_vector_type(2)));
typedef int intx4 __attribute__((ext_vector_type(4)));
typedef int intx8 __attribute__((ext_vector_type(8)));
typedef int intx16 __attribute__((ext_vector_type(16)));
// Of values of a byte the builtins take all alike.
struct int8x8 {
  long words;
};
struct e4m3x8 {
  long words;
};
struct e5m2x8 {
  long words;
};
struct int8x16 {
  intx4 words;
};

// As the builtins take N values of T.
template <class T, int N>
struct native;
#define RT_NATIVE(T, N, as)  \
  template <>                \
  struct native<T, N> {      \
    using type = as;         \
  };
RT_NATIVE(half, 4, halfx4)
RT_NATIVE(half, 8, halfx8)
RT_NATIVE(half, 16, halfx16)
RT_NATIVE(bf16, 4, shortx4)
#if RT_HAS(RT_MFMA)
RT_NATIVE(bf16, 8, bfloatx8)
#else
RT_NATIVE(bf16, 8, shortx8)
#endif
RT_NATIVE(bf16, 16, shortx16)
RT_NATIVE(float, 1, float)
RT_NATIVE(float, 4, floatx4)
RT_NATIVE(float, 8, floatx8)
RT_NATIVE(float, 16, floatx16)
RT_NATIVE(double, 1, double)
RT_NATIVE(double, 4, doublex4)
RT_NATIVE(int32_t, 4, intx4)
RT_NATIVE(int32_t, 8, intx8)
RT_NATIVE(int32_t, 16, intx16)
RT_NATIVE(int8_t, 8, int8x8)
RT_NATIVE(int8_t, 16, int8x16)
RT_NATIVE(e4m3fn, 8, e4m3x8)
RT_NATIVE(e4m3fnuz, 8, e4m3x8)
RT_NATIVE(e5m2, 8, e5m2x8)
RT_NATIVE(e5m2fnuz, 8, e5m2x8)
#undef RT_NATIVE

// The host's pass knows no instruction of the device: there it only has to parse.
#if defined(__HIP_DEVICE_COMPILE__)
#define RT_MULTIPLY(In, Acc, builtin, ...) \
  RT_FN Acc multiply(In a, In b, Acc c) { return __builtin_amdgcn_##builtin(a, b, c, ##__VA_ARGS__); }
#else
#define RT_MULTIPLY(In, Acc, builtin, ...) \
  RT_FN Acc multiply(In, In, Acc c) { return c; }
#endif
#if defined(__HIP_DEVICE_COMPILE__)
#define RT_MULTIPLY_BYTES(In, Acc, builtin) \
  RT_FN Acc multiply(In a, In b, Acc c) { return __builtin_amdgcn_##builtin(a.words, b.words, c, 0, 0, 0); }
#define RT_WMMA_INT8(In, Words, builtin)                                                                      \
  RT_FN intx8 multiply(In a, In b, intx8 c) {                                                                 \
    return __builtin_amdgcn_##builtin(true, bit_cast<Words>(a.words), true, bit_cast<Words>(b.words), c, false); \
  }
#define RT_WMMA_FP8(In, builtin)                                                            \
  RT_FN floatx8 multiply(In a, In b, floatx8 c) {                                           \
    return __builtin_amdgcn_##builtin(bit_cast<intx2>(a.words), bit_cast<intx2>(b.words), c); \
  }
#else
#define RT_MULTIPLY_BYTES(In, Acc, builtin) \
  RT_FN Acc multiply(In, In, Acc c) { return c; }
#define RT_WMMA_INT8(In, Words, builtin) RT_MULTIPLY_BYTES(In, intx8, builtin)
#define RT_WMMA_FP8(In, builtin) RT_MULTIPLY_BYTES(In, floatx8, builtin)
#endif
#if RT_HAS(RT_MFMA)
#if defined(__gfx942__) || defined(__gfx950__) || !defined(__HIP_DEVICE_COMPILE__)
RT_MULTIPLY_BYTES(int8x8, intx4, mfma_i32_16x16x32_i8)
RT_MULTIPLY_BYTES(int8x8, intx16, mfma_i32_32x32x16_i8)
RT_MULTIPLY_BYTES(e4m3x8, floatx4, mfma_f32_16x16x32_fp8_fp8)
RT_MULTIPLY_BYTES(e4m3x8, floatx16, mfma_f32_32x32x16_fp8_fp8)
RT_MULTIPLY_BYTES(e5m2x8, floatx4, mfma_f32_16x16x32_bf8_bf8)
RT_MULTIPLY_BYTES(e5m2x8, floatx16, mfma_f32_32x32x16_bf8_bf8)
#endif
RT_MULTIPLY(halfx4, floatx4, mfma_f32_16x16x16f16, 0, 0, 0)
RT_MULTIPLY(halfx4, floatx16, mfma_f32_32x32x8f16, 0, 0, 0)
RT_MULTIPLY(shortx4, floatx4, mfma_f32_16x16x16bf16_1k, 0, 0, 0)
RT_MULTIPLY(shortx4, floatx16, mfma_f32_32x32x8bf16_1k, 0, 0, 0)
RT_MULTIPLY(float, floatx4, mfma_f32_16x16x4f32, 0, 0, 0)
RT_MULTIPLY(float, floatx16, mfma_f32_32x32x2f32, 0, 0, 0)
RT_MULTIPLY(double, doublex4, mfma_f64_16x16x4f64, 0, 0, 0)
#if defined(__gfx950__) || !defined(__HIP_DEVICE_COMPILE__)
RT_MULTIPLY(halfx8, floatx4, mfma_f32_16x16x32_f16, 0, 0, 0)
RT_MULTIPLY(halfx8, floatx16, mfma_f32_32x32x16_f16, 0, 0, 0)
RT_MULTIPLY(bfloatx8, floatx4, mfma_f32_16x16x32_bf16, 0, 0, 0)
RT_MULTIPLY(bfloatx8, floatx16, mfma_f32_32x32x16_bf16, 0, 0, 0)
#endif
#elif RT_HAS(RT_WMMA_GFX11)
RT_MULTIPLY(halfx16, floatx8, wmma_f32_16x16x16_f16_w32)
RT_MULTIPLY(shortx16, floatx8, wmma_f32_16x16x16_bf16_w32)
RT_WMMA_INT8(int8x16, intx4, wmma_i32_16x16x16_iu8_w32)
#elif RT_HAS(RT_WMMA_GFX12)
RT_MULTIPLY(halfx8, floatx8, wmma_f32_16x16x16_f16_w32_gfx12)
RT_MULTIPLY(shortx8, floatx8, wmma_f32_16x16x16_bf16_w32_gfx12)
RT_WMMA_INT8(int8x8, intx2, wmma_i32_16x16x16_iu8_w32_gfx12)
RT_WMMA_FP8(e4m3x8, wmma_f32_16x16x16_fp8_fp8_w32_gfx12)
RT_WMMA_FP8(e5m2x8, wmma_f32_16x16x16_bf8_bf8_w32_gfx12)
#endif
#undef RT_MULTIPLY
#undef RT_MULTIPLY_BYTES
#undef RT_WMMA_INT8
#undef RT_WMMA_FP8

template <class T, class Sum, int Values, int Sums>
RT_FN void multiply_add(const vec<T, Values>& a, const vec<T, Values>& b, vec<Sum, Sums>& d) {
  using In = typename native<T, Values>::type;
  using Acc = typename native<Sum, Sums>::type;
  d = bit_cast<vec<Sum, Sums>>(multiply(bit_cast<In>(a), bit_cast<In>(b), bit_cast<Acc>(d)));
}
#endif

// What products of T are summed up in.
template <class T>
struct sum_of {
  using type = float;
};
template <>
struct sum_of<int8_t> {
  using type = int32_t;
};
template <>
struct sum_of<double> {
  using type = double;
};

}  // namespace detail

#if RT_HAS(RT_MFMA)
// AMD Instinct MI300 ISA guide, chapter 7, and AMD's matrix instruction calculator. D's registers are
// neighbours of a column: B^T A^T gives D^T, whose neighbours are those of a row. `Wide` 2 has twice
// the K, of two bytes an element, in the same cycles (AMD Instinct MI350 ISA guide). Of one byte an
// element are int8, and fp8 as the device knows it: FNUZ on gfx942, OCP on gfx950. Of double each
// fourth row of D has the next register, and the product stands as it is.
template <class T, int Side, int Wide = 1>
struct mfma {
  static_assert(Side == 16 || Side == 32, "16x16 or 32x32");
  static_assert(Wide == 1 || (Wide == 2 && sizeof(T) == 2), "the wide ones are of half and bf16");
  static_assert(sizeof(T) < 8 || Side == 16, "of double 16x16");
  static constexpr int M = Side, N = Side, K = Wide * (sizeof(T) == 4 ? 64 : 512 / sizeof(T)) / Side;
  static constexpr int groups = 64 / Side, terms = K / groups, left_lines = 1;
  static constexpr bool turned = sizeof(T) < 8;
  static constexpr int registers = M * N / 64, run_length = turned ? 4 : 1;
  using left = vec<T, terms>;
  using right = vec<T, terms>;
  using result = vec<typename detail::sum_of<T>::type, registers>;

  static RT_FN int group(int lane) { return lane / Side; }
  static RT_FN int left_line(int lane, int) { return lane % Side; }
  static RT_FN constexpr int left_at(int, int term) { return term; }
  static RT_FN int right_line(int lane) { return lane % Side; }
  static RT_FN int row(int lane, int r) { return turned ? lane % Side : 4 * r + lane / 16; }
  static RT_FN int col(int lane, int r) {
    if (!turned) return lane % Side;
    return Side == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
  }

  static RT_FN void run(const left& a, const right& b, result& d) {
    const auto& first = turned ? b : a;
    const auto& second = turned ? a : b;
#if defined(RT_CPU)
    if constexpr (turned) {
      ::rt_cpu::mfma<T, Side, K>(&first, &second, d.v);
    } else {
      ::rt_cpu::mfma_f64(&first, &second, d.v);
    }
#else
    detail::multiply_add(first, second, d);
#endif
  }
};
#endif

#if RT_HAS(RT_WMMA_GFX11)
// AMD RDNA3 ISA guide, "Wave Matrix Multiply Accumulate": a lane has a whole line of K, lanes 16 to 31 the same as 0 to 15;
// D's rows alternate between the two halves.
template <class T>
struct wmma_gfx11 {
  static constexpr int M = 16, N = 16, K = 16;
  static constexpr int groups = 1, terms = 16, left_lines = 1;
  static constexpr int registers = 8, run_length = 1;
  using left = vec<T, terms>;
  using right = vec<T, terms>;
  using result = vec<typename detail::sum_of<T>::type, registers>;

  static RT_FN int group(int) { return 0; }
  static RT_FN int left_line(int lane, int) { return lane % 16; }
  static RT_FN constexpr int left_at(int, int term) { return term; }
  static RT_FN int right_line(int lane) { return lane % 16; }
  static RT_FN int row(int lane, int r) { return 2 * r + lane / 16; }
  static RT_FN int col(int lane, int) { return lane % 16; }

  static RT_FN void run(const left& a, const right& b, result& d) {
#if defined(RT_CPU)
    ::rt_cpu::wmma_gfx11<T>(&a, &b, d.v);
#else
    detail::multiply_add(a, b, d);
#endif
  }
};
#endif

#if RT_HAS(RT_WMMA_GFX12)
// AMD RDNA4 ISA guide, "Wave Matrix Multiply Accumulate": the halves of the wave divide K, and D's rows in blocks of
// eight. As for MFMA the transpose is computed: a lane then has eight neighbours of a row.
template <class T>
struct wmma_gfx12 {
  static constexpr int M = 16, N = 16, K = 16;
  static constexpr int groups = 2, terms = 8, left_lines = 1;
  static constexpr int registers = 8, run_length = 8;
  using left = vec<T, terms>;
  using right = vec<T, terms>;
  using result = vec<typename detail::sum_of<T>::type, registers>;

  static RT_FN int group(int lane) { return lane / 16; }
  static RT_FN int left_line(int lane, int) { return lane % 16; }
  static RT_FN constexpr int left_at(int, int term) { return term; }
  static RT_FN int right_line(int lane) { return lane % 16; }
  static RT_FN int row(int lane, int) { return lane % 16; }
  static RT_FN int col(int lane, int r) { return 8 * (lane / 16) + r; }

  static RT_FN void run(const left& a, const right& b, result& d) {
#if defined(RT_CPU)
    ::rt_cpu::wmma_gfx12<T>(&b, &a, d.v);
#else
    detail::multiply_add(b, a, d);
#endif
  }
};
#endif

#if RT_HAS(RT_MMA)
namespace detail {

#if defined(RT_CUDA)
#define RT_MMA_SYNC(kind, letter)                                                                       \
  asm("mma.sync.aligned." kind " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
      : "+" letter(d[0]), "+" letter(d[1]), "+" letter(d[2]), "+" letter(d[3])                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <class T, class Sum>
RT_FN void mma_sync(const uint32_t (&a)[4], const uint32_t (&b)[2], Sum* d) {
  if constexpr (same<T, half>) {
    RT_MMA_SYNC("m16n8k16.row.col.f32.f16.f16.f32", "f");
  } else if constexpr (same<T, bf16>) {
    RT_MMA_SYNC("m16n8k16.row.col.f32.bf16.bf16.f32", "f");
  } else if constexpr (same<T, int8_t>) {
    RT_MMA_SYNC("m16n8k32.row.col.s32.s8.s8.s32", "r");
  } else if constexpr (same<T, e4m3fn>) {
    RT_MMA_SYNC("m16n8k32.row.col.f32.e4m3.e4m3.f32", "f");
  } else {
    static_assert(same<T, e5m2>, "half, bf16, int8, e4m3fn or e5m2");
    RT_MMA_SYNC("m16n8k32.row.col.f32.e5m2.e5m2.f32", "f");
  }
}
#undef RT_MMA_SYNC
#else
template <class T, class Sum>
RT_FN void mma_sync(const uint32_t (&a)[4], const uint32_t (&b)[2], Sum* d) {
  ::rt_cpu::mma<T>(a, b, d);
}
#endif

}  // namespace detail

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": register 0 of A and B has K
// 2t and 2t + 1 of lane 4g + t, register 2 (of B: 1) those eight further on; registers 1 and 3 of A
// are row g + 8. With m16n8k32 a register has four values of a byte.
template <class T>
struct mma {
  static constexpr int word = 4 / sizeof(T);
  static constexpr int M = 16, N = 8, K = 8 * word;
  static constexpr int groups = 4, terms = 2 * word, left_lines = 2;
  static constexpr int registers = 4, run_length = 2;
  using left = vec<T, left_lines * terms>;
  using right = vec<T, terms>;
  using result = vec<typename detail::sum_of<T>::type, registers>;

  static RT_FN int group(int lane) { return lane % 4; }
  static RT_FN int left_line(int lane, int i) { return lane / 4 + 8 * i; }
  static RT_FN constexpr int left_at(int i, int term) { return term / word * 2 * word + i * word + term % word; }
  static RT_FN int right_line(int lane) { return lane / 4; }
  static RT_FN int row(int lane, int r) { return lane / 4 + 8 * (r / 2); }
  static RT_FN int col(int lane, int r) { return 2 * (lane % 4) + r % 2; }

  static RT_FN void run(const left& a, const right& b, result& d) {
    detail::mma_sync<T>(bit_cast<vec<uint32_t, 4>>(a).v, bit_cast<vec<uint32_t, 2>>(b).v, d.v);
  }
};

// PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64 floating point type", and for mma.m16n8k16: value
// i of B has K 4 i + t of lane 4g + t; of A each second value is row g + 8.
template <int Depth>
struct mma_f64 {
  static_assert(Depth == 4 || Depth == 16, "8x8x4 or 16x8x16");
  static constexpr int M = Depth == 4 ? 8 : 16, N = 8, K = Depth;
  static constexpr int groups = 4, terms = K / 4, left_lines = M / 8;
  static constexpr int registers = 2 * left_lines, run_length = 2;
  using left = vec<double, left_lines * terms>;
  using right = vec<double, terms>;
  using result = vec<double, registers>;

  static RT_FN int group(int lane) { return lane % 4; }
  static RT_FN int left_line(int lane, int i) { return lane / 4 + 8 * i; }
  static RT_FN constexpr int left_at(int i, int term) { return term * left_lines + i; }
  static RT_FN int right_line(int lane) { return lane / 4; }
  static RT_FN int row(int lane, int r) { return lane / 4 + r / 2 * 8; }
  static RT_FN int col(int lane, int r) { return lane % 4 * 2 + r % 2; }

  static RT_FN void run(const left& a, const right& b, result& d) {
#if defined(RT_CPU)
    ::rt_cpu::mma_f64<Depth>(&a, &b, d.v);
#else
    if constexpr (Depth == 4) {
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(d[0]), "+d"(d[1])
          : "d"(a[0]), "d"(b[0]));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
          "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
          : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
          : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
            "d"(b[1]), "d"(b[2]), "d"(b[3]));
    }
#endif
  }
};
#endif

}  // namespace rt
