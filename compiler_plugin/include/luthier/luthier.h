//===- luthier/luthier.h - writing Luthier hooks in HIP --------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// A tool's device module is one HIP source that includes this header, contains MARK_LUTHIER_DEVICE_MODULE once, and
// defines hooks. Luthier's compiler plugin embeds the module's LLVM IR in each device code object; only that IR is used
// for instrumentation, never the compiled functions.
//
//   #include <hip/hip_runtime.h>
//   #include <luthier/luthier.h>
//
//   MARK_LUTHIER_DEVICE_MODULE
//
//   __managed__ unsigned long long counter = 0;
//
//   LUTHIER_HOOK_ANNOTATE count(int step) {
//     if (__lane_id() == 0) atomicAdd(&counter, step);
//   }
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_LUTHIER_H
#define LUTHIER_LUTHIER_H

#if !defined(__HIP__)
#error "luthier/luthier.h is for HIP sources: compile with clang -x hip"
#endif
#if defined(__CLANG_RDC__)
#error                                                                                                                 \
    "a Luthier device module cannot be compiled with -fgpu-rdc: device code is then generated at link time, where the module's IR can no longer be embedded; drop -fgpu-rdc for this source"
#endif

#include <luthier/registers.h>

#include <stddef.h>
#include <stdint.h>

//===----------------------------------------------------------------------===//
// The module and its hooks
//===----------------------------------------------------------------------===//

/// Marks the source as a Luthier device module; use it once per tool. It defines a managed variable, so that the HIP
/// runtime loads the module at the first launch rather than lazily.
///
/// For GFX10 and later, the source is compiled twice, for waves of 32 and 64 lanes, and a kernel gets the hooks for its
/// wave size. If LUTHIER_ONE_WAVE_SIZE is defined before, the source is compiled once, and its hooks go only into
/// kernels of that size.
#define MARK_LUTHIER_DEVICE_MODULE                                                                                     \
  extern "C" {                                                                                                         \
  __attribute__((managed, used)) char __luthier_reserved = LUTHIER_ONE_WAVE_SIZE_ASKED;                                \
  }
#ifdef LUTHIER_ONE_WAVE_SIZE
#define LUTHIER_ONE_WAVE_SIZE_ASKED 1
#else
#define LUTHIER_ONE_WAVE_SIZE_ASKED 0
#endif

/// Starts the definition of a hook: `LUTHIER_HOOK_ANNOTATE name(parameters) { … }`. A hook is a device function with C
/// linkage that returns nothing. It is inlined at every point where it is inserted; functions it calls need not be. Its
/// arguments are constants and register values of the instrumented program: integers, floating-point numbers, pointers.
#define LUTHIER_HOOK_ANNOTATE extern "C" __attribute__((device, used, annotate("luthier_hook"))) void

/// Defines the handle of a hook, an empty kernel, so that C++ host code can name the hook.
#define LUTHIER_EXPORT_HOOK_HANDLE(name)                                                                               \
  extern "C" __attribute__((global, used)) void __luthier_hook_handle_##name() {}

/// Older spelling of LUTHIER_EXPORT_HOOK_HANDLE.
#define LUTHIER_EXPORT_FUNC(name) LUTHIER_EXPORT_HOOK_HANDLE(name)

/// The address of a hook's handle in host code.
#define LUTHIER_GET_HOOK_HANDLE(name) reinterpret_cast<const void *>(__luthier_hook_handle_##name)

//===----------------------------------------------------------------------===//
// Intrinsics
//===----------------------------------------------------------------------===//

/// A function of the device headers, part of the hook that calls it.
#define LUTHIER_INLINE __attribute__((device, always_inline)) inline

/// Starts the declaration of an intrinsic: a device function whose calls Luthier replaces by code of its own. The body
/// exists only so that the HIP compiler keeps the calls and their arguments; make it `return
/// luthier::opaque<T>(arguments…)`. Its IR name is `<namespace::name>[.<return type>].<argument types…>`, e.g.
/// `luthier::readReg.i32.i32`.
#define LUTHIER_INTRINSIC_ANNOTATE __attribute__((device, noinline, optnone, annotate("luthier_intrinsic")))

namespace luthier {

namespace detail {

/// Uses a value in a way no optimizer can see through. Takes the address, so that it works for every type.
template <typename T> __attribute__((device, always_inline)) inline void use(const T &value) {
  __asm__ __volatile__("" : : "X"(&value) : "memory");
}

template <typename T> struct Opaque {
  static __attribute__((device, always_inline)) T value() {
    T result;
    __asm__ __volatile__("" : : "X"(&result) : "memory");
    return result;
  }
};

template <> struct Opaque<void> {
  static __attribute__((device, always_inline)) void value() {}
};

template <bool Condition, typename T> struct EnableIf {};
template <typename T> struct EnableIf<true, T> {
  typedef T Type;
};

template <typename T> struct IsClass {
  static constexpr bool value = __is_class(T) || __is_union(T);
};

/// Type in which a class of `Size` bytes is passed: an integer, or a vector of 32-bit integers.
template <size_t Size> struct Raw {
  static_assert(Size <= 128, "at most 32 registers of 32 bits are read or written at once");
  typedef uint32_t Type __attribute__((ext_vector_type((Size + 3) / 4)));
};
template <> struct Raw<1> {
  typedef uint8_t Type;
};
template <> struct Raw<2> {
  typedef uint16_t Type;
};
template <> struct Raw<3> {
  typedef uint32_t Type;
};
template <> struct Raw<4> {
  typedef uint32_t Type;
};
template <> struct Raw<8> {
  typedef uint64_t Type;
};

} // namespace detail

/// The body of an intrinsic: keeps `arguments` alive and returns a value about which the optimizer knows nothing.
template <typename T, typename... Arguments>
__attribute__((device, always_inline)) inline T opaque(const Arguments &...arguments) {
  const int each[] = {0, (detail::use(arguments), 0)...};
  (void)each;
  return detail::Opaque<T>::value();
}

/// The application's value of the register whose first unit is `reg`, or what the hook has written to it since; `reg`
/// must be constant once the hook is inlined. `T` is any trivially copyable type; it spans `(sizeof(T) + 3) / 4`
/// consecutive registers. Vector registers give each lane its own value. SCC reads as 0 or 1.
template <typename T>
LUTHIER_INTRINSIC_ANNOTATE typename detail::EnableIf<!detail::IsClass<T>::value, T>::Type readReg(int reg) {
  return opaque<T>(reg);
}
template <typename T>
__attribute__((device, always_inline)) inline typename detail::EnableIf<detail::IsClass<T>::value, T>::Type
readReg(int reg) {
  const auto raw = readReg<typename detail::Raw<sizeof(T)>::Type>(reg);
  T value;
  __builtin_memcpy(static_cast<void *>(&value), &raw, sizeof(T));
  return value;
}

/// Sets the application's register whose first unit is `reg` to `value`; later hooks see the change, too. While a hook
/// runs, each lane reads and writes its own copy of the registers; when the hook ends, all registers of the application
/// change at once. A vector register changes in the lanes that were active before the hook, whatever the hook writes to
/// EXEC. A scalar register, EXEC included, takes the value of the first of those lanes, so values may differ between
/// lanes. SCC becomes 1 if that value is not 0.
template <typename T>
LUTHIER_INTRINSIC_ANNOTATE typename detail::EnableIf<!detail::IsClass<T>::value, void>::Type writeReg(int reg,
                                                                                                      T value) {
  opaque<void>(reg, value);
}
template <typename T>
__attribute__((device, always_inline)) inline typename detail::EnableIf<detail::IsClass<T>::value, void>::Type
writeReg(int reg, const T &value) {
  typename detail::Raw<sizeof(T)>::Type raw = {};
  __builtin_memcpy(&raw, static_cast<const void *>(&value), sizeof(T));
  writeReg(reg, raw);
}

/// Sets EXEC, the mask of active lanes, from the end of the hook, as with `writeReg`, until the application sets it
/// again. On wave32, the lower 32 bits count. The hook itself continues in the lanes in which it began; it does not run
/// if there are none.
LUTHIER_INTRINSIC_ANNOTATE inline void writeExec(uint64_t mask) { opaque<void>(mask); }

/// Adds `value` to `*address` once per wave, whatever the number of active lanes, and returns the previous value.
/// Address and value must be the same in all lanes. `T` is a 32- or 64-bit integer.
template <typename T> LUTHIER_INTRINSIC_ANNOTATE T sAtomicAdd(T *address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "sAtomicAdd takes a 32- or 64-bit integer");
  return opaque<T>(address, value);
}

/// The application kernel's hidden arguments, which it may lack (LLVM, AMDGPUUsage, "Kernel Argument Metadata").
__attribute__((device, always_inline)) inline uint32_t *implicitArgPtr() {
  return const_cast<uint32_t *>(
      reinterpret_cast<const uint32_t *>(reinterpret_cast<uintptr_t>(__builtin_amdgcn_implicitarg_ptr())));
}

/// The work-group's id, as blockIdx.
__attribute__((device, always_inline)) inline uint32_t workgroupIdX() { return __builtin_amdgcn_workgroup_id_x(); }
__attribute__((device, always_inline)) inline uint32_t workgroupIdY() { return __builtin_amdgcn_workgroup_id_y(); }
__attribute__((device, always_inline)) inline uint32_t workgroupIdZ() { return __builtin_amdgcn_workgroup_id_z(); }

} // namespace luthier

#endif // LUTHIER_LUTHIER_H
