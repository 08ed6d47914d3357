// From memory to LDS without registers, and from LDS to a matrix unit: NVIDIA from sm_80 on.
//
// copy_async starts a copy, copy_commit ends a group of them, copy_wait<N> waits until all but the last N
// groups of this thread are there; the block's other threads see them after a barrier. load_matrices
// gives a wave four 8 x 8 matrices of 16-bit values, or of pairs of bytes.
#pragma once

#if RT_HAS(RT_MMA)
namespace rt {

#if defined(RT_CUDA)
namespace detail {

RT_FN uint32_t lds_address(const void* lds) { return static_cast<uint32_t>(__cvta_generic_to_shared(lds)); }

}  // namespace detail
#endif

// `Bytes` (4, 8 or 16) to an address in LDS; both are aligned to as many.
template <int Bytes>
RT_FN void copy_async(void* to, const void* from) {
#if defined(RT_CUDA)
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(detail::lds_address(to)), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(detail::lds_address(to)), "l"(from), "n"(Bytes)
                 : "memory");
  }
#else
  ::rt_cpu::copy_async(to, from, Bytes, Bytes);
#endif
}

// The first `valid` bytes, zeros after them; with 0 nothing is read. `Once`: nobody reads them again, and L2 may
// forget them first.
template <int Bytes, bool Once = false>
RT_FN void copy_async(void* to, const void* from, int valid) {
#if defined(RT_CUDA)
  if constexpr (Bytes == 16 && Once) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(
                     detail::lds_address(to)),
                 "l"(from), "r"(valid), "l"(policy)
                 : "memory");
  } else if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(detail::lds_address(to)), "l"(from),
                 "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(detail::lds_address(to)), "l"(from),
                 "n"(Bytes), "r"(valid)
                 : "memory");
  }
#else
  ::rt_cpu::copy_async(to, from, Bytes, valid);
#endif
}

RT_FN void copy_commit() {
#if defined(RT_CUDA)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  ::rt_cpu::copy_commit();
#endif
}

template <int Groups>
RT_FN void copy_wait() {
#if defined(RT_CUDA)
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#else
  ::rt_cpu::copy_wait(Groups);
#endif
}

// Lane 8 j + r gives the address of line r of matrix j, 16 bytes. It gets a word of each matrix: the
// neighbours 2 (lane % 4) and the next of line lane / 4; turned: of the column lane / 4 instead.
template <bool Turned, class T>
RT_FN vec<uint32_t, 4> load_matrices(const T* line) {
  static_assert(!Turned || sizeof(T) == 2, "values that are turned have 16 bits");
#if defined(RT_CUDA)
  uint32_t r0, r1, r2, r3;
  const uint32_t at = detail::lds_address(line);
  if constexpr (Turned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(at)
                 : "memory");
  }
  return vec<uint32_t, 4>{{r0, r1, r2, r3}};
#else
  vec<uint32_t, 4> values;
  ::rt_cpu::load_matrices<Turned>(line, &values);
  return values;
#endif
}

}  // namespace rt
#endif
