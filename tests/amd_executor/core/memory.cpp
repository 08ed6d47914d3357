// Loads, stores and atomics: of global memory, buffers, LDS, scratch, and scalar ones.
#include "lanes.h"

namespace amd {
namespace {

template <class F>
void each(const Wave& w, u64 exec, F f) {
  for (int lane = 0; lane < w.lanes; ++lane)
    if (exec >> lane & 1) f(lane);
}

int dwords(int bytes) { return (bytes + 3) / 4; }

// Copy between lanes of a transfer and bytes; a load of less than a dword fills one.
void take(Transfer& t, int lane, const uint8_t* from, int bytes, int word = 0) {
  for (int at = 0; at < dwords(bytes); ++at) {
    u32 value = 0;
    std::memcpy(&value, from + 4 * at, std::min(4, bytes - 4 * at));
    t.data[word + at][lane] = value;
  }
}
void give(const Transfer& t, int lane, uint8_t* to, int bytes, int word = 0) {
  for (int at = 0; at < dwords(bytes); ++at) std::memcpy(to + 4 * at, &t.data[word + at][lane], std::min(4, bytes - 4 * at));
}

template <class T>
void extend(Transfer& t) {  // the sign of a byte or a half
  for (u32& value : t.data[0]) value = i32(T(value));
}

void capture(const Wave& w, Transfer& t, const Operand& data) {
  for (int word = 0; word < dwords(t.item); ++word) t.data.push_back(w.words(data, word));
}

Transfer begin(const Wave& w, const Instruction& i, Counter counter, Access access, int bytes) {
  Transfer t{};
  t.at = &i, t.counter = counter, t.access = access, t.exec = w.exec();
  t.registers = -1, t.width = dwords(bytes), t.item = bytes, t.merge = WHOLE;
  return t;
}

Counter stores(const Wave& w) { return w.group->gfx == 9 ? LOADS : STORES; }

// ---- global ------------------------------------------------------------------------------------

uint8_t* pointer(u64 address) { return reinterpret_cast<uint8_t*>(address); }

void load_global(Wave& w, Transfer& t) {
  t.data.resize(t.width);
  each(w, t.exec, [&](int lane) {
    w.group->memory->check(t.address[lane], t.item, false);
    take(t, lane, pointer(t.address[lane]), t.item);
  });
}
void store_global(Wave& w, Transfer& t) {
  each(w, t.exec, [&](int lane) {
    w.group->memory->check(t.address[lane], t.item, true);
    give(t, lane, pointer(t.address[lane]), t.item);
  });
}

void find_global(const Wave& w, const Instruction& i, Transfer& t, const Operand& address, const Operand& base) {
  const Words low = address.kind == OFF ? Words{} : w.words(address);
  const Words high = base.kind == OFF ? w.words(address, 1) : Words{};
  const u64 from = base.kind == OFF ? 0 : w.scalar64(base);
  for (int lane = 0; lane < w.lanes; ++lane) t.address[lane] = from + (low[lane] | u64{high[lane]} << 32) + i.offset;
}

template <class T, Access access>
void load_signed(Wave& w, Transfer& t) {
  access(w, t);
  extend<T>(t);
}

template <int bytes, Merge merge = WHOLE, Access access = load_global>
void global_load(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, LOADS, access, bytes);
  t.registers = i.operands[0].index, t.merge = merge;
  find_global(w, i, t, i.operands[1], i.operands[2]);
  w.issue(std::move(t));
}

template <int bytes, bool high = false>
void global_store(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, stores(w), store_global, bytes);
  capture(w, t, i.operands[1]);
  if (high)
    for (u32& value : t.data[0]) value >>= 16;
  find_global(w, i, t, i.operands[0], i.operands[2]);
  w.issue(std::move(t));
}

template <class T, class F>
void update_global(Wave& w, Transfer& t) {
  t.width = dwords(sizeof(T));
  each(w, t.exec, [&](int lane) {
    w.group->memory->check(t.address[lane], sizeof(T), true);
    T before, value;
    give(t, lane, reinterpret_cast<uint8_t*>(&value), sizeof(T));
    std::memcpy(&before, pointer(t.address[lane]), sizeof(T));
    const T after = F{}(before, value);
    std::memcpy(pointer(t.address[lane]), &after, sizeof(T));
    take(t, lane, reinterpret_cast<const uint8_t*>(&before), sizeof(T));
  });
}

template <class T, class F>
Handler global_atomic(F) {
  return [](Wave& w, const Instruction& i) {
    const bool returns = i.has(RETURNS);
    Transfer t = begin(w, i, returns ? LOADS : stores(w), update_global<T, F>, sizeof(T));
    if (returns) t.registers = i.operands[0].index;
    capture(w, t, i.operands[returns + 1]);
    find_global(w, i, t, i.operands[returns], i.operands[returns + 2]);
    w.issue(std::move(t));
  };
}

// ---- buffers -----------------------------------------------------------------------------------

void load_buffer(Wave& w, Transfer& t) {
  t.data.assign(t.width, Words{});
  each(w, t.exec, [&](int lane) {
    for (int word = 0; word < t.width; ++word) {
      const int bytes = std::min(4, t.item - 4 * word);
      if (4 * word + bytes > i64(t.limit) - i64(t.inside[lane])) continue;
      w.group->memory->check(t.address[lane] + 4 * word, bytes, false);
      take(t, lane, pointer(t.address[lane] + 4 * word), bytes, word);
    }
  });
}
void store_buffer(Wave& w, Transfer& t) {
  each(w, t.exec, [&](int lane) {
    for (int word = 0; word < dwords(t.item); ++word) {
      const int bytes = std::min(4, t.item - 4 * word);
      if (4 * word + bytes > i64(t.limit) - i64(t.inside[lane])) continue;
      w.group->memory->check(t.address[lane] + 4 * word, bytes, true);
      give(t, lane, pointer(t.address[lane] + 4 * word), bytes, word);
    }
  });
}
void load_buffer_to_lds(Wave& w, Transfer& t) {
  load_buffer(w, t);
  each(w, t.exec, [&](int lane) { give(t, lane, w.group->shared(t.shared + lane * t.item, t.item, true), t.item); });
}

uint8_t* scratch_at(Wave& w, int lane, u64 address, int bytes) {
  if (address + bytes > w.scratch_bytes) fail("an access of scratch at ", address, " of ", w.scratch_bytes);
  return w.scratch.data() + u64{w.scratch_bytes} * lane + address;
}
void load_scratch(Wave& w, Transfer& t) {
  t.data.resize(t.width);
  each(w, t.exec, [&](int lane) { take(t, lane, scratch_at(w, lane, t.address[lane], t.item), t.item); });
}
void store_scratch(Wave& w, Transfer& t) {
  each(w, t.exec, [&](int lane) { give(t, lane, scratch_at(w, lane, t.address[lane], t.item), t.item); });
}

// Operands from `at`: offset or `off`, resource, scalar offset. True if the buffer is scratch.
bool find_buffer(const Wave& w, const Instruction& i, Transfer& t, int at) {
  const int resource = i.operands[at + 1].index;
  const u64 base = w.wide(resource) & 0xffffffffffff;
  const u32 stride = w.s[resource + 1] >> 16 & 0x3fff;
  if (i.has(IDXEN)) fail("a buffer with an index");
  const Words offsets = i.has(OFFEN) ? w.words(i.operands[at]) : Words{};
  const u32 scalar = w.scalar(i.operands[at + 2]);
  const bool scratch = base == SCRATCH_BUFFER;
  if (stride && !scratch) fail("a buffer with a stride");
  t.limit = w.s[resource + 2];
  for (int lane = 0; lane < w.lanes; ++lane) {
    t.inside[lane] = offsets[lane] + u32(i.offset);
    t.address[lane] = (scratch ? 0 : base) + t.inside[lane] + scalar;
  }
  return scratch;
}

template <int bytes, Merge merge = WHOLE, Access access = load_buffer>
void buffer_load(Wave& w, const Instruction& i) {
  const bool to_lds = i.has(TO_LDS);
  Transfer t = begin(w, i, LOADS, to_lds ? load_buffer_to_lds : access, bytes);
  t.merge = merge;
  const bool scratch = find_buffer(w, i, t, to_lds ? 0 : 1);
  if (to_lds) t.shared = w.s[M0] + i.offset;
  else t.registers = i.operands[0].index;
  if (scratch) t.access = load_scratch;
  w.issue(std::move(t));
}

template <int bytes, bool high = false>
void buffer_store(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, stores(w), store_buffer, bytes);
  capture(w, t, i.operands[0]);
  if (high)
    for (u32& value : t.data[0]) value >>= 16;
  if (find_buffer(w, i, t, 1)) t.access = store_scratch;
  w.issue(std::move(t));
}

template <class T, class F>
void update_buffer(Wave& w, Transfer& t) {
  const u64 all = t.exec;
  each(w, all, [&](int lane) {
    if (i64(sizeof(T)) > i64(t.limit) - i64(t.inside[lane])) t.exec &= ~(u64{1} << lane);
  });
  update_global<T, F>(w, t);
  t.exec = all;
}

template <class T, class F>
Handler buffer_atomic(F) {
  return [](Wave& w, const Instruction& i) {
    const bool returns = i.has(RETURNS);
    Transfer t = begin(w, i, returns ? LOADS : stores(w), update_buffer<T, F>, sizeof(T));
    if (returns) t.registers = i.operands[0].index;
    capture(w, t, i.operands[0]);
    find_buffer(w, i, t, 1);
    w.issue(std::move(t));
  };
}

void find_scratch(const Wave& w, const Instruction& i, Transfer& t, const Operand& address, const Operand& base) {
  const Words offsets = address.kind == OFF ? Words{} : w.words(address);
  const u32 from = base.kind == OFF ? 0 : w.scalar(base);
  for (int lane = 0; lane < w.lanes; ++lane) t.address[lane] = u32(offsets[lane] + from + i.offset);
}
template <int bytes>
void scratch_load(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, LOADS, load_scratch, bytes);
  t.registers = i.operands[0].index;
  find_scratch(w, i, t, i.operands[1], i.operands[2]);
  w.issue(std::move(t));
}
template <int bytes>
void scratch_store(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, stores(w), store_scratch, bytes);
  capture(w, t, i.operands[1]);
  find_scratch(w, i, t, i.operands[0], i.operands[2]);
  w.issue(std::move(t));
}

// ---- LDS ---------------------------------------------------------------------------------------

void load_shared(Wave& w, Transfer& t) {
  t.data.resize(t.width);
  each(w, t.exec, [&](int lane) { take(t, lane, w.group->shared(t.address[lane], t.item, false), t.item); });
}
void store_shared(Wave& w, Transfer& t) {
  each(w, t.exec, [&](int lane) { give(t, lane, w.group->shared(t.address[lane], t.item, true), t.item); });
}

template <int unit>
u64 second(const Transfer& t, int lane, int which) {
  return t.address[lane] + u64(which ? t.at->offset1 : t.at->offset0) * t.item * unit;
}
template <int unit>
void load_two(Wave& w, Transfer& t) {
  t.data.resize(t.width);
  each(w, t.exec, [&](int lane) {
    for (int which = 0; which < 2; ++which)
      take(t, lane, w.group->shared(second<unit>(t, lane, which), t.item, false), t.item, which * dwords(t.item));
  });
}
template <int unit>
void store_two(Wave& w, Transfer& t) {
  each(w, t.exec, [&](int lane) {
    for (int which = 0; which < 2; ++which)
      give(t, lane, w.group->shared(second<unit>(t, lane, which), t.item, true), t.item, which * dwords(t.item));
  });
}

// Rows of four elements of 16 lanes, transposed: a lane's result is a column of a 4 x 16 tile, whose
// rows four lanes each have addressed.
void load_transposed(Wave& w, Transfer& t) {
  load_shared(w, t);
  const std::vector<Words> rows = t.data;
  each(w, t.exec, [&](int lane) {
    for (int row = 0; row < 4; ++row) {
      const int column = lane & 15, from = (lane & ~15) + 4 * row + column / 4;
      const u32 value = rows[column % 4 / 2][from] >> 16 * (column % 2) & 0xffff;
      u32& word = t.data[row / 2][lane];
      word = row % 2 ? (word & 0xffff) | value << 16 : value;
    }
  });
}

void find_shared(const Wave& w, const Instruction& i, Transfer& t, const Operand& address) {
  const Words from = w.words(address);
  for (int lane = 0; lane < w.lanes; ++lane) t.address[lane] = u64{from[lane]} + i.offset;
}

template <int bytes, Merge merge = WHOLE, Access access = load_shared>
void shared_load(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, SHARED, access, bytes);
  t.registers = i.operands[0].index, t.merge = merge;
  find_shared(w, i, t, i.operands[1]);
  w.issue(std::move(t));
}
template <int bytes, bool high = false>
void shared_store(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, SHARED, store_shared, bytes);
  capture(w, t, i.operands[1]);
  if (high)
    for (u32& value : t.data[0]) value >>= 16;
  find_shared(w, i, t, i.operands[0]);
  w.issue(std::move(t));
}
template <int bytes, int unit>
void shared_load_two(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, SHARED, load_two<unit>, bytes);
  t.registers = i.operands[0].index, t.width = 2 * dwords(bytes);
  find_shared(w, i, t, i.operands[1]);
  w.issue(std::move(t));
}
template <int bytes, int unit>
void shared_store_two(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, SHARED, store_two<unit>, bytes);
  capture(w, t, i.operands[1]);
  capture(w, t, i.operands[2]);
  find_shared(w, i, t, i.operands[0]);
  w.issue(std::move(t));
}

template <class T, class F>
void update_shared(Wave& w, Transfer& t) {
  t.width = dwords(sizeof(T));
  each(w, t.exec, [&](int lane) {
    uint8_t* place = w.group->shared(t.address[lane], sizeof(T), true);
    T before, value;
    give(t, lane, reinterpret_cast<uint8_t*>(&value), sizeof(T));
    std::memcpy(&before, place, sizeof(T));
    const T after = F{}(before, value);
    std::memcpy(place, &after, sizeof(T));
    take(t, lane, reinterpret_cast<const uint8_t*>(&before), sizeof(T));
  });
}
template <class T, bool returns, class F>
Handler shared_atomic(F) {
  return [](Wave& w, const Instruction& i) {
    Transfer t = begin(w, i, SHARED, update_shared<T, F>, sizeof(T));
    if (returns) t.registers = i.operands[0].index;
    capture(w, t, i.operands[returns + 1]);
    find_shared(w, i, t, i.operands[returns]);
    w.issue(std::move(t));
  };
}

// Lanes exchange values through the LDS unit, not through its memory.
void already(Wave&, Transfer&) {}

template <class F>
void exchange(Wave& w, const Instruction& i, const Words& values, F source) {
  Transfer t = begin(w, i, SHARED, already, 4);
  t.registers = i.operands[0].index;
  t.data.push_back(Words{});
  for (int lane = 0; lane < w.lanes; ++lane) {
    const int from = source(lane);
    t.data[0][lane] = w.active(from) ? values[from] : 0;
  }
  w.issue(std::move(t));
}
void permute_backward(Wave& w, const Instruction& i) {
  const Words lanes = w.words(i.operands[1]);
  exchange(w, i, w.words(i.operands[2]), [&](int lane) { return (lanes[lane] + i.offset) / 4 % w.lanes; });
}
void swizzle(Wave& w, const Instruction& i) {
  const u32 control = i.offset;
  exchange(w, i, w.words(i.operands[1]), [&](int lane) {
    if (control & 0x8000) return (lane & ~3) + int(control >> 2 * (lane & 3) & 3);
    const int place = ((lane & 31 & control) | (control >> 5 & 31)) ^ (control >> 10 & 31);
    return (lane & ~31) + place;
  });
}

// ---- scalar loads ------------------------------------------------------------------------------

void load_scalar(Wave& w, Transfer& t) {
  t.data.resize(t.width);
  w.group->memory->check(t.address[0], t.item, false);
  take(t, 0, pointer(t.address[0]), t.item);
}

template <int bytes>
void scalar_load(Wave& w, const Instruction& i) {
  Transfer t = begin(w, i, SCALARS, load_scalar, bytes);
  t.scalar = true, t.registers = i.operands[0].index;
  const Operand& offset = i.operands[2];
  const u64 by = offset.kind == SCALAR ? u64{w.scalar(offset)} : u64(offset.integer);
  t.address[0] = (w.scalar64(i.operands[1]) + by + i.offset) & ~u64{bytes < 4 ? 0 : 3};
  w.issue(std::move(t));
}

template <class T, class F>
void add_atomic(Table& table, const char* global, const char* buffer, F f) {
  table[global] = global_atomic<T>(f);
  table[buffer] = buffer_atomic<T>(f);
}

template <class T>
struct AddHalves {
  u32 operator()(u32 a, u32 b) const {
    u32 sums = 0;
    for (int shift : {0, 16}) {
      T x, y;
      x.bits = a >> shift, y.bits = b >> shift;
      sums |= u32{T(f32(x) + f32(y)).bits} << shift;
    }
    return sums;
  }
};

}  // namespace

Table memory_table() {
  Table table{
      {"s_load_dword", scalar_load<4>}, {"s_load_dwordx2", scalar_load<8>}, {"s_load_dwordx3", scalar_load<12>},
      {"s_load_dwordx4", scalar_load<16>}, {"s_load_dwordx8", scalar_load<32>}, {"s_load_dwordx16", scalar_load<64>},
      {"s_load_u8", scalar_load<1>}, {"s_load_u16", scalar_load<2>},
      {"global_load_ubyte", global_load<1>}, {"global_load_ushort", global_load<2>},
      {"global_load_sbyte", global_load<1, WHOLE, load_signed<int8_t, load_global>>},
      {"global_load_sshort", global_load<2, WHOLE, load_signed<i16, load_global>>},
      {"global_load_ubyte_d16", global_load<1, LOW_HALF>}, {"global_load_ubyte_d16_hi", global_load<1, HIGH_HALF>},
      {"global_load_sbyte_d16", global_load<1, LOW_HALF, load_signed<int8_t, load_global>>},
      {"global_load_sbyte_d16_hi", global_load<1, HIGH_HALF, load_signed<int8_t, load_global>>},
      {"global_load_short_d16", global_load<2, LOW_HALF>}, {"global_load_short_d16_hi", global_load<2, HIGH_HALF>},
      {"global_load_dword", global_load<4>}, {"global_load_dwordx2", global_load<8>},
      {"global_load_dwordx3", global_load<12>}, {"global_load_dwordx4", global_load<16>},
      {"global_store_byte", global_store<1>}, {"global_store_short", global_store<2>},
      {"global_store_byte_d16_hi", global_store<1, true>}, {"global_store_short_d16_hi", global_store<2, true>},
      {"global_store_dword", global_store<4>}, {"global_store_dwordx2", global_store<8>},
      {"global_store_dwordx3", global_store<12>}, {"global_store_dwordx4", global_store<16>},
      {"buffer_load_ubyte", buffer_load<1>}, {"buffer_load_ushort", buffer_load<2>},
      {"buffer_load_sbyte", buffer_load<1, WHOLE, load_signed<int8_t, load_buffer>>},
      {"buffer_load_sshort", buffer_load<2, WHOLE, load_signed<i16, load_buffer>>},
      {"buffer_load_ubyte_d16", buffer_load<1, LOW_HALF>}, {"buffer_load_ubyte_d16_hi", buffer_load<1, HIGH_HALF>},
      {"buffer_load_short_d16", buffer_load<2, LOW_HALF>}, {"buffer_load_short_d16_hi", buffer_load<2, HIGH_HALF>},
      {"buffer_load_dword", buffer_load<4>}, {"buffer_load_dwordx2", buffer_load<8>},
      {"buffer_load_dwordx3", buffer_load<12>}, {"buffer_load_dwordx4", buffer_load<16>},
      {"buffer_store_byte", buffer_store<1>}, {"buffer_store_short", buffer_store<2>},
      {"buffer_store_byte_d16_hi", buffer_store<1, true>}, {"buffer_store_short_d16_hi", buffer_store<2, true>},
      {"buffer_store_dword", buffer_store<4>}, {"buffer_store_dwordx2", buffer_store<8>},
      {"buffer_store_dwordx3", buffer_store<12>}, {"buffer_store_dwordx4", buffer_store<16>},
      {"scratch_load_dword", scratch_load<4>}, {"scratch_load_dwordx2", scratch_load<8>},
      {"scratch_load_dwordx3", scratch_load<12>}, {"scratch_load_dwordx4", scratch_load<16>},
      {"scratch_store_dword", scratch_store<4>}, {"scratch_store_dwordx2", scratch_store<8>},
      {"scratch_store_dwordx3", scratch_store<12>}, {"scratch_store_dwordx4", scratch_store<16>},
      {"ds_read_u8", shared_load<1>}, {"ds_read_u16", shared_load<2>},
      {"ds_read_i8", shared_load<1, WHOLE, load_signed<int8_t, load_shared>>},
      {"ds_read_i16", shared_load<2, WHOLE, load_signed<i16, load_shared>>},
      {"ds_read_u8_d16", shared_load<1, LOW_HALF>}, {"ds_read_u8_d16_hi", shared_load<1, HIGH_HALF>},
      {"ds_read_u16_d16", shared_load<2, LOW_HALF>}, {"ds_read_u16_d16_hi", shared_load<2, HIGH_HALF>},
      {"ds_read_b32", shared_load<4>}, {"ds_read_b64", shared_load<8>},
      {"ds_read_b96", shared_load<12>}, {"ds_read_b128", shared_load<16>},
      {"ds_read_b64_tr_b16", shared_load<8, WHOLE, load_transposed>},
      {"ds_read2_b32", shared_load_two<4, 1>}, {"ds_read2_b64", shared_load_two<8, 1>},
      {"ds_read2st64_b32", shared_load_two<4, 64>}, {"ds_read2st64_b64", shared_load_two<8, 64>},
      {"ds_write_b8", shared_store<1>}, {"ds_write_b16", shared_store<2>},
      {"ds_write_b8_d16_hi", shared_store<1, true>}, {"ds_write_b16_d16_hi", shared_store<2, true>},
      {"ds_write_b32", shared_store<4>}, {"ds_write_b64", shared_store<8>},
      {"ds_write_b96", shared_store<12>}, {"ds_write_b128", shared_store<16>},
      {"ds_write2_b32", shared_store_two<4, 1>}, {"ds_write2_b64", shared_store_two<8, 1>},
      {"ds_write2st64_b32", shared_store_two<4, 64>}, {"ds_write2st64_b64", shared_store_two<8, 64>},
      {"ds_add_u32", shared_atomic<u32, false>([](u32 a, u32 b) { return a + b; })},
      {"ds_add_rtn_u32", shared_atomic<u32, true>([](u32 a, u32 b) { return a + b; })},
      {"ds_add_f32", shared_atomic<f32, false>([](f32 a, f32 b) { return a + b; })},
      {"ds_add_rtn_f32", shared_atomic<f32, true>([](f32 a, f32 b) { return a + b; })},
      {"ds_bpermute_b32", permute_backward}, {"ds_swizzle_b32", swizzle},
  };
  add_atomic<u32>(table, "global_atomic_add", "buffer_atomic_add", [](u32 a, u32 b) { return a + b; });
  add_atomic<u64>(table, "global_atomic_add_x2", "buffer_atomic_add_x2", [](u64 a, u64 b) { return a + b; });
  add_atomic<u32>(table, "global_atomic_or", "buffer_atomic_or", [](u32 a, u32 b) { return a | b; });
  add_atomic<u32>(table, "global_atomic_swap", "buffer_atomic_swap", [](u32, u32 b) { return b; });
  add_atomic<f32>(table, "global_atomic_add_f32", "buffer_atomic_add_f32", [](f32 a, f32 b) { return a + b; });
  add_atomic<f64>(table, "global_atomic_add_f64", "buffer_atomic_add_f64", [](f64 a, f64 b) { return a + b; });
  add_atomic<u32>(table, "global_atomic_pk_add_f16", "buffer_atomic_pk_add_f16", AddHalves<f16>{});
  add_atomic<u32>(table, "global_atomic_pk_add_bf16", "buffer_atomic_pk_add_bf16", AddHalves<bf16>{});
  return table;
}

}  // namespace amd
