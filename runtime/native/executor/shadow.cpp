#include "shadow.h"

namespace luthier {

Shadow::Page &Shadow::find(uint64_t address) {
  const uint64_t number = address / kPage;
  if (number != last_) {
    found_ = &pages_[number];
    if (!found_->dwords && !found_->bytes)
      found_->dwords = std::make_unique<Cell[]>(kPage / 4);
    last_ = number;
  }
  return *found_;
}

void Shadow::split(Page &page) {
  page.bytes = std::make_unique<Cell[]>(kPage);
  for (uint64_t at = 0; at < kPage; ++at)
    page.bytes[at] = page.dwords[at / 4];
  page.dwords.reset();
}

} // namespace luthier
