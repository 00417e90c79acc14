// Packets of the copy engines, as ROCr writes them for GFX9 and later (Linux, vega10_sdma_pkt_open.h; boxes of GFX12:
// ROCr, sdma_registers.h).
#include <atomic>
#include <cstdio>

#include "exported.h"
#include "queue.h"

namespace luthier {

namespace {

enum Operation : unsigned {
  kNop = 0,
  kCopy = 1,
  kWrite = 2,
  kFence = 5,
  kTrap = 6,
  kPoll = 8,
  kAtomic = 10,
  kFill = 11,
  kTimestamp = 13,
  kCaches = 17,
};

// Of the library that stands before HIP's functions: called when bytes are written.
using CopyListener = void (*)(uint64_t to, uint64_t size);
std::atomic<CopyListener> copy_listener = nullptr;

uint64_t number(const uint32_t *words) { return words[0] | uint64_t{words[1]} << 32; }

enum CopyOperation : unsigned { kLinear = 0, kBox = 4 };
constexpr unsigned kAdd64 = 47;

unsigned operation_of(const uint32_t *p) { return p[0] & 0xFF; }

unsigned sub_operation_of(const uint32_t *p) { return p[0] >> 8 & 0xFF; }

// Return the words that a packet writes.
size_t length_of_data(const uint32_t *p) { return (p[3] & 0xFFFFF) + size_t{1}; }

// Return the length of a packet in words, 0 if it is unknown. At least one of `words` is the packet's.
size_t length_of(const uint32_t *p, size_t words) {
  const unsigned sub = sub_operation_of(p);
  switch (operation_of(p)) {
  case kNop:
    return 1 + (p[0] >> 16 & 0x3FFF);
  case kCopy:
    return sub == kLinear ? 7 : sub == kBox ? 13 : 0;
  case kWrite:
    return sub == 0 && words > 3 ? 4 + length_of_data(p) : 0;
  case kFence:
    return sub == 0 ? 4 : 0;
  case kTrap:
    return 2;
  case kPoll:
    return sub == 0 ? 6 : 0;
  case kAtomic:
    return p[0] >> 25 == kAdd64 ? 8 : 0;
  case kTimestamp:
    return 3;
  case kFill:
  case kCaches:
    return 5;
  default:
    return 0;
  }
}

bool compare(unsigned function, uint32_t value, uint32_t reference) {
  switch (function) {
  case 1:
    return value < reference;
  case 2:
    return value <= reference;
  case 3:
    return value == reference;
  case 4:
    return value != reference;
  case 5:
    return value >= reference;
  case 6:
    return value > reference;
  default:
    return true;
  }
}

} // namespace

// Report an access outside of memory, a fault of the driver.
char *SdmaQueue::fail(const char *what, uint64_t place, uint64_t size) {
  failed_ = true;
  char text[160];
  const int length = std::snprintf(
      text, sizeof text, "luthier: a copy engine's %s of %llu bytes at %#llx, which is not memory of the device\n",
      what, static_cast<unsigned long long>(size), static_cast<unsigned long long>(place));
  std::fwrite(text, 1, length, stderr);
  room_.memory_fault(node_, place);
  return nullptr;
}

// A word or two, which are in one place.
char *SdmaQueue::reach(const char *what, uint64_t place, uint64_t size) {
  char *host = room_.memory.host(node_, place, size);
  return host ? host : fail(what, place, size);
}

// Return the first contiguous piece: contiguous addresses of the device may be parts of several objects.
RangeTable::Piece SdmaQueue::reach_piece(const char *what, uint64_t place, uint64_t size) {
  RangeTable::Piece piece = room_.memory.table(node_)->piece(place);
  if (!piece.size)
    fail(what, place, size);
  piece.size = std::min(piece.size, size);
  return piece;
}

// A thread that is notified of an event by a mailbox reads the signal.
void SdmaQueue::publish(const char *place) {
  if (!room_.events.is_mailbox(place))
    room_.order.publish(member_, place);
}

// Like `reach`; the place may be that of a signal.
char *SdmaQueue::reach_published(const char *what, uint64_t place, uint64_t size) {
  char *to = reach(what, place, size);
  if (to)
    publish(to);
  return to;
}

// Note that a copy, or, without a source, a fill, has ended.
void SdmaQueue::ended(const char *from, const RangeTable::Piece &to) {
  if (const CopyListener listener = copy_listener.load())
    listener(reinterpret_cast<uint64_t>(to.host), to.size);
  room_.order.end(member_, {{reinterpret_cast<uint64_t>(from), from ? to.size : 0},
                            {reinterpret_cast<uint64_t>(to.host), to.size}});
}

bool SdmaQueue::copy(uint64_t to, uint64_t from, uint64_t size) {
  while (size) {
    const auto source = reach_piece("read", from, size);
    const auto target = source.size ? reach_piece("write", to, source.size) : source;
    if (!target.size)
      return false;
    std::memmove(target.host, source.host, target.size);
    ended(source.host, target);
    to += target.size, from += target.size, size -= target.size;
  }
  return true;
}

// Fill words. Pieces are whole pages.
bool SdmaQueue::fill(uint64_t to, uint32_t value, uint64_t size) {
  while (size) {
    const auto target = reach_piece("write", to, size);
    if (!target.size)
      return false;
    for (uint64_t at = 0; at < target.size; at += sizeof value)
      std::memcpy(target.host + at, &value, std::min<uint64_t>(sizeof value, target.size - at));
    ended(nullptr, target);
    to += target.size, size -= target.size;
  }
  return true;
}

// Copy a box of elements: slices of rows. The packet has sizes minus one, and pitches in elements.
bool SdmaQueue::copy_box(const uint32_t *p) {
  struct Side {
    uint64_t base, pitch, slice;
  };
  const unsigned shift = p[0] >> 29;
  const auto low = [](uint32_t word, unsigned bits) { return word & ((uint64_t{1} << bits) - 1); };
  const auto side = [&](const uint32_t *q) {
    const uint64_t x = low(q[2], box_.coordinate), y = low(q[2] >> 16, box_.coordinate), z = low(q[3], box_.depth);
    Side side{number(q), ((q[3] >> (32 - box_.pitch)) + uint64_t{1}) << shift, (low(q[4], box_.slice) + 1) << shift};
    side.base += (x << shift) + y * side.pitch + z * side.slice;
    return side;
  };
  const Side from = side(p + 1), to = side(p + 6);
  const uint64_t row = (low(p[11], box_.coordinate) + 1) << shift;
  const uint64_t rows = low(p[11] >> 16, box_.coordinate) + 1, slices = low(p[12], box_.depth) + 1;
  for (uint64_t z = 0; z < slices; ++z)
    for (uint64_t y = 0; y < rows; ++y)
      if (!copy(to.base + z * to.slice + y * to.pitch, from.base + z * from.slice + y * from.pitch, row))
        return false;
  return true;
}

bool SdmaQueue::process() {
  const uint64_t end = __atomic_load_n(write_, __ATOMIC_ACQUIRE);
  if (failed_ || next_ >= end)
    return false;
  while (next_ < end && !stopping()) {
    const uint64_t at = next_ % size_, left = std::min(end - next_, size_ - at);
    const size_t words = execute(reinterpret_cast<const uint32_t *>(ring_ + at), left / 4);
    if (words == 0)
      return false;
    next_ += words * 4;
    __atomic_store_n(read_, next_, __ATOMIC_RELEASE);
  }
  return true;
}

// Execute one packet; return its length in words, or 0 if the queue cannot continue.
size_t SdmaQueue::execute(const uint32_t *p, size_t words) {
  room_.order.begin(member_, next_, operation_of(p) == kCopy || operation_of(p) == kFill);
  const size_t length = length_of(p, words);
  if (length && length <= words)
    return carry_out(p) ? length : 0;
  failed_ = true;
  std::fprintf(stderr, "luthier: a copy engine got the unknown packet %u.%u\n", operation_of(p), sub_operation_of(p));
  room_.memory_fault(node_, reinterpret_cast<uint64_t>(p));
  return 0;
}

// Return whether a packet was carried out; if not, the queue cannot continue.
bool SdmaQueue::carry_out(const uint32_t *p) {
  switch (operation_of(p)) {
  case kCopy:
    return sub_operation_of(p) == kLinear ? copy(number(p + 5), number(p + 3), (p[1] & 0x3FFFFFFF) + uint64_t{1})
                                          : copy_box(p);
  case kWrite: {
    const size_t size = length_of_data(p) * sizeof *p;
    char *to = reach_published("write", number(p + 1), size);
    if (to)
      std::memcpy(to, p + 4, size);
    return to;
  }
  case kFence: {
    char *to = reach_published("write", number(p + 1), 4);
    if (to)
      __atomic_store_n(reinterpret_cast<uint32_t *>(to), p[3], __ATOMIC_SEQ_CST);
    return to;
  }
  case kTrap:
    room_.events.interrupt();
    return true;
  case kPoll:
    return poll(p);
  case kAtomic: {
    char *to = reach_published("atomic operation", number(p + 1), 8);
    if (to)
      __atomic_add_fetch(reinterpret_cast<uint64_t *>(to), number(p + 3), __ATOMIC_SEQ_CST);
    return to;
  }
  case kFill:
    return fill(number(p + 1), p[3], (p[4] & 0x3FFFFFFF) + (uint64_t{1} << (p[0] >> 30)));
  case kTimestamp: {
    char *to = reach("write", number(p + 1), 8);
    if (to)
      __atomic_store_n(reinterpret_cast<uint64_t *>(to), device_clock(), __ATOMIC_SEQ_CST);
    return to;
  }
  default: // nothing to do
    return true;
  }
}

// Wait until a word compares as the packet asks.
bool SdmaQueue::poll(const uint32_t *p) {
  if (p[0] >> 31 == 0) // a register that flushes host data: there is nothing to flush
    return true;
  const auto *place = reinterpret_cast<const uint32_t *>(reach("read", number(p + 1), 4));
  if (!place)
    return false;
  const uint32_t mask = p[4], reference = p[3];
  const unsigned function = p[0] >> 28 & 7;
  const bool done =
      wait_until([&] { return compare(function, __atomic_load_n(place, __ATOMIC_ACQUIRE) & mask, reference); });
  room_.order.waited(member_, place);
  return done;
}

} // namespace luthier

// Called by the library that stands before HIP's functions, to be called by each copy that has written bytes.
LUTHIER_EXPORT void luthier_when_copied(void (*function)(uint64_t to, uint64_t size)) {
  luthier::copy_listener = function;
}
