// A tiled product, a thread an element, with the interface of the library's universal GEMM.
#pragma once
#include <array>
#include <concepts>  // the language must be C++20
#include <ck/ck.hpp>

namespace ck::tensor_operation::device {

template <class T>
struct GemmArgument {
  const T* a;
  const T* b;
  T* c;
  index_t m, n, k, lda, ldb, ldc, k_batch;
};

template <class T, int BlockSize, int M, int N, int K, bool Wrong>
__global__ void __launch_bounds__(BlockSize) ck_like_gemm(GemmArgument<T> arg) {
  RT_LDS(float, left, [M][K]);
  RT_LDS(float, right, [K][N]);
  const int row0 = static_cast<int>(blockIdx.y) * M, col0 = static_cast<int>(blockIdx.x) * N;
  const int thread = static_cast<int>(threadIdx.x);
  float sums[M * N / BlockSize] = {};
  for (int k0 = 0; k0 < arg.k; k0 += K) {
    for (int at = thread; at < M * K; at += BlockSize) {
      const int row = row0 + at / K, k = k0 + at % K;
      left[at / K][at % K] = row < arg.m && k < arg.k ? rt::convert<float>(arg.a[int64_t{row} * arg.lda + k]) : 0;
    }
    for (int at = thread; at < K * N; at += BlockSize) {
      const int k = k0 + at / N, col = col0 + at % N;
      right[at / N][at % N] = k < arg.k && col < arg.n ? rt::convert<float>(arg.b[int64_t{k} * arg.ldb + col]) : 0;
    }
    __syncthreads();
    for (int i = 0; i < M * N / BlockSize; ++i) {
      const int at = thread + i * BlockSize;
      for (int k = 0; k < K; ++k) sums[i] += left[at / N][k] * right[k][at % N];
    }
    __syncthreads();
  }
  for (int i = 0; i < M * N / BlockSize; ++i) {
    const int at = thread + i * BlockSize, row = row0 + at / N, col = col0 + at % N;
    if (row < arg.m && col < arg.n) arg.c[int64_t{row} * arg.ldc + col] = rt::convert<T>(Wrong ? sums[i] + 1 : sums[i]);
  }
}

template <class ALayout, class BLayout, class DsLayout, class CLayout, class A, class B, class C, class AOp, class BOp,
          class COp, GemmSpecialization Spec, index_t BlockSize, index_t MPerBlock, index_t NPerBlock,
          index_t KPerBlock, index_t AK1, index_t BK1, index_t MPerXdl, index_t NPerXdl, index_t MXdlPerWave,
          index_t NXdlPerWave, class AClusterLengths, index_t AVector, bool AExtraM, index_t BVector, class CVector,
          BlockGemmPipelineScheduler Scheduler, BlockGemmPipelineVersion Version>
struct DeviceGemmMultiD_Xdl_CShuffle_V3 {
  using Argument = GemmArgument<A>;

  Argument MakeArgument(const A* a, const B* b, std::array<const void*, 0>, C* c, index_t m, index_t n, index_t k,
                        index_t lda, index_t ldb, std::array<index_t, 0>, index_t ldc, index_t k_batch, AOp, BOp, COp) {
    return {a, b, c, m, n, k, lda, ldb, ldc, k_batch};
  }
  bool IsSupportedArgument(const Argument& arg) const {
    const bool whole = arg.m % MPerBlock == 0 && arg.n % NPerBlock == 0 && arg.k % KPerBlock == 0;
    return arg.k_batch == 1 && (whole || Spec == GemmSpecialization::MNKPadding);
  }
  struct Invoker {
    float Run(const Argument& arg, const StreamConfig& config) const {
      const dim3 grid(static_cast<unsigned>((arg.n + NPerBlock - 1) / NPerBlock),
                      static_cast<unsigned>((arg.m + MPerBlock - 1) / MPerBlock));
      constexpr bool wrong = Version == BlockGemmPipelineVersion::wrong;
      const int error = RT_LAUNCH((ck_like_gemm<A, BlockSize, MPerBlock, NPerBlock, KPerBlock, wrong>), grid,
                                  dim3(BlockSize), 0, config.stream_id_, arg);
      if (error != hipSuccess) throw error;
      return 0;
    }
  };
  Invoker MakeInvoker() const { return {}; }
};

}  // namespace ck::tensor_operation::device
