/* Preloaded into a process, lets calls of the C library on files below a directory fail at random: see failing_calls.py.

   FAILING_DIRECTORY: the directory. FAILING_CONTROL: a file of int32: failures and short writes a million calls, which kinds of
   calls, and the number of injected faults, which is counted here. FAILING_LOG: a line for each fault. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, NAME = 4, REMOVE = 8, TRUNCATE = 16, CREATE = 32, READ = 64 };

#define NEXT(result, name, ...)                      \
  static result (*next)(__VA_ARGS__);                \
  if (!next) next = dlsym(RTLD_NEXT, #name)

static volatile int32_t *control;
static const char *directory;
static int logged = -1;
static __thread uint64_t random_state;

__attribute__((constructor)) static void begin(void) {
  int (*really_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  const char *path = getenv("FAILING_CONTROL"), *log = getenv("FAILING_LOG");
  directory = getenv("FAILING_DIRECTORY");
  if (!directory || !path || !log) return;
  int descriptor = really_open(path, O_RDWR | O_CLOEXEC);
  void *mapped = descriptor < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  logged = really_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (mapped != MAP_FAILED) control = mapped;
}

static uint32_t draw(void) {
  if (!random_state) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    random_state = ((uint64_t)now.tv_nsec << 20 ^ (uintptr_t)&random_state ^ (uint64_t)getpid() << 40) | 1;
  }
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 16);
}

static int is_below(const char *path) { return path && !strncmp(path, directory, strlen(directory)); }

static int is_drawn(int per_million) { return draw() % 1000000 < (uint32_t)per_million; }

static void note(const char *call, const char *path, int error) {
  ssize_t (*really_write)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  char line[PATH_MAX + 100];
  int length = snprintf(line, sizeof line, "%s %s %d\n", call, path, error);
  __sync_fetch_and_add(control + 3, 1);
  if (really_write(logged, line, length) < 0) abort();
}

/* The error of a call on a path, 0 if it is carried out. */
static int error_at(const char *call, int kind, const char *path) {
  if (!control || !(control[2] & kind) || !is_drawn(control[0]) || !is_below(path)) return 0;
  int error = kind & (WRITE | CREATE | NAME) && draw() % 2 ? ENOSPC : EIO;
  note(call, path, error);
  return error;
}

static int is_path_of(int descriptor, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return is_below(path);
}

static int error_of(const char *call, int kind, int descriptor) {
  char path[PATH_MAX];
  if (!control || !control[0] || !(control[2] & kind) || !is_path_of(descriptor, path)) return 0;
  return error_at(call, kind, path);
}

/* How many of these bytes are written. */
static size_t taken(int descriptor, size_t bytes) {
  char path[PATH_MAX];
  if (!control || !control[1] || bytes < 2 || !is_drawn(control[1]) || !is_path_of(descriptor, path)) return bytes;
  note("short", path, 0);
  return 1 + draw() % (bytes - 1);
}

#define FAILS(error) \
  if (error) return errno = error, -1

#define WRITES(name, position)                                                  \
  ssize_t name(int to, const void *from, size_t bytes, position at) {           \
    NEXT(ssize_t, name, int, const void *, size_t, position);                   \
    int error = error_of(#name, WRITE, to);                                     \
    FAILS(error);                                                               \
    return next(to, from, taken(to, bytes), at);                                \
  }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int to, const void *from, size_t bytes) {
  NEXT(ssize_t, write, int, const void *, size_t);
  int error = error_of("write", WRITE, to);
  FAILS(error);
  return next(to, from, taken(to, bytes));
}

#define READS(name, position)                                             \
  ssize_t name(int from, void *to, size_t bytes, position at) {           \
    NEXT(ssize_t, name, int, void *, size_t, position);                   \
    int error = error_of(#name, READ, from);                              \
    FAILS(error);                                                         \
    return next(from, to, bytes, at);                                     \
  }
READS(pread, off_t)
READS(pread64, off64_t)

#define OF_DESCRIPTOR(name, kind, parameters, arguments, ...)      \
  int name parameters {                                            \
    NEXT(int, name, __VA_ARGS__);                                  \
    int error = error_of(#name, kind, file);                       \
    FAILS(error);                                                  \
    return next arguments;                                         \
  }
OF_DESCRIPTOR(fsync, SYNC, (int file), (file), int)
OF_DESCRIPTOR(fdatasync, SYNC, (int file), (file), int)
OF_DESCRIPTOR(ftruncate, TRUNCATE, (int file, off_t size), (file, size), int, off_t)
OF_DESCRIPTOR(ftruncate64, TRUNCATE, (int file, off64_t size), (file, size), int, off64_t)

#define OF_PATH(name, kind, parameters, arguments, ...)      \
  int name parameters {                                      \
    NEXT(int, name, __VA_ARGS__);                            \
    int error = error_at(#name, kind, path);                 \
    FAILS(error);                                            \
    return next arguments;                                   \
  }
OF_PATH(rename, NAME, (const char *from, const char *path), (from, path), const char *, const char *)
OF_PATH(link, NAME, (const char *from, const char *path), (from, path), const char *, const char *)
OF_PATH(renameat, NAME, (int a, const char *from, int b, const char *path), (a, from, b, path), int, const char *, int, const char *)
OF_PATH(linkat, NAME, (int a, const char *from, int b, const char *path, int flags), (a, from, b, path, flags), int, const char *, int,
        const char *, int)
OF_PATH(unlink, REMOVE, (const char *path), (path), const char *)
OF_PATH(unlinkat, REMOVE, (int in, const char *path, int flags), (in, path, flags), int, const char *, int)
OF_PATH(mkdir, CREATE, (const char *path, mode_t mode), (path, mode), const char *, mode_t)

#define OPENS(name, in, parameters, ...)                                       \
  int name parameters {                                                        \
    NEXT(int, name, __VA_ARGS__, ...);                                         \
    mode_t mode = 0;                                                           \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                     \
      va_list rest;                                                            \
      va_start(rest, flags);                                                   \
      mode = va_arg(rest, mode_t);                                             \
      va_end(rest);                                                            \
    }                                                                          \
    int error = error_at(#name, flags & O_CREAT ? CREATE : READ, path);        \
    FAILS(error);                                                              \
    return next in;                                                            \
  }
OPENS(open, (path, flags, mode), (const char *path, int flags, ...), const char *, int)
OPENS(open64, (path, flags, mode), (const char *path, int flags, ...), const char *, int)
OPENS(openat, (below, path, flags, mode), (int below, const char *path, int flags, ...), int, const char *, int)
OPENS(openat64, (below, path, flags, mode), (int below, const char *path, int flags, ...), int, const char *, int)
