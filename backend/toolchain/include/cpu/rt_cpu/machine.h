// Runs a grid of GPU threads on one CPU core: blocks one after the other, a fiber per thread.
//
// A thread runs until it meets a barrier or a collective of its wave; then the next one runs. The
// order is fixed, so that code which needs a barrier it lacks is wrong every time. ROCM_TUI_CPU_ORDER
// picks another order: `forward` (the default), `reverse`, or `shuffle:SEED`.
//
// What a GPU answers with wrong numbers or a hang is an error here: threads at different barriers, a
// matrix instruction in a divergent wave, LDS over the limit, a misaligned vector access.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <rt_cpu/fiber.h>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 : uint3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : uint3{x_, y_, z_} {}
  constexpr dim3(uint3 other) : uint3(other) {}
};

#ifndef RT_LDS_LIMIT
#define RT_LDS_LIMIT 65536
#endif

#ifndef RT_WAVE
#define RT_WAVE 64
#endif

namespace rt_cpu {

constexpr unsigned wave_size = RT_WAVE;
static_assert(wave_size == 64 || wave_size == 32, "a wave has 32 or 64 lanes");
constexpr uint64_t whole_wave = ~uint64_t{0} >> (64 - wave_size);
constexpr unsigned max_threads = 1024, max_waves = max_threads / wave_size;

enum class State : unsigned char { ready, at_wave, at_block, done };

struct Fiber;
// Does a collective for the lanes that arrived; returns what is wrong, or null.
using Collective = const char* (*)(Fiber* const* lanes, uint64_t active);

struct Fiber {
  Context context;
  uint3 thread;
  unsigned linear;
  State state;
  int site;
  Collective collective;
  void* slot;
  size_t lds_used;
};

// All zeros at first, so that a library holds no image of it.
struct Machine {
  uint3 grid, block, block_index;
  Fiber* current;
  unsigned threads, waves;
  size_t dynamic_lds, lds_peak;
  uint64_t blocks_run, barriers_passed;
  void (*body)(const void*);
  const void* arguments;
  const char* failure;

  Context scheduler;
  unsigned cursor, wave_end;
  unsigned order[max_threads], wave_start[max_waves + 1];
  Fiber fibers[max_threads];
  Stacks stacks;
  char message[256];
  int last_error;
  pthread_mutex_t mutex;
  alignas(1024) unsigned char lds[RT_LDS_LIMIT];
};

inline Machine machine;

inline Fiber* next_ready() {
  Machine& m = machine;
  while (m.cursor < m.wave_end) {
    Fiber& fiber = m.fibers[m.order[m.cursor++]];
    if (fiber.state == State::ready) return &fiber;
  }
  return nullptr;
}

// Leaves the running thread for the next one of its wave, or for the scheduler after the last.
inline void park(State state) {
  Machine& m = machine;
  Fiber* self = m.current;
  self->state = state;
  Fiber* next = m.failure ? nullptr : next_ready();
  m.current = next;
  switch_to(self->context, next ? next->context : m.scheduler);
}

[[noreturn]] inline void fail(const char* what) {
  machine.failure = what;
  park(State::done);
  __builtin_unreachable();
}

inline void thread_main() {
  machine.body(machine.arguments);
  park(State::done);
  __builtin_unreachable();
}

inline void block_barrier(int site) {
  machine.current->site = site;
  park(State::at_block);
}

inline void wave_collective(Collective collective, void* slot) {
  machine.current->collective = collective;
  machine.current->slot = slot;
  park(State::at_wave);
}

// A NaN in fp16, bf16 and fp32: LDS that is read before it is written shows.
constexpr int unwritten = 0xff;

constexpr size_t round_up(size_t bytes) { return (bytes + 127) & ~size_t{127}; }

// LDS that every thread of a block sees: the n-th request of each thread is the same memory.
inline void* block_lds(size_t bytes) {
  size_t& used = machine.current->lds_used;
  const size_t at = used;
  used += round_up(bytes);
  if (used > RT_LDS_LIMIT) fail("the block asks for more LDS than there is");
  if (used > machine.lds_peak) {  // the first thread that comes here
    memset(machine.lds + machine.lds_peak, unwritten, used - machine.lds_peak);
    machine.lds_peak = used;
  }
  return machine.lds + at;
}

inline void run_pass(unsigned first, unsigned end) {
  Machine& m = machine;
  m.cursor = first, m.wave_end = end;
  if (Fiber* fiber = next_ready()) {
    m.current = fiber;
    switch_to(m.scheduler, fiber->context);
  }
}

// Runs one wave until each of its lanes is at the block's barrier or done.
inline bool run_wave(unsigned first, unsigned end) {
  Machine& m = machine;
  for (;;) {
    run_pass(first, end);
    if (m.failure) return false;
    Fiber* lanes[wave_size] = {};
    uint64_t active = 0;
    Collective collective = nullptr;
    for (unsigned i = first; i < end; ++i) {
      Fiber& fiber = m.fibers[m.order[i]];
      if (fiber.state != State::at_wave) continue;
      lanes[fiber.linear % wave_size] = &fiber;
      active |= uint64_t{1} << (fiber.linear % wave_size);
      if (collective && collective != fiber.collective) m.failure = "lanes of a wave are at different collectives";
      collective = fiber.collective;
      fiber.state = State::ready;
    }
    if (!active) return true;
    if (!m.failure) m.failure = collective(lanes, active);
    if (m.failure) return false;
  }
}

// Lets the threads at the block's barrier go on. False: there are none, the block is done.
inline bool release_barrier() {
  Machine& m = machine;
  bool any = false;
  int site = 0;
  for (unsigned i = 0; i < m.threads; ++i) {
    Fiber& fiber = m.fibers[i];
    if (fiber.state != State::at_block) continue;
    if (any && fiber.site != site) m.failure = "threads of a block are at different __syncthreads";
    any = true, site = fiber.site, fiber.state = State::ready;
  }
  m.barriers_passed += any;
  return any;
}

inline bool run_block() {
  Machine& m = machine;
  ++m.blocks_run;
  memset(m.lds, unwritten, m.lds_peak);
  for (unsigned i = 0; i < m.threads; ++i) {
    Fiber& fiber = m.fibers[i];
    fiber.state = State::ready;
    fiber.lds_used = round_up(m.dynamic_lds);
    prepare(fiber.context, m.stacks.stack(i), Stacks::size(i), thread_main);
  }
  do {
    for (unsigned w = 0; w < m.waves; ++w) {
      if (!run_wave(m.wave_start[w], m.wave_start[w + 1])) return false;
    }
  } while (release_barrier() && !m.failure);
  return !m.failure;
}

enum class Order { forward, reverse, shuffle };

inline void shuffle(unsigned* values, unsigned count, unsigned long& seed) {
  for (unsigned i = count; i > 1; --i) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    const unsigned j = static_cast<unsigned>((seed >> 33) % i), value = values[i - 1];
    values[i - 1] = values[j], values[j] = value;
  }
}

inline void fill(unsigned* values, unsigned first, unsigned count, bool reversed) {
  for (unsigned i = 0; i < count; ++i) values[i] = first + (reversed ? count - 1 - i : i);
}

// Fills `order` and `wave_start`: whole waves in some order, the lanes of each in some order.
inline Order plan() {
  Machine& m = machine;
  const char* text = getenv("ROCM_TUI_CPU_ORDER");
  const bool reversed = text && strcmp(text, "reverse") == 0;
  const bool shuffled = text && strncmp(text, "shuffle:", 8) == 0;
  unsigned long seed = shuffled ? strtoul(text + 8, nullptr, 10) : 0;
  unsigned waves[max_waves], filled = 0;
  m.waves = (m.threads + wave_size - 1) / wave_size;
  fill(waves, 0, m.waves, reversed);
  if (shuffled) shuffle(waves, m.waves, seed);
  for (unsigned w = 0; w < m.waves; ++w) {
    const unsigned first = waves[w] * wave_size, left = m.threads - first;
    const unsigned count = left < wave_size ? left : wave_size;
    m.wave_start[w] = filled;
    fill(m.order + filled, first, count, reversed);
    if (shuffled) shuffle(m.order + filled, count, seed);
    filled += count;
  }
  m.wave_start[m.waves] = filled;
  return reversed ? Order::reverse : shuffled ? Order::shuffle : Order::forward;
}

enum : int { ok = 0, invalid_value = 1, out_of_memory = 2, invalid_configuration = 9, launch_failure = 719 };

inline int run_grid(dim3 grid, dim3 block, size_t dynamic_lds) {
  Machine& m = machine;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (!threads || threads > max_threads || !blocks || dynamic_lds > RT_LDS_LIMIT) {
    snprintf(m.message, sizeof m.message, "cannot launch: %llu blocks of %llu threads, %zu bytes of LDS",
             static_cast<unsigned long long>(blocks), static_cast<unsigned long long>(threads), dynamic_lds);
    return invalid_configuration;
  }
  m.grid = grid, m.block = block, m.dynamic_lds = dynamic_lds;
  m.threads = static_cast<unsigned>(threads);
  m.failure = nullptr;
  m.lds_peak = round_up(dynamic_lds);
  if (!m.stacks.reserve(m.threads)) {
    snprintf(m.message, sizeof m.message, "cannot launch: no memory for %u stacks", m.threads);
    return out_of_memory;
  }
  const Order order = plan();
  for (unsigned i = 0; i < m.threads; ++i) {
    m.fibers[i].linear = i;
    m.fibers[i].thread = uint3{i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t b = order == Order::reverse ? blocks - 1 - i : i;
    m.block_index = uint3{static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                          static_cast<unsigned>(b / grid.x / grid.y)};
    if (run_block()) continue;
    snprintf(m.message, sizeof m.message, "block (%u, %u, %u): %s", m.block_index.x, m.block_index.y,
             m.block_index.z, m.failure);
    return launch_failure;
  }
  return ok;
}

// One grid at a time in a library: statics are its LDS, and two host threads may call at once.
template <class... P, class... A>
int launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_lds, A&&... arguments) {
  auto body = [kernel, ... values = static_cast<P>(arguments)] { kernel(values...); };
  Machine& m = machine;
  pthread_mutex_lock(&m.mutex);
  m.body = [](const void* closure) { (*static_cast<const decltype(body)*>(closure))(); };
  m.arguments = &body;
  const int error = run_grid(grid, block, dynamic_lds);
  if (error) m.last_error = error;
  pthread_mutex_unlock(&m.mutex);
  return error;
}

}  // namespace rt_cpu
