// fp16 has CUDA's own names in HIP.
#pragma once
#include <cuda_fp16.h>
