// Vector arithmetic, comparisons and cross-lane operations.
#include "lanes.h"

namespace amd {
namespace {

f32 number(u32 word) { return std::bit_cast<f32>(word); }
u32 bits_of(f32 value) { return std::bit_cast<u32>(value); }

i32 signed24(u32 value) { return i32(value << 8) >> 8; }

u32 permuted(u32 high, u32 low, u32 selector) {
  const u64 both = u64{high} << 32 | low;
  u32 result = 0;
  for (int at = 0; at < 4; ++at) {
    const u32 choice = selector >> 8 * at & 0xff;
    u32 byte;
    if (choice <= 7) byte = both >> 8 * choice & 0xff;
    else if (choice <= 11) byte = both >> (16 * (choice - 8) + 15) & 1 ? 0xff : 0;
    else byte = choice == 12 ? 0 : 0xff;
    result |= byte << 8 * at;
  }
  return result;
}

f32 middle(f32 a, f32 b, f32 c) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return std::fmin(std::fmin(a, b), c);
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

f32 truncated(f32 value) {  // to fp16, toward zero
  return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_ZERO));
}

// ---- carries -----------------------------------------------------------------------------------

// Operands: result, carry out, a, b, and with `carried` the carry in.
template <bool subtract, bool reverse, bool carried>
void add_carry(Wave& w, const Instruction& i) {
  Lanes<u32> a = read<u32>(w, i, 0), b = read<u32>(w, i, 1), sum;
  if (reverse) std::swap(a, b);
  const u64 in = carried ? w.mask(i.source(2)) : 0;
  u64 out = 0;
  for (int lane = 0; lane < w.lanes; ++lane) {
    const u64 carry = in >> lane & 1, right = b[lane] + carry;
    sum[lane] = subtract ? a[lane] - right : a[lane] + right;
    if (w.active(lane) && (subtract ? right > a[lane] : u64{a[lane]} + right > 0xffffffff)) out |= u64{1} << lane;
  }
  write<u32>(w, i, sum);
  w.put_mask(i.operands[1], out);
}

template <class T, class Wide>
void multiply_add_wide(Wave& w, const Instruction& i) {
  const auto a = read<T>(w, i, 0), b = read<T>(w, i, 1);
  const auto c = read<u64>(w, i, 2);
  Lanes<u64> sum;
  u64 out = 0;
  for (int lane = 0; lane < w.lanes; ++lane) {
    sum[lane] = u64(Wide{a[lane]} * b[lane]) + c[lane];
    if (w.active(lane) && sum[lane] < c[lane]) out |= u64{1} << lane;
  }
  write<u64>(w, i, sum);
  w.put_mask(i.operands[1], out);
}

// ---- comparisons -------------------------------------------------------------------------------

template <class T, class F, bool sets_exec>
void compare(Wave& w, const Instruction& i) {
  const auto a = read<T>(w, i, 0), b = read<T>(w, i, 1);
  u64 result = 0;
  for (int lane = 0; lane < w.lanes; ++lane)
    if (w.active(lane) && F{}(a[lane], b[lane])) result |= u64{1} << lane;
  if (i.first) w.put_mask(i.operands[0], result);
  if (sets_exec) w.set_exec(result);
}

template <class T, class F>
void add_compare(Table& table, const char* name, const char* exec_name, F) {
  table[name] = compare<T, F, false>;
  table[exec_name] = compare<T, F, true>;
}

#define COMPARE(T, type, name, expression) \
  add_compare<T>(table, "v_cmp_" name "_" type, "v_cmpx_" name "_" type, [](T a, T b) -> bool { return expression; })
#define COMPARE_INTEGERS(T, type)                                                                        \
  COMPARE(T, type, "lt", a < b), COMPARE(T, type, "eq", a == b), COMPARE(T, type, "le", a <= b),         \
      COMPARE(T, type, "gt", a > b), COMPARE(T, type, "ne", a != b), COMPARE(T, type, "ge", a >= b)
#define COMPARE_FLOATS(T, type)                                                                          \
  COMPARE(T, type, "lt", a < b), COMPARE(T, type, "eq", a == b), COMPARE(T, type, "le", a <= b),         \
      COMPARE(T, type, "gt", a > b), COMPARE(T, type, "lg", a < b || a > b), COMPARE(T, type, "ge", a >= b), \
      COMPARE(T, type, "o", a == a && b == b), COMPARE(T, type, "u", a != a || b != b),                  \
      COMPARE(T, type, "nge", !(a >= b)), COMPARE(T, type, "nlg", !(a < b || a > b)),                    \
      COMPARE(T, type, "ngt", !(a > b)), COMPARE(T, type, "nle", !(a <= b)),                             \
      COMPARE(T, type, "neq", !(a == b)), COMPARE(T, type, "nlt", !(a < b))

template <class T, bool sets_exec>
void compare_class(Wave& w, const Instruction& i) {
  const auto a = read<T>(w, i, 0);
  const auto classes = read<u32>(w, i, 1);
  u64 result = 0;
  for (int lane = 0; lane < w.lanes; ++lane) {
    const T x = a[lane];
    const bool below = std::signbit(x);
    int kind = 0;  // signalling and quiet NaN are told apart by nobody here
    switch (std::fpclassify(x)) {
      case FP_NAN: kind = 3; break;
      case FP_INFINITE: kind = below ? 1 << 2 : 1 << 9; break;
      case FP_NORMAL: kind = below ? 1 << 3 : 1 << 8; break;
      case FP_SUBNORMAL: kind = below ? 1 << 4 : 1 << 7; break;
      default: kind = below ? 1 << 5 : 1 << 6;
    }
    if (w.active(lane) && (classes[lane] & kind)) result |= u64{1} << lane;
  }
  if (i.first) w.put_mask(i.operands[0], result);
  if (sets_exec) w.set_exec(result);
}

template <class T>
void select(Wave& w, const Instruction& i) {
  const auto a = read<T>(w, i, 0), b = read<T>(w, i, 1);
  const u64 mask = i.count > i.first + 2 ? w.mask(i.source(2)) : w.vcc();
  Lanes<T> values;
  for (int lane = 0; lane < LANES; ++lane) values[lane] = mask >> lane & 1 ? b[lane] : a[lane];
  write<T>(w, i, values);
}

// ---- packed and mixed precision ----------------------------------------------------------------

// 16 bits of source n for half `part` of the result.
template <class T>
Lanes<T> packed(const Wave& w, const Instruction& i, int n, int part) {
  const Operand& o = i.source(n);
  const bool high = (part ? i.op_sel_hi : i.op_sel) >> n & 1, negative = (part ? i.neg_hi : i.neg_lo) >> n & 1;
  Words words = w.words(o);
  if (o.kind == REAL) words.fill(f16(o.real).bits);
  Lanes<T> values;
  for (int lane = 0; lane < LANES; ++lane)
    values[lane] = std::bit_cast<T>(u16((high ? words[lane] >> 16 : words[lane]) ^ (negative ? 0x8000 : 0)));
  return values;
}

template <class F, class T, class... S, size_t... N>
void apply_packed(Wave& w, const Instruction& i, std::index_sequence<N...>) {
  Words result{};
  for (int part = 0; part < 2; ++part) {
    const std::tuple<Lanes<S>...> sources{packed<S>(w, i, N, part)...};
    for (int lane = 0; lane < LANES; ++lane) {
      const T value = refined(i, T(F{}(std::get<N>(sources)[lane]...)));
      result[lane] |= u32{std::bit_cast<u16>(value)} << 16 * part;
    }
  }
  w.put(i.operands[0].index, result, w.exec());
}

// The same of two fp32 in register pairs.
template <class F, size_t... N>
void apply_pairs(Wave& w, const Instruction& i, std::index_sequence<N...>) {
  Lanes<f32> results[2];
  for (int part = 0; part < 2; ++part) {
    const auto source = [&](int n) {
      const bool high = (part ? i.op_sel_hi : i.op_sel) >> n & 1, negative = (part ? i.neg_hi : i.neg_lo) >> n & 1;
      Words words = w.words(i.source(n), high);
      if (negative)
        for (u32& word : words) word ^= 0x80000000;
      return words;
    };
    const Words sources[] = {source(N)...};
    for (int lane = 0; lane < LANES; ++lane) results[part][lane] = refined(i, F{}(number(sources[N][lane])...));
  }
  for (int part = 0; part < 2; ++part) {
    Words words;
    for (int lane = 0; lane < LANES; ++lane) words[lane] = bits_of(results[part][lane]);
    w.put(i.operands[0].index + part, words, w.exec());
  }
}

template <class Signature>
struct Packed;
template <class T, class... S>
struct Packed<T(S...)> {
  template <class F>
  static Handler of(F) {
    return [](Wave& w, const Instruction& i) {
      constexpr auto sources = std::make_index_sequence<sizeof...(S)>{};
      if constexpr (std::is_same_v<T, f32>) apply_pairs<F>(w, i, sources);
      else apply_packed<F, T, S...>(w, i, sources);
    };
  }
};
template <class Signature, class F>
Handler pair(F f) { return Packed<Signature>::of(f); }

void move_pair(Wave& w, const Instruction& i) {
  const Words low = w.words(i.source(0), i.op_sel & 1), high = w.words(i.source(1), i.op_sel >> 1 & 1);
  w.put(i.operands[0].index, low, w.exec());
  w.put(i.operands[0].index + 1, high, w.exec());
}

// A source of v_fma_mix: op_sel_hi says that it is fp16, op_sel which half.
Lanes<f32> mixed(const Wave& w, const Instruction& i, int n) {
  const Operand& o = i.source(n);
  const bool is_half = i.op_sel_hi >> n & 1;
  Words words = w.words(o);
  if (o.kind == REAL && is_half) words.fill(f16(o.real).bits);
  Lanes<f32> values;
  for (int lane = 0; lane < LANES; ++lane) {
    f16 part;
    part.bits = i.op_sel >> n & 1 ? words[lane] >> 16 : words[lane];
    f32 value = is_half ? f32(part) : number(words[lane]);
    if (o.absolute) value = std::fabs(value);
    values[lane] = o.negative ? -value : value;
  }
  return values;
}

template <int result>  // 0: fp32, 1: the low half, 2: the high one
void mix(Wave& w, const Instruction& i) {
  const auto a = mixed(w, i, 0), b = mixed(w, i, 1), c = mixed(w, i, 2);
  Words words = w.v.at(i.operands[0].index);
  for (int lane = 0; lane < LANES; ++lane) {
    const f32 sum = refined(i, std::fma(a[lane], b[lane], c[lane]));
    if (result == 0) words[lane] = bits_of(sum);
    else if (result == 1) words[lane] = (words[lane] & 0xffff0000) | f16(sum).bits;
    else words[lane] = (words[lane] & 0xffff) | u32{f16(sum).bits} << 16;
  }
  w.put(i.operands[0].index, words, w.exec());
}

template <class T>
u32 two(T low, T high) { return low.bits | u32{high.bits} << 16; }

// ---- eight-bit floats --------------------------------------------------------------------------

template <int mantissa>
void from_eight(Wave& w, const Instruction& i) {
  const Words words = source_words(w, i, 0);
  // A byte: of SDWA, or of op_sel, whose first bit is the higher one.
  const int byte = i.sdwa ? 0 : (i.op_sel & 1) * 2 + (i.op_sel >> 1 & 1);
  Lanes<f32> values;
  for (int lane = 0; lane < LANES; ++lane)
    values[lane] = from_fp8(words[lane] >> 8 * byte & 0xff, mantissa, w.group->fnuz);
  write<f32>(w, i, values);
}

template <int mantissa>
void from_eight_pair(Wave& w, const Instruction& i) {
  const Words words = source_words(w, i, 0);
  const int shift = i.source(0).half == 2 || (!i.sdwa && (i.op_sel & 1)) ? 16 : 0;
  Words low, high;
  for (int lane = 0; lane < LANES; ++lane) {
    low[lane] = bits_of(from_fp8(words[lane] >> shift & 0xff, mantissa, w.group->fnuz));
    high[lane] = bits_of(from_fp8(words[lane] >> (shift + 8) & 0xff, mantissa, w.group->fnuz));
  }
  w.put(i.operands[0].index, low, w.exec());
  w.put(i.operands[0].index + 1, high, w.exec());
}

template <int mantissa>
void to_eight_pair(Wave& w, const Instruction& i) {
  const auto a = read<f32>(w, i, 0), b = read<f32>(w, i, 1);
  Words words;
  for (int lane = 0; lane < LANES; ++lane)
    words[lane] = to_fp8(a[lane], mantissa, w.group->fnuz) | to_fp8(b[lane], mantissa, w.group->fnuz) << 8;
  put_half(w, i, i.operands[0], words, true);
}

// ---- division, by the pseudocode of the ISA manuals --------------------------------------------

template <class T>
constexpr int EXPONENT = sizeof(T) == 4 ? 8 : 11;
template <class T>
constexpr int FRACTION = sizeof(T) == 4 ? 23 : 52;

template <class T>
int exponent(T value) {
  using U = std::conditional_t<sizeof(T) == 4, u32, u64>;
  return std::bit_cast<U>(value) >> FRACTION<T> & ((1 << EXPONENT<T>) - 1);
}

template <class T>
void division_scale(Wave& w, const Instruction& i) {
  const auto s0 = read<T>(w, i, 0), s1 = read<T>(w, i, 1), s2 = read<T>(w, i, 2);
  constexpr int up = sizeof(T) == 4 ? 64 : 128, large = sizeof(T) == 4 ? 96 : 768;
  constexpr int little = sizeof(T) == 4 ? 23 : 53;
  Lanes<T> values;
  u64 scaled = 0;
  for (int lane = 0; lane < w.lanes; ++lane) {
    const T x = s0[lane], denominator = s1[lane], numerator = s2[lane];
    const bool is_denominator = x == denominator;
    T value = x;
    bool flag = false;
    if (numerator == 0 || denominator == 0) {
      value = NAN;
    } else if (exponent(numerator) - exponent(denominator) >= large) {
      flag = true;
      if (is_denominator) value = std::ldexp(x, up);
    } else if (std::fpclassify(denominator) == FP_SUBNORMAL) {
      value = std::ldexp(x, up);
    } else if (std::fpclassify(T(1) / denominator) == FP_SUBNORMAL &&
               std::fpclassify(numerator / denominator) == FP_SUBNORMAL) {
      flag = true;
      if (is_denominator) value = std::ldexp(x, up);
    } else if (std::fpclassify(T(1) / denominator) == FP_SUBNORMAL) {
      value = std::ldexp(x, -up);
    } else if (std::fpclassify(numerator / denominator) == FP_SUBNORMAL) {
      flag = true;
      if (x == numerator) value = std::ldexp(x, up);
    } else if (exponent(numerator) <= little) {
      value = std::ldexp(x, up);
    }
    values[lane] = value;
    if (flag && w.active(lane)) scaled |= u64{1} << lane;
  }
  write<T>(w, i, values);
  w.put_mask(i.operands[1], scaled);
}

template <class T>
void division_steps(Wave& w, const Instruction& i) {
  const auto a = read<T>(w, i, 0), b = read<T>(w, i, 1), c = read<T>(w, i, 2);
  constexpr int by = sizeof(T) == 4 ? 32 : 64;
  Lanes<T> values;
  for (int lane = 0; lane < LANES; ++lane) {
    const T sum = std::fma(a[lane], b[lane], c[lane]);
    values[lane] = w.vcc() >> lane & 1 ? std::ldexp(sum, exponent(c[lane]) > (1 << (EXPONENT<T> - 1)) - 1 ? 2 * by : -2 * by) : sum;
  }
  write<T>(w, i, values);
}

template <class T>
T division_fixed(T quotient, T denominator, T numerator) {
  const bool below = std::signbit(denominator) != std::signbit(numerator);
  const T infinite = std::numeric_limits<T>::infinity();
  if (std::isnan(numerator)) return numerator;
  if (std::isnan(denominator)) return denominator;
  if ((denominator == 0 && numerator == 0) || (std::isinf(denominator) && std::isinf(numerator))) return NAN;
  if (denominator == 0 || std::isinf(numerator)) return below ? -infinite : infinite;
  if (std::isinf(denominator) || numerator == 0) return below ? T(-0.0) : T(0);
  return below ? -std::fabs(quotient) : std::fabs(quotient);
}

// ---- across lanes ------------------------------------------------------------------------------

void read_first(Wave& w, const Instruction& i) {
  const u64 exec = w.exec();
  w.put(i.operands[0], w.words(i.source(0))[exec ? std::countr_zero(exec) : 0]);
}

void read_lane(Wave& w, const Instruction& i) {
  w.put(i.operands[0], w.words(i.source(0))[w.scalar(i.source(1)) & (w.lanes - 1)]);
}

void write_lane(Wave& w, const Instruction& i) {
  w.v.at(i.operands[0].index)[w.scalar(i.source(1)) & (w.lanes - 1)] = w.scalar(i.source(0));
}

template <int from>
void count_below(Wave& w, const Instruction& i) {
  const auto mask = read<u32>(w, i, 0), sum = read<u32>(w, i, 1);
  Lanes<u32> values;
  for (int lane = 0; lane < LANES; ++lane) {
    const u64 below = ((u64{1} << lane) - 1) >> from & 0xffffffff;
    values[lane] = sum[lane] + std::popcount(mask[lane] & u32(below));
  }
  write<u32>(w, i, values);
}

// Exchange rows of `rows` lanes: odd ones of the first register with even ones of the second.
template <int rows>
void swap_rows(Wave& w, const Instruction& i) {
  Words &a = w.v.at(i.operands[0].index), &b = w.v.at(i.operands[1].index);
  if (w.exec() != w.full()) fail("a swap of rows with inactive lanes");
  for (int lane = 0; lane < w.lanes; ++lane)
    if (lane & rows) std::swap(a[lane], b[lane - rows]);
}

// Each lane reads the other row of its pair, at a place in the row that two scalars name.
void permute_other_row(Wave& w, const Instruction& i) {
  const Words words = w.words(i.source(0));
  const u64 places = w.scalar(i.source(1)) | u64{w.scalar(i.source(2))} << 32;
  Words values;
  for (int lane = 0; lane < w.lanes; ++lane) {
    const int from = ((lane & ~15) ^ 16) + (places >> 4 * (lane & 15) & 15);
    values[lane] = words[from];
  }
  w.put(i.operands[0].index, values, w.exec());
}

template <class T>
void bit_operation(Wave& w, const Instruction& i) {  // any function of three bits, as a table
  const auto a = read<T>(w, i, 0), b = read<T>(w, i, 1), c = read<T>(w, i, 2);
  Lanes<T> values{};
  for (int lane = 0; lane < LANES; ++lane)
    for (int row = 0; row < 8; ++row)
      if (i.offset >> row & 1)
        values[lane] |= (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
  write<T>(w, i, values, true);
}

// Multiply-adds whose third source is a literal between, or after, the other two.
template <class T, bool literal_last>
Handler with_literal() {
  return [](Wave& w, const Instruction& i) {
    const auto a = read<T>(w, i, 0), b = read<T>(w, i, literal_last ? 1 : 2), c = read<T>(w, i, literal_last ? 2 : 1);
    Lanes<T> values;
    for (int lane = 0; lane < LANES; ++lane)
      values[lane] = literal_last ? T(std::fma(f64(f32(a[lane])), f64(f32(b[lane])), f64(f32(c[lane]))))
                                  : T(std::fma(f64(f32(a[lane])), f64(f32(c[lane])), f64(f32(b[lane]))));
    write<T>(w, i, values);
  };
}

template <class T>
void accumulate(Wave& w, const Instruction& i) {  // result += a * b
  Instruction whole = i;
  if (whole.first + 2 >= 8) fail("too many operands");
  whole.operands[whole.first + 2] = i.operands[0];
  whole.count = whole.first + 3;
  const auto a = read<T>(w, whole, 0), b = read<T>(w, whole, 1), c = read<T>(w, whole, 2);
  Lanes<T> values;
  for (int lane = 0; lane < LANES; ++lane) {
    if constexpr (sizeof(T) == 2) values[lane] = T(std::fma(f64(f32(a[lane])), f64(f32(b[lane])), f64(f32(c[lane]))));
    else values[lane] = std::fma(a[lane], b[lane], c[lane]);
  }
  write<T>(w, i, values);
}

template <class T, class Sum>
Sum dot(u32 a, u32 b, Sum sum) {
  constexpr int parts = 4 / sizeof(T);
  for (int at = 0; at < parts; ++at) {
    if constexpr (std::is_integral_v<T>) {
      sum += Sum(T(a >> 32 / parts * at)) * Sum(T(b >> 32 / parts * at));
    } else {
      T x, y;
      x.bits = a >> 16 * at, y.bits = b >> 16 * at;
      sum = std::fma(f32(x), f32(y), sum);
    }
  }
  return sum;
}

void add_integers(Table& table) {
  const Table entries{
      {"v_mov_b32", lane<u32(u32)>([](u32 a) { return a; })},
      {"v_mov_b64", lane<u64(u64)>([](u64 a) { return a; })},
      {"v_mov_b16", lane<u16(u16)>([](u16 a) { return a; })},
      {"v_accvgpr_read_b32", lane<u32(u32)>([](u32 a) { return a; })},
      {"v_accvgpr_write_b32", lane<u32(u32)>([](u32 a) { return a; })},
      {"v_accvgpr_mov_b32", lane<u32(u32)>([](u32 a) { return a; })},
      {"v_not_b32", lane<u32(u32)>([](u32 a) { return ~a; })},
      {"v_and_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a & b; })},
      {"v_or_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a | b; })},
      {"v_xor_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a ^ b; })},
      {"v_xnor_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return ~(a ^ b); })},
      {"v_and_b16", lane<u16(u16, u16)>([](u16 a, u16 b) { return a & b; })},
      {"v_or_b16", lane<u16(u16, u16)>([](u16 a, u16 b) { return a | b; })},
      {"v_xor_b16", lane<u16(u16, u16)>([](u16 a, u16 b) { return a ^ b; })},
      {"v_not_b16", lane<u16(u16)>([](u16 a) { return ~a; })},
      {"v_or3_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return a | b | c; })},
      {"v_xor3_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return a ^ b ^ c; })},
      {"v_and_or_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return (a & b) | c; })},
      {"v_bfi_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); })},
      {"v_bfe_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 n, u32 width) {
         return a >> (n & 31) & ((1u << (width & 31)) - 1);
       })},
      {"v_bfe_i32", lane<i32(i32, u32, u32)>([](i32 a, u32 n, u32 width) {
         const int unused = 32 - (width & 31);
         return unused == 32 ? 0 : i32(u32(a >> (n & 31)) << unused) >> unused;
       })},
      {"v_bfm_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); })},
      {"v_bfrev_b32", lane<u32(u32)>([](u32 a) {
         u32 reversed = 0;
         for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
         return reversed;
       })},
      {"v_bcnt_u32_b32", lane<u32(u32, u32)>([](u32 a, u32 b) { return std::popcount(a) + b; })},
      {"v_ffbh_u32", lane<u32(u32)>([](u32 a) { return a ? u32(std::countl_zero(a)) : ~0u; })},
      {"v_ffbl_b32", lane<u32(u32)>([](u32 a) { return a ? u32(std::countr_zero(a)) : ~0u; })},
      {"v_perm_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return permuted(a, b, c); })},
      {"v_alignbit_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 n) { return u32((u64{a} << 32 | b) >> (n & 31)); })},
      {"v_alignbyte_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 n) { return u32((u64{a} << 32 | b) >> 8 * (n & 3)); })},
      {"v_lshlrev_b32", lane<u32(u32, u32)>([](u32 n, u32 a) { return a << (n & 31); })},
      {"v_lshrrev_b32", lane<u32(u32, u32)>([](u32 n, u32 a) { return a >> (n & 31); })},
      {"v_ashrrev_i32", lane<i32(u32, i32)>([](u32 n, i32 a) { return a >> (n & 31); })},
      {"v_lshlrev_b64", lane<u64(u32, u64)>([](u32 n, u64 a) { return a << (n & 63); })},
      {"v_lshrrev_b64", lane<u64(u32, u64)>([](u32 n, u64 a) { return a >> (n & 63); })},
      {"v_ashrrev_i64", lane<i64(u32, i64)>([](u32 n, i64 a) { return a >> (n & 63); })},
      {"v_lshlrev_b16", lane<u16(u16, u16)>([](u16 n, u16 a) { return a << (n & 15); })},
      {"v_lshrrev_b16", lane<u16(u16, u16)>([](u16 n, u16 a) { return a >> (n & 15); })},
      {"v_ashrrev_i16", lane<i16(u16, i16)>([](u16 n, i16 a) { return a >> (n & 15); })},
      {"v_lshl_add_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 n, u32 b) { return (a << (n & 31)) + b; })},
      {"v_add_lshl_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 n) { return (a + b) << (n & 31); })},
      {"v_lshl_or_b32", lane<u32(u32, u32, u32)>([](u32 a, u32 n, u32 b) { return a << (n & 31) | b; })},
      {"v_lshl_add_u64", lane<u64(u64, u32, u64)>([](u64 a, u32 n, u64 b) { return (a << (n & 7)) + b; })},
      {"v_add_nc_u64", lane<u64(u64, u64)>([](u64 a, u64 b) { return a + b; })},
      {"v_xad_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return (a ^ b) + c; })},
      {"v_add_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a + b; })},
      {"v_sub_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a - b; })},
      {"v_subrev_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return b - a; })},
      {"v_add3_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return a + b + c; })},
      {"v_add_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return a + b; })},
      {"v_sub_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return a - b; })},
      {"v_subrev_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return b - a; })},
      {"v_mul_lo_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return u32{a} * b; })},
      {"v_mad_u16", half<u16(u16, u16, u16)>([](u16 a, u16 b, u16 c) { return u32{a} * b + c; })},
      {"v_mul_lo_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return a * b; })},
      {"v_mul_hi_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return u64{a} * b >> 32; })},
      {"v_mul_hi_i32", lane<i32(i32, i32)>([](i32 a, i32 b) { return i64{a} * b >> 32; })},
      {"v_mul_u32_u24", lane<u32(u32, u32)>([](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); })},
      {"v_mul_i32_i24", lane<u32(u32, u32)>([](u32 a, u32 b) { return u32(signed24(a)) * u32(signed24(b)); })},
      {"v_mad_u32_u24", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; })},
      {"v_mad_i32_i24", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return u32(signed24(a)) * u32(signed24(b)) + c; })},
      {"v_mad_u32_u16", lane<u32(u16, u16, u32)>([](u16 a, u16 b, u32 c) { return u32{a} * b + c; })},
      {"v_min_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return std::min(a, b); })},
      {"v_max_u32", lane<u32(u32, u32)>([](u32 a, u32 b) { return std::max(a, b); })},
      {"v_min_i32", lane<i32(i32, i32)>([](i32 a, i32 b) { return std::min(a, b); })},
      {"v_max_i32", lane<i32(i32, i32)>([](i32 a, i32 b) { return std::max(a, b); })},
      {"v_max3_i32", lane<i32(i32, i32, i32)>([](i32 a, i32 b, i32 c) { return std::max({a, b, c}); })},
      {"v_min3_u32", lane<u32(u32, u32, u32)>([](u32 a, u32 b, u32 c) { return std::min({a, b, c}); })},
      {"v_med3_i32", lane<i32(i32, i32, i32)>([](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); })},
      {"v_min_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return std::min(a, b); })},
      {"v_max_u16", lane<u16(u16, u16)>([](u16 a, u16 b) { return std::max(a, b); })},
      {"v_min_i16", lane<i16(i16, i16)>([](i16 a, i16 b) { return std::min(a, b); })},
      {"v_max_i16", lane<i16(i16, i16)>([](i16 a, i16 b) { return std::max(a, b); })},
      {"v_cvt_i32_i16", lane<i32(u32)>([](u32 a) { return i32(i16(a)); })},
      {"v_cvt_u32_u16", lane<u32(u16)>([](u16 a) { return u32{a}; })},
      {"v_add_co_u32", add_carry<false, false, false>}, {"v_addc_co_u32", add_carry<false, false, true>},
      {"v_sub_co_u32", add_carry<true, false, false>}, {"v_subb_co_u32", add_carry<true, false, true>},
      {"v_subrev_co_u32", add_carry<true, true, false>}, {"v_subbrev_co_u32", add_carry<true, true, true>},
      {"v_mad_u64_u32", multiply_add_wide<u32, u64>}, {"v_mad_i64_i32", multiply_add_wide<i32, i64>},
      {"v_cndmask_b32", select<u32>}, {"v_cndmask_b16", select<u16>},
      {"v_bitop3_b32", bit_operation<u32>}, {"v_bitop3_b16", bit_operation<u16>},
      {"v_pk_add_u16", pair<u16(u16, u16)>([](u16 a, u16 b) { return a + b; })},
      {"v_pk_sub_u16", pair<u16(u16, u16)>([](u16 a, u16 b) { return a - b; })},
      {"v_pk_sub_i16", pair<i16(i16, i16)>([](i16 a, i16 b) { return a - b; })},
      {"v_pk_mul_lo_u16", pair<u16(u16, u16)>([](u16 a, u16 b) { return u32{a} * b; })},
      {"v_pk_lshlrev_b16", pair<u16(u16, u16)>([](u16 n, u16 a) { return a << (n & 15); })},
      {"v_pk_lshrrev_b16", pair<u16(u16, u16)>([](u16 n, u16 a) { return a >> (n & 15); })},
      {"v_pk_ashrrev_i16", pair<i16(u16, i16)>([](u16 n, i16 a) { return a >> (n & 15); })},
      {"v_pk_max_i16", pair<i16(i16, i16)>([](i16 a, i16 b) { return std::max(a, b); })},
      {"v_pk_min_i16", pair<i16(i16, i16)>([](i16 a, i16 b) { return std::min(a, b); })},
      {"v_dot4_i32_i8", lane<i32(u32, u32, i32)>([](u32 a, u32 b, i32 c) { return dot<int8_t>(a, b, c); })},
      {"v_dot4c_i32_i8", [](Wave& w, const Instruction& i) {
         const auto a = read<u32>(w, i, 0), b = read<u32>(w, i, 1);
         const Words sums = w.words(i.operands[0]);
         Lanes<i32> values;
         for (int lane = 0; lane < LANES; ++lane) values[lane] = dot<int8_t, i32>(a[lane], b[lane], sums[lane]);
         write<i32>(w, i, values);
       }},
      {"v_readfirstlane_b32", read_first}, {"v_readlane_b32", read_lane}, {"v_writelane_b32", write_lane},
      {"v_mbcnt_lo_u32_b32", count_below<0>}, {"v_mbcnt_hi_u32_b32", count_below<32>},
      {"v_permlane32_swap_b32", swap_rows<32>}, {"v_permlane16_swap_b32", swap_rows<16>},
      {"v_permlanex16_b32", permute_other_row},
      {"v_pk_mov_b32", move_pair},
      {"v_nop", [](Wave&, const Instruction&) {}},
  };
  table.insert(entries.begin(), entries.end());
}

void add_floats(Table& table) {
  const Table entries{
      {"v_add_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return a + b; })},
      {"v_sub_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return a - b; })},
      {"v_subrev_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return b - a; })},
      {"v_mul_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return a * b; })},
      {"v_mul_legacy_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return a == 0 || b == 0 ? 0 : a * b; })},
      {"v_fma_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fma(a, b, c); })},
      {"v_fmac_f32", accumulate<f32>}, {"v_fmac_f64", accumulate<f64>}, {"v_fmac_f16", accumulate<f16>},
      {"v_fmamk_f32", with_literal<f32, false>()}, {"v_fmaak_f32", with_literal<f32, true>()},
      {"v_fmamk_f16", with_literal<f16, false>()}, {"v_fmaak_f16", with_literal<f16, true>()},
      {"v_madmk_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 k, f32 b) { return a * k + b; })},
      {"v_madak_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 k) { return a * b + k; })},
      {"v_mad_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return a * b + c; })},
      {"v_min_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return std::fmin(a, b); })},
      {"v_max_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return std::fmax(a, b); })},
      {"v_max3_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fmax(std::fmax(a, b), c); })},
      {"v_min3_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fmin(std::fmin(a, b), c); })},
      {"v_med3_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return middle(a, b, c); })},
      {"v_maxmin_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fmin(std::fmax(a, b), c); })},
      {"v_minmax_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fmax(std::fmin(a, b), c); })},
      {"v_maximum_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); })},
      {"v_minimum_f32", lane<f32(f32, f32)>([](f32 a, f32 b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); })},
      {"v_maximum3_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) {
         return std::isnan(a) || std::isnan(b) || std::isnan(c) ? NAN : std::max({a, b, c});
       })},
      {"v_minimum3_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) {
         return std::isnan(a) || std::isnan(b) || std::isnan(c) ? NAN : std::min({a, b, c});
       })},
      {"v_rcp_f32", lane<f32(f32)>([](f32 a) { return 1 / a; })},
      {"v_rcp_iflag_f32", lane<f32(f32)>([](f32 a) { return 1 / a; })},
      {"v_rsq_f32", lane<f32(f32)>([](f32 a) { return 1 / std::sqrt(a); })},
      {"v_sqrt_f32", lane<f32(f32)>([](f32 a) { return std::sqrt(a); })},
      {"v_exp_f32", lane<f32(f32)>([](f32 a) { return std::exp2(a); })},
      {"v_log_f32", lane<f32(f32)>([](f32 a) { return std::log2(a); })},
      {"v_sin_f32", lane<f32(f32)>([](f32 a) { return f32(std::sin(f64(a) * 2 * M_PI)); })},
      {"v_cos_f32", lane<f32(f32)>([](f32 a) { return f32(std::cos(f64(a) * 2 * M_PI)); })},
      {"v_trunc_f32", lane<f32(f32)>([](f32 a) { return std::trunc(a); })},
      {"v_floor_f32", lane<f32(f32)>([](f32 a) { return std::floor(a); })},
      {"v_ceil_f32", lane<f32(f32)>([](f32 a) { return std::ceil(a); })},
      {"v_rndne_f32", lane<f32(f32)>([](f32 a) { return std::nearbyint(a); })},
      {"v_fract_f32", lane<f32(f32)>([](f32 a) { return std::min(a - std::floor(a), 0x1.fffffep-1f); })},
      {"v_ldexp_f32", lane<f32(f32, i32)>([](f32 a, i32 n) { return std::ldexp(a, n); })},
      {"v_frexp_mant_f32", lane<f32(f32)>([](f32 a) { int n; return std::isfinite(a) ? std::frexp(a, &n) : a; })},
      {"v_frexp_exp_i32_f32", lane<i32(f32)>([](f32 a) { int n = 0; if (std::isfinite(a)) std::frexp(a, &n); return n; })},
      {"v_add_f64", lane<f64(f64, f64)>([](f64 a, f64 b) { return a + b; })},
      {"v_mul_f64", lane<f64(f64, f64)>([](f64 a, f64 b) { return a * b; })},
      {"v_fma_f64", lane<f64(f64, f64, f64)>([](f64 a, f64 b, f64 c) { return std::fma(a, b, c); })},
      {"v_min_f64", lane<f64(f64, f64)>([](f64 a, f64 b) { return std::fmin(a, b); })},
      {"v_max_f64", lane<f64(f64, f64)>([](f64 a, f64 b) { return std::fmax(a, b); })},
      {"v_rcp_f64", lane<f64(f64)>([](f64 a) { return 1 / a; })},
      {"v_rsq_f64", lane<f64(f64)>([](f64 a) { return 1 / std::sqrt(a); })},
      {"v_rndne_f64", lane<f64(f64)>([](f64 a) { return std::nearbyint(a); })},
      {"v_trunc_f64", lane<f64(f64)>([](f64 a) { return std::trunc(a); })},
      {"v_floor_f64", lane<f64(f64)>([](f64 a) { return std::floor(a); })},
      {"v_ldexp_f64", lane<f64(f64, i32)>([](f64 a, i32 n) { return std::ldexp(a, n); })},
      {"v_add_f16", lane<f16(f16, f16)>([](f16 a, f16 b) { return f32(a) + f32(b); })},
      {"v_sub_f16", lane<f16(f16, f16)>([](f16 a, f16 b) { return f32(a) - f32(b); })},
      {"v_mul_f16", lane<f16(f16, f16)>([](f16 a, f16 b) { return f32(a) * f32(b); })},
      {"v_min_f16", lane<f16(f16, f16)>([](f16 a, f16 b) { return std::fmin(f32(a), f32(b)); })},
      {"v_max_f16", lane<f16(f16, f16)>([](f16 a, f16 b) { return std::fmax(f32(a), f32(b)); })},
      {"v_fma_f16", half<f16(f16, f16, f16)>([](f16 a, f16 b, f16 c) { return std::fma(f64(f32(a)), f64(f32(b)), f64(f32(c))); })},
      {"v_pk_add_f16", pair<f16(f16, f16)>([](f16 a, f16 b) { return f32(a) + f32(b); })},
      {"v_pk_mul_f16", pair<f16(f16, f16)>([](f16 a, f16 b) { return f32(a) * f32(b); })},
      {"v_pk_max_f16", pair<f16(f16, f16)>([](f16 a, f16 b) { return std::fmax(f32(a), f32(b)); })},
      {"v_pk_min_f16", pair<f16(f16, f16)>([](f16 a, f16 b) { return std::fmin(f32(a), f32(b)); })},
      {"v_pk_fma_f16", pair<f16(f16, f16, f16)>([](f16 a, f16 b, f16 c) { return std::fma(f64(f32(a)), f64(f32(b)), f64(f32(c))); })},
      {"v_pk_add_f32", pair<f32(f32, f32)>([](f32 a, f32 b) { return a + b; })},
      {"v_pk_mul_f32", pair<f32(f32, f32)>([](f32 a, f32 b) { return a * b; })},
      {"v_pk_fma_f32", pair<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return std::fma(a, b, c); })},
      {"v_fma_mix_f32", mix<0>}, {"v_fma_mixlo_f16", mix<1>}, {"v_fma_mixhi_f16", mix<2>},
      {"v_dot2_f32_f16", lane<f32(u32, u32, f32)>([](u32 a, u32 b, f32 c) { return dot<f16>(a, b, c); })},
      {"v_dot2_f32_bf16", lane<f32(u32, u32, f32)>([](u32 a, u32 b, f32 c) { return dot<bf16>(a, b, c); })},
      {"v_cvt_f32_f16", lane<f32(f16)>([](f16 a) { return f32(a); })},
      {"v_cvt_f16_f32", lane<f16(f32)>([](f32 a) { return a; })},
      {"v_cvt_f32_bf16", lane<f32(u16)>([](u16 a) { return number(u32{a} << 16); })},
      {"v_cvt_f32_f64", lane<f32(f64)>([](f64 a) { return f32(a); })},
      {"v_cvt_f64_f32", lane<f64(f32)>([](f32 a) { return f64(a); })},
      {"v_cvt_f64_i32", lane<f64(i32)>([](i32 a) { return f64(a); })},
      {"v_cvt_f64_u32", lane<f64(u32)>([](u32 a) { return f64(a); })},
      {"v_cvt_i32_f64", lane<i32(f64)>([](f64 a) { return saturated<i32>(a); })},
      {"v_cvt_u32_f64", lane<u32(f64)>([](f64 a) { return saturated<u32>(a); })},
      {"v_cvt_i32_f32", lane<i32(f32)>([](f32 a) { return saturated<i32>(a); })},
      {"v_cvt_u32_f32", lane<u32(f32)>([](f32 a) { return saturated<u32>(a); })},
      {"v_cvt_f32_i32", lane<f32(i32)>([](i32 a) { return f32(a); })},
      {"v_cvt_f32_u32", lane<f32(u32)>([](u32 a) { return f32(a); })},
      {"v_cvt_f16_u16", lane<f16(u16)>([](u16 a) { return f32(a); })},
      {"v_cvt_f16_i16", lane<f16(i16)>([](i16 a) { return f32(a); })},
      {"v_cvt_f32_ubyte0", lane<f32(u32)>([](u32 a) { return f32(a & 0xff); })},
      {"v_cvt_f32_ubyte1", lane<f32(u32)>([](u32 a) { return f32(a >> 8 & 0xff); })},
      {"v_cvt_f32_ubyte2", lane<f32(u32)>([](u32 a) { return f32(a >> 16 & 0xff); })},
      {"v_cvt_f32_ubyte3", lane<f32(u32)>([](u32 a) { return f32(a >> 24); })},
      {"v_cvt_pkrtz_f16_f32", lane<u32(f32, f32)>([](f32 a, f32 b) { return two(f16(truncated(a)), f16(truncated(b))); })},
      {"v_cvt_pk_f16_f32", lane<u32(f32, f32)>([](f32 a, f32 b) { return two(f16(a), f16(b)); })},
      {"v_cvt_pk_bf16_f32", lane<u32(f32, f32)>([](f32 a, f32 b) { return two(bf16(a), bf16(b)); })},
      {"v_pack_b32_f16", lane<u32(u16, u16)>([](u16 a, u16 b) { return a | u32{b} << 16; })},
      {"v_cvt_f32_fp8", from_eight<3>}, {"v_cvt_f32_bf8", from_eight<2>},
      {"v_cvt_pk_f32_fp8", from_eight_pair<3>}, {"v_cvt_pk_f32_bf8", from_eight_pair<2>},
      {"v_cvt_pk_fp8_f32", to_eight_pair<3>}, {"v_cvt_pk_bf8_f32", to_eight_pair<2>},
      {"v_div_scale_f32", division_scale<f32>}, {"v_div_scale_f64", division_scale<f64>},
      {"v_div_fmas_f32", division_steps<f32>}, {"v_div_fmas_f64", division_steps<f64>},
      {"v_div_fixup_f32", lane<f32(f32, f32, f32)>([](f32 a, f32 b, f32 c) { return division_fixed(a, b, c); })},
      {"v_div_fixup_f64", lane<f64(f64, f64, f64)>([](f64 a, f64 b, f64 c) { return division_fixed(a, b, c); })},
  };
  table.insert(entries.begin(), entries.end());
}

}  // namespace

Table vector_table() {
  Table table;
  add_integers(table);
  add_floats(table);
  COMPARE_INTEGERS(i32, "i32"), COMPARE_INTEGERS(u32, "u32"), COMPARE_INTEGERS(i64, "i64");
  COMPARE_INTEGERS(u64, "u64"), COMPARE_INTEGERS(i16, "i16"), COMPARE_INTEGERS(u16, "u16");
  COMPARE_FLOATS(f32, "f32"), COMPARE_FLOATS(f64, "f64");
  COMPARE_FLOATS(f16, "f16");
  table["v_cmp_class_f32"] = compare_class<f32, false>;
  table["v_cmp_class_f64"] = compare_class<f64, false>;
  table["v_cmpx_class_f32"] = compare_class<f32, true>;
  return table;
}

}  // namespace amd
