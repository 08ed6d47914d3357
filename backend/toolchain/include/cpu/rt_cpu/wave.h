// Shuffles and the wave barrier, with HIP's rules for lanes and widths.
#pragma once
#include <rt_cpu/machine.h>

namespace rt_cpu {

inline unsigned lane() { return machine.current->linear % wave_size; }

struct Exchange {
  const void* in;
  void* out;
  unsigned from, size;
};

// A lane that is not there gives zeros, as ds_bpermute does.
inline const char* do_exchange(Fiber* const* lanes, uint64_t active) {
  for (unsigned i = 0; i < wave_size; ++i) {
    if (!(active >> i & 1)) continue;
    const Exchange& mine = *static_cast<Exchange*>(lanes[i]->slot);
    if (active >> mine.from & 1) {
      memcpy(mine.out, static_cast<Exchange*>(lanes[mine.from]->slot)->in, mine.size);
    } else {
      memset(mine.out, 0, mine.size);
    }
  }
  return nullptr;
}

template <class T>
T exchange(T value, unsigned from) {
  T result;
  Exchange slot{&value, &result, from % wave_size, sizeof(T)};
  wave_collective(do_exchange, &slot);
  return result;
}

inline const char* do_nothing(Fiber* const*, uint64_t) { return nullptr; }

}  // namespace rt_cpu

template <class T>
T __shfl_xor(T value, int mask, int width = rt_cpu::wave_size) {
  const int self = static_cast<int>(rt_cpu::lane()), from = self ^ mask;
  return rt_cpu::exchange(value, from >= ((self + width) & ~(width - 1)) ? self : from);
}

inline void __builtin_amdgcn_wave_barrier() { rt_cpu::wave_collective(rt_cpu::do_nothing, nullptr); }
