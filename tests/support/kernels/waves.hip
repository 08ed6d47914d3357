// What lanes of a wave do together: a row sum by shuffles, shuffles in a divergent wave.
#include <rocm_tui/gpu.h>

namespace {

constexpr int THREADS = 256;

__device__ float wave_sum(float value) {
  for (int step = RT_WAVE / 2; step > 0; step /= 2) value += rt::shfl_xor(value, step);
  return value;
}

// One block a row: lanes, then waves through LDS.
__global__ void __launch_bounds__(THREADS) row_sums(const float* x, float* sums, int columns) {
  RT_LDS(float, partial, [THREADS / RT_WAVE]);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += x[static_cast<int64_t>(blockIdx.x) * columns + i];
  sum = wave_sum(sum);
  if (rt::lane() == 0) partial[rt::wave()] = sum;
  __syncthreads();
  if (rt::wave() == 0) {
    sum = rt::lane() < THREADS / RT_WAVE ? partial[rt::lane()] : 0.0f;
    sum = wave_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
}

// out[0..1][thread]: the number of another lane of the wave, and of another of the 16 neighbours.
__global__ void shuffles(float* out) {
  const int lane = rt::lane();
  const float mine = static_cast<float>(lane);
  out[0 * RT_WAVE + lane] = rt::shfl_xor(mine, 5);
  out[1 * RT_WAVE + lane] = rt::shfl_xor(mine, 17, 16);
}

// Neighbours exchange through LDS inside their wave, with no barrier of the block.
__global__ void neighbours(float* out) {
  RT_LDS(float, box, [RT_WAVE]);
  box[rt::lane()] = static_cast<float>(rt::lane());
  rt::wave_sync();
  out[rt::lane()] = box[rt::lane() ^ 1];
}

__global__ void dynamic(float* out, int n) {
  RT_DYNAMIC_LDS(float, box);
  for (int i = threadIdx.x; i < n; i += blockDim.x) box[n - 1 - i] = static_cast<float>(i);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = box[i];
}

}  // namespace

RT_EXPORT int row_sum(const void* x, void* sums, int rows, int columns, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(row_sums, rows, THREADS, 0, stream, static_cast<const float*>(x), static_cast<float*>(sums),
                   columns);
}

RT_EXPORT int shuffle(void* out, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(shuffles, 1, RT_WAVE, 0, stream, static_cast<float*>(out));
}

RT_EXPORT int neighbour(void* out, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(neighbours, 1, RT_WAVE, 0, stream, static_cast<float*>(out));
}

RT_EXPORT int dynamic_lds(void* out, int n, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(dynamic, 1, 128, n * sizeof(float), stream, static_cast<float*>(out), n);
}
