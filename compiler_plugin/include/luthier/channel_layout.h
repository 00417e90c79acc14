//===- luthier/channel_layout.h - channels in memory -----------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Made from luthier/wire/channels.py of the runtime, which says what each field is.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_CHANNEL_LAYOUT_H
#define LUTHIER_CHANNEL_LAYOUT_H

#include <luthier/luthier.h>

#define LUTHIER_CHANNEL_MAGIC "luthier.channel"

namespace luthier {
namespace detail {
struct Channel {
  char magic[16];
  uint32_t version;
  uint32_t record_size;
  uint32_t field_count;
  uint32_t capacity;
  uint32_t mode;
  uint32_t kind;
  int64_t ring;
  uint32_t shift;
  uint32_t more;
  uint64_t unheard;
};
static_assert(sizeof(Channel) == 64, "as Python has it");
static_assert(__builtin_offsetof(Channel, magic) == 0, "as Python has it");
static_assert(__builtin_offsetof(Channel, version) == 16, "as Python has it");
static_assert(__builtin_offsetof(Channel, record_size) == 20, "as Python has it");
static_assert(__builtin_offsetof(Channel, field_count) == 24, "as Python has it");
static_assert(__builtin_offsetof(Channel, capacity) == 28, "as Python has it");
static_assert(__builtin_offsetof(Channel, mode) == 32, "as Python has it");
static_assert(__builtin_offsetof(Channel, kind) == 36, "as Python has it");
static_assert(__builtin_offsetof(Channel, ring) == 40, "as Python has it");
static_assert(__builtin_offsetof(Channel, shift) == 48, "as Python has it");
static_assert(__builtin_offsetof(Channel, more) == 52, "as Python has it");
static_assert(__builtin_offsetof(Channel, unheard) == 56, "as Python has it");
struct Field {
  char name[32];
  uint16_t offset;
  uint16_t size;
  uint16_t count;
  char kind;
  char unused;
};
static_assert(sizeof(Field) == 40, "as Python has it");
static_assert(__builtin_offsetof(Field, name) == 0, "as Python has it");
static_assert(__builtin_offsetof(Field, offset) == 32, "as Python has it");
static_assert(__builtin_offsetof(Field, size) == 34, "as Python has it");
static_assert(__builtin_offsetof(Field, count) == 36, "as Python has it");
static_assert(__builtin_offsetof(Field, kind) == 38, "as Python has it");
static_assert(__builtin_offsetof(Field, unused) == 39, "as Python has it");
struct Ring {
  uint64_t reserved;
  uint64_t dropped;
  uint64_t unused[6];
  uint64_t read;
  uint32_t mode;
  uint32_t more[13];
};
static_assert(sizeof(Ring) == 128, "as Python has it");
static_assert(__builtin_offsetof(Ring, reserved) == 0, "as Python has it");
static_assert(__builtin_offsetof(Ring, dropped) == 8, "as Python has it");
static_assert(__builtin_offsetof(Ring, unused) == 16, "as Python has it");
static_assert(__builtin_offsetof(Ring, read) == 64, "as Python has it");
static_assert(__builtin_offsetof(Ring, mode) == 72, "as Python has it");
static_assert(__builtin_offsetof(Ring, more) == 76, "as Python has it");
enum Mode : uint32_t {
  kWait = 0,
  kDrop = 1,
  kClosed = 2,
};
enum Kind : uint32_t {
  kRecords = 0,
  kLines = 1,
};
enum Passed : uint64_t {
  kInt = 1,
  kUnsigned = 2,
  kLong = 3,
  kUnsignedLong = 4,
  kDouble = 5,
  kPointer = 6,
  kString = 7,
  kOther = 8,
};
enum : uint32_t {
  kVersion = 1,
  kLargestRecord = 128,
  kLineWords = 8,
  kLineMore = 1,
  kLineFirst = 6,
  kLineMost = 13,
};
}  // namespace detail
}  // namespace luthier

#endif
