// What a source that calls an instance needs of the library's core.
#pragma once
#include <hip/hip_runtime.h>
#include <rocm_tui/gpu.h>

struct StreamConfig {
  hipStream_t stream_id_ = nullptr;
  bool time_kernel_ = false;
};

namespace ck {

using index_t = int32_t;
using half_t = rt::half;
using bhalf_t = rt::bf16;

template <index_t...>
struct Sequence {};
template <class...>
struct Tuple {};

enum struct BlockGemmPipelineScheduler { Intrawave, Interwave };
enum struct BlockGemmPipelineVersion { v1, v3, wrong };

namespace tensor_layout::gemm {
struct RowMajor {};
struct ColumnMajor {};
}  // namespace tensor_layout::gemm

namespace tensor_operation {
namespace element_wise {
struct PassThrough {};
}  // namespace element_wise
namespace device {
enum struct GemmSpecialization { Default, MNKPadding };
}  // namespace device
}  // namespace tensor_operation
}  // namespace ck
