//===- luthier/Tooling/Tool.h - for tools of C++ Luthier -------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_TOOLING_TOOL_H
#define LUTHIER_TOOLING_TOOL_H

#include <luthier/HSATooling/HSATool.h>

namespace luthier {

/// Another name for the base of a tool's class.
template <typename Derived, typename... Units> class Tool {};

} // namespace luthier

#endif // LUTHIER_TOOLING_TOOL_H
