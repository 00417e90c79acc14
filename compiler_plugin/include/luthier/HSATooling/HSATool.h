//===- luthier/HSATooling/HSATool.h - for tools of C++ Luthier -------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Base of a tool's class of C++ Luthier, for its device members alone: static hooks and static variables. Its host
// members have no meaning here, since the host side of a tool is Python.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_HSATOOLING_HSATOOL_H
#define LUTHIER_HSATOOLING_HSATOOL_H

#include <luthier/ToolCodeGen/FunctionAnnotations.h>

namespace llvm {
class MachineFunction;
}

namespace luthier {

/// The base of a tool's class.
template <typename Derived, typename... Units> class HSATool {};

namespace detail {

/// An instance tells the compiler plugin that static device members of `Tool` are hooks, those that are marked `used`
/// and return nothing.
template <typename Tool> __attribute__((device, used, annotate("luthier_members"))) void membersAreHooks() {}

} // namespace detail

} // namespace luthier

/// Said once, outside of namespaces, where the tool's class is known: makes this source a Luthier device module, and
/// hooks of the static members of `tool` that are declared `__attribute__((device, used)) static void`.
#define LUTHIER_DEFINE_TOOL_OFFLOAD_PARSER_HANDLES(tool)                                                               \
  MARK_LUTHIER_DEVICE_MODULE                                                                                           \
  template __attribute__((device)) void luthier::detail::membersAreHooks<tool>();

#endif // LUTHIER_HSATOOLING_HSATOOL_H
