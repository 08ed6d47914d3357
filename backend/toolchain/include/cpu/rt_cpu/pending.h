// What a thread has started and not waited for: nothing is done before it waits.
#pragma once
#include <rt_cpu/machine.h>

namespace rt_cpu {

// A ring of work in groups; `block` tells whose it is. `noted` is for the owner's use.
template <class Work, unsigned Most>
struct Pending {
  uint64_t block;
  unsigned first, end, group;
  bool noted;
  struct {
    Work work;
    unsigned group;
  } ring[Most];

  // False if no more can be on its way.
  bool add(const Work& work) {
    if (end - first == Most) return false;
    ring[end++ % Most] = {work, group};
    return true;
  }

  // Does all but the last groups, in order.
  template <class Do>
  void wait(unsigned groups, Do&& work) {
    for (; first != end; ++first) {
      const auto& next = ring[first % Most];
      if (next.group + groups >= group) return;
      work(next.work);
    }
  }
};

// The current thread's, of one for each; empty at the begin of a block.
template <class Work, unsigned Most>
Pending<Work, Most>& own_of(Pending<Work, Most> (&all)[max_threads]) {
  auto& own = all[machine.current->linear];
  if (own.block != machine.blocks_run) {
    own.first = own.end = own.group = 0;
    own.noted = false;
    own.block = machine.blocks_run;
  }
  return own;
}

}  // namespace rt_cpu
