// Bulk tensor copies: nothing is copied before a thread waits for the arrival.
//
// Until then the bytes there are no numbers, so that a read too early shows, and so does a copy over what is
// still multiplied. A wait for bytes that nobody sent, which hangs on a GPU, is an error.
#pragma once
#include <rt_cpu/machine.h>

namespace rt_cpu {

struct BoxMap {
  const void* from;
  int64_t fast, lines, batch, line_stride, batch_stride;
  int box_lines;
  unsigned item;
  // Of images, whose lines are columns: their rows, and by columns and rows where boxes begin, how far before
  // or beyond the end they stop, and their steps.
  int64_t rows, row_stride;
  int first[2], beyond[2], step[2];
};

// What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col refuse.
inline bool box_defect(const BoxMap& map) {
  const auto bad_size = [](int64_t size) { return size < 1 || size > int64_t{1} << 32; };
  const auto bad_stride = [&](int64_t stride) {
    return stride < 0 || stride * map.item % 16 != 0 || stride * map.item >= int64_t{1} << 40;
  };
  for (int i = 0; map.rows > 0 && i < 2; ++i) {
    const auto is_corner = [](int at) { return at >= -128 && at < 128; };
    if (!is_corner(map.first[i]) || !is_corner(map.beyond[i]) || map.step[i] < 1 || map.step[i] > 8) return true;
  }
  if (map.rows > 1 && bad_stride(map.row_stride)) return true;
  return reinterpret_cast<uintptr_t>(map.from) % 16 != 0 || bad_size(map.fast) || bad_size(map.lines) ||
         bad_size(map.batch) || (map.lines > 1 && bad_stride(map.line_stride)) ||
         (map.batch > 1 && bad_stride(map.batch_stride)) || map.box_lines < 1 || map.box_lines > 256;
}

constexpr unsigned line_bytes = 128;

struct Box {
  char* to;
  BoxMap map;
  int64_t fast, slow, batch, row;
  int ahead[2];

  unsigned bytes() const { return map.box_lines * line_bytes; }

  void copy() const {
    const unsigned across = line_bytes / map.item;
    int64_t x = slow, y = row, image = batch;
    for (int i = 0; i < map.box_lines; ++i) {
      const int64_t line = x + ahead[0], at_row = y + ahead[1];
      for (unsigned j = 0; j < across; ++j) {
        uintptr_t at = reinterpret_cast<uintptr_t>(to) + i * line_bytes + j * map.item;
        at ^= at / line_bytes % 8 * 16;
        const int64_t column = fast + j;
        const bool inside = column >= 0 && column < map.fast && line >= 0 && line < map.lines && image >= 0 &&
                            image < map.batch && at_row >= 0 && (map.rows == 0 || at_row < map.rows);
        const char* from = static_cast<const char*>(map.from);
        if (inside) from += (image * map.batch_stride + at_row * map.row_stride + line * map.line_stride + column) * map.item;
        inside ? memcpy(reinterpret_cast<void*>(at), from, map.item) : memset(reinterpret_cast<void*>(at), 0, map.item);
      }
      if (map.rows == 0) {
        ++x;
      } else if ((x += map.step[0]) >= map.lines + map.beyond[0]) {
        x = map.first[0];
        if ((y += map.step[1]) >= map.rows + map.beyond[1]) y = map.first[1], ++image;
      }
    }
  }
};

struct Arrival {
  const void* at;
  uint64_t begun;  // barriers until then
  int round;
  unsigned expected, sent, count;
  Box boxes[16];
};

// Those of the current block.
struct Arrivals {
  uint64_t block;
  unsigned count;
  Arrival all[16];
};
inline Arrivals arrivals;

inline void arrival_begin(const void* at) {
  if (arrivals.block != machine.blocks_run) arrivals.block = machine.blocks_run, arrivals.count = 0;
  if (arrivals.count == 16) fail("too many arrivals");
  Arrival& own = arrivals.all[arrivals.count++];
  own.at = at, own.begun = machine.barriers_passed, own.round = 0, own.expected = own.sent = own.count = 0;
}

inline Arrival& arrival_of(const void* at) {
  for (unsigned i = 0; arrivals.block == machine.blocks_run && i < arrivals.count; ++i) {
    if (arrivals.all[i].at == at) return arrivals.all[i];
  }
  fail("an arrival that was not begun");
}

inline void arrival_expect(const void* at, unsigned bytes) {
  Arrival& own = arrival_of(at);
  if (own.expected) fail("an arrival expects bytes that nobody waited for yet");
  own.expected = bytes;
}

inline void copy_box(const Box& box, const void* at) {
  Arrival& own = arrival_of(at);
  if (reinterpret_cast<uintptr_t>(box.to) % 1024) fail("a box at a misaligned address");
  if (own.count == 16) fail("too many boxes on their way");
  own.boxes[own.count++] = box;
  own.sent += box.bytes();
  memset(box.to, unwritten, box.bytes());
}

inline void arrival_wait(const void* at, int round) {
  Arrival& own = arrival_of(at);
  if (own.begun == machine.barriers_passed) fail("a wait for an arrival that other threads may not see yet");
  if (own.round != round) return;
  if (!own.expected || own.sent != own.expected) fail("a wait for bytes that are not on their way");
  for (unsigned i = 0; i < own.count; ++i) own.boxes[i].copy();
  own.round ^= 1, own.expected = own.sent = own.count = 0;
}

}  // namespace rt_cpu
