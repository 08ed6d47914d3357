// Boxes of a matrix to LDS, each by one thread's one instruction: Hopper's bulk tensor copies.
//
// A `box_map` tells where the matrix is and what a box is; make_box_map makes it on the host. copy_box starts
// a copy: the box at an element (fast, slow, batch), zeros where the matrix ends. An `arrival` in LDS counts
// bytes: arrival_begin sets it up, arrivals_begun shows that to the copies (and to the block after a barrier),
// arrival_expect says how many bytes its next round has, arrival_wait waits for a round: 0, 1, 0, ...
//
// A map of images, make_pixel_map, is for pixels that a kernel sees from places of a convolution's result one after
// the other: copy_pixels copies 128 bytes of channels of each, from the place (x, y, image) on, as far ahead of it
// as the kernel's point is; zeros outside of the image.
//
// PTX ISA, "cp.async.bulk.tensor" and its im2col mode with SWIZZLE_128B: lines of 128 bytes, as rocm_tui/warpgroup.h wants them.
#pragma once

#if RT_HAS(RT_MMA) && (!defined(RT_CUDA) || CUDART_VERSION >= 12000)
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

// Images with channels last, strides in elements. By columns and rows: the first place, how far beyond the end of
// the image places end, their distance; `places` are copied at once.
struct pixel_shape {
  int64_t channels, width, height, images, column_stride, row_stride, image_stride;
  int first[2], beyond[2], step[2], places;
};

#if defined(RT_CUDA)
using box_map = CUtensorMap;

// A function of the driver; null where it has none.
template <class Function>
inline Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  return reinterpret_cast<Function>(found);
}

// A stride that leads nowhere may be any number.
template <class T>
inline cuuint64_t map_stride(int64_t size, int64_t stride) {
  return size == 1 ? 16 : static_cast<cuuint64_t>(stride) * sizeof(T);
}

// What the driver says; hipSuccess or an error.
template <class T>
inline int make_box_map(box_map& map, const T* from, const box_shape& shape) {
  static_assert(sizeof(T) <= 2, "values of a warpgroup");
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t across = 128 / sizeof(T);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(shape.fast), static_cast<cuuint64_t>(shape.lines),
                               static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[2] = {map_stride<T>(shape.lines, shape.line_stride),
                                 map_stride<T>(shape.batch, shape.batch_stride)};
  const cuuint32_t box[3] = {across, static_cast<cuuint32_t>(shape.box_lines), 1}, each[3] = {1, 1, 1};
  const CUresult error =
      encode(&map, sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 3,
             const_cast<T*>(from), sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return error == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <class T>
inline int make_pixel_map(box_map& map, const T* from, const pixel_shape& shape) {
  static_assert(sizeof(T) <= 2, "values of a warpgroup");
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(shape.channels), static_cast<cuuint64_t>(shape.width),
                               static_cast<cuuint64_t>(shape.height), static_cast<cuuint64_t>(shape.images)};
  const cuuint64_t strides[3] = {map_stride<T>(shape.width, shape.column_stride),
                                 map_stride<T>(shape.height, shape.row_stride),
                                 map_stride<T>(shape.images, shape.image_stride)};
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(shape.step[0]), static_cast<cuuint32_t>(shape.step[1]), 1};
  const CUresult error =
      encode(&map, sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 4,
             const_cast<T*>(from), sizes, strides, shape.first, shape.beyond, 128 / sizeof(T), shape.places, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return error == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
#else
using box_map = ::rt_cpu::BoxMap;

template <class T>
inline int make_box_map(box_map& map, const T* from, const box_shape& shape) {
  map = {from, shape.fast, shape.lines, shape.batch, shape.line_stride, shape.batch_stride, shape.box_lines, sizeof(T)};
  return ::rt_cpu::box_defect(map) ? hipErrorInvalidValue : hipSuccess;
}

template <class T>
inline int make_pixel_map(box_map& map, const T* from, const pixel_shape& of) {
  map = {from, of.channels, of.width, of.images, of.column_stride, of.image_stride, of.places, sizeof(T), of.height, of.row_stride};
  for (int i = 0; i < 2; ++i) map.first[i] = of.first[i], map.beyond[i] = of.beyond[i], map.step[i] = of.step[i];
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
  ::rt_cpu::copy_box({reinterpret_cast<char*>(to), map, fast, slow, batch}, at);
#endif
}

template <class T>
RT_FN void copy_pixels(T* to, const box_map& map, int channel, int x, int y, int image, int ahead_x, int ahead_y, arrival* at) {
#if defined(RT_CUDA)
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(detail::lds_address(to)),
      "l"(&map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(detail::lds_address(at)),
      "h"(static_cast<unsigned short>(ahead_x)), "h"(static_cast<unsigned short>(ahead_y))
      : "memory");
#else
  ::rt_cpu::copy_box({reinterpret_cast<char*>(to), map, channel, x, image, y, {ahead_x, ahead_y}}, at);
#endif
}

}  // namespace rt
#else
#define RT_ARGUMENT const
#endif
