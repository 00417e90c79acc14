/* Tells `luthier sanitize` about parts of allocations, for allocators that keep memory of a device and give out parts.
 *
 * Without Luthier the functions do nothing. They need nothing but dlsym (with glibc before 2.34: -ldl).
 *
 * From its first part on, only the live parts of an allocation may be accessed. Both functions wait for the work of the
 * current device, so that accesses of kernels that still run are not compared with later parts. They must not be called
 * while a stream is captured. Contents of a new part count as never written.
 */
#ifndef LUTHIER_ANNOTATE_H
#define LUTHIER_ANNOTATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <stddef.h>

/* The allocator gives out `size` bytes at `address`, in memory from hipMalloc or a similar function. */
static inline void luthier_alloc(const void *address, size_t size) {
  static void (*does)(const void *, size_t);
  static int is_known;
  if (!is_known) {
    *(void **)&does = dlsym(RTLD_DEFAULT, "luthier_annotate_alloc");
    is_known = 1;
  }
  if (does)
    does(address, size);
}

/* The allocator gets the part at `address` back. */
static inline void luthier_free(const void *address) {
  static void (*does)(const void *);
  static int is_known;
  if (!is_known) {
    *(void **)&does = dlsym(RTLD_DEFAULT, "luthier_annotate_free");
    is_known = 1;
  }
  if (does)
    does(address);
}

#endif
