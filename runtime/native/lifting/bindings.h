// Python bindings of lifting's data flow: part of luthier._mc, once for each width.
#pragma once

#include <pybind11/pybind11.h>

namespace luthier::flow256 {
void bindFlow(pybind11::module_ &module, const std::string &prefix);
}
namespace luthier::flow1024 {
void bindFlow(pybind11::module_ &module, const std::string &prefix);
}
