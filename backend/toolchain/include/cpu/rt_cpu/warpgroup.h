// Products of warpgroups: a thread's sums are made when it waits for them, from what LDS has then.
//
// So a factor that was written over too early shows. A thread that did not let products see its finished
// copies is told so.
#pragma once
#include <rt_cpu/copy.h>
#include <rt_cpu/product.h>

namespace rt_cpu {

struct Product {
  void (*run)(const Product&, unsigned lane);
  const void *left, *right;
  unsigned left_panels, right_panels;
  void* sums;
};

// Noted: products have begun.
inline Pending<Product, 64> products_of[max_threads];

inline void products_begin() { own_of(products_of).noted = true; }

inline void products_commit() {
  auto& own = own_of(products_of);
  ++own.group;
  own.noted = false;
}

inline void products_wait(unsigned groups) {
  own_of(products_of).wait(groups, [](const Product& product) { product.run(product, machine.current->linear % 128); });
}

inline void copies_to_products() { own_of(copies_of).noted = false; }

// The value of a line and a product: the address within lines of 128 bytes, then the permutation, which the
// address itself tells.
template <class T, bool KFast>
T factor_value(const void* from, unsigned panels, unsigned line, unsigned k) {
  constexpr unsigned panel = 128 / sizeof(T);
  const unsigned fast = KFast ? k : line, slow = KFast ? line : k;
  uintptr_t address = reinterpret_cast<uintptr_t>(from) + fast % panel * sizeof(T) + slow * 128 + fast / panel * panels * 16;
  address ^= (address / 128 % 8) * 16;
  return *reinterpret_cast<const T*>(address);
}

// PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": D of wave w, lane l: row 16 w + l / 4 (+ 8),
// columns 8 j + 2 (l % 4) and the next.
template <class T, int N, bool LeftKFast, bool RightKFast>
void run_product(const Product& product, unsigned thread) {
  using Sum = typename SumOf<T>::type;
  constexpr unsigned K = 32 / sizeof(T);
  Sum* sums = static_cast<Sum*>(product.sums);
  Sum left[2][K];
  const unsigned top = thread / 32 * 16 + thread % 32 / 4;
  for (unsigned k = 0; k < K; ++k) {
    for (unsigned half = 0; half < 2; ++half) {
      left[half][k] = factor_value<T, LeftKFast>(product.left, product.left_panels, top + 8 * half, k);
    }
  }
  for (unsigned r = 0; r < N / 2; r += 4) {
    for (unsigned c = 0; c < 2; ++c) {
      const unsigned col = r * 2 + thread % 4 * 2 + c;
      for (unsigned k = 0; k < K; ++k) {
        const Sum right = factor_value<T, RightKFast>(product.right, product.right_panels, col, k);
        sums[r + c] += left[0][k] * right;
        sums[r + 2 + c] += left[1][k] * right;
      }
    }
  }
}

template <class T, int N, bool LeftKFast, bool RightKFast, class Lines>
void warpgroup_multiply(const Lines& left, const Lines& right, void* sums) {
  auto& own = own_of(products_of);
  if (!own.noted) fail("a product of a warpgroup before products_begin");
  if (own_of(copies_of).noted) fail("a product of a warpgroup before it may see the copies");
  const Product product{run_product<T, N, LeftKFast, RightKFast>,
                        left.from,
                        right.from,
                        static_cast<unsigned>(left.panels),
                        static_cast<unsigned>(right.panels),
                        sums};
  if (!own.add(product)) fail("too many products of a warpgroup on their way");
}

}  // namespace rt_cpu
