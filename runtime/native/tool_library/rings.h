// Rings of channels, which the service empties (luthier/channel.h). Without the service, waves must not wait for room.
#pragma once

#include <mutex>
#include <vector>

#include "client.h"
#include "failure.h"

namespace luthier {

class Rings {
public:
  explicit Rings(Client &client) : client_(client) {}
  // A ring that waves may wait for.
  void add(wire::Ring *ring);

private:
  void watch();
  static void close(wire::Ring *ring);

  Client &client_;
  std::mutex mutex_;
  std::vector<wire::Ring *> rings_;
  bool ended_ = false;
};

} // namespace luthier
