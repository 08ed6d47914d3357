// D += A B with one matrix instruction: A is M x K, B is K x N, D is M x N, all row-major.
#include <rocm_tui/gpu.h>

namespace {

template <class T>
using Sum = typename rt::detail::sum_of<T>::type;

template <class Unit, class T>
__global__ void __launch_bounds__(RT_WAVE) tile(const T* A, const T* B, Sum<T>* D) {
  const int lane = rt::lane(), first = Unit::group(lane) * Unit::terms;
  typename Unit::left a;
  typename Unit::right b;
  typename Unit::result d;
  RT_UNROLL
  for (int k = 0; k < Unit::terms; ++k) {
    RT_UNROLL
    for (int i = 0; i < Unit::left_lines; ++i) {
      a[Unit::left_at(i, k)] = A[Unit::left_line(lane, i) * Unit::K + first + k];
    }
    b[k] = B[(first + k) * Unit::N + Unit::right_line(lane)];
  }
  RT_UNROLL
  for (int r = 0; r < Unit::registers; ++r) d[r] = D[Unit::row(lane, r) * Unit::N + Unit::col(lane, r)];
  Unit::run(a, b, d);
  RT_UNROLL
  for (int r = 0; r < Unit::registers; ++r) D[Unit::row(lane, r) * Unit::N + Unit::col(lane, r)] = d[r];
}

}  // namespace

#define ENTRY(name, Unit, T)                                                                         \
  RT_EXPORT int name(const void* A, const void* B, void* D, size_t*, uint8_t*, hipStream_t stream) { \
    return RT_LAUNCH((tile<Unit, T>), 1, RT_WAVE, 0, stream, static_cast<const T*>(A), static_cast<const T*>(B), \
                     static_cast<Sum<T>*>(D));                                                       \
  }
#define COMMA ,
#if RT_HAS(RT_MFMA)
ENTRY(mfma_half16, rt::mfma<rt::half COMMA 16>, rt::half)
ENTRY(mfma_half32, rt::mfma<rt::half COMMA 32>, rt::half)
#if defined(RT_CPU) || defined(__gfx950__)
ENTRY(mfma_wide_half16, rt::mfma<rt::half COMMA 16 COMMA 2>, rt::half)
ENTRY(mfma_wide_half32, rt::mfma<rt::half COMMA 32 COMMA 2>, rt::half)
ENTRY(mfma_wide_bf16_16, rt::mfma<rt::bf16 COMMA 16 COMMA 2>, rt::bf16)
ENTRY(mfma_wide_bf16_32, rt::mfma<rt::bf16 COMMA 32 COMMA 2>, rt::bf16)
#endif
#if !defined(__gfx90a__)
ENTRY(mfma_int8_16, rt::mfma<int8_t COMMA 16>, int8_t)
ENTRY(mfma_int8_32, rt::mfma<int8_t COMMA 32>, int8_t)
#endif
ENTRY(mfma_double, rt::mfma<double COMMA 16>, double)
ENTRY(mfma_bf16_16, rt::mfma<rt::bf16 COMMA 16>, rt::bf16)
ENTRY(mfma_bf16_32, rt::mfma<rt::bf16 COMMA 32>, rt::bf16)
ENTRY(mfma_float16, rt::mfma<float COMMA 16>, float)
ENTRY(mfma_float32, rt::mfma<float COMMA 32>, float)
#endif
#if RT_HAS(RT_WMMA_GFX11)
ENTRY(wmma_gfx11_half, rt::wmma_gfx11<rt::half>, rt::half)
ENTRY(wmma_gfx11_bf16, rt::wmma_gfx11<rt::bf16>, rt::bf16)
ENTRY(wmma_gfx11_int8, rt::wmma_gfx11<int8_t>, int8_t)
#endif
#if RT_HAS(RT_WMMA_GFX12)
ENTRY(wmma_gfx12_half, rt::wmma_gfx12<rt::half>, rt::half)
ENTRY(wmma_gfx12_bf16, rt::wmma_gfx12<rt::bf16>, rt::bf16)
ENTRY(wmma_gfx12_int8, rt::wmma_gfx12<int8_t>, int8_t)
ENTRY(wmma_gfx12_e4m3, rt::wmma_gfx12<rt::e4m3fn>, rt::e4m3fn)
ENTRY(wmma_gfx12_e5m2, rt::wmma_gfx12<rt::e5m2>, rt::e5m2)
#endif
#if RT_HAS(RT_MMA)
ENTRY(mma_half, rt::mma<rt::half>, rt::half)
ENTRY(mma_bf16, rt::mma<rt::bf16>, rt::bf16)
ENTRY(mma_int8, rt::mma<int8_t>, int8_t)
ENTRY(mma_f64_4, rt::mma_f64<4>, double)
#if defined(RT_CPU) || __CUDA_ARCH_LIST__ >= 900
ENTRY(mma_f64_16, rt::mma_f64<16>, double)
#endif
#endif
