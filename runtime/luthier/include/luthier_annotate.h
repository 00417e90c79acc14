/* Tells `luthier sanitize` about parts of allocations, for allocators that keep memory of a device and give out parts.
 *
 * Without Luthier the functions do nothing. They need nothing but dlsym (with glibc before 2.34: -ldl).
 *
 * From its first part on, only the live parts of an allocation may be accessed. Live parts must not overlap. Under
 * `luthier sanitize` these functions wait for the work of the current device, so that accesses of kernels that still run
 * are not compared with later parts. They must not be called while a stream is captured, or in a callback of a stream.
 * Contents of a new part count as never written.
 */
#ifndef LUTHIER_ANNOTATE_H
#define LUTHIER_ANNOTATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <stddef.h>

/* Return a function of Luthier; null if the program runs without it. `known` keeps it: its own address, if there is
 * none. */
static inline void *luthier_function(void **known, const char *name) {
  void *function = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (!function) {
    function = dlsym(RTLD_DEFAULT, name);
    if (!function)
      function = (void *)known;
    __atomic_store_n(known, function, __ATOMIC_RELAXED);
  }
  return function == (void *)known ? NULL : function;
}

/* The allocator gives out `size` bytes at `address`, in memory from hipMalloc or a similar function. */
static inline void luthier_alloc(const void *address, size_t size) {
  static void *known;
  void (*does)(const void *, size_t);
  *(void **)&does = luthier_function(&known, "luthier_annotate_alloc");
  if (does)
    does(address, size);
}

/* The same with a name that findings show: that of a tensor, or of the code that asks for the memory. */
static inline void luthier_alloc_named(const void *address, size_t size, const char *name) {
  static void *known;
  void (*does)(const void *, size_t, const char *);
  *(void **)&does = luthier_function(&known, "luthier_annotate_alloc_named");
  if (does)
    does(address, size, name);
}

/* The allocator gets the part at `address` back. */
static inline void luthier_free(const void *address) {
  static void *known;
  void (*does)(const void *);
  *(void **)&does = luthier_function(&known, "luthier_annotate_free");
  if (does)
    does(address);
}

#endif
