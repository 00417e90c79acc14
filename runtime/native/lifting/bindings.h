// Python bindings of lifting, parts of luthier._mc. Those of data flow exist for each width.
#pragma once

#include <pybind11/pybind11.h>

namespace luthier::code {
/// Bind pieces of text, their reachable instructions, and blocks.
void bind_code(pybind11::module_ &module);
} // namespace luthier::code
namespace luthier::flow256 {
void bind_flow(pybind11::module_ &module, const std::string &prefix);
}
namespace luthier::flow1024 {
void bind_flow(pybind11::module_ &module, const std::string &prefix);
}
