// Python bindings of lifting, parts of luthier._mc. Those of data flow exist for each width.
#pragma once

#include "code/blocks.h"

#include <pybind11/pybind11.h>

namespace luthier::code {
/// Run `work`. @returns null, or the problem: message, address, function, number
pybind11::object problem_of(const std::function<void()> &work);
/// Return the fields of luthier.lifting.code.graph.Resolution.
pybind11::tuple fields_of(const Resolution &resolution);
/// Bind pieces of text, their reachable instructions, and blocks.
void bind_code(pybind11::module_ &module);
} // namespace luthier::code
namespace luthier::flow256 {
void bind_flow(pybind11::module_ &module, const std::string &prefix);
}
namespace luthier::flow1024 {
void bind_flow(pybind11::module_ &module, const std::string &prefix);
}
