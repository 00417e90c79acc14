// The accesses of a launch to memory, kept as long as an operation that is not ordered with it may access the same.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "access_checks.h"
#include "memory.h"

namespace luthier {

inline constexpr uint64_t kWidestFlag = 8; // bytes

struct Bytes {
  uint64_t address = 0, size = 0;
  bool touches(const Bytes &other) const {
    return address < other.address + other.size && other.address < address + size;
  }
};

// The bytes that a copy engine has read and written.
struct CopiedBytes {
  Bytes from, to;
};

class LaunchTrace {
public:
  // Take the trace of a launch that has just ended, before its memory changes.
  LaunchTrace(std::shared_ptr<const AccessChecks> checks, uint64_t launch, const Memory &memory);

  // Return whether it may have seen what others did before it ended.
  bool hears() const { return !checks_->heard().empty(); }
  // Return whether the host, or another process, may have seen what it did before it ended: it has written where they
  // may look.
  bool tells() const { return tells_; }
  // Return whether it has read something that another launch, or a copy, has written.
  bool hears_of(const LaunchTrace &other) const;
  bool hears_of(const CopiedBytes &other) const;
  // Return whether it has written one of these bytes.
  bool writes(const Bytes &bytes) const;

  // Return where it and a launch that ended before it access the same bytes, one of them by a plain store.
  std::vector<wire::Sighting> races_with(const LaunchTrace &before) const;
  // The same of a copy.
  std::vector<wire::Sighting> races_with(const CopiedBytes &copy) const;

  size_t bytes() const { return checks_->memory().bytes() + contents_.bytes() + pages_.size() * sizeof(Page); }

private:
  // An access: what is known of it, and the lane.
  struct Access {
    Touch touch;
    unsigned lane = 0;
  };
  // Two accesses that race, by their records: the first pair, and how many there were.
  using Races = std::map<std::pair<uint64_t, uint64_t>, wire::Sighting>;
  // An access of a launch to a cell that races with an access of another launch.
  struct Pair {
    Role own = kRoles, other = kRoles;
  };
  static Pair pair_of(const History &own, const History &other, bool same_value);
  const History &history(const Shadow::View &line, unsigned byte) const {
    return checks_->histories()[line.history(byte)];
  }
  static Access access(const History &history, const Shadow::View &line, unsigned byte, Role role) {
    return {history.by[role], line.lane(byte, role)};
  }
  struct Page {
    uint64_t number;
    std::array<const char *, Shadow::kPage / Shadow::kLine> left; // by line
  };
  // Return the first page that is not before an address.
  std::vector<Page>::const_iterator page_from(uint64_t address) const;
  // Return the contents of a line after the launch had ended; null if it stored nothing there.
  const char *left_in(uint64_t line) const;
  template <typename Each> void each_line(const Bytes &bytes, Each each) const;
  bool left_alike(const LaunchTrace &before, uint64_t address, unsigned size) const;
  void compare(const LaunchTrace &before, const Shadow::View &own, const Shadow::View &other, Races &races) const;
  void compare(const Bytes &bytes, bool is_written, Races &races) const;
  wire::Sighting sighting(Access own, uint64_t address) const;
  void add_other(wire::Sighting &race, Access other, uint64_t address) const;

  std::shared_ptr<const AccessChecks> checks_;
  uint64_t launch_;
  bool tells_ = false;
  std::vector<Page> pages_; // in order
  CellArena contents_;
};

} // namespace luthier
