// Counts and records of launches, in memory that the service reads even if this process is killed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <hsa/hsa.h>
#include <unistd.h>

#include "agreement.h"

namespace luthier {

using wire::LedgerRecord;

inline uint32_t thread_number() {
  static thread_local const uint32_t number = gettid();
  return number;
}

// Tells when a launch ran on the device.
inline void ran(LedgerRecord &record, uint64_t from, uint64_t to) {
  record.begin = from;
  __atomic_store_n(&record.end, to, __ATOMIC_RELEASE);
}
inline void never_ends(LedgerRecord &record) { ran(record, 0, wire::kNever); }

class Ledger {
public:
  Ledger() = default;
  Ledger(void *memory, uint64_t rows, uint64_t records)
      : head_(static_cast<wire::LedgerHead *>(memory)), rows_(reinterpret_cast<wire::LedgerRow *>(head_ + 1)),
        records_(reinterpret_cast<LedgerRecord *>(rows_ + rows)), row_count_(rows), record_count_(records) {}

  static uint64_t size(uint64_t rows, uint64_t records) {
    return sizeof(wire::LedgerHead) + rows * sizeof(wire::LedgerRow) + records * sizeof(LedgerRecord);
  }

  // Count a launch; return its number among those of the kernel. Kernels beyond the rows share the last row.
  uint64_t launched(uint64_t row) { return add(&rows_[std::min(row, row_count_ - 1)].launches); }

  // Return whether launches are recorded one by one.
  bool has_records() const { return record_count_; }

  // Return the record of the launch, for its times on the device; null if there is no room for one.
  LedgerRecord *record(uint64_t row, uint64_t number, bool instrumented, uint16_t queue, uint32_t stack,
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
    LedgerRecord &record = records_[at];
    record.number = number;
    record.kernel = static_cast<uint16_t>(row);
    record.instrumented = instrumented;
    record.grid[0] = packet.grid_size_x;
    record.grid[1] = packet.grid_size_y;
    record.grid[2] = packet.grid_size_z;
    record.group_segment = packet.group_segment_size;
    record.private_segment = packet.private_segment_size;
    record.block[0] = packet.workgroup_size_x;
    record.block[1] = packet.workgroup_size_y;
    record.block[2] = packet.workgroup_size_z;
    record.queue = queue;
    record.stack = stack;
    record.thread = thread_number();
    // Last: a record without a time is not finished.
    __atomic_store_n(&record.time, now.tv_sec * 1'000'000'000ull + now.tv_nsec, __ATOMIC_RELEASE);
    return &record;
  }

private:
  static uint64_t add(uint64_t *count, uint64_t amount = 1) {
    return __atomic_fetch_add(count, amount, __ATOMIC_RELAXED);
  }

  // Return the number of waves of a launch. The last work-groups of each dimension may be smaller than the others.
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

  wire::LedgerHead *head_ = nullptr;
  wire::LedgerRow *rows_ = nullptr;
  LedgerRecord *records_ = nullptr;
  uint64_t row_count_ = 0, record_count_ = 0;
};

} // namespace luthier
