/* Functions of later glibcs that this machine's headers and libraries use, implemented with glibc 2.28's functions.
 * Linked into the libraries of wheels (scripts/portable/c++). */
#include <stddef.h>
#include <stdint.h>

/* Weak, so that a library's own definition takes precedence (kfd_shim replaces stat). Version scripts hide them. */
#define SINCE __attribute__((weak))

struct moment {
    int64_t seconds, nanoseconds;
};

/* 2.32: whether the process has one thread; 0 ("perhaps not") is always correct. */
SINCE char __libc_single_threaded = 0;

/* 2.36 */
extern long getrandom(void *, size_t, unsigned);
extern _Noreturn void abort(void);
SINCE uint32_t arc4random(void)
{
    uint32_t value;
    if (getrandom(&value, sizeof value, 0) != (long)sizeof value)
        abort();
    return value;
}

/* 2.33: before, functions of the header called these with the version of the structure, which is 1. */
struct stat;
extern int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *);
extern int __fxstat(int, int, struct stat *), __fxstatat(int, int, const char *, struct stat *, int);
SINCE int stat(const char *path, struct stat *state) { return __xstat(1, path, state); }
SINCE int lstat(const char *path, struct stat *state) { return __lxstat(1, path, state); }
SINCE int fstat(int file, struct stat *state) { return __fxstat(1, file, state); }
SINCE int fstatat(int folder, const char *path, struct stat *state, int flags)
{
    return __fxstatat(1, folder, path, state, flags);
}

/* The same functions: offsets have 64 bits. */
SINCE int stat64(const char *path, struct stat *state) { return __xstat(1, path, state); }
SINCE int lstat64(const char *path, struct stat *state) { return __lxstat(1, path, state); }
SINCE int fstat64(int file, struct stat *state) { return __fxstat(1, file, state); }
SINCE int fstatat64(int folder, const char *path, struct stat *state, int flags)
{
    return __fxstatat(1, folder, path, state, flags);
}

/* 2.30 */
extern long syscall(long, ...);
SINCE int gettid(void) { return (int)syscall(186); }

/* 2.30: waits until a time of any clock. As libstdc++ does without them: until the same time by the wall clock. */
extern int clock_gettime(int, struct moment *);
extern int pthread_cond_timedwait(void *, void *, const struct moment *);
extern int pthread_mutex_timedlock(void *, const struct moment *);
static struct moment by_the_wall(int clock, const struct moment *until)
{
    struct moment wall, now;
    clock_gettime(0, &wall);
    clock_gettime(clock, &now);
    wall.seconds += until->seconds - now.seconds;
    wall.nanoseconds += until->nanoseconds - now.nanoseconds;
    if (wall.nanoseconds < 0)
        wall.seconds--, wall.nanoseconds += 1000000000;
    else if (wall.nanoseconds >= 1000000000)
        wall.seconds++, wall.nanoseconds -= 1000000000;
    return wall;
}
SINCE int pthread_cond_clockwait(void *condition, void *mutex, int clock, const struct moment *until)
{
    const struct moment wall = by_the_wall(clock, until);
    return pthread_cond_timedwait(condition, mutex, &wall);
}
SINCE int pthread_mutex_clocklock(void *mutex, int clock, const struct moment *until)
{
    const struct moment wall = by_the_wall(clock, until);
    return pthread_mutex_timedlock(mutex, &wall);
}

/* In the static part of every glibc, which its stubs do not have: registered for this library, not for the program. */
extern void *__dso_handle;
extern int __cxa_atexit(void (*)(void *), void *, void *);
SINCE int atexit(void (*function)(void)) { return __cxa_atexit((void (*)(void *))function, NULL, &__dso_handle); }
