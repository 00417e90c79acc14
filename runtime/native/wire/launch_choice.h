// The launches of one kernel that the user selects: for tools and for checks.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <tuple>

#include "agreement.h"

namespace luthier {

class LaunchChoice {
public:
  // Return whether a launch is selected; `packet` is its dispatch packet.
  template <typename Packet> bool takes(const wire::ChosenLaunches &chosen, const Packet &packet, uint64_t number) {
    if (number < chosen.first || number >= chosen.end || (number - chosen.first) % chosen.step)
      return false;
    return !chosen.unique_grid || is_new(packet);
  }
  // Return whether no launch before had the sizes of this one.
  template <typename Packet> bool is_new(const Packet &packet) {
    std::lock_guard lock(mutex_);
    return sizes_
        .emplace(packet.grid_size_x, packet.grid_size_y, packet.grid_size_z, packet.workgroup_size_x,
                 packet.workgroup_size_y, packet.workgroup_size_z)
        .second;
  }

private:
  std::mutex mutex_;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint16_t, uint16_t, uint16_t>> sizes_;
};

} // namespace luthier
