#pragma once

#include <stdexcept>

namespace luthier {

// Whatever goes wrong inside; caught where C begins.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace luthier
