// Boxes of a matrix to LDS, each by one thread's one instruction: Hopper's bulk tensor copies.
//
// A `box_map` tells where the matrix is and what a box is; make_box_map makes it on the host. copy_box starts
// a copy: the box at an element (fast, slow, batch), zeros where the matrix ends. An `arrival` in LDS counts
// bytes: arrival_begin sets it up, arrivals_begun shows that to the copies (and to the block after a barrier),
// arrival_expect says how many bytes its next round has, arrival_wait waits for a round: 0, 1, 0, ...
//
// PTX ISA, "cp.async.bulk.tensor" with SWIZZLE_128B: lines of 128 bytes, as rocm_tui/warpgroup.h wants them.
#pragma once

#if RT_HAS(RT_MMA)
#if defined(RT_CUDA)
#include <cuda.h>
#define RT_ARGUMENT const __grid_constant__
#else
#define RT_ARGUMENT const
#endif

namespace rt {

using arrival = uint64_t;

// A matrix with `fast` contiguous elements a line, and a box of 128 bytes by `box_lines`; strides in elements.
struct box_shape {
  int64_t fast, lines, batch, line_stride, batch_stride;
  int box_lines;
};

#if defined(RT_CUDA)
using box_map = CUtensorMap;

// What the driver says; hipSuccess or an error.
template <class T>
inline int make_box_map(box_map& map, const T* from, const box_shape& shape) {
  static_assert(sizeof(T) <= 2, "values of a warpgroup");
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    return reinterpret_cast<Encode>(found);
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t across = 128 / sizeof(T);
  const auto bytes = [](int64_t stride) { return static_cast<cuuint64_t>(stride) * sizeof(T); };
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(shape.fast), static_cast<cuuint64_t>(shape.lines),
                               static_cast<cuuint64_t>(shape.batch)};
  // A stride that leads nowhere may be any number.
  const cuuint64_t strides[2] = {shape.lines == 1 ? 16 : bytes(shape.line_stride),
                                 shape.batch == 1 ? 16 : bytes(shape.batch_stride)};
  const cuuint32_t box[3] = {across, static_cast<cuuint32_t>(shape.box_lines), 1}, each[3] = {1, 1, 1};
  const CUresult error =
      encode(&map, sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 3,
             const_cast<T*>(from), sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return error == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
#else
using box_map = ::rt_cpu::BoxMap;

template <class T>
inline int make_box_map(box_map& map, const T* from, const box_shape& shape) {
  map = {from, shape.fast, shape.lines, shape.batch, shape.line_stride, shape.batch_stride, shape.box_lines, sizeof(T)};
  return ::rt_cpu::box_defect(map) ? hipErrorInvalidValue : hipSuccess;
}
#endif

RT_FN void arrival_begin(arrival* at) {
#if defined(RT_CUDA)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(detail::lds_address(at)) : "memory");
#else
  ::rt_cpu::arrival_begin(at);
#endif
}

RT_FN void arrivals_begun() {
#if defined(RT_CUDA)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

RT_FN void arrival_expect(arrival* at, int bytes) {
#if defined(RT_CUDA)
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(detail::lds_address(at)), "r"(bytes)
               : "memory");
#else
  ::rt_cpu::arrival_expect(at, bytes);
#endif
}

RT_FN void arrival_wait(arrival* at, int round) {
#if defined(RT_CUDA)
  asm volatile(
      "{ .reg .pred there; again: "
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; "
      "@there bra done; bra again; done: }" ::"r"(detail::lds_address(at)),
      "r"(round)
      : "memory");
#else
  ::rt_cpu::arrival_wait(at, round);
#endif
}

template <class T>
RT_FN void copy_box(T* to, const box_map& map, int fast, int slow, int batch, arrival* at) {
#if defined(RT_CUDA)
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          detail::lds_address(to)),
      "l"(&map), "r"(fast), "r"(slow), "r"(batch), "r"(detail::lds_address(at))
      : "memory");
#else
  ::rt_cpu::copy_box(to, map, fast, slow, batch, at);
#endif
}

}  // namespace rt
#else
#define RT_ARGUMENT const
#endif
