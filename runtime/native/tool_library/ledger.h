// Counts and records of launches, in memory that the service reads whatever becomes of this process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <hsa/hsa.h>

#include "wire_layout.h"

namespace luthier {

struct Head {
  uint64_t records;  // launches in all; only so many as there is room for are recorded
  uint64_t reserved[7];
};

// One kernel's.
struct Row {
  uint64_t launches, instrumented;
  uint64_t waves[2];  // of those that ran instrumented, if waves have 32 lanes and if they have 64
  uint64_t reserved[4];
};

// One launch's.
struct Record {
  static constexpr uint64_t kNever = ~0ull;

  // Times are nanoseconds since 1970; 0 is: not yet.
  uint64_t time;        // it was written to the queue
  uint64_t number;      // among the launches of the kernel
  uint64_t begin, end;  // on the device; the latter `kNever` if they will not be known
  uint16_t kernel;      // its row
  uint16_t instrumented;
  uint32_t grid[3];  // work-items
  uint32_t group_segment, private_segment;
  uint16_t block[3];
  uint16_t queue;  // among those of this process

  void ran(uint64_t from, uint64_t to) {
    begin = from;
    __atomic_store_n(&end, to, __ATOMIC_RELEASE);
  }
  void never_ends() { ran(0, kNever); }
};

LUTHIER_CHECK_LEDGER_HEAD(Head);
LUTHIER_CHECK_LEDGER_ROW(Row);
LUTHIER_CHECK_LEDGER_RECORD(Record);

class Ledger {
public:
  Ledger() = default;
  Ledger(void *memory, uint64_t rows, uint64_t records)
      : head_(static_cast<Head *>(memory)), rows_(reinterpret_cast<Row *>(head_ + 1)),
        records_(reinterpret_cast<Record *>(rows_ + rows)), row_count_(rows), record_count_(records) {}

  static uint64_t size(uint64_t rows, uint64_t records) {
    return sizeof(Head) + rows * sizeof(Row) + records * sizeof(Record);
  }

  // Counts a launch; its number among those of the kernel. Kernels beyond the rows share the last one.
  uint64_t launched(uint64_t row) { return add(&rows_[std::min(row, row_count_ - 1)].launches); }

  // Whether launches are recorded one by one.
  bool has_records() const { return record_count_; }

  // The launch's record, which is to get the times on the device; null if there is no room for one.
  Record *record(uint64_t row, uint64_t number, bool instrumented, uint16_t queue,
                 const hsa_kernel_dispatch_packet_t &packet) {
    row = std::min(row, row_count_ - 1);
    if (instrumented) {
      add(&rows_[row].instrumented);
      for (const int wide : {0, 1})
        add(&rows_[row].waves[wide], waves_of(packet, wide ? 64 : 32));
    }
    const uint64_t at = add(&head_->records);
    if (at >= record_count_)
      return nullptr;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    Record &one = records_[at];
    one.number = number;
    one.kernel = static_cast<uint16_t>(row);
    one.instrumented = instrumented;
    one.grid[0] = packet.grid_size_x;
    one.grid[1] = packet.grid_size_y;
    one.grid[2] = packet.grid_size_z;
    one.group_segment = packet.group_segment_size;
    one.private_segment = packet.private_segment_size;
    one.block[0] = packet.workgroup_size_x;
    one.block[1] = packet.workgroup_size_y;
    one.block[2] = packet.workgroup_size_z;
    one.queue = queue;
    // Last: a record without a time is not finished.
    __atomic_store_n(&one.time, now.tv_sec * 1'000'000'000ull + now.tv_nsec, __ATOMIC_RELEASE);
    return &one;
  }

private:
  static uint64_t add(uint64_t *count, uint64_t amount = 1) {
    return __atomic_fetch_add(count, amount, __ATOMIC_RELAXED);
  }

  // Waves that a launch starts. The last work-groups of each dimension may be smaller than the others.
  static uint64_t waves_of(const hsa_kernel_dispatch_packet_t &packet, uint64_t lanes) {
    const uint64_t grid[3] = {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
    const uint64_t block[3] = {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z};
    uint64_t waves = 0;
    for (unsigned last = 0; last < 8; ++last) {
      uint64_t groups = 1, items = 1;
      for (unsigned axis = 0; axis < 3; ++axis) {
        const uint64_t size = std::max<uint64_t>(block[axis], 1);
        const bool smaller = last >> axis & 1;
        const uint64_t rest = grid[axis] % size;
        groups *= smaller ? rest != 0 : grid[axis] / size;
        items *= smaller ? rest : size;
      }
      waves += groups * ((items + lanes - 1) / lanes);
    }
    return waves;
  }

  Head *head_ = nullptr;
  Row *rows_ = nullptr;
  Record *records_ = nullptr;
  uint64_t row_count_ = 0, record_count_ = 0;
};

}  // namespace luthier
