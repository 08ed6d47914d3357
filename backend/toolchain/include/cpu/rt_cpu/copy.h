// Asynchronous copies to LDS: nothing is copied before the thread waits for it.
//
// Until then the bytes there are no numbers, so that a read too early shows, and so does a copy over
// what another thread still reads.
#pragma once
#include <rt_cpu/pending.h>

namespace rt_cpu {

struct Copy {
  void* to;
  const void* from;
  unsigned size, valid;
};

// Noted: a warpgroup's products may not see a finished copy yet.
inline Pending<Copy, 512> copies_of[max_threads];

inline void copy_async(void* to, const void* from, unsigned size, unsigned valid) {
  const uintptr_t address = valid ? reinterpret_cast<uintptr_t>(from) : 0;
  if ((reinterpret_cast<uintptr_t>(to) | address) % size) fail("an asynchronous copy at a misaligned address");
  if (valid > size) fail("an asynchronous copy of more bytes than its size");
  if (!own_of(copies_of).add(Copy{to, from, size, valid})) fail("too many asynchronous copies on their way");
  memset(to, unwritten, size);
}

inline void copy_commit() { ++own_of(copies_of).group; }

inline void copy_wait(unsigned groups) {
  auto& own = own_of(copies_of);
  own.wait(groups, [&](const Copy& copy) {
    own.noted = true;
    memcpy(copy.to, copy.from, copy.valid);
    memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.size - copy.valid);
  });
}

}  // namespace rt_cpu
