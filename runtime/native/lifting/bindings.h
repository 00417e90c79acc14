// What Python sees of lifting's data flow: part of luthier._mc.
#pragma once

#include <pybind11/pybind11.h>

namespace luthier::flow {

void bindFlow(pybind11::module_ &module);

} // namespace luthier::flow
