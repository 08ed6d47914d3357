// The state of a wave, its operands, and memory accesses that take effect as late as waits allow.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace amd {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using f32 = float;
using f64 = double;

constexpr int LANES = 64, AGPR = 256, REGISTERS = 512;
constexpr u64 SCRATCH_BUFFER = 0xa11ull << 36;  // the address of the buffer that is a lane's scratch on GFX9
constexpr int VCC = 106, TTMP = 108, M0 = 124, NOWHERE = 125, EXEC = 126;

template <class T>
using Lanes = std::array<T, LANES>;
using Words = Lanes<u32>;

struct Wave;
struct Instruction;
using Handler = void (*)(Wave&, const Instruction&);

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Failure(text.str());
}

// ---- numbers -----------------------------------------------------------------------------------

struct f16 {
  u16 bits;
  f16() = default;
  explicit f16(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit f16(double value) : f16(odd(value)) {}
  operator float() const { return _cvtsh_ss(bits); }

 private:
  // Round to odd, so that rounding to half again gives what one rounding would.
  static float odd(double value) {
    float near = static_cast<float>(value);
    if (!std::isfinite(near) || near == value) return near;
    u32 word = std::bit_cast<u32>(near);
    if (std::fabs(double(near)) > std::fabs(value)) --word;
    return std::bit_cast<float>(word | 1);
  }
};

struct bf16 {
  u16 bits;
  bf16() = default;
  explicit bf16(float value) {
    const u32 word = std::bit_cast<u32>(value);
    bits = std::isnan(value) ? (word >> 16) | 0x40 : (word + 0x7fff + ((word >> 16) & 1)) >> 16;
  }
  operator float() const { return std::bit_cast<float>(u32{bits} << 16); }
};

// Conversions to integers give the nearest number that there is, and 0 for NaN.
template <class To>
To saturated(f64 value) {
  if (std::isnan(value)) return 0;
  const f64 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  return value <= low ? std::numeric_limits<To>::min() : value >= high ? std::numeric_limits<To>::max() : To(value);
}

// An eight-bit float: with `fnuz` (gfx942) the bias is one more and 0x80 is the only NaN.
inline float from_fp8(uint8_t byte, int mantissa, bool fnuz) {
  const int bias = (1 << (6 - mantissa)) - 1 + fnuz;
  const int exponent = (byte & 0x7f) >> mantissa, fraction = byte & ((1 << mantissa) - 1);
  const float sign = byte & 0x80 ? -1.0f : 1.0f;
  if (fnuz && byte == 0x80) return NAN;
  if (!fnuz && mantissa == 3 && (byte & 0x7f) == 0x7f) return NAN;
  if (!fnuz && mantissa == 2 && exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(float(fraction), 1 - bias - mantissa);
  return sign * std::ldexp(float(fraction + (1 << mantissa)), exponent - bias - mantissa);
}

// The nearest eight-bit float, even on a tie; beyond the largest one, the largest (as the conversions
// of CDNA do in their default mode) for fnuz, NaN or infinity otherwise.
inline uint8_t to_fp8(float value, int mantissa, bool fnuz) {
  if (std::isnan(value)) return fnuz ? 0x80 : 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float size = std::fabs(value);
  int low = 0, high = fnuz ? 0x7f : (mantissa == 3 ? 0x7e : 0x7b);
  const int largest = high;
  while (low < high) {  // the largest number that is not above `size`
    const int middle = (low + high + 1) / 2;
    if (from_fp8(middle, mantissa, fnuz) <= size) low = middle; else high = middle - 1;
  }
  const float below = from_fp8(low, mantissa, fnuz);
  const float step = low < largest ? from_fp8(low + 1, mantissa, fnuz) - below
                                   : below - from_fp8(low - 1, mantissa, fnuz);
  const float rest = (size - below) / step;
  if (rest > 0.5f || (rest == 0.5f && (low & 1))) ++low;
  if (low > largest) low = fnuz ? largest : (mantissa == 3 ? 0x7f : 0x7c);
  return fnuz && low == 0 ? 0 : sign | low;
}

// ---- instructions, as tests/amd_executor/assembly.py writes them -------------------------------

enum Kind : i32 { NONE, VECTOR, SCALAR, INTEGER, LITERAL, REAL, OFF, SCC };

struct Operand {
  i32 kind, index, count;   // registers
  i32 half;                 // 1: `.l`, 2: `.h`
  i32 negative, absolute, extended;
  i32 unused;
  i64 integer;
  f64 real;
};

enum Flag : i32 { OFFEN = 1, IDXEN = 2, TO_LDS = 4, RETURNS = 8, CLAMP = 16, DUAL = 32, FETCH_INACTIVE = 64, LOAD = 128 };
enum Select : i32 { BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1, DWORD };
enum Unused : i32 { PAD, SEXT, PRESERVE };
enum Move : i32 { STAY, QUAD, ROW_SHL, ROW_SHR, ROW_ROR, MIRROR, HALF_MIRROR, BROADCAST_15, BROADCAST_31,
                  NEW_BROADCAST, ROW_XOR, WAVE_SHR };

struct Instruction {
  Handler run;
  Operand operands[8];
  i32 count, first;         // operands, and which is the first source
  i32 line, target;         // of the text; index where a branch goes
  i32 offset, offset0, offset1, flags;
  i32 op_sel, op_sel_hi, neg_lo, neg_hi, omod;
  i32 sdwa, dst_sel, dst_unused, src0_sel, src1_sel;
  i32 move, move_by, row_mask, bank_mask, bound_ctrl;
  i32 waits[4];             // how many may be outstanding: loads, stores, LDS, scalar loads; -1: any
  i32 cbsz, blgp;
  mutable u64 executed, landed;  // how often; how many accesses a wait completed

  const Operand& source(int n) const {
    if (first + n >= count) fail("source ", n, " is missing");
    return operands[first + n];
  }
  bool has(Flag flag) const { return flags & flag; }
};

// ---- memory ------------------------------------------------------------------------------------

struct Range {
  u64 begin, end;
  bool writable;
};

struct Memory {
  std::vector<Range> ranges;

  void check(u64 address, unsigned bytes, bool write) const {
    for (const Range& range : ranges)
      if (address >= range.begin && address + bytes <= range.end) {
        if (write && !range.writable) fail("a store to read-only memory at 0x", std::hex, address);
        return;
      }
    fail(write ? "a store" : "a load", " of ", bytes, " bytes at 0x", std::hex, address, near(address));
  }

 private:
  std::string near(u64 address) const {
    const Range* nearest = nullptr;
    u64 least = ~u64{0};
    for (const Range& range : ranges) {
      const u64 distance = address < range.begin ? range.begin - address : address - range.end;
      if (distance < least) least = distance, nearest = &range;
    }
    std::ostringstream text;
    text << " is outside of every buffer";
    if (nearest) text << ", " << least << " bytes " << (address < nearest->begin ? "before" : "behind") << " one of "
                      << nearest->end - nearest->begin;
    return text.str();
  }
};

struct Group {  // a workgroup
  int gfx;                  // 9, 11 or 12
  bool fnuz;
  int lanes;
  Memory* memory;
  std::vector<uint8_t> lds;

  uint8_t* shared(u64 address, unsigned bytes, bool write) {
    if (address + bytes > lds.size())
      fail(write ? "a store" : "a load", " of ", bytes, " bytes at ", address, " of ", lds.size(), " bytes of LDS");
    return lds.data() + address;
  }
};

enum Counter { LOADS, STORES, SHARED, SCALARS, COUNTERS };
enum Merge { WHOLE, LOW_HALF, HIGH_HALF };

struct Transfer;
using Access = void (*)(Wave&, Transfer&);

// A memory access that was issued. `access` takes effect in memory; the result then waits in `data`
// until a wait covers it, and only then reaches its registers.
struct Transfer {
  const Instruction* at;
  Counter counter;
  Access access;
  u64 exec;
  int registers, width;     // first register of the result (-1: none), and dwords a lane
  Merge merge;
  bool scalar, performed;
  Lanes<u64> address;
  std::vector<Words> data;
  int item;                 // bytes a lane
  Lanes<u32> inside;        // offset in a buffer, whose bytes from `limit` on are outside
  u32 limit, shared;        // `shared`: where in LDS a load ends that goes there
};

struct Wave {
  Group* group;
  int lanes, number;
  u32 s[128];
  bool scc;
  std::vector<Words> v;
  std::vector<uint8_t> scratch;
  u32 scratch_bytes;        // of a lane
  int pc;
  bool ended, waiting, signalled;
  std::deque<Transfer> vector_accesses, shared_accesses, scalar_accesses;
  std::array<uint8_t, REGISTERS> vector_loading;  // how many accesses have yet to write a register
  std::array<uint8_t, 128> scalar_loading;
  int loading;

  u64 full() const { return lanes == 64 ? ~u64{0} : 0xffffffff; }
  u64 wide(int index) const { return s[index] | u64{s[index + 1]} << 32; }
  u64 exec() const { return lanes == 64 ? wide(EXEC) : s[EXEC]; }
  u64 vcc() const { return lanes == 64 ? wide(VCC) : s[VCC]; }
  void set_exec(u64 mask) {
    s[EXEC] = mask;
    if (lanes == 64) s[EXEC + 1] = mask >> 32;
  }
  bool active(int lane) const { return exec() >> lane & 1; }

  // -- scalar operands
  u32 scalar(const Operand& o, int word = 0) const {
    switch (o.kind) {
      case SCALAR: return o.index + word == NOWHERE ? 0 : s[o.index + word];
      case INTEGER: case LITERAL: return word ? u64(o.integer) >> 32 : o.integer;
      case REAL: return std::bit_cast<u32>(float(o.real));
      case SCC: return scc;
      default: fail("not a scalar operand");
    }
  }
  u64 scalar64(const Operand& o) const {
    if (o.kind == REAL) return std::bit_cast<u64>(o.real);
    return scalar(o) | u64{scalar(o, 1)} << 32;
  }
  u64 mask(const Operand& o) const {
    if (o.kind != SCALAR) return o.integer;
    return lanes == 64 ? scalar64(o) : scalar(o);
  }
  void put(const Operand& o, u32 value) {
    if (o.kind != SCALAR) fail("not a scalar register");
    if (o.index != NOWHERE) s[o.index] = value;
  }
  void put64(const Operand& o, u64 value) {
    put(o, value);
    if (o.index != NOWHERE) s[o.index + 1] = value >> 32;
  }
  void put_mask(const Operand& o, u64 value) {
    if (lanes == 64) put64(o, value); else put(o, value);
  }

  // -- vector operands
  Words words(const Operand& o, int word = 0) const {
    if (o.kind == VECTOR) return v.at(o.index + word);
    Words all;
    all.fill(scalar(o, word));
    return all;
  }
  void put(int index, const Words& value, u64 where) {
    Words& words = v.at(index);
    for (int lane = 0; lane < lanes; ++lane)
      if (where >> lane & 1) words[lane] = value[lane];
  }

  // -- memory
  void issue(Transfer transfer);
  void check_waits(const Instruction& i) const {
    if (loading == 0) return;
    for (int at = i.has(LOAD); at < i.count; ++at)  // loads of one register land in their order
      check_waits(i.operands[at]);
  }
  u64 wait(const i32 (&limits)[4]);  // how many accesses it completed
  void finish();

 private:
  void check_waits(const Operand& o) const {
    for (int at = o.index; at < o.index + o.count; ++at) {
      if (o.kind == VECTOR && vector_loading.at(at)) fail(at < AGPR ? "v" : "a", at % AGPR, " is used before the wait for its load");
      if (o.kind == SCALAR && at != NOWHERE && scalar_loading.at(at)) fail("s", at, " is used before the wait for its load");
    }
  }
  void count(const Transfer& transfer, int by) {
    if (transfer.registers < 0 || transfer.exec == 0) return;
    for (int word = 0; word < transfer.width; ++word)
      (transfer.scalar ? scalar_loading.at(transfer.registers + word) : vector_loading.at(transfer.registers + word)) += by;
    loading += by;
  }
  void perform(Transfer& transfer) {
    if (!transfer.performed) transfer.access(*this, transfer);
    transfer.performed = true;
  }
  void land(Transfer& transfer);
  u64 wait_vector(Counter counter, int limit);
};

inline void Wave::issue(Transfer transfer) {
  transfer.performed = false;
  count(transfer, 1);
  if (transfer.counter == SHARED) shared_accesses.push_back(std::move(transfer));
  else if (transfer.counter == SCALARS) scalar_accesses.push_back(std::move(transfer));
  else vector_accesses.push_back(std::move(transfer));
}

inline void Wave::land(Transfer& transfer) {
  perform(transfer);
  if (transfer.registers < 0) return;
  count(transfer, -1);
  if (transfer.scalar) {
    for (int word = 0; word < transfer.width; ++word)
      if (transfer.registers + word != NOWHERE) s[transfer.registers + word] = transfer.data[word][0];
    return;
  }
  for (int word = 0; word < transfer.width; ++word) {
    Words& words = v.at(transfer.registers + word);
    for (int lane = 0; lane < lanes; ++lane) {
      if (!(transfer.exec >> lane & 1)) continue;
      const u32 value = transfer.data[word][lane];
      if (transfer.merge == WHOLE) words[lane] = value;
      if (transfer.merge == LOW_HALF) words[lane] = (words[lane] & 0xffff0000) | (value & 0xffff);
      if (transfer.merge == HIGH_HALF) words[lane] = (words[lane] & 0xffff) | value << 16;
    }
  }
}

// Accesses of a wave reach memory in their order. So a store that must be done drags the reading of
// earlier loads along, but not the landing of their results.
inline u64 Wave::wait_vector(Counter counter, int limit) {
  int outstanding = 0;
  for (const Transfer& transfer : vector_accesses) outstanding += transfer.counter == counter;
  auto at = vector_accesses.begin();
  u64 landed = 0;
  while (outstanding > limit) {
    if (at->counter == counter) {
      landed += at->exec != 0;
      land(*at);
      at = vector_accesses.erase(at);
      --outstanding;
    } else {
      perform(*at);
      ++at;
    }
  }
  return landed;
}

// Scalar loads return in any order: only a wait for all of them is one for any of them. Where LDS
// accesses share their counter, so many of those may be done before one of the scalar loads is.
inline u64 Wave::wait(const i32 (&limits)[4]) {
  u64 landed = 0;
  if (limits[LOADS] >= 0) landed += wait_vector(LOADS, limits[LOADS]);
  if (limits[STORES] >= 0) landed += wait_vector(STORES, limits[STORES]);
  const int scalars = scalar_accesses.size();
  if (limits[SHARED] >= 0) {
    const bool together = group->gfx < 12;
    const int all = shared_accesses.size() + (together ? scalars : 0);
    int landing = all - limits[SHARED] - (together && limits[SHARED] > 0 ? scalars : 0);
    for (; landing > 0 && !shared_accesses.empty(); --landing) {
      landed += shared_accesses.front().exec != 0;
      land(shared_accesses.front());
      shared_accesses.pop_front();
    }
  }
  if (limits[SCALARS] == 0) {
    landed += scalars;
    for (Transfer& transfer : scalar_accesses) land(transfer);
    scalar_accesses.clear();
  }
  return landed;
}

inline void Wave::finish() {
  const i32 all[4] = {0, 0, 0, 0};
  wait(all);
}

}  // namespace amd
