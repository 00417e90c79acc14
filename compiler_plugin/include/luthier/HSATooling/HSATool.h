//===- luthier/HSATooling/HSATool.h - for tools of C++ Luthier -------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// The base class of tools for C++ Luthier, only for their device members: static hooks and static variables. Host
// members have no meaning, because here the host side of a tool is Python.
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

/// An instance tells the compiler plugin that the static device members of `Tool` which are marked `used` and return
/// nothing are hooks.
template <typename Tool> __attribute__((device, used, annotate("luthier_members"))) void membersAreHooks() {}

} // namespace detail

} // namespace luthier

/// Use once, outside of namespaces, where the tool's class is known. Makes this source a Luthier device module, and
/// makes hooks of the static members of `tool` that are declared `__attribute__((device, used)) static void`.
#define LUTHIER_DEFINE_TOOL_OFFLOAD_PARSER_HANDLES(tool)                                                               \
  MARK_LUTHIER_DEVICE_MODULE                                                                                           \
  template __attribute__((device)) void luthier::detail::membersAreHooks<tool>();

#endif // LUTHIER_HSATOOLING_HSATOOL_H
