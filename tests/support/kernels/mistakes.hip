// Kernels that a GPU would hang on, fault on, or answer with wrong numbers.
#include <rocm_tui/gpu.h>

namespace {

__global__ void different_barriers() {
  if (threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void partial_mfma(float* out) {
  using Mfma = rt::mfma<float, 16>;
  auto d = rt::fill<float, 4>(0.0f);
  if (threadIdx.x < 63) Mfma::run(rt::fill<float, 1>(1.0f), rt::fill<float, 1>(1.0f), d);
  out[threadIdx.x] = d[0];
}

__global__ void too_much_lds(float* out) {
  RT_LDS(float, first, [12 * 1024]);
  RT_LDS(float, second, [12 * 1024]);
  first[threadIdx.x] = 1.0f;
  second[threadIdx.x] = 2.0f;
  out[threadIdx.x] = first[threadIdx.x];
}

__global__ void misaligned(float* out) { rt::store(out + 1, rt::fill<float, 4>(1.0f)); }

__global__ void unwritten_lds(float* out) {
  RT_LDS(float, box, [64]);
  out[threadIdx.x] = box[threadIdx.x];
}

}  // namespace

#define ENTRY(name, launch) \
  RT_EXPORT int name(void* out, int threads, size_t*, uint8_t*, hipStream_t stream) { \
    (void)out, (void)threads; \
    return launch; \
  }
ENTRY(barriers, RT_LAUNCH(different_barriers, 1, 128, 0, stream))
ENTRY(divergent, RT_LAUNCH(partial_mfma, 1, 64, 0, stream, static_cast<float*>(out)))
ENTRY(lds, RT_LAUNCH(too_much_lds, 1, 64, 0, stream, static_cast<float*>(out)))
ENTRY(alignment, RT_LAUNCH(misaligned, 1, 64, 0, stream, static_cast<float*>(out)))
ENTRY(unwritten, RT_LAUNCH(unwritten_lds, 1, 64, 0, stream, static_cast<float*>(out)))
ENTRY(block_size, RT_LAUNCH(unwritten_lds, 1, threads, 0, stream, static_cast<float*>(out)))
