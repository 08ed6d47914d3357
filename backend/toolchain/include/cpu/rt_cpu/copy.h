// Asynchronous copies to LDS: nothing is copied before the thread waits for it.
//
// Until then the bytes there are no numbers, so that a read too early shows, and so does a copy over
// what another thread still reads.
#pragma once
#include <rt_cpu/machine.h>

namespace rt_cpu {

struct Copy {
  void* to;
  const void* from;
  unsigned size, valid, group;
};

constexpr unsigned max_copies = 512;  // of a thread, on their way

// A ring of the copies that a thread has started; `block` tells whose they are.
struct Copies {
  uint64_t block;
  unsigned first, end, group;
  bool unseen;  // by the products of a warpgroup
  Copy ring[max_copies];
};

inline Copies copies_of[max_threads];

inline Copies& own_copies() {
  Copies& own = copies_of[machine.current->linear];
  if (own.block != machine.blocks_run) {
    own.first = own.end = own.group = 0;
    own.unseen = false;
    own.block = machine.blocks_run;
  }
  return own;
}

inline void copy_async(void* to, const void* from, unsigned size, unsigned valid) {
  Copies& own = own_copies();
  const uintptr_t address = valid ? reinterpret_cast<uintptr_t>(from) : 0;
  if ((reinterpret_cast<uintptr_t>(to) | address) % size) fail("an asynchronous copy at a misaligned address");
  if (valid > size) fail("an asynchronous copy of more bytes than its size");
  if (own.end - own.first == max_copies) fail("too many asynchronous copies on their way");
  memset(to, unwritten, size);
  own.ring[own.end++ % max_copies] = Copy{to, from, size, valid, own.group};
}

inline void copy_commit() { ++own_copies().group; }

inline void copy_wait(unsigned groups) {
  Copies& own = own_copies();
  for (; own.first != own.end; ++own.first) {
    const Copy& copy = own.ring[own.first % max_copies];
    if (copy.group + groups >= own.group) return;
    own.unseen = true;
    memcpy(copy.to, copy.from, copy.valid);
    memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.size - copy.valid);
  }
}

}  // namespace rt_cpu
