// Which LDS the threads of the first block read and write as vectors, for a model of its banks.
//
// Only where RT_TRACE_LDS is how many accesses there is room for. `rocm_tui_lds_trace` gives them in
// the order in which they were made, and how many; those of one thread are in its own order.
#pragma once
#include <rt_cpu/machine.h>

namespace rt_cpu {

#if defined(RT_TRACE_LDS)

struct Access {
  uint32_t thread, offset, bytes, write;
};

struct Trace {
  uint32_t count;
  Access accesses[RT_TRACE_LDS];
};

inline Trace lds_trace;

inline void trace_lds(const void* address, size_t bytes, bool write) {
  const Machine& m = machine;
  const size_t offset = static_cast<const unsigned char*>(address) - m.lds;
  const bool first = m.block_index.x == 0 && m.block_index.y == 0 && m.block_index.z == 0;
  if (!first || offset >= RT_LDS_LIMIT || lds_trace.count >= RT_TRACE_LDS) return;
  lds_trace.accesses[lds_trace.count++] = Access{m.current->linear, static_cast<uint32_t>(offset),
                                                 static_cast<uint32_t>(bytes), write};
}

#else

inline void trace_lds(const void*, size_t, bool) {}

#endif

}  // namespace rt_cpu

#if defined(RT_TRACE_LDS)
extern "C" __attribute__((visibility("default"))) const rt_cpu::Access* rocm_tui_lds_trace(uint32_t* count) {
  *count = rt_cpu::lds_trace.count;
  return rt_cpu::lds_trace.accesses;
}
#endif
