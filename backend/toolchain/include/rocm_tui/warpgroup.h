// Products of Hopper's warpgroups: four waves together, both factors in LDS, sums in registers.
//
// products_begin comes before the first of some products that were not begun yet, products_commit ends a
// group of them, products_wait<N> waits until all but the last N groups of this warpgroup are done; sums must not
// be touched, nor factors written, before. copies_to_products lets products see what this thread's
// finished copies wrote.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and its "Matrix Descriptor": LDS holds panels
// of lines of 128 bytes, from an address that is a multiple of 1024, whose 16-byte chunks are permuted by
// XOR with the line's number modulo 8.
#pragma once

#if RT_HAS(RT_MMA)
namespace rt {

// Lines of a factor. `panels` are the 16-byte chunks from a panel to the next one of the same lines, where lines
// run along K; it is 1 where they run across K.
template <class T>
struct lines {
#if defined(RT_CUDA)
  uint64_t word;

  RT_FN lines(const T* from, int panels) {
    constexpr uint64_t swizzle_128 = 1, eight_lines = 8 * 128 / 16;
    word = swizzle_128 << 62 | eight_lines << 32 | static_cast<uint64_t>(panels) << 16 |
           (detail::lds_address(from) & 0x3ffff) >> 4;
  }
#else
  const T* from;
  int panels;

  lines(const T* from, int panels) : from(from), panels(panels) {}
#endif
};

RT_FN void products_begin() {
#if defined(RT_CUDA)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  ::rt_cpu::products_begin();
#endif
}

RT_FN void products_commit() {
#if defined(RT_CUDA)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  ::rt_cpu::products_commit();
#endif
}

template <int Groups>
RT_FN void products_wait() {
#if defined(RT_CUDA)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
#else
  ::rt_cpu::products_wait(Groups);
#endif
}

// Keeps the compiler from taking a sum to another place before the products were waited for.
template <class T>
RT_FN void keep_in_place(T& sum) {
#if defined(RT_CUDA)
  if constexpr (detail::same<T, float>) {
    asm volatile("" : "+f"(sum)::"memory");
  } else {
    asm volatile("" : "+r"(sum)::"memory");
  }
#endif
}

RT_FN void copies_to_products() {
#if defined(RT_CUDA)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  ::rt_cpu::copies_to_products();
#endif
}

}  // namespace rt
#endif
