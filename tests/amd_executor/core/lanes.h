// Sources and results of vector instructions: modifiers, halves, SDWA, DPP, the mask of lanes.
#pragma once
#include "tables.h"

namespace amd {

// ---- cross-lane moves of the first source (DPP) ------------------------------------------------

// The lane that `lane` reads; -1 where there is none.
inline int moved_from(const Instruction& i, int lane, int lanes) {
  const int row = lane & ~15, at = lane & 15, by = i.move_by;
  switch (i.move) {
    case QUAD: return (lane & ~3) + (by >> 2 * (lane & 3) & 3);
    case ROW_SHL: return at + by < 16 ? lane + by : -1;
    case ROW_SHR: return at >= by ? lane - by : -1;
    case ROW_ROR: return row + ((at - by) & 15);
    case MIRROR: return row + 15 - at;
    case HALF_MIRROR: return (lane & ~7) + 7 - (lane & 7);
    case BROADCAST_15: return row >= 16 ? row - 1 : -1;
    case BROADCAST_31: return lane >= 32 ? 31 : -1;
    case NEW_BROADCAST: return row + by;
    case ROW_XOR: return row + (at ^ by);
    case WAVE_SHR: return lane >= by ? lane - by : -1;
    default: return lane < lanes ? lane : -1;
  }
}

inline int readable(const Wave& w, const Instruction& i, int lane) {
  const int from = moved_from(i, lane, w.lanes);
  return from >= 0 && (i.has(FETCH_INACTIVE) || w.active(from)) ? from : -1;
}

// The lanes that an instruction writes.
inline u64 written(const Wave& w, const Instruction& i) {
  if (i.move == STAY) return w.exec();
  u64 lanes = 0;
  for (int lane = 0; lane < w.lanes; ++lane) {
    const bool chosen = (i.row_mask >> lane / 16 & 1) && (i.bank_mask >> lane / 4 % 4 & 1);
    if (chosen && (i.bound_ctrl || readable(w, i, lane) >= 0)) lanes |= u64{1} << lane;
  }
  return lanes & w.exec();
}

inline Words moved(const Wave& w, const Instruction& i, const Words& words) {
  Words result{};
  for (int lane = 0; lane < w.lanes; ++lane)
    if (const int from = readable(w, i, lane); from >= 0) result[lane] = words[from];
  return result;
}

// ---- reading -----------------------------------------------------------------------------------

inline u32 selected(u32 word, int select, bool extended) {
  if (select <= BYTE_3) {
    const u32 byte = word >> 8 * select & 0xff;
    return extended ? i32(int8_t(byte)) : byte;
  }
  if (select <= WORD_1) {
    const u32 half = word >> 16 * (select - WORD_0) & 0xffff;
    return extended ? i32(i16(half)) : half;
  }
  return word;
}

inline Words source_words(const Wave& w, const Instruction& i, int n, int word = 0) {
  const Operand& o = i.source(n);
  Words words = w.words(o, word);
  if (n == 0 && i.move != STAY) words = moved(w, i, words);
  const int select = n == 0 ? i.src0_sel : i.src1_sel;
  if (i.sdwa && n < 2 && select != DWORD)
    for (u32& value : words) value = selected(value, select, o.extended);
  return words;
}

inline bool high_half(const Instruction& i, int n) {
  return i.source(n).half == 2 || (i.source(n).half == 0 && (i.op_sel >> n & 1));
}

template <class T>
Lanes<T> read(const Wave& w, const Instruction& i, int n) {
  const Operand& o = i.source(n);
  Lanes<T> values;
  if constexpr (sizeof(T) == 8) {
    if (n == 0 && i.move != STAY) fail("a cross-lane move of 64 bits");
    if (o.kind != VECTOR) {
      u64 bits = w.scalar64(o);
      if (o.kind == LITERAL && std::is_same_v<T, f64>) bits = u64(u32(o.integer)) << 32;
      if (o.kind == LITERAL && std::is_same_v<T, i64>) bits = i64{i32(o.integer)};
      values.fill(std::bit_cast<T>(bits));
    } else {
      const Words &low = w.v.at(o.index), &high = w.v.at(o.index + 1);
      for (int lane = 0; lane < LANES; ++lane) values[lane] = std::bit_cast<T>(low[lane] | u64{high[lane]} << 32);
    }
    if constexpr (std::is_same_v<T, f64>)
      for (f64& value : values) {
        if (o.absolute) value = std::fabs(value);
        if (o.negative) value = -value;
      }
  } else {
    Words words = source_words(w, i, n);
    constexpr u32 sign = sizeof(T) == 4 ? 0x80000000 : 0x8000;
    if (sizeof(T) == 2) {
      if (o.kind == REAL && std::is_same_v<T, f16>) words.fill(f16(o.real).bits);
      if (high_half(i, n))
        for (u32& value : words) value >>= 16;
    }
    for (u32& value : words) {
      if (o.absolute) value &= ~sign;
      if (o.negative) value ^= sign;
    }
    for (int lane = 0; lane < LANES; ++lane) {
      if constexpr (sizeof(T) == 2) values[lane] = std::bit_cast<T>(u16(words[lane]));
      else values[lane] = std::bit_cast<T>(words[lane]);
    }
  }
  return values;
}

// ---- writing -----------------------------------------------------------------------------------

template <class T>
T refined(const Instruction& i, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (i.omod == 2 || i.omod == 4) value *= i.omod;
    if (i.omod == -2) value /= 2;
    if (i.has(CLAMP)) value = value > 0 ? (value < 1 ? value : 1) : 0;  // NaN gives 0
  } else if constexpr (std::is_same_v<T, f16>) {
    if (i.omod) fail("an output modifier of fp16");
    if (i.has(CLAMP)) return f16(float(value) > 0 ? std::min(float(value), 1.0f) : 0.0f);
  } else if (i.has(CLAMP) || i.omod) {
    fail("a clamp of integers");
  }
  return value;
}

inline void put_selected(Wave& w, const Instruction& i, int index, const Words& values) {
  Words words = w.v.at(index);
  const int bytes = i.dst_sel <= BYTE_3 ? 1 : 2, shift = i.dst_sel <= BYTE_3 ? 8 * i.dst_sel : 16 * (i.dst_sel - WORD_0);
  const u32 part = (bytes == 1 ? 0xffu : 0xffffu) << shift;
  if (i.dst_unused == SEXT) fail("a sign-extended result of SDWA");
  for (int lane = 0; lane < LANES; ++lane)
    words[lane] = (i.dst_unused == PRESERVE ? words[lane] & ~part : 0) | (values[lane] << shift & part);
  w.put(index, words, w.exec());
}

// 16 bits of a register; the other half becomes 0 on GFX9, except where an instruction keeps it.
inline void put_half(Wave& w, const Instruction& i, const Operand& o, const Words& values, bool keeps) {
  Words words = w.v.at(o.index);
  const bool high = o.half == 2 || (o.half == 0 && (i.op_sel & 8));
  const bool zeroes = w.group->gfx == 9 && !keeps && !high;
  for (int lane = 0; lane < LANES; ++lane)
    words[lane] = high ? (words[lane] & 0xffff) | values[lane] << 16
                       : (zeroes ? 0 : words[lane] & 0xffff0000) | (values[lane] & 0xffff);
  w.put(o.index, words, written(w, i));
}

template <class T>
void write(Wave& w, const Instruction& i, const Lanes<T>& values, bool keeps = false) {
  const Operand& o = i.operands[0];
  if (o.kind != VECTOR) fail("the result is not a vector register");
  if constexpr (sizeof(T) == 8) {
    Words low, high;
    for (int lane = 0; lane < LANES; ++lane) {
      const u64 bits = std::bit_cast<u64>(refined(i, values[lane]));
      low[lane] = bits, high[lane] = bits >> 32;
    }
    w.put(o.index, low, w.exec());
    w.put(o.index + 1, high, w.exec());
  } else {
    Words words;
    for (int lane = 0; lane < LANES; ++lane) {
      if constexpr (sizeof(T) == 2) words[lane] = std::bit_cast<u16>(refined(i, values[lane]));
      else words[lane] = std::bit_cast<u32>(refined(i, values[lane]));
    }
    if (i.sdwa && i.dst_sel != DWORD) put_selected(w, i, o.index, words);
    else if (sizeof(T) == 2 && !i.sdwa) put_half(w, i, o, words, keeps);
    else w.put(o.index, words, written(w, i));
  }
}

// ---- one function applied to every lane --------------------------------------------------------

template <bool keeps, class F, class D, class... S, size_t... N>
void apply(Wave& w, const Instruction& i, std::index_sequence<N...>) {
  const std::tuple<Lanes<S>...> sources{read<S>(w, i, N)...};
  Lanes<D> values;
  for (int lane = 0; lane < LANES; ++lane) values[lane] = D(F{}(std::get<N>(sources)[lane]...));
  write<D>(w, i, values, keeps);
}

template <class Signature>
struct PerLane;
template <class D, class... S>
struct PerLane<D(S...)> {
  template <bool keeps, class F>
  static Handler of(F) {
    return [](Wave& w, const Instruction& i) {
      apply<keeps, F, D, S...>(w, i, std::make_index_sequence<sizeof...(S)>{});
    };
  }
};

template <class Signature, class F>
Handler lane(F f) {
  static_assert(std::is_class_v<F>, "a lambda: only its type is kept");
  return PerLane<Signature>::template of<false>(f);
}
// A 16-bit result that leaves the other half of its register as it is, on every GPU.
template <class Signature, class F>
Handler half(F f) { return PerLane<Signature>::template of<true>(f); }

}  // namespace amd
