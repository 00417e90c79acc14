// Python bindings of lifting: parts of luthier._mc; of data flow once for each width.
#pragma once

#include <pybind11/pybind11.h>

namespace luthier::code {
/// Pieces of text, what control reaches in them, and blocks.
void bindCode(pybind11::module_ &module);
} // namespace luthier::code
namespace luthier::flow256 {
void bindFlow(pybind11::module_ &module, const std::string &prefix);
}
namespace luthier::flow1024 {
void bindFlow(pybind11::module_ &module, const std::string &prefix);
}
