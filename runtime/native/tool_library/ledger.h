// Counts and records of launches, in memory that the service reads whatever becomes of this process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <hsa/hsa.h>

namespace luthier {

struct Head {
  uint64_t records;  // launches in all; only so many as there is room for are recorded
  uint64_t reserved[7];
};

// One kernel's.
struct Row {
  uint64_t launches, instrumented;
  uint64_t reserved[6];
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

static_assert(sizeof(Head) == 64 && sizeof(Row) == 64 && sizeof(Record) == 64);

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
    if (instrumented)
      add(&rows_[row].instrumented);
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
  static uint64_t add(uint64_t *count) { return __atomic_fetch_add(count, 1, __ATOMIC_RELAXED); }

  Head *head_ = nullptr;
  Row *rows_ = nullptr;
  Record *records_ = nullptr;
  uint64_t row_count_ = 0, record_count_ = 0;
};

}  // namespace luthier
