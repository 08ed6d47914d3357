// Shuffles, votes and the wave barrier, with HIP's rules for lanes and widths.
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

struct Vote {
  bool mine;
  uint64_t all;
};

inline const char* do_vote(Fiber* const* lanes, uint64_t active) {
  uint64_t all = 0;
  for (unsigned i = 0; i < wave_size; ++i) {
    if (active >> i & 1 && static_cast<Vote*>(lanes[i]->slot)->mine) all |= uint64_t{1} << i;
  }
  for (unsigned i = 0; i < wave_size; ++i) {
    if (active >> i & 1) static_cast<Vote*>(lanes[i]->slot)->all = all;
  }
  return nullptr;
}

inline const char* do_nothing(Fiber* const*, uint64_t) { return nullptr; }

}  // namespace rt_cpu

template <class T>
T __shfl(T value, int source, int width = rt_cpu::wave_size) {
  const int self = static_cast<int>(rt_cpu::lane());
  return rt_cpu::exchange(value, (source & (width - 1)) + (self & ~(width - 1)));
}

template <class T>
T __shfl_up(T value, unsigned delta, int width = rt_cpu::wave_size) {
  const int self = static_cast<int>(rt_cpu::lane()), from = self - static_cast<int>(delta);
  return rt_cpu::exchange(value, from < (self & ~(width - 1)) ? self : from);
}

template <class T>
T __shfl_down(T value, unsigned delta, int width = rt_cpu::wave_size) {
  const int self = static_cast<int>(rt_cpu::lane());
  const bool outside = (self & (width - 1)) + static_cast<int>(delta) >= width;
  return rt_cpu::exchange(value, outside ? self : self + static_cast<int>(delta));
}

template <class T>
T __shfl_xor(T value, int mask, int width = rt_cpu::wave_size) {
  const int self = static_cast<int>(rt_cpu::lane()), from = self ^ mask;
  return rt_cpu::exchange(value, from >= ((self + width) & ~(width - 1)) ? self : from);
}

inline unsigned long long __ballot(int predicate) {
  rt_cpu::Vote slot{predicate != 0, 0};
  rt_cpu::wave_collective(rt_cpu::do_vote, &slot);
  return slot.all;
}

inline void __builtin_amdgcn_wave_barrier() { rt_cpu::wave_collective(rt_cpu::do_nothing, nullptr); }
