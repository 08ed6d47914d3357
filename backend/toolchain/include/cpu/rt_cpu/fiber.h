// Fibers: a stack and a saved place to go on from, switched in a few nanoseconds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

#if defined(RT_CPU_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#define RT_CPU_USES_UCONTEXT 1
#include <ucontext.h>
#else
#define RT_CPU_USES_UCONTEXT 0
#endif

#ifndef RT_CPU_STACK
#define RT_CPU_STACK (64 * 1024)
#endif

namespace rt_cpu {

using Entry = void (*)();

#if RT_CPU_USES_UCONTEXT

struct Context {
  ucontext_t saved;
};

inline void switch_to(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

inline void prepare(Context& context, char* stack, size_t size, Entry entry) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = size;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

#else

struct Context {
  void* sp;
};

// Saves what the calling convention says a callee must keep, and nothing else.
extern "C" void rt_cpu_switch(void** from, void* to);
#if defined(__x86_64__)
asm(".pushsection .text\n"
    ".weak rt_cpu_switch\n"
    ".hidden rt_cpu_switch\n"
    ".type rt_cpu_switch, @function\n"
    "rt_cpu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size rt_cpu_switch, .-rt_cpu_switch\n"
    ".popsection\n");
constexpr int saved_words = 6;
#else
asm(".pushsection .text\n"
    ".weak rt_cpu_switch\n"
    ".hidden rt_cpu_switch\n"
    ".type rt_cpu_switch, %function\n"
    "rt_cpu_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size rt_cpu_switch, .-rt_cpu_switch\n"
    ".popsection\n");
#endif

inline void switch_to(Context& from, Context& to) { rt_cpu_switch(&from.sp, to.sp); }

inline void prepare(Context& context, char* stack, size_t size, Entry entry) {
  void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t{63});
#if defined(__x86_64__)
  *--top = nullptr;  // the return address that `entry` never uses; keeps the ABI's alignment
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_words; ++i) *--top = nullptr;
#else
  top -= 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  context.sp = top;
}

#endif

// One stack a fiber, each below a page that faults, so that an overflow is never silent.
class Stacks {
 public:
  bool reserve(unsigned count) {
    if (count <= count_) return true;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t stride = page + RT_CPU_STACK;
    void* memory = mmap(nullptr, stride * count, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    for (unsigned i = 0; i < count; ++i) {
      if (mprotect(static_cast<char*>(memory) + i * stride, page, PROT_NONE) != 0) {
        munmap(memory, stride * count);
        return false;
      }
    }
    release();
    base_ = static_cast<char*>(memory), count_ = count, page_ = page, stride_ = stride;
    return true;
  }

  void release() {
    if (base_) munmap(base_, stride_ * count_);
    base_ = nullptr, count_ = 0;
  }

  ~Stacks() { release(); }

  char* stack(unsigned i) const { return base_ + i * stride_ + page_; }

  // Stacks lie a whole number of pages apart: shifted tops keep them out of each other's cache sets.
  static size_t size(unsigned i) { return RT_CPU_STACK - (i * 192) % 4096; }

 private:
  char* base_;
  unsigned count_;
  size_t page_, stride_;
};

}  // namespace rt_cpu
