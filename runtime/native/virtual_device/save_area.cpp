#include "save_area.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"

namespace luthier {

namespace {

// The first words of the area.
struct Header {
  uint32_t stack_offset, stack_size, states_offset, states_size;
};

constexpr uint64_t kWord = sizeof(uint32_t), kLane = 64 * kWord;
constexpr uint64_t kGap = 64, kTtmps = 16 * kWord, kHardware = 16 * kWord, kSgprs = 112 * kWord;
constexpr uint32_t kLdsGranule = 512;
constexpr unsigned kUnusedStackWords = 2; // packets of the command processor
constexpr uint32_t kStateMark = 1u << 31, kLastWave = 1u << 16, kFirstWave = 1u << 17;

constexpr struct {
  const char *target;
  SaveFormat format;
} kFormats[] = {
    {"gfx90a", {true, false, 0}},
    {"gfx942", {false, true, 1u << 25}},
};

} // namespace

const SaveFormat *SaveFormat::of(const std::string &target) {
  const std::string processor = target.substr(0, target.find(':'));
  for (const auto &known : kFormats)
    if (processor == known.target)
      return &known.format;
  return nullptr;
}

std::vector<SavedPlaces> SaveArea::place(const Registers &used, const std::vector<uint32_t> &groups) {
  const uint32_t vgprs = std::max<uint32_t>(round_up(used.vgprs, 4), 4), all = round_up(vgprs + used.agprs, 8);
  const uint32_t lds = round_up(used.lds, kLdsGranule);
  constexpr uint32_t kSgprBlocks = 7; // of 16, less one
  const uint32_t state = kStateMark | (all / 8 - 1) | kSgprBlocks << 6 | lds / kLdsGranule << 9 | (vgprs / 4 - 1) << 24;
  std::vector<uint32_t> stack(kUnusedStackWords);
  std::vector<SavedPlaces> places;
  uint64_t states = 0, waves = 0;
  const uint64_t wave_size = kGap + kTtmps + kHardware + kSgprs + uint64_t{all} * kLane;
  for (const uint32_t count : groups) {
    states += count * wave_size + (count ? lds : 0);
    waves += count;
  }
  if (waves)
    stack.push_back(state);
  const uint64_t stack_bytes = (stack.size() + waves) * kWord;
  const uint64_t end = stack_size_ + states;
  if (stack_bytes + sizeof(Header) > stack_size_ || end > size_)
    throw Failure("the context save area of a queue has " + std::to_string(size_) + " bytes; " + std::to_string(waves) +
                  " waves need " + std::to_string(end));
  char *top = area_ + end;
  for (const uint32_t count : groups)
    for (uint32_t index = 0; index < count; ++index) {
      const bool is_first = index == 0;
      stack.push_back((is_first ? kFirstWave : 0) | (index + 1 == count ? kLastWave : 0));
      SavedPlaces &made = places.emplace_back();
      top -= kGap + (is_first ? lds : 0);
      if (is_first && lds)
        made.lds = top;
      made.ttmps = top -= kTtmps;
      made.hardware = top -= kHardware;
      made.sgprs = top -= kSgprs;
      made.agprs = top -= uint64_t{all - vgprs} * kLane;
      made.vgprs = top -= uint64_t{vgprs} * kLane;
    }
  const uint64_t begin = waves ? stack_size_ - stack_bytes : stack_size_;
  const Header header{static_cast<uint32_t>(begin), static_cast<uint32_t>(stack_size_ - begin),
                      static_cast<uint32_t>(end), static_cast<uint32_t>(states)};
  std::memcpy(area_, &header, sizeof header);
  std::memcpy(area_ + begin, stack.data(), stack_size_ - begin);
  return places;
}

} // namespace luthier
