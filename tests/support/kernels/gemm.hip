// C = A B for row-major fp16: LDS double buffering, vector loads, masked edges. Matrix cores where
// there are any, else a register tile of plain multiplications.
#include <rocm_tui/gpu.h>

#ifndef NO_FIRST_BARRIER
#define BARRIER_AFTER_FILL __syncthreads()
#else
#define BARRIER_AFTER_FILL (void)0
#endif
#ifndef NO_SECOND_BARRIER
#define BARRIER_AFTER_USE __syncthreads()
#else
#define BARRIER_AFTER_USE (void)0
#endif
#ifdef WRONG_MASK
#define INSIDE(i, n) ((i) <= (n))
#else
#define INSIDE(i, n) ((i) < (n))
#endif

namespace {

using Element = rt::half;

constexpr int BM = 64, BN = 64, BK = 16, THREADS = 256, VEC = 4;
constexpr int A_LD = BK + 4, B_LD = BN + 8;  // padded against bank conflicts, 8-byte rows

struct Tile {
  Element a[BM][A_LD];
  Element b[BK][B_LD];
};

RT_FN rt::vec<Element, VEC> load_row(const Element* matrix, int row, int rows, int column, int columns, bool vectors) {
  if (!INSIDE(row, rows)) return rt::fill<Element, VEC>(rt::from_float<Element>(0.0f));
  const Element* from = matrix + static_cast<int64_t>(row) * columns + column;
  if (vectors && column + VEC <= columns) return rt::load<VEC>(from);
  return rt::load_part<VEC>(from, columns - column);
}

struct Fetched {
  rt::vec<Element, VEC> a, b;
};

RT_FN Fetched fetch(const Element* A, const Element* B, int M, int N, int K, int m0, int n0, int k0) {
  const int t = threadIdx.x;
  Fetched fetched;
  fetched.a = load_row(A, m0 + t / (BK / VEC), M, k0 + t % (BK / VEC) * VEC, K, K % VEC == 0);
  fetched.b = load_row(B, k0 + t / (BN / VEC), K, n0 + t % (BN / VEC) * VEC, N, N % VEC == 0);
  return fetched;
}

RT_FN void fill_tile(Tile& tile, const Fetched& fetched) {
  const int t = threadIdx.x;
  rt::store(&tile.a[t / (BK / VEC)][t % (BK / VEC) * VEC], fetched.a);
  rt::store(&tile.b[t / (BN / VEC)][t % (BN / VEC) * VEC], fetched.b);
}

#if RT_HAS(RT_MFMA)

using Mfma = rt::mfma<Element, 16>;
constexpr int WAVES = THREADS / RT_WAVE, ACROSS = BN / 16, REGISTERS = Mfma::registers * ACROSS;

// A wave has 16 rows of the block's tile and all of its columns.
struct Accumulators {
  Mfma::result tile[ACROSS];

  RT_FN void clear() {
    RT_UNROLL
    for (int j = 0; j < ACROSS; ++j) tile[j] = rt::fill<float, Mfma::registers>(0.0f);
  }
  RT_FN void add(const Tile& lds) {
    const int lane = rt::lane();
    const Mfma::left a = rt::load<4>(&lds.a[16 * rt::wave() + Mfma::left_line(lane, 0)][4 * Mfma::group(lane)]);
    RT_UNROLL
    for (int j = 0; j < ACROSS; ++j) {
      Mfma::right b;
      RT_UNROLL
      for (int i = 0; i < Mfma::terms; ++i) b[i] = lds.b[4 * Mfma::group(lane) + i][16 * j + Mfma::right_line(lane)];
      Mfma::run(a, b, tile[j]);
    }
  }
  RT_FN void store(Element* C, int M, int N, int m0, int n0) const {
    RT_UNROLL
    for (int j = 0; j < ACROSS; ++j) {
      RT_UNROLL
      for (int r = 0; r < Mfma::registers; ++r) {
        const int m = m0 + 16 * rt::wave() + Mfma::row(rt::lane(), r), n = n0 + 16 * j + Mfma::col(rt::lane(), r);
        if (INSIDE(m, M) && INSIDE(n, N)) C[static_cast<int64_t>(m) * N + n] = rt::from_float<Element>(tile[j][r]);
      }
    }
  }
};
static_assert(WAVES * 16 == BM, "a wave for each 16 rows");

#else

struct Accumulators {
  float sum[4][4];

  RT_FN void clear() {
    RT_UNROLL
    for (int i = 0; i < 4; ++i) {
      RT_UNROLL
      for (int j = 0; j < 4; ++j) sum[i][j] = 0.0f;
    }
  }
  RT_FN void add(const Tile& lds) {
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    RT_UNROLL
    for (int k = 0; k < BK; ++k) {
      RT_UNROLL
      for (int i = 0; i < 4; ++i) {
        RT_UNROLL
        for (int j = 0; j < 4; ++j) {
          sum[i][j] = rt::fma(rt::to_float(lds.a[row + i][k]), rt::to_float(lds.b[k][column + j]), sum[i][j]);
        }
      }
    }
  }
  RT_FN void store(Element* C, int M, int N, int m0, int n0) const {
    RT_UNROLL
    for (int i = 0; i < 4; ++i) {
      RT_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int m = m0 + threadIdx.x / 16 * 4 + i, n = n0 + threadIdx.x % 16 * 4 + j;
        if (INSIDE(m, M) && INSIDE(n, N)) C[static_cast<int64_t>(m) * N + n] = rt::from_float<Element>(sum[i][j]);
      }
    }
  }
};

#endif

__global__ void __launch_bounds__(THREADS) gemm_kernel(const Element* A, const Element* B, Element* C, int M, int N, int K) {
  RT_LDS(Tile, tiles, [2]);
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  Accumulators accumulators;
  accumulators.clear();
  fill_tile(tiles[0], fetch(A, B, M, N, K, m0, n0, 0));
  BARRIER_AFTER_FILL;
  int current = 0;
  for (int k0 = 0; k0 < K; k0 += BK) {
    const bool more = k0 + BK < K;
    Fetched next;
    if (more) next = fetch(A, B, M, N, K, m0, n0, k0 + BK);
    accumulators.add(tiles[current]);
    if (more) fill_tile(tiles[current ^ 1], next);
    BARRIER_AFTER_USE;
    current ^= 1;
  }
  accumulators.store(C, M, N, m0, n0);
}

}  // namespace

RT_EXPORT int gemm(const void* A, const void* B, void* C, int M, int N, int K, size_t* workspace_size,
                   uint8_t* workspace, hipStream_t stream) {
  (void)workspace;
  if (workspace_size) {
    *workspace_size = 0;
    return hipSuccess;
  }
  if (!A || !B || !C) return hipErrorInvalidValue;
  const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM), block(THREADS);
  return RT_LAUNCH(gemm_kernel, grid, block, 0, stream, static_cast<const Element*>(A), static_cast<const Element*>(B),
                   static_cast<Element*>(C), M, N, K);
}
