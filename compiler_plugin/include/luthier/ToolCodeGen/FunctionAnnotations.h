//===- luthier/ToolCodeGen/FunctionAnnotations.h - for tools of C++ Luthier ===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Names by which device code that was written for C++ Luthier marks its functions. docs/porting.md lists which of that
// code compiles unchanged. New tools need only luthier/luthier.h.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_TOOLCODEGEN_FUNCTIONANNOTATIONS_H
#define LUTHIER_TOOLCODEGEN_FUNCTIONANNOTATIONS_H

#include <luthier/luthier.h>

#define LUTHIER_STRINGIFY(text) LUTHIER_STRINGIFIED(text)
#define LUTHIER_STRINGIFIED(text) #text
#define LUTHIER_CAT(first, ...) LUTHIER_CATENATED(first, __VA_ARGS__)
#define LUTHIER_CATENATED(first, ...) first##__VA_ARGS__

/// Host code names hooks by their symbols or source names, so functions that it can name need no mark.
#define LUTHIER_EXPORT_FUNCTION_HANDLE_ATTR

/// Stands before the declaration and the definition of a hook that is a static member of a class:
/// `LUTHIER_HOOK_MEMBER_ATTR static void count();`
#define LUTHIER_HOOK_MEMBER_ATTR __attribute__((device, used, annotate("luthier_hook")))

/// Stands before a device function that is not a hook.
#define LUTHIER_HOST_VISIBLE_DEVICE_FN __attribute__((device))

#endif // LUTHIER_TOOLCODEGEN_FUNCTIONANNOTATIONS_H
