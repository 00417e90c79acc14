#pragma once

#include <stdexcept>

namespace luthier {

// An internal error; caught at the boundary to C.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace luthier
