// Launches: the part of HIP's runtime that host code of ours calls, and the order in which waves run.
#include <cstdio>

#include "tables.h"

namespace amd {
namespace {

enum ArgumentKind : i32 { EXPLICIT, BLOCK_COUNT_X, BLOCK_COUNT_Y, BLOCK_COUNT_Z, GROUP_SIZE_X, GROUP_SIZE_Y, GROUP_SIZE_Z,
                          GRID_DIMS, ZERO };

struct Argument {
  i32 offset, size, kind;
};

struct Kernel {
  const char* name;
  const Argument* arguments;
  i32 argument_count, entry, lds, scratch, kernarg, lanes;
  // Which scalar registers are set up, in the order of the kernel descriptor.
  i32 user_count, private_buffer, dispatch, queue, kernarg_pointer, dispatch_id, flat_scratch, private_size, preload_length, preload_offset;
  i32 group_x, group_y, group_z, group_info, wave_offset, work_item;
};

struct Program {
  Instruction* instructions;
  const Kernel* kernels;
  i32 count, kernel_count, gfx, fnuz;
};

struct Size {
  u32 x, y, z;
};

struct State {
  const Program* loading = nullptr;
  std::map<const void*, std::pair<const Program*, const Kernel*>> functions;
  std::vector<Range> ranges;
  std::string message;
  int error = 0, order = 0;
  u64 executed = 0;
  Size grid, block;
  size_t lds;
  void* stream;
};

State& state() {
  static State all;
  return all;
}

constexpr u64 MOST_STEPS = 400'000'000;
constexpr u32 POISON = 0xffffaaaa;  // a NaN in every type

const Table& handlers() {
  static const Table all = [] {
    Table table;
    for (const Table& part : {scalar_table(), vector_table(), memory_table(), matrix_table()}) table.insert(part.begin(), part.end());
    return table;
  }();
  return all;
}

struct Launch {
  const Program& program;
  const Kernel& kernel;
  Size grid, block;
  Memory memory;
  std::vector<uint8_t> arguments;
  u32 packet[16] = {};  // of the queue: sizes that older code objects read there

  u64 address() const { return reinterpret_cast<u64>(arguments.data()); }

  void put(const Argument& argument, u64 value) { std::memcpy(arguments.data() + argument.offset, &value, argument.size); }

  void set_arguments(void** values) {
    arguments.assign(kernel.kernarg + 16, 0);
    int number = 0;
    for (int at = 0; at < kernel.argument_count; ++at) {
      const Argument& argument = kernel.arguments[at];
      switch (argument.kind) {
        case EXPLICIT: std::memcpy(arguments.data() + argument.offset, values[number++], argument.size); break;
        case BLOCK_COUNT_X: put(argument, grid.x); break;
        case BLOCK_COUNT_Y: put(argument, grid.y); break;
        case BLOCK_COUNT_Z: put(argument, grid.z); break;
        case GROUP_SIZE_X: put(argument, block.x); break;
        case GROUP_SIZE_Y: put(argument, block.y); break;
        case GROUP_SIZE_Z: put(argument, block.z); break;
        case GRID_DIMS: put(argument, grid.z > 1 ? 3 : grid.y > 1 ? 2 : 1); break;
        default: break;
      }
    }
    packet[1] = block.x | block.y << 16, packet[2] = block.z;
    packet[3] = grid.x * block.x, packet[4] = grid.y * block.y, packet[5] = grid.z * block.z;
    memory.ranges.push_back({address(), address() + kernel.kernarg, false});
    const u64 from = reinterpret_cast<u64>(packet);
    memory.ranges.push_back({from, from + sizeof(packet), false});
  }

  void set_scalars(Wave& w, Size group) const {
    int next = 0;
    const auto put = [&](u64 value, int words) {
      for (int word = 0; word < words; ++word) w.s[next++] = word < 2 ? value >> 32 * word : 0;
    };
    if (kernel.private_buffer) put(SCRATCH_BUFFER, 4), w.s[next - 2] = ~0u;
    if (kernel.dispatch) put(reinterpret_cast<u64>(packet), 2);
    if (kernel.queue) put(0, 2);
    if (kernel.kernarg_pointer) put(address(), 2);
    if (kernel.dispatch_id) put(0, 2);
    if (kernel.flat_scratch) put(0, 2);
    if (kernel.private_size) put(kernel.scratch, 1);
    for (int word = 0; word < kernel.preload_length; ++word) {
      u32 value;
      std::memcpy(&value, arguments.data() + 4 * (kernel.preload_offset + word), 4);
      put(value, 1);
    }
    next = kernel.user_count;  // on gfx11 more than are used
    if (program.gfx >= 12) {
      w.s[TTMP + 9] = group.x, w.s[TTMP + 7] = group.y | group.z << 16;
      w.s[TTMP + 8] = w.number << 25;
    } else {
      if (kernel.group_x) put(group.x, 1);
      if (kernel.group_y) put(group.y, 1);
      if (kernel.group_z) put(group.z, 1);
    }
    if (kernel.group_info) put(0, 1);
    if (kernel.wave_offset) put(0, 1);
  }

  void set_vectors(Wave& w) const {
    const u32 threads = block.x * block.y * block.z;
    u64 exec = 0;
    for (int lane = 0; lane < w.lanes; ++lane) {
      const u32 thread = w.number * w.lanes + lane;
      const u32 x = thread % block.x, y = thread / block.x % block.y, z = thread / block.x / block.y;
      w.v[0][lane] = x | y << 10 | z << 20;
      if (thread < threads) exec |= u64{1} << lane;
    }
    w.set_exec(exec);
  }

  void run_group(Size at, size_t dynamic_lds) {
    Group group{program.gfx, program.fnuz != 0, kernel.lanes, &memory, std::vector<uint8_t>(kernel.lds + dynamic_lds, 0xff)};
    const u32 threads = block.x * block.y * block.z;
    std::vector<Wave> waves((threads + kernel.lanes - 1) / kernel.lanes);
    for (size_t number = 0; number < waves.size(); ++number) {
      Wave& w = waves[number];
      w = Wave{};
      w.group = &group, w.lanes = kernel.lanes, w.number = number, w.pc = kernel.entry;
      std::fill(std::begin(w.s), std::end(w.s), POISON);
      Words poison;
      poison.fill(POISON);
      w.v.assign(REGISTERS, poison);
      w.scratch_bytes = kernel.scratch;
      w.scratch.assign(size_t(kernel.scratch) * w.lanes, 0xff);
      set_scalars(w, at);
      set_vectors(w);
    }
    run_waves(waves);
  }

  // One wave after the other runs as far as a barrier lets it, and the last one is the next first: a
  // wave that should have waited for another one has not.
  void run_waves(std::vector<Wave>& waves) {
    const int count = waves.size();
    for (int phase = state().order;; ++phase) {
      for (int number = 0; number < count; ++number) run(waves[phase % 2 ? count - 1 - number : number]);
      bool all_ended = true, all_signalled = true;
      for (const Wave& w : waves) all_ended &= w.ended, all_signalled &= w.ended || w.signalled;
      if (all_ended) return;
      if (!all_signalled) fail("waves wait at a barrier that others do not reach");
      for (Wave& w : waves) w.signalled = w.waiting = false;
    }
  }

  void run(Wave& w) {
    while (!w.ended && !w.waiting) {
      if (w.pc < 0 || w.pc >= program.count) fail("a jump out of the program");
      Instruction& i = program.instructions[w.pc++];
      if (++state().executed > MOST_STEPS) fail("more than ", MOST_STEPS, " instructions");
      ++i.executed;
      try {
        w.check_waits(i);
        if (i.has(DUAL)) run_both(w, i, program.instructions[w.pc++]); else i.run(w, i);
      } catch (const std::out_of_range&) {
        fail("line ", i.line, ": a register that does not exist");
      } catch (const Failure& failure) {
        fail("line ", i.line, ": ", failure.what());
      }
    }
  }

  // Both instructions of a pair read before either writes.
  static void run_both(Wave& w, const Instruction& x, Instruction& y) {
    ++y.executed;
    Words& result = w.v.at(x.operands[0].index);
    const Words before = result;
    x.run(w, x);
    const Words after = result;
    result = before;
    y.run(w, y);
    result = after;
  }
};

int failed(const std::string& message) {
  state().message = message;
  return state().error = 719;
}

}  // namespace
}  // namespace amd

using namespace amd;

extern "C" {

Handler amd_handler(const char* mnemonic) {
  const auto found = handlers().find(mnemonic);
  return found == handlers().end() ? nullptr : found->second;
}
int amd_size_of_instruction() { return sizeof(Instruction); }
void amd_load(const Program* program) { state().loading = program; }
void amd_memory(const Range* ranges, int count, int order) {
  state().ranges.assign(ranges, ranges + count);
  state().order = order;
  state().message.clear(), state().error = 0, state().executed = 0;
}
const char* amd_message() { return state().message.c_str(); }
u64 amd_executed() { return state().executed; }

int amd_launch(const Program* program, const Kernel* kernel, Size grid, Size block, void** values, size_t lds) {
  try {
    Launch launch{*program, *kernel, grid, block, Memory{state().ranges}, {}};
    launch.set_arguments(values);
    for (u32 z = 0; z < grid.z; ++z)
      for (u32 y = 0; y < grid.y; ++y)
        for (u32 x = 0; x < grid.x; ++x) launch.run_group({x, y, z}, lds);
    return 0;
  } catch (const Failure& failure) {
    return failed(std::string(kernel->name) + ", " + failure.what());
  }
}

// ---- HIP's runtime, as far as our host code calls it ----

void** __hipRegisterFatBinary(const void*) { return reinterpret_cast<void**>(&state()); }
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterFunction(void**, const void* function, char*, const char* name, unsigned, void*, void*, void*, void*, int*) {
  const Program* program = state().loading;
  for (int at = 0; at < program->kernel_count; ++at)
    if (std::string_view(program->kernels[at].name) == name) state().functions[function] = {program, &program->kernels[at]};
}
void __hipRegisterVar(void**, void*, char*, const char*, int, size_t, int, int) {}
int __hipPushCallConfiguration(Size grid, Size block, size_t lds, void* stream) {
  state().grid = grid, state().block = block, state().lds = lds, state().stream = stream;
  return 0;
}
int __hipPopCallConfiguration(Size* grid, Size* block, size_t* lds, void** stream) {
  *grid = state().grid, *block = state().block, *lds = state().lds, *stream = state().stream;
  return 0;
}
int hipLaunchKernel(const void* function, Size grid, Size block, void** arguments, size_t lds, void*) {
  const auto found = state().functions.find(function);
  if (found == state().functions.end()) return failed("a launch of an unknown kernel");
  if (u64{grid.x} * grid.y * grid.z == 0 || block.x * block.y * block.z > 1024) return state().error = 9;
  return amd_launch(found->second.first, found->second.second, grid, block, arguments, lds);
}
int hipGetLastError() {
  return std::exchange(state().error, 0);
}
const char* hipGetErrorString(int) { return state().message.c_str(); }
int hipFuncSetAttribute(const void*, int, int) { return 0; }
int hipMemsetAsync(void* to, int value, size_t bytes, void*) {
  std::memset(to, value, bytes);
  return 0;
}
}
