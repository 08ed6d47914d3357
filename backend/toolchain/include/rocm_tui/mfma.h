// The matrix cores of CDNA: D += A B of one wave, an M x M tile with K products a step.
//
// rt::mfma<T, M> for M 16 or 32 and T rt::half, rt::bf16 or float: the two shapes that every CDNA
// since gfx90a has. Where RT_HAS_MFMA is 0 there is none, and a template takes its plain path.
#pragma once

#if RT_HAS_MFMA
namespace rt {

#if defined(RT_AMDGPU)
namespace detail {

typedef _Float16 halfx4 __attribute__((ext_vector_type(4)));
typedef short shortx4 __attribute__((ext_vector_type(4)));
typedef float floatx4 __attribute__((ext_vector_type(4)));
typedef float floatx16 __attribute__((ext_vector_type(16)));

template <class T>
struct native;
template <>
struct native<half> {
  using type = halfx4;
};
template <>
struct native<bf16> {
  using type = shortx4;
};
template <>
struct native<float> {
  using type = float;
};

// The host's pass knows no instruction of the device: there it only has to parse.
#if defined(__HIP_DEVICE_COMPILE__)
#define RT_MFMA(In, Acc, name) \
  RT_FN Acc multiply(In a, In b, Acc c) { return __builtin_amdgcn_mfma_f32_##name(a, b, c, 0, 0, 0); }
#else
#define RT_MFMA(In, Acc, name) \
  RT_FN Acc multiply(In, In, Acc c) { return c; }
#endif
RT_MFMA(halfx4, floatx4, 16x16x16f16)
RT_MFMA(halfx4, floatx16, 32x32x8f16)
RT_MFMA(shortx4, floatx4, 16x16x16bf16_1k)
RT_MFMA(shortx4, floatx16, 32x32x8bf16_1k)
RT_MFMA(float, floatx4, 16x16x4f32)
RT_MFMA(float, floatx16, 32x32x2f32)
#undef RT_MFMA

template <int M>
struct accumulator;
template <>
struct accumulator<16> {
  using type = floatx4;
};
template <>
struct accumulator<32> {
  using type = floatx16;
};

}  // namespace detail
#endif

template <class T, int M>
struct mfma {
  static_assert(M == 16 || M == 32, "16x16 or 32x32");
  static constexpr int K = (sizeof(T) == 4 ? 64 : 256) / M;
  static constexpr int operands = K * M / 64;   // values of A, and of B, that a lane holds
  static constexpr int registers = M * M / 64;  // values of D that a lane holds

  using operand = vec<T, operands>;
  using result = vec<float, registers>;

  // Where a lane's values stand: A[outer(lane)][k(lane, i)], B[k(lane, i)][outer(lane)],
  // D[row(lane, r)][outer(lane)].
  static RT_FN int outer(int lane) { return lane % M; }
  static RT_FN int k(int lane, int i) { return operands * (lane / M) + i; }
  static RT_FN int row(int lane, int r) {
    return M == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
  }

  static RT_FN void run(const operand& a, const operand& b, result& d) {
#if defined(RT_CPU)
    ::rt_cpu::mfma<T, M, K>(&a, &b, d.v);
#else
    using In = typename detail::native<T>::type;
    using Acc = typename detail::accumulator<M>::type;
    d = bit_cast<result>(detail::multiply(bit_cast<In>(a), bit_cast<In>(b), bit_cast<Acc>(d)));
#endif
  }
};

}  // namespace rt
#endif
