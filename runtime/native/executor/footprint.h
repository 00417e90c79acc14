// The bytes that a launch reads and writes, except LDS and scratch: a bit for each, by page.
#pragma once

#include <cstdint>
#include <map>

#include "observer.h"

namespace luthier {

class Footprint final : public Observer {
public:
  static constexpr uint64_t kPage = 4096;
  // An atomic reads and writes.
  struct Page {
    uint64_t read[kPage / 64] = {}, written[kPage / 64] = {};
  };
  // Begin with a launch, by a plan of its kernel; called before work-groups run.
  void begin(const char *plan) { plan_ = plan; }
  bool wants_accesses() const override { return true; }
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;
  // By address.
  const std::map<uint64_t, Page> &pages() const { return pages_; }

private:
  // A page that was found lately, by its number.
  struct Recent {
    uint64_t number = ~uint64_t{0};
    Page *page = nullptr;
  };
  static constexpr uint64_t kRecent = 256;

  void add(uint64_t address, uint64_t size, unsigned use);
  Page &page_of(uint64_t number);

  const char *plan_ = nullptr;
  std::map<uint64_t, Page> pages_;
  Recent recent_[kRecent];
};

} // namespace luthier
