// Scalar instructions: arithmetic, branches, waits.
#include "tables.h"

namespace amd {
namespace {

template <class T>
T get(const Wave& w, const Instruction& i, int n) {
  const Operand& o = i.source(n);
  if constexpr (sizeof(T) == 8) {
    const bool narrow = o.kind == LITERAL && std::is_signed_v<T>;
    return narrow ? T(i32(o.integer)) : static_cast<T>(w.scalar64(o));
  } else {
    const u32 sign = o.negative ? 0x80000000 : 0, clear = o.absolute ? 0x80000000 : 0;
    return std::bit_cast<T>((w.scalar(o) & ~clear) ^ sign);
  }
}

template <class T>
void set(Wave& w, const Instruction& i, T value) {
  if constexpr (sizeof(T) == 8) w.put64(i.operands[0], value); else w.put(i.operands[0], std::bit_cast<u32>(value));
}

enum Condition { KEEP, NOT_ZERO };

template <Condition condition, class F, class D, class... S, size_t... N>
void compute(Wave& w, const Instruction& i, std::index_sequence<N...>) {
  const D value = F{}(get<S>(w, i, N)...);
  set<D>(w, i, value);
  if (condition == NOT_ZERO) w.scc = value != 0;
}

template <class Signature>
struct Scalar;
template <class D, class... S>
struct Scalar<D(S...)> {
  template <Condition condition, class F>
  static Handler of(F) {
    return [](Wave& w, const Instruction& i) {
      compute<condition, F, D, S...>(w, i, std::make_index_sequence<sizeof...(S)>{});
    };
  }
};

template <class Signature, class F>
Handler keep(F f) { return Scalar<Signature>::template of<KEEP>(f); }
template <class Signature, class F>
Handler bits(F f) { return Scalar<Signature>::template of<NOT_ZERO>(f); }

template <class T, class F>
Handler compare(F) {
  return [](Wave& w, const Instruction& i) {
    w.scc = F{}(get<T>(w, i, 0), get<T>(w, i, 1));
  };
}

// SCC is the carry, or the signed overflow. The carry comes in where `carried`.
template <bool subtract, bool carried>
void add_unsigned(Wave& w, const Instruction& i) {
  const u64 a = get<u32>(w, i, 0), b = get<u32>(w, i, 1), carry = carried && w.scc;
  set<u32>(w, i, subtract ? a - b - carry : a + b + carry);
  w.scc = subtract ? b + carry > a : a + b + carry > 0xffffffff;
}
template <bool subtract>
void add_signed(Wave& w, const Instruction& i) {
  const i64 a = get<i32>(w, i, 0), b = get<i32>(w, i, 1), sum = subtract ? a - b : a + b;
  set<u32>(w, i, sum);
  w.scc = sum != i32(sum);
}

template <int shift>
void shift_add(Wave& w, const Instruction& i) {
  const u64 sum = (u64{get<u32>(w, i, 0)} << shift) + get<u32>(w, i, 1);
  set<u32>(w, i, sum);
  w.scc = sum > 0xffffffff;
}

template <class T, bool largest>
void extreme(Wave& w, const Instruction& i) {
  const T a = get<T>(w, i, 0), b = get<T>(w, i, 1);
  w.scc = largest ? a >= b : a < b;
  set<u32>(w, i, w.scc ? a : b);
}

template <class F>
Handler save_exec(F) {
  return [](Wave& w, const Instruction& i) {
    const u64 before = w.exec(), after = F{}(w.mask(i.source(0)), before) & w.full();
    w.put_mask(i.operands[0], before);
    w.set_exec(after);
    w.scc = after != 0;
  };
}

template <class F>
Handler branch(F) {
  return [](Wave& w, const Instruction& i) {
    if (F{}(w)) w.pc = i.target;
  };
}

template <class T>
void field(Wave& w, const Instruction& i) {
  const u32 control = get<u32>(w, i, 1);
  const int offset = control & (sizeof(T) * 8 - 1), width = control >> 16 & 0x7f;
  T value = get<T>(w, i, 0) >> offset;
  if (width < int(sizeof(T) * 8)) {
    using U = std::make_unsigned_t<T>;
    const int unused = sizeof(T) * 8 - width;
    value = width == 0 ? T{} : static_cast<T>(static_cast<U>(value) << unused) >> unused;
  }
  set<T>(w, i, value);
  w.scc = value != 0;
}

i32 immediate(const Instruction& i) { return i.operands[1].integer; }

void nothing(Wave&, const Instruction&) {}

template <class T>
void add_logical(Table& table, const char* const (&names)[9]) {
  const Handler handlers[] = {
      bits<T(T, T)>([](T a, T b) { return a & b; }),
      bits<T(T, T)>([](T a, T b) { return a | b; }),
      bits<T(T, T)>([](T a, T b) { return a ^ b; }),
      bits<T(T, T)>([](T a, T b) { return a & ~b; }),
      bits<T(T, T)>([](T a, T b) { return a | ~b; }),
      bits<T(T, T)>([](T a, T b) { return T(~(a & b)); }),
      bits<T(T, T)>([](T a, T b) { return T(~(a | b)); }),
      bits<T(T, T)>([](T a, T b) { return T(~(a ^ b)); }),
      bits<T(T)>([](T a) { return T(~a); }),
  };
  for (int at = 0; at < 9; ++at) table[names[at]] = handlers[at];
}

template <class T>
void add_compares(Table& table, const char* const (&names)[6]) {
  const Handler handlers[] = {
      compare<T>([](T a, T b) { return a == b; }), compare<T>([](T a, T b) { return a != b; }),
      compare<T>([](T a, T b) { return a > b; }),  compare<T>([](T a, T b) { return a >= b; }),
      compare<T>([](T a, T b) { return a < b; }),  compare<T>([](T a, T b) { return a <= b; }),
  };
  for (int at = 0; at < 6; ++at) table[names[at]] = handlers[at];
}

}  // namespace

Table scalar_table() {
  Table table{
      {"s_mov_b32", keep<u32(u32)>([](u32 a) { return a; })},
      {"s_mov_b64", keep<u64(u64)>([](u64 a) { return a; })},
      {"s_cmov_b32", [](Wave& w, const Instruction& i) { if (w.scc) set<u32>(w, i, get<u32>(w, i, 0)); }},
      {"s_movk_i32", [](Wave& w, const Instruction& i) { set<u32>(w, i, immediate(i)); }},
      {"s_addk_i32", [](Wave& w, const Instruction& i) {
         const i64 sum = i64{i32(w.scalar(i.operands[0]))} + immediate(i);
         set<u32>(w, i, sum);
         w.scc = sum != i32(sum);
       }},
      {"s_mulk_i32", [](Wave& w, const Instruction& i) { set<u32>(w, i, w.scalar(i.operands[0]) * immediate(i)); }},
      {"s_brev_b32", keep<u32(u32)>([](u32 a) {
         u32 reversed = 0;
         for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
         return reversed;
       })},
      {"s_bitset1_b32", [](Wave& w, const Instruction& i) {
         set<u32>(w, i, w.scalar(i.operands[0]) | 1u << (get<u32>(w, i, 0) & 31));
       }},
      {"s_bitset0_b32", [](Wave& w, const Instruction& i) {
         set<u32>(w, i, w.scalar(i.operands[0]) & ~(1u << (get<u32>(w, i, 0) & 31)));
       }},
      {"s_add_u32", add_unsigned<false, false>}, {"s_sub_u32", add_unsigned<true, false>},
      {"s_addc_u32", add_unsigned<false, true>}, {"s_subb_u32", add_unsigned<true, true>},
      {"s_add_i32", add_signed<false>}, {"s_sub_i32", add_signed<true>},
      {"s_add_u64", keep<u64(u64, u64)>([](u64 a, u64 b) { return a + b; })},
      {"s_sub_u64", keep<u64(u64, u64)>([](u64 a, u64 b) { return a - b; })},
      {"s_mul_u64", keep<u64(u64, u64)>([](u64 a, u64 b) { return a * b; })},
      {"s_lshl1_add_u32", shift_add<1>}, {"s_lshl2_add_u32", shift_add<2>},
      {"s_lshl3_add_u32", shift_add<3>}, {"s_lshl4_add_u32", shift_add<4>},
      {"s_mul_i32", keep<u32(u32, u32)>([](u32 a, u32 b) { return a * b; })},
      {"s_mul_hi_u32", keep<u32(u32, u32)>([](u32 a, u32 b) { return u32(u64{a} * b >> 32); })},
      {"s_mul_hi_i32", keep<u32(i32, i32)>([](i32 a, i32 b) { return u32(i64{a} * b >> 32); })},
      {"s_lshl_b32", bits<u32(u32, u32)>([](u32 a, u32 n) { return a << (n & 31); })},
      {"s_lshr_b32", bits<u32(u32, u32)>([](u32 a, u32 n) { return a >> (n & 31); })},
      {"s_ashr_i32", bits<i32(i32, u32)>([](i32 a, u32 n) { return a >> (n & 31); })},
      {"s_lshl_b64", bits<u64(u64, u32)>([](u64 a, u32 n) { return a << (n & 63); })},
      {"s_lshr_b64", bits<u64(u64, u32)>([](u64 a, u32 n) { return a >> (n & 63); })},
      {"s_ashr_i64", bits<i64(i64, u32)>([](i64 a, u32 n) { return a >> (n & 63); })},
      {"s_bfm_b32", keep<u32(u32, u32)>([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); })},
      {"s_bfe_u32", field<u32>}, {"s_bfe_i32", field<i32>}, {"s_bfe_u64", field<u64>}, {"s_bfe_i64", field<i64>},
      {"s_abs_i32", bits<u32(i32)>([](i32 a) { return a < 0 ? 0u - u32(a) : u32(a); })},
      {"s_sext_i32_i16", keep<i32(u32)>([](u32 a) { return i32(i16(a)); })},
      {"s_sext_i32_i8", keep<i32(u32)>([](u32 a) { return i32(int8_t(a)); })},
      {"s_bcnt1_i32_b32", bits<u32(u32)>([](u32 a) { return u32(std::popcount(a)); })},
      {"s_bcnt1_i32_b64", bits<u32(u64)>([](u64 a) { return u32(std::popcount(a)); })},
      {"s_ff1_i32_b32", keep<u32(u32)>([](u32 a) { return a ? u32(std::countr_zero(a)) : ~0u; })},
      {"s_ff1_i32_b64", keep<u32(u64)>([](u64 a) { return a ? u32(std::countr_zero(a)) : ~0u; })},
      {"s_flbit_i32_b32", keep<u32(u32)>([](u32 a) { return a ? u32(std::countl_zero(a)) : ~0u; })},
      {"s_min_i32", extreme<i32, false>}, {"s_max_i32", extreme<i32, true>},
      {"s_min_u32", extreme<u32, false>}, {"s_max_u32", extreme<u32, true>},
      {"s_pack_ll_b32_b16", keep<u32(u32, u32)>([](u32 a, u32 b) { return (a & 0xffff) | b << 16; })},
      {"s_pack_lh_b32_b16", keep<u32(u32, u32)>([](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); })},
      {"s_pack_hh_b32_b16", keep<u32(u32, u32)>([](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); })},
      {"s_cselect_b32", [](Wave& w, const Instruction& i) { set<u32>(w, i, get<u32>(w, i, !w.scc)); }},
      {"s_cselect_b64", [](Wave& w, const Instruction& i) { set<u64>(w, i, get<u64>(w, i, !w.scc)); }},
      {"s_bitcmp1_b32", [](Wave& w, const Instruction& i) { w.scc = get<u32>(w, i, 0) >> (get<u32>(w, i, 1) & 31) & 1; }},
      {"s_bitcmp0_b32", [](Wave& w, const Instruction& i) { w.scc = !(get<u32>(w, i, 0) >> (get<u32>(w, i, 1) & 31) & 1); }},
      {"s_add_f32", keep<f32(f32, f32)>([](f32 a, f32 b) { return a + b; })},
      {"s_sub_f32", keep<f32(f32, f32)>([](f32 a, f32 b) { return a - b; })},
      {"s_mul_f32", keep<f32(f32, f32)>([](f32 a, f32 b) { return a * b; })},
      {"s_min_num_f32", keep<f32(f32, f32)>([](f32 a, f32 b) { return std::fmin(a, b); })},
      {"s_max_num_f32", keep<f32(f32, f32)>([](f32 a, f32 b) { return std::fmax(a, b); })},
      {"s_fmac_f32", [](Wave& w, const Instruction& i) {
         set<f32>(w, i, std::fma(get<f32>(w, i, 0), get<f32>(w, i, 1), std::bit_cast<f32>(w.scalar(i.operands[0]))));
       }},
      {"s_fmamk_f32", keep<f32(f32, f32, f32)>([](f32 a, f32 k, f32 b) { return std::fma(a, k, b); })},
      {"s_fmaak_f32", keep<f32(f32, f32, f32)>([](f32 a, f32 b, f32 k) { return std::fma(a, b, k); })},
      {"s_trunc_f32", keep<f32(f32)>([](f32 a) { return std::trunc(a); })},
      {"s_floor_f32", keep<f32(f32)>([](f32 a) { return std::floor(a); })},
      {"s_ceil_f32", keep<f32(f32)>([](f32 a) { return std::ceil(a); })},
      {"s_cvt_f32_u32", keep<f32(u32)>([](u32 a) { return f32(a); })},
      {"s_cvt_f32_i32", keep<f32(i32)>([](i32 a) { return f32(a); })},
      {"s_cvt_u32_f32", keep<u32(f32)>([](f32 a) { return saturated<u32>(a); })},
      {"s_cvt_i32_f32", keep<i32(f32)>([](f32 a) { return saturated<i32>(a); })},
      {"v_s_rcp_f32", keep<f32(f32)>([](f32 a) { return 1 / a; })},
      {"v_s_sqrt_f32", keep<f32(f32)>([](f32 a) { return std::sqrt(a); })},
      {"v_s_rsq_f32", keep<f32(f32)>([](f32 a) { return 1 / std::sqrt(a); })},
      {"v_s_exp_f32", keep<f32(f32)>([](f32 a) { return std::exp2(a); })},
      {"v_s_log_f32", keep<f32(f32)>([](f32 a) { return std::log2(a); })},
      {"s_and_saveexec_b64", save_exec([](u64 a, u64 exec) { return a & exec; })},
      {"s_or_saveexec_b64", save_exec([](u64 a, u64 exec) { return a | exec; })},
      {"s_xor_saveexec_b64", save_exec([](u64 a, u64 exec) { return a ^ exec; })},
      {"s_andn2_saveexec_b64", save_exec([](u64 a, u64 exec) { return a & ~exec; })},
      {"s_branch", branch([](Wave&) { return true; })},
      {"s_cbranch_scc0", branch([](Wave& w) { return !w.scc; })},
      {"s_cbranch_scc1", branch([](Wave& w) { return w.scc; })},
      {"s_cbranch_vccz", branch([](Wave& w) { return w.vcc() == 0; })},
      {"s_cbranch_vccnz", branch([](Wave& w) { return w.vcc() != 0; })},
      {"s_cbranch_execz", branch([](Wave& w) { return w.exec() == 0; })},
      {"s_cbranch_execnz", branch([](Wave& w) { return w.exec() != 0; })},
      {"s_waitcnt", [](Wave& w, const Instruction& i) { i.landed += w.wait(i.waits); }},
      {"s_barrier", [](Wave& w, const Instruction&) { w.signalled = w.waiting = true; }},
      {"s_barrier_signal", [](Wave& w, const Instruction&) { w.signalled = true; }},
      {"s_barrier_wait", [](Wave& w, const Instruction&) { w.waiting = true; }},
      {"s_endpgm", [](Wave& w, const Instruction&) { w.finish(), w.ended = true; }},
  };
  add_logical<u32>(table, {"s_and_b32", "s_or_b32", "s_xor_b32", "s_andn2_b32", "s_orn2_b32", "s_nand_b32",
                           "s_nor_b32", "s_xnor_b32", "s_not_b32"});
  add_logical<u64>(table, {"s_and_b64", "s_or_b64", "s_xor_b64", "s_andn2_b64", "s_orn2_b64", "s_nand_b64",
                           "s_nor_b64", "s_xnor_b64", "s_not_b64"});
  add_compares<u32>(table, {"s_cmp_eq_u32", "s_cmp_lg_u32", "s_cmp_gt_u32", "s_cmp_ge_u32", "s_cmp_lt_u32", "s_cmp_le_u32"});
  add_compares<i32>(table, {"s_cmp_eq_i32", "s_cmp_lg_i32", "s_cmp_gt_i32", "s_cmp_ge_i32", "s_cmp_lt_i32", "s_cmp_le_i32"});
  for (const auto& [name, from] : {std::pair{"s_cmpk_eq_i32", "s_cmp_eq_i32"}, {"s_cmpk_lg_i32", "s_cmp_lg_i32"},
                                   {"s_cmpk_gt_i32", "s_cmp_gt_i32"}, {"s_cmpk_ge_i32", "s_cmp_ge_i32"},
                                   {"s_cmpk_lt_i32", "s_cmp_lt_i32"}, {"s_cmpk_le_i32", "s_cmp_le_i32"},
                                   {"s_cmpk_eq_u32", "s_cmp_eq_u32"}, {"s_cmpk_lg_u32", "s_cmp_lg_u32"},
                                   {"s_cmpk_gt_u32", "s_cmp_gt_u32"}, {"s_cmpk_ge_u32", "s_cmp_ge_u32"},
                                   {"s_cmpk_lt_u32", "s_cmp_lt_u32"}, {"s_cmpk_le_u32", "s_cmp_le_u32"},
                                   {"s_and_saveexec_b32", "s_and_saveexec_b64"}, {"s_or_saveexec_b32", "s_or_saveexec_b64"},
                                   {"s_xor_saveexec_b32", "s_xor_saveexec_b64"},
                                   {"s_andn2_saveexec_b32", "s_andn2_saveexec_b64"}})
    table[name] = table.at(from);
  table["s_cmp_eq_u64"] = compare<u64>([](u64 a, u64 b) { return a == b; });
  table["s_cmp_lg_u64"] = compare<u64>([](u64 a, u64 b) { return a != b; });
  // Hints, and hazards: the distance between instructions is not modelled.
  for (const char* name : {"s_nop", "s_clause", "s_delay_alu", "s_setprio", "s_sleep", "s_sendmsg",
                           "s_set_inst_prefetch_distance", "s_sethalt", "s_waitcnt_depctr", "s_wait_alu",
                           "s_prefetch_inst", "s_prefetch_data", "s_icache_inv", "s_dcache_wb",
                           "buffer_gl0_inv", "buffer_gl1_inv", "buffer_wbl2", "buffer_inv", "buffer_wbinvl1",
                           "buffer_wbinvl1_vol", "buffer_invl2", "global_inv", "global_wb", "global_wbinv"})
    table[name] = nothing;
  return table;
}

}  // namespace amd
